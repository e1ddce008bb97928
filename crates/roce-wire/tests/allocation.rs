//! No length, count or address from a peer makes this crate allocate.

use roce_wire::*;

/// A train of 60 packets with an AETH each, and headroom for the outer headers.
fn train(outer: &OuterHeaders) -> (Vec<u8>, usize) {
    let mut headers = Headers::new(Bth::new(opcode::RC_ACKNOWLEDGE, Qpn::GSI, Psn::ZERO));
    headers.aeth = Some(Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), msn: 1 });
    let segment_len = headers.len() + ICRC_LEN;
    let mut frame = vec![0; outer.len() + 60 * segment_len];
    for segment in frame[outer.len()..].chunks_mut(segment_len) {
        headers.emit_around(segment, 0);
    }
    (frame, segment_len)
}

/// Returns the number of valid packets.
fn receive(bytes: &[u8], segment_len: usize) -> usize {
    let _ = FrameV1::parse(bytes);
    let Ok(frame) = Frame::parse(bytes) else { return 0 };
    let packets = frame.packets(Some(segment_len));
    packets.filter(|packet| packet.is_ok_and(|packet| packet.verify_icrc().is_ok())).count()
}

#[test]
fn the_counter_counts() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(vec![0u8; 8])));
    assert_eq!(allocated.count_total, 1);
}

#[test]
fn sealing_and_parsing_allocate_nothing() {
    for (source, destination) in [("10.9.0.1", "10.9.0.2"), ("fd00:9::1", "fd00:9::2")] {
        let outer = OuterHeaders::new(source.parse().unwrap(), destination.parse().unwrap());
        let (mut frame, segment_len) = train(&outer);
        let allocated = allocation_counter::measure(|| {
            seal(&outer, 1, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
            assert_eq!(receive(&frame, segment_len), 60);
        });
        assert_eq!(allocated.count_total, 0);

        // With each byte wrong in turn, for the errors.
        let allocated = allocation_counter::measure(|| {
            for at in 0..frame.len() {
                frame[at] ^= 0x55;
                receive(&frame, segment_len);
                frame[at] ^= 0x55;
            }
        });
        assert_eq!(allocated.count_total, 0);
    }
}
