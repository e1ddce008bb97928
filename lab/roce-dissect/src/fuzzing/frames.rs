//! Frames from a fuzzing script: mostly RoCE with correct ICRCs, so that they are followed.

use core::net::IpAddr;

use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Feth, Headers, Immediate, InvalidateKey,
    KnownOpcode, Opcode, OuterHeaders, Pad, Psn, Qpn, ROCE_V1_ETHER_TYPE, Reth, Service, Syndrome,
    UdpChecksum, VlanTag, seal,
};

use crate::{LinkType, RawFrame, Timestamp};
use roce_fuzz_support::Script;

/// Generator of frames.
pub(super) struct Frames<'a> {
    script: Script<'a>,
    number: u64,
    time: u64,
    /// Next PSN of each queue pair.
    psns: [Psn; 4],
}

/// A frame with its own memory.
pub(super) struct Frame {
    number: u64,
    time: u64,
    link: LinkType,
    original_len: u32,
    segment_len: Option<usize>,
    bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn as_raw(&self) -> RawFrame<'_> {
        RawFrame {
            number: self.number,
            time: Timestamp(self.time),
            link: self.link,
            original_len: self.original_len,
            bytes: &self.bytes,
            segment_len: self.segment_len,
        }
    }
}

const MAX_FRAMES: u64 = 200;
const IP_OFFSET: usize = 14;

impl<'a> Frames<'a> {
    pub(super) fn new(script: Script<'a>) -> Self {
        Self { script, number: 0, time: 0, psns: [Psn::wrapping(0xff_fffe); 4] }
    }

    /// Returns the next frame; `None` at the end of the script.
    pub(super) fn next_frame(&mut self) -> Option<Frame> {
        if self.script.is_over() || self.number == MAX_FRAMES {
            return None;
        }
        let code = self.script.byte();
        let pause = u64::from(self.script.byte());
        self.number += 1;
        // Times may stay equal, and sometimes decrease.
        self.time = match pause {
            0xff => self.time.wrapping_sub(1 << 24),
            _ => self.time.wrapping_add(pause << 12),
        };
        let packets = if code & 0xf == 10 { 3 } else { 1 };
        let (mut bytes, segment_len) = match code & 0xf {
            12 => (self.script_bytes(), 0),
            13 => (self.other(), 0),
            _ => self.roce(packets),
        };
        if code & 0xf == 11 {
            let bit = usize::from(self.script.number::<u16>());
            let at = bit / 8 % bytes.len();
            bytes[at] ^= 1 << (bit % 8);
        }
        let mut link = LinkType::Ethernet;
        if code & 0x30 != 0 && bytes.len() >= IP_OFFSET {
            link = relink(&mut bytes, code >> 4 & 3);
        }
        let original_len = match code & 0xf {
            14 => self.script.number(),
            _ => bytes.len() as u32,
        };
        if code & 0xf == 15 {
            let kept = usize::from(self.script.number::<u16>()) % (bytes.len() + 1);
            bytes.truncate(kept);
        }
        let segment_len = (code & 0x40 != 0).then_some(segment_len);
        let (number, time) = (self.number, self.time);
        Some(Frame { number, time, link, original_len, segment_len, bytes })
    }

