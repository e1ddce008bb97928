//! Valid packets: one of every opcode, in every kind of frame.

use proptest::prelude::*;

use crate::*;

/// A valid frame and its contents.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) outer: OuterHeaders,
    pub(super) frame: Vec<u8>,
    /// Offset of the IP header.
    pub(super) ip_offset: usize,
}

impl Sample {
    pub(super) fn bth_offset(&self) -> usize {
        self.frame.len() - self.segment_len()
    }

    fn segment_len(&self) -> usize {
        self.frame.len() - self.ip_offset - (self.outer.len() - self.outer.ip_offset())
    }
}

/// One packet of every opcode over IPv4 and IPv6, with no, one and two VLAN tags.
pub(super) fn every_kind() -> Vec<Sample> {
    let mut samples = Vec::new();
    for opcode in KnownOpcode::all() {
        for outer in [ipv4(), ipv6()] {
            for tags in 0..=2 {
                samples.push(sample(opcode, outer, tags));
            }
        }
    }
    samples
}

pub(super) fn sample(opcode: KnownOpcode, outer: OuterHeaders, tags: usize) -> Sample {
    let version = if outer.source.is_ipv4() { "v4" } else { "v6" };
    let name = format!("{version}_{tags}_{}", opcode.name().to_lowercase().replace(' ', "_"));
    let tag = VlanTag::new(100, 3, false).unwrap();
    let outer = OuterHeaders { vlan: (tags > 0).then_some(tag), ..outer };
    let payload: &[u8] = if opcode.info().carries_payload() { b"hello" } else { b"" };
    let mut frame = sealed(&outer, 0x1234, &headers_of(opcode), payload);
    if tags == 2 {
        frame.splice(12..12, [0x88, 0xa8, 0x20, 200]);
    }
    let ip_offset = 14 + 4 * tags;
    Sample { name, outer, frame, ip_offset }
}

/// A frame of one packet.
pub(super) fn sealed(
    outer: &OuterHeaders,
    identification: u16,
    headers: &Headers,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = vec![0; outer.len()];
    frame.extend(segment(headers, payload));
    let segment_len = frame.len() - outer.len();
    seal(outer, identification, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
    frame
}

/// A packet and 4 bytes for its ICRC.
pub(super) fn segment(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    // Not zeros, so that a missing pad is noticed.
    let mut segment = vec![0xee; headers.len() + payload.len() + 3 + ICRC_LEN];
    segment[headers.len()..][..payload.len()].copy_from_slice(payload);
    let len = headers.emit_around(&mut segment, payload.len());
    segment.truncate(len);
    segment
}

pub(super) fn ipv4() -> OuterHeaders {
    between("10.9.0.2", "10.9.0.1")
}

pub(super) fn ipv6() -> OuterHeaders {
    between("fd00:9::2", "fd00:9::1")
}

fn between(source: &str, destination: &str) -> OuterHeaders {
    OuterHeaders {
        source_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        destination_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        source_port: 0xd23f,
        ..OuterHeaders::new(source.parse().unwrap(), destination.parse().unwrap())
    }
}

/// Headers with a value in every field of every extension of `opcode`.
pub(super) fn headers_of(opcode: KnownOpcode) -> Headers {
    let qpn = Qpn::new(0x12).unwrap();
    let has = |ext| opcode.info().has(ext);
    Headers {
        bth: Bth {
            ack_request: opcode.info().is_request(),
            ..Bth::new(opcode, qpn, Psn::new(0x12_3456).unwrap())
        },
        reth: has(Ext::Reth).then_some(Reth { addr: 0x7f00_1234_5678, rkey: 0x1122, len: 5 }),
        feth: has(Ext::Feth).then_some(Feth::new(Feth::GLOBAL, FlushExtent::Range)),
        atomic_eth: has(Ext::AtomicEth).then_some(AtomicEth {
            addr: 0x7f00_1234_5678,
            rkey: 0x1122,
            swap_or_add: 7,
            compare: 6,
        }),
        aeth: has(Ext::Aeth)
            .then_some(Aeth { syndrome: Syndrome::Ack { credits: Credits::UNLIMITED }, msn: 1 }),
        atomic_ack: has(Ext::AtomicAckEth).then_some(AtomicAckEth { original: 6 }),
        deth: has(Ext::Deth).then_some(Deth { q_key: 0x1111_1111, source_qp: qpn }),
        immediate: has(Ext::Immediate).then_some(Immediate(*b"imm!")),
        invalidate: has(Ext::InvalidateKey).then_some(InvalidateKey(0x3344)),
    }
}

/// Any headers with exactly the extensions of their opcode.
pub(super) fn any_headers() -> impl Strategy<Value = Headers> {
    let opcode = (0u8..=0xff).prop_filter_map("unknown", |code| KnownOpcode::new(Opcode(code)));
    let bth = (opcode, any::<[bool; 5]>(), any::<u16>(), 0u32..1 << 24, 0u32..1 << 24).prop_map(
        |(opcode, flags, partition_key, qpn, psn)| {
            let [solicited_event, migration_request, fecn, becn, ack_request] = flags;
            Bth {
                solicited_event,
                migration_request,
                partition_key,
                fecn,
                becn,
                ack_request,
                ..Bth::new(opcode, Qpn::new(qpn).unwrap(), Psn::new(psn).unwrap())
            }
        },
    );
    (bth, any::<[u64; 3]>(), any::<[u32; 3]>(), 0u32..1 << 24, any::<u8>()).prop_map(
        |(bth, [address, first, second], [key, len, word], narrow, byte)| {
            let has = |ext| bth.opcode.info().has(ext);
            Headers {
                bth,
                reth: has(Ext::Reth).then_some(Reth { addr: address, rkey: key, len }),
                feth: has(Ext::Feth).then_some(Feth::from_bytes(&word.to_be_bytes())),
                atomic_eth: has(Ext::AtomicEth).then_some(AtomicEth {
                    addr: address,
                    rkey: key,
                    swap_or_add: first,
                    compare: second,
                }),
                aeth: has(Ext::Aeth).then_some(Aeth { syndrome: byte.into(), msn: narrow }),
                atomic_ack: has(Ext::AtomicAckEth).then_some(AtomicAckEth { original: first }),
                deth: has(Ext::Deth)
                    .then_some(Deth { q_key: word, source_qp: Qpn::new(narrow).unwrap() }),
                immediate: has(Ext::Immediate).then_some(Immediate(word.to_ne_bytes())),
                invalidate: has(Ext::InvalidateKey).then_some(InvalidateKey(word)),
            }
        },
    )
}
