//! A received packet that is kept.

use roce_dissect::{
    Dissector, Finding, FlowContext, LinkType, Options, Packet, RawFrame, Timestamp,
};

/// A received packet with the findings that it had among the others.
#[derive(Clone, Debug)]
pub(super) struct HeldPacket {
    frame: Vec<u8>,
    number: u64,
    time: Timestamp,
    segment_len: Option<usize>,
    /// Place in the frame, if that is a train.
    index: usize,
    findings: Vec<Finding>,
    flow: Option<FlowContext>,
}

impl HeldPacket {
    /// Copies a packet.
    pub(super) fn of(packet: &Packet<'_>) -> Self {
        let train = packet.roce().and_then(|roce| roce.train);
        Self {
            frame: packet.frame.bytes.to_vec(),
            number: packet.frame.number,
            time: packet.frame.time,
            segment_len: packet.frame.segment_len,
            index: train.map_or(0, |train| train.index.into()),
            findings: packet.findings.to_vec(),
            flow: packet.flow,
        }
    }

    /// Returns the number of its frame.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Calls a function with the packet.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Packet<'_>) -> T) -> Option<T> {
        let frame = RawFrame {
            number: self.number,
            time: self.time,
            link: LinkType::Ethernet,
            original_len: self.frame.len() as u32,
            bytes: &self.frame,
            segment_len: self.segment_len,
        };
        let (mut look, mut found, mut index) = (Some(look), None, 0);
        let options = Options { follow: false, ..Options::default() };
        Dissector::new(options).handle_frame(frame, |packet| {
            if index == self.index
                && let Some(look) = look.take()
            {
                // What earlier packets say of it was found when it came.
                let packet = Packet { findings: &self.findings, flow: self.flow, ..*packet };
                found = Some(look(&packet));
            }
            index += 1;
        });
        found
    }
}