    fn script_bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.script.byte());
        self.script.bytes(len).to_vec()
    }

    /// Returns a frame without RoCEv2: another EtherType, a pause frame, RoCEv1.
    fn other(&mut self) -> Vec<u8> {
        let ether_type: u16 =
            self.script.pick(&[0x8808, ROCE_V1_ETHER_TYPE, 0x0800, 0x86dd, 0x8100, 0x88a8, 0x0806]);
        let mut frame = vec![2; 12];
        frame.extend(ether_type.to_be_bytes());
        frame.extend(self.script_bytes());
        frame
    }

    /// Returns a frame of `packets` packets of equal length, and that length.
    fn roce(&mut self, packets: usize) -> (Vec<u8>, usize) {
        let code = self.script.byte();
        let (from, to) = (1 + (code & 1), 2 - (code & 1));
        let address = |last: u8| match code & 2 {
            0 => IpAddr::from([10, 9, 0, last]),
            _ => IpAddr::from([0xfd00, 9, 0, 0, 0, 0, 0, last.into()]),
        };
        let mut outer = OuterHeaders::new(address(from), address(to));
        outer.traffic_class = code >> 6;
        outer.vlan = (code & 0x20 != 0).then(|| VlanTag::from_control_information([0, 7]));
        let (headers, payload) = self.packet(code >> 2 & 3);
        let segment_len =
            headers.len() + payload.len() + Pad::for_payload(payload.len()).bytes() + 4;
        let mut frame = vec![0; outer.len() + packets * segment_len];
        let mut headers = headers;
        for segment in frame[outer.len()..].chunks_mut(segment_len) {
            segment[headers.len()..][..payload.len()].copy_from_slice(&payload);
            headers.emit_around(segment, payload.len());
            headers.bth.psn = headers.bth.psn.advanced_by(1);
        }
        let checksum = match code & 0x10 {
            0 => UdpChecksum::Zero,
            _ => UdpChecksum::PartialForOffload,
        };
        seal(&outer, 7, &mut frame, segment_len, checksum).expect("three short packets");
        (frame, segment_len)
    }

    fn packet(&mut self, pair: u8) -> (Headers, Vec<u8>) {
        let code = self.script.byte();
        let exact = KnownOpcode::new(Opcode(code));
        let opcode = exact.or(KnownOpcode::all().nth(usize::from(code) % 20));
        let opcode = opcode.expect("there are more than 20");
        let is_datagram = opcode.info().service == Service::Ud;
        // Management uses queue pair 1; other pairs have two numbers each.
        let number = if is_datagram { 1 } else { 0x10 + u32::from(pair) };
        let expected = self.psns[usize::from(pair)];
        let step = self.script.byte();
        let psn = match step {
            0..0x80 => expected,
            0x80..0xc0 => expected.advanced_by(Psn::MODULUS - u32::from(step & 0xf)),
            0xc0..0xf0 => expected.advanced_by(u32::from(step & 0xf)),
            _ => Psn::wrapping(self.script.number()),
        };
        let flags = self.script.byte();
        if opcode.info().is_request() && flags & 1 == 0 {
            self.psns[usize::from(pair)] = psn.advanced_by(1);
        }
        let mut headers = Headers::new(Bth {
            ack_request: flags & 2 != 0,
            solicited_event: flags & 4 != 0,
            becn: flags & 8 != 0,
            partition_key: if flags & 0x10 == 0 { 0xffff } else { self.script.number() },
            ..Bth::new(opcode, Qpn::new(number).expect("24 bits"), psn)
        });
        for ext in opcode.info().extensions {
            self.put(*ext, &mut headers);
        }
        let payload = match opcode.info().carries_payload() {
            false => vec![],
            true => match self.script.byte() {
                len @ 0..0xf8 => vec![len; len.into()],
                0xf8..0xfc => vec![1; 256],
                0xfc | 0xfd => vec![1; 1024],
                // A management datagram has 256 bytes; the rest is zero.
                _ => {
                    let mut payload = self.script.bytes(256).to_vec();
                    payload.resize(256, 0);
                    payload
                }
            },
        };
        (headers, payload)
    }

    fn put(&mut self, ext: Ext, headers: &mut Headers) {
        let script = &mut self.script;
        match ext {
            Ext::Reth => {
                let len = match script.byte() {
                    0xff => script.number(),
                    code => u32::from(code) << 5,
                };
                headers.reth = Some(Reth { addr: script.byte().into(), rkey: 7, len });
            }
            Ext::Feth => headers.feth = Some(Feth::from_bytes(&script.number())),
            Ext::AtomicEth => {
                let address = script.byte().into();
                headers.atomic_eth =
                    Some(AtomicEth { addr: address, rkey: 7, swap_or_add: 1, compare: 2 });
            }
            Ext::Aeth => {
                let syndrome = Syndrome::from_byte(script.byte());
                headers.aeth = Some(Aeth { syndrome, msn: script.byte().into() });
            }
            Ext::AtomicAckEth => {
                headers.atomic_ack = Some(AtomicAckEth { original: script.byte().into() });
            }
            Ext::Deth => headers.deth = Some(Deth::from_bytes(&script.number())),
            Ext::Immediate => headers.immediate = Some(Immediate(script.number())),
            Ext::InvalidateKey => headers.invalidate = Some(InvalidateKey(script.number())),
            Ext::CnpReserved => {}
        }
    }
}

/// Replaces the Ethernet header by that of another link type.
fn relink(bytes: &mut Vec<u8>, code: u8) -> LinkType {
    let ether_type = [bytes[12], bytes[13]];
    let (link, head) = match code {
        1 => (LinkType::LinuxCooked, {
            let mut head = vec![0; 16];
            head[14..].copy_from_slice(&ether_type);
            head
        }),
        2 => (LinkType::LinuxCooked2, {
            let mut head = vec![0; 20];
            head[..2].copy_from_slice(&ether_type);
            head
        }),
        _ => (LinkType::RawIp, vec![]),
    };
    bytes.splice(..IP_OFFSET, head);
    link
}
