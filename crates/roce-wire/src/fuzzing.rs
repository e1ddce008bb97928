//! Bodies of the fuzz targets, for the fuzzer and the tests that replay its corpora.

use core::fmt::{self, Write};

use crate::management::{CMA_HEADER_LEN, CmDatagram, CmMessage, CmaHeader};
use crate::*;

/// Parses any bytes as a frame, a train, a RoCEv1 frame and transport headers.
pub fn parse_frame(bytes: &[u8]) {
    for udp_checksum_offloaded in [false, true] {
        let options = ParseOptions { udp_checksum_offloaded };
        match Frame::parse_with(bytes, options) {
            Ok(frame) => {
                for segment_len in [None, Some(16), Some(44), Some(1040)] {
                    walk(&frame, segment_len);
                }
            }
            Err(error) => show(&error),
        }
    }
    match FrameV1::parse(bytes) {
        Ok(frame) => {
            show(&frame);
            check_headers(&frame.headers());
            let _ = frame.check_icrc();
        }
        Err(error) => show(&error),
    }
    if let Ok((headers, rest)) = Headers::parse(bytes) {
        check_headers(&headers);
        assert_eq!(headers.len() + rest.len(), bytes.len());
    }
}

fn walk(frame: &Frame<'_>, segment_len: Option<usize>) {
    let mut walked = 0;
    for packet in frame.packets(segment_len) {
        walked += 1;
        match packet {
            Ok(packet) => {
                show(&packet);
                check_headers(&packet.headers());
                let len = packet.headers().len() + packet.payload().len() + packet.pad();
                assert_eq!(len, packet.view().len_with_pad());
                let _ = packet.verify_icrc();
            }
            Err(error) => show(&error),
        }
    }
    assert!((1..=frame.payload().len() / 16 + 1).contains(&walked));
}

/// Checks that parsed headers are written and parsed again unchanged.
fn check_headers(headers: &Headers) {
    assert!(headers.is_complete());
    let mut bytes = [0; 64];
    let len = headers.emit(&mut bytes);
    assert_eq!(len, headers.len());
    assert_eq!(Headers::parse(&bytes[..len]), Ok((*headers, &[][..])));
}

/// Checks that any headers around any payload, sealed as a train of three, are parsed unchanged.
///
/// The first of `bytes` is the opcode; the fields take the bytes after it, then zeros.
pub fn round_trip(bytes: &[u8]) {
    let mut bytes = Instructions(bytes);
    let Some(opcode) = KnownOpcode::new(Opcode(bytes.byte())) else { return };
    let headers = bytes.headers(opcode);
    let outer = bytes.outer();
    let identification = u16::from_be_bytes(bytes.take());
    let payload_len = match opcode.info().carries_payload() {
        true => usize::from(u16::from_be_bytes(bytes.take()) % 300),
        false => 0,
    };

    let mut buffer = [0; 2048];
    let mut end = outer.len();
    for index in 0..3 {
        let segment = &mut buffer[end..];
        segment[headers.len()..][..payload_len].fill(index);
        end += headers.emit_around(segment, payload_len);
    }
    let segment_len = (end - outer.len()) / 3;
    let frame = &mut buffer[..end];
    seal(&outer, identification, frame, segment_len, UdpChecksum::Zero).expect("lengths fit");

    let frame = Frame::parse(frame).expect("a sealed frame is right");
    assert_eq!((frame.source(), frame.destination()), (outer.source, outer.destination));
    assert_eq!(frame.vlans(), outer.vlan.as_slice());
    assert_eq!(frame.source_port(), outer.source_port);
    assert_eq!(frame.traffic_class(), outer.traffic_class);
    let pad = Pad::for_payload(payload_len).bytes() as u8;
    let mut walked = 0;
    for packet in frame.packets(Some(segment_len)) {
        let packet = packet.expect("every packet in it is right");
        // Under a fuzzer every ICRC verifies, so compare the bits.
        assert_eq!(packet.check_icrc(), Ok(()));
        assert_eq!(packet.headers(), headers.with_pad(pad));
        assert_eq!(packet.payload().len(), payload_len);
        assert!(packet.payload().iter().all(|&byte| byte == walked));
        walked += 1;
    }
    assert_eq!(walked, 3);
}

