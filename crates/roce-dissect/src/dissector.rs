//! From frames to packets: one call for each frame, one answer for each packet in it.

use roce_wire::{BthView, Ext, Headers, ICRC_LEN, KnownOpcode};

use crate::flow::{Connections, Flows};
use crate::outer::{Outer, RoceFrame};
use crate::segment::LONGEST_PACKET;
use crate::{
    Content, Finding, Icrc, Offsets, Options, Packet, RawFrame, Roce, TrainPlace, Unchecked,
};

/// Takes frames in the order of the capture, and tells what is in them.
///
/// Memory grows with the number of connections seen, up to [`Options::max_flows`], and with
/// nothing else.
///
/// ```
/// use roce_dissect::{Dissector, Options, RawFrame};
///
/// # let frame = [0u8; 60];
/// let mut dissector = Dissector::new(Options::default());
/// dissector.handle_frame(RawFrame::ethernet(1, &frame), |packet| {
///     println!("{}", packet.words());
/// });
/// println!("{} packets", dissector.totals().packets);
/// ```
#[derive(Debug)]
pub struct Dissector {
    flows: Option<Flows>,
    totals: Totals,
    /// Of the packet at hand; kept to save the allocation.
    findings: Vec<Finding>,
    /// Of the frame at hand: they hold for each packet in it.
    frame_findings: Vec<Finding>,
}

/// What was in the capture so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames.
    pub frames: u64,
    /// RoCE packets; a train counts as many as it holds.
    pub packets: u64,
    /// Frames that held more than one packet.
    pub trains: u64,
    /// Packets whose ICRC is wrong.
    pub wrong_icrcs: u64,
    /// Packets with a problem of any kind.
    pub problems: u64,
    /// Pause frames.
    pub pauses: u64,
}

impl Dissector {
    /// A dissector that has seen nothing yet.
    pub fn new(options: Options) -> Self {
        Self {
            flows: options.follow.then(|| Flows::new(options)),
            totals: Totals::default(),
            findings: Vec::new(),
            frame_findings: Vec::new(),
        }
    }

