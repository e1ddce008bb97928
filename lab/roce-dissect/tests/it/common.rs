//! Hand-made frames and capture files.
#![allow(dead_code, unreachable_pub, missing_docs)] // each test program uses a part of it

use roce_dissect::{Dissection, Dissector, Finding, LinkType, Options, RawFrame, Timestamp};
use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Feth, FlushExtent, GSI_Q_KEY, Headers, ICRC_LEN,
    Immediate, InvalidateKey, KnownOpcode, MacAddr, NakCode, OuterHeaders, Psn, Qpn, Reth,
    RnrTimer, Syndrome, UdpChecksum, VlanTag, opcode, seal,
};

/// Addresses of source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    V4,
    V6,
}

/// From requester to responder.
pub fn there(ip: Ip) -> OuterHeaders {
    let [a, b] = hosts(ip);
    outer(a, b, 1, 2)
}

/// From responder to requester.
pub fn back(ip: Ip) -> OuterHeaders {
    let [a, b] = hosts(ip);
    outer(b, a, 2, 1)
}

fn hosts(ip: Ip) -> [&'static str; 2] {
    match ip {
        Ip::V4 => ["10.9.0.2", "10.9.0.1"],
        Ip::V6 => ["fd00:9::2", "fd00:9::1"],
    }
}

fn outer(source: &str, destination: &str, from: u8, to: u8) -> OuterHeaders {
    OuterHeaders {
        source_mac: MacAddr([2, 0, 0, 0, 0, from]),
        destination_mac: MacAddr([2, 0, 0, 0, 0, to]),
        source_port: 0xd23f,
        ..OuterHeaders::new(source.parse().unwrap(), destination.parse().unwrap())
    }
}

/// A frame of one packet.
pub fn frame(outer: &OuterHeaders, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    train(outer, &[(*headers, payload.to_vec())])
}

/// A frame of one packet from the requester over IPv4.
pub fn ask(headers: Headers, payload: &[u8]) -> Vec<u8> {
    frame(&there(Ip::V4), &headers, payload)
}

/// A frame of one packet from the responder over IPv4.
pub fn tell(headers: Headers, payload: &[u8]) -> Vec<u8> {
    frame(&back(Ip::V4), &headers, payload)
}

/// A SEND of one packet that requests an ACK.
pub fn send(psn: u32) -> Vec<u8> {
    ask(asking(opcode::RC_SEND_ONLY, psn), b"ping")
}

/// An ACK with a message sequence number.
pub fn ack_of(psn: u32, msn: u32) -> Vec<u8> {
    tell(counting(ack(psn), msn), &[])
}

/// A frame of several packets, all but the last as long as the first.
pub fn train(outer: &OuterHeaders, packets: &[(Headers, Vec<u8>)]) -> Vec<u8> {
    let mut frame = vec![0; outer.len()];
    let mut segment_len = 0;
    for (headers, payload) in packets {
        let segment = segment(headers, payload);
        segment_len = segment_len.max(segment.len());
        frame.extend(segment);
    }
    seal(outer, 0x1234, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
    frame
}

fn segment(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; headers.len() + payload.len() + 3 + ICRC_LEN];
    segment[headers.len()..][..payload.len()].copy_from_slice(payload);
    let len = headers.emit_around(&mut segment, payload.len());
    segment.truncate(len);
    segment
}

/// Queue pairs of requester and responder.
pub const REQUESTER: u32 = 0x11;
pub const RESPONDER: u32 = 0x22;
pub const MTU: usize = 256;

pub fn bth(opcode: KnownOpcode, psn: u32) -> Bth {
    let qpn = if opcode.info().is_response() { REQUESTER } else { RESPONDER };
    Bth::new(opcode, Qpn::new(qpn).unwrap(), Psn::wrapping(psn))
}

pub fn headers(opcode: KnownOpcode, psn: u32) -> Headers {
    Headers::new(bth(opcode, psn))
}

/// A request with AckReq.
pub fn asking(opcode: KnownOpcode, psn: u32) -> Headers {
    Headers::new(Bth { ack_request: true, ..bth(opcode, psn) })
}

pub fn answer(opcode: KnownOpcode, psn: u32, syndrome: Syndrome) -> Headers {
    let aeth = Some(Aeth { syndrome, msn: 1 });
    Headers { aeth, ..headers(opcode, psn) }
}

pub fn ack(psn: u32) -> Headers {
    answer(opcode::RC_ACKNOWLEDGE, psn, Syndrome::from_byte(0x1f))
}

/// The same response with another message sequence number.
pub fn counting(answer: Headers, msn: u32) -> Headers {
    let aeth = answer.aeth.map(|aeth| Aeth { msn, ..aeth });
    Headers { aeth, ..answer }
}

pub fn nak(psn: u32, code: NakCode) -> Headers {
    answer(opcode::RC_ACKNOWLEDGE, psn, Syndrome::Nak(code))
}

