use proptest::prelude::*;

use crate::*;

/// Bytes of which most are a packet: with a known opcode and version, and a length that fits.
fn packet_bytes() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop::sample::select(KnownOpcode::all().collect::<Vec<_>>());
    let behind = prop_oneof![2 => Just(0), 2 => Just(8), 1 => 0..20usize];
    let bytes = prop::collection::vec(any::<u8>(), 60);
    (bytes, opcode, behind, 0u8..20, 0..20usize).prop_map(
        |(mut bytes, opcode, behind, odd, short)| {
            bytes.truncate(opcode.headers_len() + behind);
            if odd != 0 {
                bytes[0] = opcode.code().0;
            }
            bytes[1] = (bytes[1] & 0xf0) | u8::from(odd == 1);
            if odd == 2 {
                bytes.truncate(short);
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
    #![proptest_config(ProptestConfig::with_cases(2000))]
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
