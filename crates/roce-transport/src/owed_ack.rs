//! Acknowledgements of queue pairs that are gone.

use alloc::collections::VecDeque;

use roce_wire::{Aeth, Bth, Credits, Headers, NakCode, Psn, Qpn, Syndrome, opcode};

use crate::PathHandle;
use crate::train::TrainWriter;

/// An acknowledgement, or a NAK, that a queue pair owed its peer when it was reset or destroyed.
///
/// The application has seen the receive's completion, so the peer must learn of it too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedAck {
    pub(crate) qpn: Qpn,
    pub(crate) dest_qpn: Qpn,
    pub(crate) path: PathHandle,
    pub(crate) psn: Psn,
    pub(crate) nak: Option<NakCode>,
    /// Messages executed.
    pub(crate) msn: u32,
}

impl OwedAck {
    /// Writes it as the only packet of a train.
    pub(crate) fn write(&self, train: &mut TrainWriter<'_>) {
        let syndrome = match self.nak {
            Some(code) => Syndrome::Nak(code),
            None => Syndrome::Ack { credits: Credits::UNLIMITED },
        };
        let bth = Bth::new(opcode::RC_ACKNOWLEDGE, self.dest_qpn, self.psn);
        let headers = Headers { aeth: Some(Aeth { syndrome, msn: self.msn }), ..Headers::new(bth) };
        if train.room_for(headers.len(), 0).is_some() {
            train.push(&headers, 0, None);
        }
    }
}

/// Those that have not left yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OwedAcks {
    ready: VecDeque<OwedAck>,
    /// Those whose transmit queue has no room.
    set_aside: VecDeque<OwedAck>,
}

/// For a driver that sends nothing, while its application makes and destroys queue pairs.
const MAX_OWED_ACKS: usize = 4096;

impl OwedAcks {
    pub(crate) fn extend(&mut self, owed: Option<OwedAck>) {
        let Some(owed) = owed else { return };
        if self.ready.len() + self.set_aside.len() == MAX_OWED_ACKS {
            let _oldest = self.set_aside.pop_front().or_else(|| self.ready.pop_front());
        }
        self.ready.push_back(owed);
    }

    /// Returns true if none may leave now.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<OwedAck> {
        self.ready.pop_front()
    }

    /// Keeps one until [`resume`](Self::resume).
    pub(crate) fn set_aside(&mut self, owed: OwedAck) {
        self.set_aside.push_back(owed);
    }

    /// A transmit queue has room again.
    pub(crate) fn resume(&mut self) {
        self.ready.append(&mut self.set_aside);
    }
}
