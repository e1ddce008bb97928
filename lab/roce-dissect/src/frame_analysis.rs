//! Analysis of one frame without state: headers, packets, ICRCs.

use roce_wire::{BthView, Ecn, Ext, Headers, ICRC_LEN, KnownOpcode, Service};

use crate::outer::{Outer, RoceFrame};
use crate::segment::MAX_PACKET_LEN;
use crate::{Finding, Icrc, IcrcSkipped, Offsets, Other, Pause, RawFrame, Roce, TrainPlace};

/// Outer headers, packets and checksum results of one frame.
///
/// This is most of the work on a frame and needs no state, so several threads may analyse
/// several frames. [`Dissector::follow`](crate::Dissector::follow) does the rest.
///
/// ```
/// use roce_dissect::{Dissector, FrameAnalysis, Options, RawFrame};
///
/// let frames = [[0u8; 60], [1u8; 60]];
/// let analyses = std::thread::scope(|scope| {
///     let at = |i: usize| RawFrame::ethernet(i as u64 + 1, &frames[i]);
///     let threads = [0, 1].map(|i| scope.spawn(move || FrameAnalysis::of(at(i))));
///     threads.map(|thread| thread.join().unwrap())
/// });
/// let mut dissector = Dissector::new(Options::default());
/// for analysis in &analyses {
///     dissector.follow(analysis, |packet| assert!(packet.roce().is_none()));
/// }
/// assert_eq!(dissector.totals().frames, 2);
/// ```
#[derive(Clone, Debug)]
pub struct FrameAnalysis<'a> {
    pub(crate) frame: RawFrame<'a>,
    pub(crate) kind: FrameKind<'a>,
    /// Findings that apply to every packet of the frame.
    pub(crate) findings: Vec<Finding>,
}

/// Kind of a frame, with its parsed content.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all frames are the large variant
pub(crate) enum FrameKind<'a> {
    Roce(RoceFrame<'a>, Packets),
    Pause(Pause),
    Other(Other),
}

/// Packets in a RoCE frame.
#[derive(Clone, Debug)]
pub(crate) enum Packets {
    One(Icrc),
    Train {
        /// Bytes of each packet but the last.
        segment_len: usize,
        /// Results in packet order.
        icrcs: Vec<Icrc>,
    },
}

impl<'a> FrameAnalysis<'a> {
    /// Analyses a frame.
    ///
    /// Time O(length of the frame). A frame whose ICRC is wrong as one packet is tried as a train,
    /// which costs a bounded number of ICRCs.
    pub fn of(frame: RawFrame<'a>) -> Self {
        let mut findings = Vec::new();
        let kind = match Outer::parse(&frame, &mut findings) {
            Outer::Roce(roce) => {
                let packets = roce.packets(frame.segment_len);
                FrameKind::Roce(roce, packets)
            }
            Outer::Pause(pause) => FrameKind::Pause(pause),
            Outer::Other(other) => FrameKind::Other(other),
        };
        Self { frame, kind, findings }
    }

    /// Returns the analysed frame.
    pub const fn frame(&self) -> &RawFrame<'a> {
        &self.frame
    }
}

impl<'a> RoceFrame<'a> {
    /// Splits the frame into packets and checks their ICRCs. `segment_len` is the packet length
    /// if the source of the frame knows that it is a train.
    fn packets(&self, segment_len: Option<usize>) -> Packets {
        let whole = match segment_len {
            Some(len) if (1..self.len).contains(&len) => Err(len),
            _ => self.as_one(),
        };
        match whole {
            Ok(icrc) => Packets::One(icrc),
            Err(segment_len) => {
                let count = self.len.div_ceil(segment_len).min(u16::MAX.into()) as u16;
                let icrc = |index| {
                    let (start, len) = self.place(segment_len, index);
                    self.check_icrc(start, len, index)
                };
                Packets::Train { segment_len, icrcs: (0..count).map(icrc).collect() }
            }
        }
    }

    /// Returns the ICRC result if the frame is one packet, or the packet length if it is a train.
    fn as_one(&self) -> Result<Icrc, usize> {
        let may_be_one = self.len <= MAX_PACKET_LEN;
        if may_be_one {
            let icrc = self.check_icrc(0, self.len, 0);
            let doubtful = match icrc {
                Icrc::Right => false,
                Icrc::Wrong { .. } | Icrc::Unchecked(IcrcSkipped::Truncated) => true,
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

    /// Returns start and length of the `index`-th packet of a train.
    pub(crate) fn place(&self, segment_len: usize, index: u16) -> (usize, usize) {
        let start = usize::from(index) * segment_len;
        (start, segment_len.min(self.len - start))
    }

    /// Parses the packet at `start` with `len` bytes on the wire and adds the findings that need
    /// no other packet.
    #[inline]
    pub(crate) fn read(
        &self,
        (start, len): (usize, usize),
        icrc: Icrc,
        train: Option<TrainPlace>,
        findings: &mut Vec<Finding>,
    ) -> Roce<'a> {
        let bytes: &'a [u8] = self.bytes.get(start..).unwrap_or_default();
        let bytes = &bytes[..len.min(bytes.len())];
        let bth_offset = self.bth_offset + start;
        let mut roce = Roce {
            version: self.version,
            source: self.source,
            destination: self.destination,
            source_port: self.source_port,
            traffic_class: self.traffic_class,
            bth: BthView::split(bytes).ok().map(|(bth, _)| bth),
            headers: None,
            payload: &[],
            payload_len: 0,
            icrc,
            udp_checksum: self.udp_checksum,
            train,
            offsets: Offsets {
                ip: self.ip_offset,
                udp: self.udp_offset,
                bth: bth_offset,
                end: bth_offset + len,
            },
        };
        match icrc {
            Icrc::Right => {}
            Icrc::Wrong { carried, expected } => findings.push(Finding::Icrc { carried, expected }),
            Icrc::Unchecked(why) => findings.push(Finding::IcrcUnchecked(why)),
        }
        // The last four bytes are the ICRC, even if they were not captured.
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
                //= also wire-pad
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
        let is_cnp = headers.bth.opcode.info().service == Service::Cnp;
        //= rule cc-cnp-not-ect: not known
        //# Congestion notifications are sent as not ECN-capable.
        if is_cnp && roce.ecn() != Ecn::NotCapable {
            findings.push(Finding::CnpEcn(roce.ecn()));
        }
        roce
    }
}

//= also wire-bth-reserved
fn check_reserved_bits(packet: &[u8], opcode: KnownOpcode, findings: &mut Vec<Finding>) {
    let mut report = |place, value: u32| {
        if value != 0 {
            findings.push(Finding::ReservedBits { place, value });
        }
    };
    report("BTH byte 4", (packet[4] & 0x3f).into());
    report("BTH byte 8", (packet[8] & 0x7f).into());
    let mut at = roce_wire::BTH_LEN;
    for ext in opcode.info().extensions {
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
