//! Time to parse, write, check and seal a packet, without engine and kernel.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use roce_wire::{Bth, Frame, Headers, OuterHeaders, Psn, Qpn, Reth, UdpChecksum, opcode, seal};

fn main() {
    divan::main();
}

/// Payload lengths in bytes: of an ACK, a small message, and three path MTUs.
const PAYLOADS: [usize; 5] = [0, 8, 256, 1024, 4096];

fn outer() -> OuterHeaders {
    OuterHeaders::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into())
}

fn headers() -> Headers {
    let (qpn, psn) = (Qpn::new(0x12).expect("24 bits"), Psn::ZERO);
    let reth = Reth { addr: 0x1000, rkey: 7, len: 4096 };
    Headers { reth: Some(reth), ..Headers::new(Bth::new(opcode::RC_WRITE_ONLY, qpn, psn)) }
}

/// Returns a sealed frame of equal packets, and the length of their segments.
fn frame(payload: usize, packets: usize) -> (Vec<u8>, usize) {
    let (start, mut headers) = (outer().len(), headers());
    headers.reth = headers.reth.map(|reth| Reth { len: payload as u32, ..reth });
    let mut segment = vec![0; headers.len() + payload + 8];
    let segment_len = headers.emit_around(&mut segment, payload);
    let mut frame = vec![0; start];
    (0..packets).for_each(|_| frame.extend_from_slice(&segment[..segment_len]));
    seal(&outer(), 1, &mut frame, segment_len, UdpChecksum::Zero).expect("a sound train");
    (frame, segment_len)
}

#[divan::bench(args = PAYLOADS)]
fn parse_one_packet(bencher: Bencher<'_, '_>, payload: usize) {
    let (frame, _) = frame(payload, 1);
    bencher.bench(|| {
        let frame = Frame::parse(black_box(&frame)).expect("a sound frame");
        let packet = frame.packets(None).next().expect("a packet").expect("a sound one");
        black_box(packet.payload().len())
    });
}

#[divan::bench(args = PAYLOADS)]
fn check_the_icrc_of_one_packet(bencher: Bencher<'_, '_>, payload: usize) {
    let (frame, _) = frame(payload, 1);
    bencher.counter(BytesCount::new(payload)).bench(|| {
        let frame = Frame::parse(black_box(&frame)).expect("a sound frame");
        let packet = frame.packets(None).next().expect("a packet").expect("a sound one");
        black_box(packet.verify_icrc().is_ok())
    });
}

#[divan::bench(args = [(1024, 60), (4096, 15)])]
fn parse_and_check_a_train(bencher: Bencher<'_, '_>, (payload, packets): (usize, usize)) {
    let (frame, segment_len) = frame(payload, packets);
    bencher.counter(BytesCount::new(payload * packets)).bench(|| {
        let frame = Frame::parse(black_box(&frame)).expect("a sound frame");
        frame
            .packets(Some(segment_len))
            .filter(|packet| packet.is_ok_and(|packet| packet.verify_icrc().is_ok()))
            .count()
    });
}

#[divan::bench]
fn emit_headers(bencher: Bencher<'_, '_>) {
    let headers = headers();
    let mut room = [0; 128];
    bencher.bench_local(|| black_box(headers).emit_around(black_box(&mut room), 8));
}

#[divan::bench(args = PAYLOADS)]
fn seal_one_packet(bencher: Bencher<'_, '_>, payload: usize) {
    let (mut frame, segment_len) = frame(payload, 1);
    let outer = outer();
    bencher.counter(BytesCount::new(payload)).bench_local(|| {
        seal(&outer, 1, black_box(&mut frame), segment_len, UdpChecksum::Zero).is_ok()
    });
}

#[divan::bench(args = [(1024, 60), (4096, 15)])]
fn seal_a_train(bencher: Bencher<'_, '_>, (payload, packets): (usize, usize)) {
    let (mut frame, segment_len) = frame(payload, packets);
    let outer = outer();
    bencher.counter(BytesCount::new(payload * packets)).bench_local(|| {
        let checksum = UdpChecksum::PartialForOffload;
        seal(&outer, 1, black_box(&mut frame), segment_len, checksum).is_ok()
    });
}
