//! What waits to be taken from an agent: datagrams and events.

use std::collections::VecDeque;

use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, MANAGEMENT_DATAGRAM_LEN};

use crate::addresses::DatagramAddresses;
use crate::counters::Counters;
use crate::event::Event;
use crate::limits::MAX_TRANSMITS;

/// The bytes of a datagram.
pub(crate) type Bytes = Box<[u8; MANAGEMENT_DATAGRAM_LEN]>;

/// A datagram to send, from queue pair 1 to queue pair 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Addresses of sender and receiver.
    pub addresses: DatagramAddresses,
    /// Traffic class.
    pub traffic_class: u8,
    /// Payload.
    pub datagram: Box<[u8; MANAGEMENT_DATAGRAM_LEN]>,
}

/// Datagrams and events that wait to be taken, and the counters.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    pub(crate) counters: Counters,
}

impl Outputs {
    /// Adds a datagram. One that exceeds the limit is lost, as one on the network may be: timers and
    /// the peer's repetitions make up for it.
    pub(crate) fn send(
        &mut self,
        addresses: DatagramAddresses,
        traffic_class: u8,
        datagram: Bytes,
    ) {
        if self.transmits.len() < MAX_TRANSMITS {
            self.transmits.push_back(Transmit { addresses, traffic_class, datagram });
        } else {
            self.counters.transmit_dropped += 1;
        }
    }

    pub(crate) fn next_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.transmits.pop_front()?;
        self.counters.sent += 1;
        Some(transmit)
    }

    pub(crate) fn has_transmit(&self) -> bool {
        !self.transmits.is_empty()
    }

    /// Adds an event.
    pub(crate) fn raise(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes the events of `id`.
    pub(crate) fn forget_events(&mut self, id: CommunicationId) {
        self.events.retain(|event| event.id() != id);
    }
}

/// Returns the bytes of a message.
pub(crate) fn encoded(transaction: u64, message: CmMessage) -> Bytes {
    Box::new(CmDatagram { transaction, message }.encode())
}
