use proptest::prelude::*;

use crate::*;

/// Bytes of which most have a version and an opcode that are known.
fn packet_bytes() -> impl Strategy<Value = Vec<u8>> {
    let opcodes: Vec<_> = KnownOpcode::all().map(|opcode| opcode.code().0).collect();
    let opcode = prop_oneof![4 => prop::sample::select(opcodes), 1 => any::<u8>()];
    (prop::collection::vec(any::<u8>(), 0..60), opcode, 0u8..5).prop_map(
        |(mut bytes, opcode, version)| {
            if let [first, second, ..] = &mut bytes[..] {
                *first = opcode;
                *second = (*second & 0xf0) | u8::from(version == 4);
            }
            bytes
        },
    )
}

/// Returns what the headers as values say of a packet.
fn by_values(bytes: &[u8]) -> Result<(Headers, &[u8]), WireError> {
    let (headers, rest) = Headers::parse(bytes)?;
    Ok((headers, headers.split_payload(rest)?))
}

proptest! {
    #[test]
    fn a_view_has_the_fields_and_the_errors_of_the_headers_as_values(bytes in packet_bytes()) {
        let view = PacketView::parse(&bytes);
        prop_assert_eq!(view.map(|it| (it.headers(), it.payload())), by_values(&bytes));
        if let Ok(view) = view {
            prop_assert_eq!(view.len_with_pad(), bytes.len());
            let info = view.opcode().info();
            prop_assert_eq!((view.operation(), view.position()), (info.operation, info.position));
            prop_assert_eq!(view.is_request(), info.is_request());
        }
    }
}

#[test]
fn a_packet_is_a_few_words() {
    let word = size_of::<usize>();
    assert_eq!(size_of::<PacketView<'_>>(), 3 * word);
    assert_eq!(size_of::<Packet<'_, Verified>>(), 5 * word);
}