pub fn rnr(psn: u32) -> Headers {
    answer(opcode::RC_ACKNOWLEDGE, psn, Syndrome::RnrNak { timer: RnrTimer::DEFAULT })
}

pub fn reth(opcode: KnownOpcode, psn: u32, len: u32) -> Headers {
    let reth = Some(Reth { addr: 0x7f12_3456_7000, rkey: 0x1234, len });
    Headers { reth, ..headers(opcode, psn) }
}

/// Headers of `opcode` with a value in every field.
pub fn full_headers(opcode: KnownOpcode) -> Headers {
    let has = |ext| opcode.info().has(ext);
    let mut bth = bth(opcode, 0x12_3456);
    bth.ack_request = opcode.info().is_request() && opcode.info().position.is_last();
    bth.solicited_event = has(Ext::Immediate);
    bth.becn = has(Ext::CnpReserved);
    if has(Ext::CnpReserved) {
        bth.psn = Psn::ZERO;
    }
    Headers {
        bth,
        reth: has(Ext::Reth).then_some(Reth { addr: 0x7f12_3456_7000, rkey: 0x1234, len: 5 }),
        feth: has(Ext::Feth).then_some(Feth::new(Feth::GLOBAL, FlushExtent::Range)),
        atomic_eth: has(Ext::AtomicEth).then_some(AtomicEth {
            addr: 0x7f12_3456_7008,
            rkey: 0x1235,
            swap_or_add: 0x1111_2222_3333_4444,
            compare: 0x5555_6666_7777_8888,
        }),
        aeth: has(Ext::Aeth).then_some(Aeth { syndrome: Syndrome::from_byte(0x1f), msn: 7 }),
        atomic_ack: has(Ext::AtomicAckEth)
            .then_some(AtomicAckEth { original: 0x0102_0304_0506_0708 }),
        deth: has(Ext::Deth)
            .then_some(Deth { q_key: 0x1122_3344, source_qp: Qpn::new(REQUESTER).unwrap() }),
        immediate: has(Ext::Immediate).then_some(Immediate([0xca, 0xfe, 0xba, 0xbe])),
        invalidate: has(Ext::InvalidateKey).then_some(InvalidateKey(0x1236)),
    }
}

/// A payload that fits the position in the message.
pub fn payload_of(opcode: KnownOpcode) -> Vec<u8> {
    let info = opcode.info();
    match (info.carries_payload(), info.position.opens()) {
        (false, _) => Vec::new(),
        _ if opcode == opcode::RC_ATOMIC_WRITE => b"one word".to_vec(),
        (true, true) => (0..MTU).map(|i| i as u8).collect(),
        (true, false) => b"hello".to_vec(),
    }
}

/// One packet of this opcode.
pub fn sample(opcode: KnownOpcode, ip: Ip) -> Vec<u8> {
    let outer = if opcode.info().is_response() { back(ip) } else { there(ip) };
    frame(&outer, &full_headers(opcode), &payload_of(opcode))
}

/// The same packet as RoCEv1.
pub fn sample_v1(opcode: KnownOpcode) -> Vec<u8> {
    let v2 = sample(opcode, Ip::V6);
    let mut v1 = v2[..54].to_vec();
    v1[12..14].copy_from_slice(&roce_wire::ROCE_V1_ETHER_TYPE.to_be_bytes());
    v1[20] = roce_wire::Grh::INFINIBAND;
    v1.extend(&v2[62..]);
    let payload_len = (v1.len() - 54) as u16;
    v1[18..20].copy_from_slice(&payload_len.to_be_bytes());
    let end = v1.len() - ICRC_LEN;
    let grh = v1[14..54].first_chunk().unwrap();
    let icrc = roce_wire::expected_icrc_v1(grh, &v1[54..end]).unwrap();
    v1[end..].copy_from_slice(&icrc.to_le_bytes());
    v1
}

