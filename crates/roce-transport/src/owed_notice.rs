//! Packets beside the sequence that are to be sent: CNPs, and that a requester takes gap reports.

use std::collections::VecDeque;

use roce_wire::{Bth, GapReport, Headers, MAX_GAP_REPORT_LEN, Psn, Qpn, opcode};

use crate::PathHandle;
use crate::train::TrainWriter;

/// What a notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The queue pair received a marked packet.
    Cnp,
    /// The requester takes gap reports.
    TakesGapReports,
}

/// A notice to the peer of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedNotice {
    pub(crate) notice: Notice,
    pub(crate) qpn: Qpn,
    pub(crate) dest_qpn: Qpn,
    pub(crate) path: PathHandle,
}

impl OwedNotice {
    /// Writes it as the only packet of a train.
    pub(crate) fn write(&self, train: &mut TrainWriter<'_>) {
        let bth = |opcode| Bth::new(opcode, self.dest_qpn, Psn::ZERO);
        let (headers, payload_len) = match self.notice {
            Notice::Cnp => (Headers::new(Bth { becn: true, ..bth(opcode::CNP) }), 0),
            Notice::TakesGapReports => {
                (Headers::new(bth(opcode::GAP_REPORT)), GapReport::FORMAT.len())
            }
        };
        if let Some(room) = train.room_for(headers.len(), payload_len) {
            if self.notice == Notice::TakesGapReports {
                let mut payload = [0; MAX_GAP_REPORT_LEN];
                let len = GapReport::write([], &mut payload);
                room[headers.len()..][..len].copy_from_slice(&payload[..len]);
            }
            train.push(&headers, payload_len, None);
        }
    }
}

/// Those that have not left yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OwedNotices(VecDeque<OwedNotice>);

/// For a driver that sends nothing while marked packets arrive. Marked packets beyond it are
/// answered later, if more of them arrive.
const MAX_OWED_NOTICES: usize = 1024;

impl OwedNotices {
    pub(crate) fn push(&mut self, notice: OwedNotice) {
        if self.0.len() < MAX_OWED_NOTICES {
            self.0.push_back(notice);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<OwedNotice> {
        self.0.pop_front()
    }
}
