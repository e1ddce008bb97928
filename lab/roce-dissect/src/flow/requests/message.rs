//! The current message of a direction.

use roce_wire::{Headers, Opcode, Operation, PathMtu, Position};

use crate::{Finding, RawFrame, Timestamp};

/// The current message: its last packet has not been captured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Open {
    /// Unknown, because the capture began or has a gap here.
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
    /// Length in the RETH.
    promised: Option<u64>,
}

impl Open {
    /// Returns the opcode of the last packet so far.
    pub(super) const fn opcode(&self) -> Option<Opcode> {
        match self {
            Self::Message(message) => Some(message.last),
            _ => None,
        }
    }

    /// Adds a packet. Returns true if it ends the message.
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
            // The first packet, and so the length, is unknown.
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
        //= also rc-write-length
        if let Some(promised) = self.promised.filter(|promised| *promised != bytes) {
            findings.push(Finding::MessageLength { promised, carried: bytes });
        }
        if packets > 1 {
            let took = time.since(self.since);
            findings.push(Finding::MessageEnd { operation, bytes, packets, took });
        }
    }
}

/// Checks the payload length for the position in the message, and learns the path MTU.
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
            //= also rc-payload-length
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
