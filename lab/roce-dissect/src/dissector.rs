//! The dissector: one call for each frame, one callback for each packet in it.

use crate::flow::{Connections, Flows};
use crate::frame_analysis::{FrameAnalysis, FrameKind, Packets};
use crate::outer::RoceFrame;
use crate::{Finding, Icrc, Options, Packet, PacketKind, RawFrame, TrainPlace};

/// Reads frames in the order of the capture and reports their packets.
///
/// It works in two steps: a [`FrameAnalysis`] of the frame alone, then [`follow`](Self::follow),
/// which relates the packets to those before them. The first step needs no state, so it may run
/// in several threads; [`handle_frame`](Self::handle_frame) does both.
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
///     println!("{}", packet.summary_line());
/// });
/// println!("{} packets", dissector.totals().packets);
/// ```
#[derive(Debug)]
pub struct Dissector {
    flows: Option<Flows>,
    totals: Totals,
    /// Findings of the current packet; kept to reuse the allocation.
    findings: Vec<Finding>,
}

/// Counts over the capture so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames.
    pub frames: u64,
    /// RoCE packets, each packet of a train included.
    pub packets: u64,
    /// Frames that held more than one packet.
    pub trains: u64,
    /// Packets with a wrong ICRC.
    pub wrong_icrcs: u64,
    /// Packets with a finding of [`Severity::Problem`](crate::Severity::Problem).
    pub problems: u64,
    /// Pause frames.
    pub pauses: u64,
}

impl Dissector {
    /// Creates a dissector.
    pub fn new(options: Options) -> Self {
        Self {
            flows: options.follow.then(|| Flows::new(options)),
            totals: Totals::default(),
            findings: Vec::new(),
        }
    }

    /// Calls `on_packet` for each packet in `frame`: one, or several for a train. A frame without
    /// RoCE is reported as one packet.
    ///
    /// Time O(length of the frame), and O(1) for following the connection.
    pub fn handle_frame(&mut self, frame: RawFrame<'_>, on_packet: impl FnMut(&Packet<'_>)) {
        self.follow(&FrameAnalysis::of(frame), on_packet);
    }

    /// Does the second step of [`handle_frame`](Self::handle_frame): relates the packets to those
    /// before them. Call it in the order of the capture.
    ///
    /// Time O(1) for each packet.
    pub fn follow(&mut self, analysis: &FrameAnalysis<'_>, mut on_packet: impl FnMut(&Packet<'_>)) {
        self.totals.frames += 1;
        match &analysis.kind {
            FrameKind::Roce(roce, Packets::One(icrc)) => {
                let place = (0, roce.len);
                self.follow_packet(analysis, roce, place, *icrc, None, &mut on_packet);
            }
            FrameKind::Roce(roce, Packets::Train { segment_len, icrcs }) => {
                self.totals.trains += 1;
                let (count, segment_len) = (icrcs.len() as u16, *segment_len);
                for (index, icrc) in (0..count).zip(icrcs) {
                    let place = roce.place(segment_len, index);
                    let train = TrainPlace { index, count, segment_len: segment_len as u16 };
                    self.follow_packet(analysis, roce, place, *icrc, Some(train), &mut on_packet);
                }
            }
            FrameKind::Pause(pause) => {
                self.totals.pauses += 1;
                self.deliver(analysis, PacketKind::Pause(*pause), &mut on_packet);
            }
            FrameKind::Other(other) => {
                self.deliver(analysis, PacketKind::Other(*other), &mut on_packet)
            }
        }
    }

    /// Returns the counts so far.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the connections seen so far; none unless [`Options::follow`] is set.
    pub fn connections(&self) -> Connections<'_> {
        Connections::new(self.flows.as_ref())
    }

    fn deliver(
        &mut self,
        analysis: &FrameAnalysis<'_>,
        kind: PacketKind<'_>,
        on_packet: &mut impl FnMut(&Packet<'_>),
    ) {
        let packet =
            Packet { frame: analysis.frame, kind, findings: &analysis.findings, flow: None };
        self.totals.problems += u64::from(packet.has_problem());
        on_packet(&packet);
    }

    fn follow_packet(
        &mut self,
        analysis: &FrameAnalysis<'_>,
        outer: &RoceFrame<'_>,
        place: (usize, usize),
        icrc: Icrc,
        train: Option<TrainPlace>,
        on_packet: &mut impl FnMut(&Packet<'_>),
    ) {
        self.findings.clear();
        self.findings.extend_from_slice(&analysis.findings);
        let roce = outer.read(place, icrc, train, &mut self.findings);
        // Built once and completed in place: the packet is large.
        let kind = PacketKind::Roce(roce);
        let mut packet = Packet { frame: analysis.frame, kind, findings: &[], flow: None };
        if let (PacketKind::Roce(roce), Some(flows)) = (&packet.kind, &mut self.flows) {
            packet.flow = flows.follow(&analysis.frame, roce, &mut self.findings);
        }
        packet.findings = &self.findings;
        self.totals.packets += 1;
        self.totals.wrong_icrcs += u64::from(matches!(icrc, Icrc::Wrong { .. }));
        self.totals.problems += u64::from(packet.has_problem());
        on_packet(&packet);
    }
}