/// Checks that any bytes are refused as a management datagram, or read as one that is written and
/// read again unchanged.
pub fn management_datagram(bytes: &[u8]) {
    match CmDatagram::decode(bytes) {
        Ok(datagram) => {
            assert_eq!(CmDatagram::decode(&datagram.encode()), Ok(datagram));
            let private_data = match &datagram.message {
                CmMessage::Req(request) => &request.private_data[..],
                CmMessage::SidrReq(request) => &request.private_data[..],
                _ => &[],
            };
            cma_header(private_data);
        }
        Err(error) => show(&error),
    }
    cma_header(bytes);
}

fn cma_header(private_data: &[u8]) {
    match CmaHeader::decode(private_data) {
        Ok(header) => {
            assert_eq!(CmaHeader::decode(&header.to_bytes()), Ok(header));
            assert!(private_data.len() >= CMA_HEADER_LEN);
            assert_eq!(header.source().is_ipv4(), header.destination().is_ipv4());
        }
        Err(error) => show(&error),
    }
}

struct Instructions<'a>(&'a [u8]);

impl Instructions<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (now, later) = self.0.split_at(N.min(self.0.len()));
        taken[..now.len()].copy_from_slice(now);
        self.0 = later;
        taken
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn headers(&mut self, opcode: KnownOpcode) -> Headers {
        let flags = self.byte();
        let bth = Bth {
            solicited_event: flags & 1 != 0,
            migration_request: flags & 2 != 0,
            partition_key: u16::from_be_bytes(self.take()),
            fecn: flags & 4 != 0,
            becn: flags & 8 != 0,
            ack_request: flags & 16 != 0,
            ..Bth::new(opcode, Qpn::from_be_bytes(self.take()), Psn::from_be_bytes(self.take()))
        };
        let mut headers = Headers::new(bth);
        for ext in opcode.info().extensions {
            match ext {
                Ext::Reth => headers.reth = Some(Reth::from_bytes(&self.take())),
                Ext::Feth => headers.feth = Some(Feth::from_bytes(&self.take())),
                Ext::AtomicEth => headers.atomic_eth = Some(AtomicEth::from_bytes(&self.take())),
                Ext::Aeth => headers.aeth = Some(Aeth::from_bytes(&self.take())),
                Ext::AtomicAckEth => {
                    headers.atomic_ack = Some(AtomicAckEth::from_bytes(&self.take()));
                }
                Ext::Deth => headers.deth = Some(Deth::from_bytes(&self.take())),
                Ext::Immediate => headers.immediate = Some(Immediate(self.take())),
                Ext::InvalidateKey => {
                    headers.invalidate = Some(InvalidateKey(u32::from_be_bytes(self.take())));
                }
                Ext::CnpReserved => {}
            }
        }
        headers
    }

    fn outer(&mut self) -> OuterHeaders {
        let flags = self.byte();
        let [source, destination] = match flags & 1 {
            0 => [self.take::<4>(), self.take()].map(core::net::IpAddr::from),
            _ => [self.take::<16>(), self.take()].map(core::net::IpAddr::from),
        };
        OuterHeaders {
            vlan: (flags & 2 != 0).then(|| VlanTag::from_control_information(self.take())),
            source_port: u16::from_be_bytes(self.take()),
            traffic_class: self.byte(),
            hop_limit: self.byte(),
            flow_label: u32::from_be_bytes(self.take()),
            ..OuterHeaders::new(source, destination)
        }
    }
}

/// Formats without output.
fn show(value: &impl fmt::Display) {
    struct Nowhere;
    impl Write for Nowhere {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Ok(())
        }
    }
    let _ = write!(Nowhere, "{value}");
}
