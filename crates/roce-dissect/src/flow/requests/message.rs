//! The message that a queue pair is in the middle of.

use roce_wire::{Headers, Opcode, Operation, PathMtu, Position};

use crate::{Finding, RawFrame, Timestamp};

/// A message of which the last packet has not come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Open {
    /// The capture began, or was interrupted, in the middle of things.
    #[default]
    Unknown,
    None,
    Message(Message),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    last: Opcode,
    since: Timestamp,
    bytes: u64,
    packets: u32,
    /// As the RETH said.
    promised: Option<u64>,
}

impl Open {
    /// The opcode of its last packet so far.
    pub(super) const fn opcode(&self) -> Option<Opcode> {
        match self {
            Self::Message(message) => Some(message.last),
            _ => None,
        }
    }

    /// A packet of a message with payload came; true where it was the message's last.
    pub(super) fn grow(
        &mut self,
        frame: &RawFrame<'_>,
        headers: &Headers,
        bytes: u64,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let opcode = headers.bth.opcode;
        let info = opcode.info();
        let begun = Message {
            last: opcode.code(),
            since: frame.time,
            bytes,
            packets: 1,
            promised: headers.reth.map(|reth| reth.len.into()),
        };
        let message = match (info.position.is_first(), &*self) {
            (true, _) => begun,
            (false, Self::Message(message)) => Message {
                last: opcode.code(),
                bytes: message.bytes + bytes,
                packets: message.packets.saturating_add(1),
                ..*message
            },
            // Its beginning is not known, nor its length.
            (false, _) => {
                let is_last = info.position.is_last();
                if is_last {
                    *self = Self::None;
                }
                return is_last;
            }
        };
        if info.position.opens() {
            *self = Self::Message(message);
            return false;
        }
        *self = Self::None;
        message.end(info.operation, frame.time, findings);
        true
    }
}

impl Message {
    fn end(&self, operation: Operation, time: Timestamp, findings: &mut Vec<Finding>) {
        let Self { bytes, packets, .. } = *self;
        if let Some(promised) = self.promised.filter(|promised| *promised != bytes) {
            findings.push(Finding::MessageLength { promised, carried: bytes });
        }
        if packets > 1 {
            let took = time.since(self.since);
            findings.push(Finding::MessageEnd { operation, bytes, packets, took });
        }
    }
}

/// Does the payload have the length that its place in the message asks for? Learns the path MTU.
pub(super) fn check_payload(
    mtu: &mut Option<u16>,
    position: Position,
    len: usize,
    findings: &mut Vec<Finding>,
) {
    let whole = u16::try_from(len).ok().filter(|_| PathMtu::from_bytes(len).is_some());
    let len = len as u32;
    match (position, *mtu) {
        (Position::First | Position::Middle, known) => match (whole, known) {
            (Some(whole), None) => *mtu = Some(whole),
            (Some(whole), Some(known)) if whole == known => {}
            (_, mtu) => findings.push(Finding::NotOneMtu { len, mtu }),
        },
        (Position::Last, _) if len == 0 => findings.push(Finding::EmptyLast),
        (Position::Last | Position::Only, known) => {
            let mtu = known.unwrap_or(4096);
            if len > mtu.into() {
                findings.push(Finding::AboveMtu { len, mtu });
            }
        }
    }
}
