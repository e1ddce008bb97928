//! Builds a WRITE of 5 bytes as a frame, reads it back, and sees that damage is noticed.

use std::error::Error;

use roce_wire::{
    Bth, Frame, Headers, Layer, LenError, OuterHeaders, Psn, Qpn, Reth, UdpChecksum, WireError,
    opcode, seal, source_port_for,
};

fn main() -> Result<(), Box<dyn Error>> {
    let (local, remote) = (Qpn::new(0x11).ok_or("24 bits")?, Qpn::new(0x22).ok_or("24 bits")?);
    let outer = OuterHeaders {
        source_port: source_port_for(local, remote, 0),
        ..OuterHeaders::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
    };
    let reth = Reth { addr: 0x7f00_0000_1000, rkey: 0x101, len: 5 };
    let bth = Bth::new(opcode::RC_WRITE_ONLY, remote, Psn::wrapping(7));
    let headers = Headers { reth: Some(reth), ..Headers::new(bth) };

    // The payload comes first, then all that stands around it: pad, headers, ICRC, outer headers.
    let mut frame = [0; 128];
    let (packet_at, payload_at) = (outer.len(), outer.len() + headers.len());
    frame[payload_at..payload_at + 5].copy_from_slice(b"hello");
    let segment_len = headers.emit_around(&mut frame[packet_at..], 5);
    let frame = &mut frame[..packet_at + segment_len];
    seal(&outer, 1, frame, segment_len, UdpChecksum::Zero)?;

    let received = Frame::parse(frame)?;
    let packet = received.packet()?.verify_icrc()?;
    assert_eq!((packet.source(), packet.payload()), (outer.source, &b"hello"[..]));
    assert_eq!((packet.headers().reth, packet.pad()), (Some(reth), 3));
    println!("{}: {} bytes", packet.headers().bth.opcode.name(), packet.payload().len());

    // A router may change the TTL; a bit of the payload is damage.
    frame[payload_at] ^= 1;
    let bad = Frame::parse(frame)?.packet()?.verify_icrc().map(|_| ());
    println!("damaged: {}", bad.expect_err("the ICRC covers the payload"));
    let short = LenError { layer: Layer::Ethernet, need: 14, have: 6, at: 0 };
    assert_eq!(Frame::parse(&frame[..6]), Err(WireError::Short(short)));
    Ok(())
}
