//! CNPs that are to be sent.

use alloc::collections::VecDeque;

use roce_wire::{Bth, Headers, Psn, Qpn, opcode};

use crate::PathHandle;
use crate::train::TrainWriter;

/// A CNP to the peer of a queue pair that received a marked packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedCnp {
    pub(crate) qpn: Qpn,
    pub(crate) dest_qpn: Qpn,
    pub(crate) path: PathHandle,
}

impl OwedCnp {
    /// Writes it as the only packet of a train.
    pub(crate) fn write(&self, train: &mut TrainWriter<'_>) {
        let bth = Bth { becn: true, ..Bth::new(opcode::CNP, self.dest_qpn, Psn::ZERO) };
        let headers = Headers::new(bth);
        if train.room_for(headers.len(), 0).is_some() {
            train.push(&headers, 0, None);
        }
    }
}

/// Those that have not left yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OwedCnps(VecDeque<OwedCnp>);

/// For a driver that sends nothing while marked packets arrive. Marked packets beyond it are
/// answered later, if more of them arrive.
const MAX_OWED_CNPS: usize = 1024;

impl OwedCnps {
    pub(crate) fn push(&mut self, cnp: OwedCnp) {
        if self.0.len() < MAX_OWED_CNPS {
            self.0.push_back(cnp);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<OwedCnp> {
        self.0.pop_front()
    }
}
