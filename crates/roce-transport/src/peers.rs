//! The peers that queue pairs of a device send to, and who waits for which.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::gate::{Gate, PeerView};
use crate::line;
use crate::timers::Alarm;
use crate::{Instant, PeerWindowConfig};

/// One [`Gate`] for each address that a queue pair sends to.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    places: Vec<Place>,
    free: Vec<usize>,
    by_address: HashMap<IpAddr, usize>,
    alarm: Alarm,
}

#[derive(Debug)]
struct Place {
    address: IpAddr,
    gate: Gate,
    /// Queue pairs that send there.
    users: usize,
}

impl Peers {
    /// One more queue pair sends to `address`: by this gate.
    pub(crate) fn join(&mut self, address: IpAddr, config: PeerWindowConfig) -> usize {
        if let Some(index) = self.by_address.get(&address) {
            self.places[*index].users += 1;
            return *index;
        }
        let place = Place { address, gate: Gate::new(config), users: 1 };
        let index = match self.free.pop() {
            Some(index) => {
                self.places[index] = place;
                index
            }
            None => {
                self.places.push(place);
                self.places.len() - 1
            }
        };
        self.by_address.insert(address, index);
        index
    }

    /// A queue pair sends there no more; it stood in line there, or not.
    pub(crate) fn leave(&mut self, index: usize, in_line: Option<line::Place>) {
        let place = &mut self.places[index];
        in_line.into_iter().for_each(|it| place.gate.line.leave(it));
        place.users -= 1;
        if place.users == 0 {
            self.alarm.forget(index, &mut place.gate.alarm_at);
            self.by_address.remove(&place.address);
            self.free.push(index);
        }
    }

    pub(crate) fn gate(&mut self, index: usize) -> &mut Gate {
        &mut self.places[index].gate
    }

    /// What a queue pair learns of this peer; it stands in line there, or not.
    pub(crate) fn view(
        &mut self,
        index: usize,
        in_line: Option<line::Place>,
        time: Instant,
    ) -> PeerView {
        let gate = self.gate(index);
        let is_shut = in_line.is_some() && !gate.has_room();
        let changed_at = gate.changed_at();
        if is_shut {
            // A driver that sends nothing has not noticed yet.
            self.note_shut(index, time);
        }
        PeerView { is_shut, changed_at }
    }

    /// Somebody has to wait at this gate.
    pub(crate) fn note_shut(&mut self, index: usize, now: Instant) {
        let gate = &mut self.places[index].gate;
        gate.on_shut(now);
        let wanted = gate.silent_at();
        self.alarm.set(index, &mut gate.alarm_at, wanted);
    }

    /// When [`take_due`](Self::take_due) has something to look at.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.alarm.earliest()
    }

    /// The next gate whose peer may have been silent for too long by now; it has been looked at.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<usize> {
        let index = self.alarm.take_due(now)?;
        let gate = &mut self.places[index].gate;
        gate.alarm_at = None;
        gate.on_time(now);
        let wanted = gate.silent_at();
        self.alarm.set(index, &mut gate.alarm_at, wanted);
        Some(index)
    }
}