/// A management datagram as connection management sends it: one on queue pair 1.
pub fn management(ip: Ip, attribute: u16, body: &[u8], reply: bool) -> Vec<u8> {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[8..16].copy_from_slice(&[0, 0, 0, 1, 0x19, 0x4b, 0x7b, 0x0b]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[24..24 + body.len()].copy_from_slice(body);
    let bth = Bth { ack_request: true, ..Bth::new(opcode::UD_SEND_ONLY, Qpn::GSI, Psn::ZERO) };
    let deth = Some(Deth { q_key: GSI_Q_KEY, source_qp: Qpn::GSI });
    let outer = if reply { back(ip) } else { there(ip) };
    frame(&outer, &Headers { deth, ..Headers::new(bth) }, &mad)
}

/// A connection request of `REQUESTER`, which expects requests from `psn` on.
pub fn cm_req(psn: u32) -> Vec<u8> {
    let mut body = vec![0; 232];
    body[..4].copy_from_slice(&0x194b_7b0bu32.to_be_bytes());
    body[8..16].copy_from_slice(&0x0000_0000_0106_1c06u64.to_be_bytes());
    body[16..24].copy_from_slice(&[0, 0, 0, 0xff, 0xfe, 0, 0, 2]);
    body[32..35].copy_from_slice(&[0, 0, REQUESTER as u8]);
    body[35] = 1;
    body[39] = 1;
    body[43] = 0xa0;
    body[44..47].copy_from_slice(&psn.to_be_bytes()[1..]);
    body[47] = 0xa7;
    body[48..52].copy_from_slice(&[0xff, 0xff, 0x17, 0xf0]);
    body[52..56].fill(0xff);
    body[66..72].copy_from_slice(&[0xff, 0xff, 10, 9, 0, 2]);
    body[82..88].copy_from_slice(&[0xff, 0xff, 10, 9, 0, 1]);
    body[88..96].copy_from_slice(&[0xa3, 0xd0, 0, 0, 0, 64, 0, 0x98]);
    body[140..144].copy_from_slice(&[0, 0x40, 0xd7, 0xc6]);
    body[156..160].copy_from_slice(&[10, 9, 0, 2]);
    body[172..176].copy_from_slice(&[10, 9, 0, 1]);
    body
}

/// The reply of `RESPONDER`.
pub fn cm_rep(psn: u32) -> Vec<u8> {
    let mut body = vec![0; 232];
    body[..4].copy_from_slice(&0x0774_5d5bu32.to_be_bytes());
    body[4..8].copy_from_slice(&0x194b_7b0bu32.to_be_bytes());
    body[12..15].copy_from_slice(&[0, 0, RESPONDER as u8]);
    body[20..23].copy_from_slice(&psn.to_be_bytes()[1..]);
    body[24..28].copy_from_slice(&[1, 1, 0x78, 0xe0]);
    body[28..36].copy_from_slice(&[0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    body
}

/// Inserts VLAN tags after the MAC addresses; the outer one of two is a provider's.
pub fn tagged(mut frame: Vec<u8>, tags: usize) -> Vec<u8> {
    for i in 0..tags {
        let tag = VlanTag::new(100 + i as u16, 3, false).unwrap();
        let ether_type: u16 = if i == 1 { 0x88a8 } else { 0x8100 };
        let mut bytes = ether_type.to_be_bytes().to_vec();
        bytes.extend(tag.control_information());
        frame.splice(12..12, bytes);
    }
    frame
}

/// Priority flow control: priorities 3 and 4.
pub fn pfc() -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x08, 1, 1, 0, 0x18];
    frame.resize(60, 0);
    frame[24..26].copy_from_slice(&0xffffu16.to_be_bytes());
    frame
}

/// Priority flow control: every second priority, and another time in each field.
pub fn pfc_of_all() -> Vec<u8> {
    let mut frame = pfc();
    frame[17] = 0xa5;
    for (i, quanta) in frame[18..34].chunks_exact_mut(2).enumerate() {
        quanta.copy_from_slice(&(0x1122 * (i as u16 + 1)).to_be_bytes());
    }
    frame
}

/// Plain pause.
pub fn pause(quanta: u16) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x08, 0, 1];
    frame.extend(quanta.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// Dissections of all packets in these frames, a microsecond apart.
pub fn follow(frames: &[Vec<u8>]) -> Vec<Dissection> {
    let mut seen = Vec::new();
    run(frames, |packet| seen.push(packet.dissection()));
    seen
}

/// Calls `on_packet` for each packet and returns the dissector.
pub fn run(frames: &[Vec<u8>], mut on_packet: impl FnMut(&roce_dissect::Packet<'_>)) -> Dissector {
    let mut dissector = Dissector::new(Options::default());
    for (i, frame) in frames.iter().enumerate() {
        let raw = RawFrame {
            time: Timestamp(1_000 * i as u64),
            ..RawFrame::ethernet(i as u64 + 1, frame)
        };
        dissector.handle_frame(raw, &mut on_packet);
    }
    dissector
}

/// Dissection of the only packet in a frame.
pub fn alone(frame: &[u8]) -> Dissection {
    alone_on(LinkType::Ethernet, frame)
}

pub fn alone_on(link: LinkType, frame: &[u8]) -> Dissection {
    let mut seen = Vec::new();
    let raw = RawFrame { link, ..RawFrame::ethernet(1, frame) };
    Dissector::new(Options { follow: false, ..Options::default() })
        .handle_frame(raw, |packet| seen.push(packet.dissection()));
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen.remove(0)
}

/// Names of the findings of each packet, without [`Severity::Info`](roce_dissect::Severity::Info).
pub fn trouble(dissections: &[Dissection]) -> Vec<Vec<&'static str>> {
    let names = |findings: &[Finding]| {
        let wanted = findings.iter().filter(|f| f.severity() != roce_dissect::Severity::Info);
        wanted.map(Finding::name).collect()
    };
    dissections.iter().map(|dissection| names(&dissection.findings)).collect()
}

/// A pcap file of Ethernet frames, a microsecond apart.
pub fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1].map(u32::to_le_bytes).concat();
    for (i, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        file.extend([1_700_000_000, i as u32, len, len].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}