    /// Tells `on_packet` of each packet in `frame`: one, or as many as the train holds. A frame
    /// that carries no RoCE is one packet too.
    ///
    /// Time O(length of the frame), and O(1) for following the connection; a frame that is not
    /// right as one packet is tried as a train, which costs a bounded number of ICRCs.
    pub fn handle_frame(&mut self, frame: RawFrame<'_>, mut on_packet: impl FnMut(&Packet<'_>)) {
        self.totals.frames += 1;
        self.frame_findings.clear();
        match Outer::parse(&frame, &mut self.frame_findings) {
            Outer::Roce(roce) => self.handle_roce(frame, &roce, &mut on_packet),
            Outer::Pause(pause) => {
                self.totals.pauses += 1;
                self.hand_out(frame, Content::Pause(pause), &mut on_packet);
            }
            Outer::Other(other) => self.hand_out(frame, Content::Other(other), &mut on_packet),
        }
    }

    /// What was seen so far.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The connections seen so far; empty unless they are followed.
    pub fn connections(&self) -> Connections<'_> {
        Connections::new(self.flows.as_ref())
    }

    fn hand_out(
        &mut self,
        frame: RawFrame<'_>,
        content: Content<'_>,
        on_packet: &mut impl FnMut(&Packet<'_>),
    ) {
        let packet = Packet { frame, content, findings: &self.frame_findings, track: None };
        self.totals.problems += u64::from(packet.severity() == crate::Severity::Problem);
        on_packet(&packet);
    }

    fn handle_roce(
        &mut self,
        frame: RawFrame<'_>,
        roce: &RoceFrame<'_>,
        on_packet: &mut impl FnMut(&Packet<'_>),
    ) {
        let whole = match frame.segment_len {
            Some(len) if (1..roce.len).contains(&len) => Err(len),
            _ => roce.as_one(),
        };
        match whole {
            Ok(icrc) => self.handle_packet(frame, roce, (0, roce.len), icrc, None, on_packet),
            Err(segment_len) => {
                self.totals.trains += 1;
                let count = roce.len.div_ceil(segment_len).min(u16::MAX.into()) as u16;
                for index in 0..count {
                    let start = usize::from(index) * segment_len;
                    let len = segment_len.min(roce.len - start);
                    let icrc = roce.check_icrc(start, len, index);
                    let train = TrainPlace { index, count, segment_len: segment_len as u16 };
                    self.handle_packet(frame, roce, (start, len), icrc, Some(train), on_packet);
                }
            }
        }
    }

    fn handle_packet(
        &mut self,
        frame: RawFrame<'_>,
        outer: &RoceFrame<'_>,
        (start, len): (usize, usize),
        icrc: Icrc,
        train: Option<TrainPlace>,
        on_packet: &mut impl FnMut(&Packet<'_>),
    ) {
        self.findings.clear();
        self.findings.extend_from_slice(&self.frame_findings);
        let roce = read_packet(outer, start, len, icrc, train, &mut self.findings);
        // Put together once, and completed in place: it is large.
        let mut packet = Packet { frame, content: Content::Roce(roce), findings: &[], track: None };
        if let (Content::Roce(roce), Some(flows)) = (&packet.content, &mut self.flows) {
            packet.track = flows.follow(&frame, roce, &mut self.findings);
        }
        packet.findings = &self.findings;
        self.totals.packets += 1;
        self.totals.wrong_icrcs += u64::from(matches!(icrc, Icrc::Wrong { .. }));
        self.totals.problems += u64::from(packet.has_problem());
        on_packet(&packet);
    }
}

impl RoceFrame<'_> {
    /// The verdict on the ICRC where the frame is one packet, or the length of the packets in it
    /// where it is a train.
    fn as_one(&self) -> Result<Icrc, usize> {
        let may_be_one = self.len <= LONGEST_PACKET;
        if may_be_one {
            let icrc = self.check_icrc(0, self.len, 0);
            let doubtful = match icrc {
                Icrc::Right => false,
                Icrc::Wrong { .. } | Icrc::Unchecked(Unchecked::Truncated) => true,
                Icrc::Unchecked(_) => false,
            };
            return match doubtful.then(|| self.segment_len()).flatten() {
                Some(len) => Err(len),
                None => Ok(icrc),
            };
        }
        match self.segment_len() {
            Some(len) => Err(len),
            None => Ok(self.check_icrc(0, self.len, 0)),
        }
    }
}

/// Takes one packet apart and judges what can be judged of it alone.
#[inline]
fn read_packet<'a>(
    outer: &RoceFrame<'a>,
    start: usize,
    len: usize,
    icrc: Icrc,
    train: Option<TrainPlace>,
    findings: &mut Vec<Finding>,
) -> Roce<'a> {
    let bytes: &'a [u8] = outer.bytes.get(start..).unwrap_or_default();
    let bytes = &bytes[..len.min(bytes.len())];
    let bth_offset = outer.bth_offset + start;
    let mut roce = Roce {
        version: outer.version,
        source: outer.source,
        destination: outer.destination,
        source_port: outer.source_port,
        traffic_class: outer.traffic_class,
        bth: BthView::split(bytes).ok().map(|(bth, _)| bth),
        headers: None,
        payload: &[],
        payload_len: 0,
        icrc,
        udp_checksum: outer.udp_checksum,
        train,
        offsets: Offsets {
            ip: outer.ip_offset,
            udp: outer.udp_offset,
            bth: bth_offset,
            end: bth_offset + len,
        },
    };
    match icrc {
        Icrc::Right => {}
        Icrc::Wrong { carried, expected } => findings.push(Finding::Icrc { carried, expected }),
        Icrc::Unchecked(why) => findings.push(Finding::IcrcUnchecked(why)),
    }
    // The last four bytes are the ICRC's, whether they are here or not.
    let before_icrc = &bytes[..bytes.len().min(len.saturating_sub(ICRC_LEN))];
    let (headers, rest) = match Headers::parse(before_icrc) {
        Ok(parsed) => parsed,
        Err(error) => {
            findings.push(Finding::Wire(error.beneath(bth_offset)));
            return roce;
        }
    };
    let rest_len = len - ICRC_LEN - headers.len();
    roce.headers = Some(headers);
    (roce.payload, roce.payload_len) = match headers.payload_len(rest_len) {
        Ok(payload_len) => {
            let (payload, pad) = rest.split_at(payload_len.min(rest.len()));
            if pad.iter().any(|&byte| byte != 0) {
                findings.push(Finding::PadNotZero);
            }
            (payload, payload_len)
        }
        Err(error) => {
            findings.push(Finding::Wire(error));
            (rest, rest_len)
        }
    };
    check_reserved_bits(before_icrc, headers.bth.opcode, findings);
    roce
}

fn check_reserved_bits(packet: &[u8], opcode: KnownOpcode, findings: &mut Vec<Finding>) {
    let mut report = |place, value: u32| {
        if value != 0 {
            findings.push(Finding::ReservedBits { place, value });
        }
    };
    report("BTH byte 4", (packet[4] & 0x3f).into());
    report("BTH byte 8", (packet[8] & 0x7f).into());
    let mut at = roce_wire::BTH_LEN;
    for ext in opcode.shape().extensions {
        let bytes = packet.get(at..at + ext.wire_len()).unwrap_or_default();
        at += ext.wire_len();
        match ext {
            Ext::Deth => report("DETH byte 4", bytes.get(4).copied().unwrap_or(0).into()),
            Ext::CnpReserved => {
                report("CNP", bytes.iter().fold(0, |all, &byte| all | byte).into());
            }
            _ => {}
        }
    }
}
