//! The peers that queue pairs of a device send to, and who waits for which.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::endpoint::peer_window::{PeerView, PeerWindow};
use crate::endpoint::timer_queue::TimerQueue;
use crate::endpoint::wait_queue;
use crate::{Instant, PeerWindowConfig};

/// One [`Gate`] for each address that a queue pair sends to.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    entries: Vec<PeerEntry>,
    free: Vec<usize>,
    by_address: HashMap<IpAddr, usize>,
    timers: TimerQueue,
}

#[derive(Debug)]
struct PeerEntry {
    address: IpAddr,
    window: PeerWindow,
    /// Queue pairs that send there.
    users: usize,
}

impl PeerTable {
    /// One more queue pair sends to `address`: by this gate.
    pub(crate) fn acquire(&mut self, address: IpAddr, config: PeerWindowConfig) -> usize {
        if let Some(index) = self.by_address.get(&address) {
            self.entries[*index].users += 1;
            return *index;
        }
        let entry = PeerEntry { address, window: PeerWindow::new(config), users: 1 };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.by_address.insert(address, index);
        index
    }

    /// A queue pair sends there no more; it stood in line there, or not.
    pub(crate) fn release(&mut self, index: usize, ticket: Option<wait_queue::Ticket>) {
        let entry = &mut self.entries[index];
        ticket.into_iter().for_each(|it| entry.window.waiters.cancel(it));
        entry.users -= 1;
        if entry.users == 0 {
            self.timers.forget(index, &mut entry.window.timer_at);
            self.by_address.remove(&entry.address);
            self.free.push(index);
        }
    }

    pub(crate) fn window(&mut self, index: usize) -> &mut PeerWindow {
        &mut self.entries[index].window
    }

    /// What a queue pair learns of this peer; it stands in line there, or not.
    pub(crate) fn view(
        &mut self,
        index: usize,
        ticket: Option<wait_queue::Ticket>,
        time: Instant,
    ) -> PeerView {
        let window = self.window(index);
        let is_blocked = ticket.is_some() && !window.admits();
        let changed_at = window.changed_at();
        if is_blocked {
            // A driver that sends nothing has not noticed yet.
            self.on_blocked(index, time);
        }
        PeerView { is_blocked, changed_at }
    }

    /// Somebody has to wait at this gate.
    pub(crate) fn on_blocked(&mut self, index: usize, now: Instant) {
        let window = &mut self.entries[index].window;
        window.on_blocked(now);
        let wanted = window.timeout_at();
        self.timers.set(index, &mut window.timer_at, wanted);
    }

    /// When [`take_due`](Self::take_due) has something to look at.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.timers.earliest()
    }

    /// The next gate whose peer may have been silent for too long by now; it has been looked at.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<usize> {
        let index = self.timers.take_due(now)?;
        let window = &mut self.entries[index].window;
        window.timer_at = None;
        window.on_timeout(now);
        let wanted = window.timeout_at();
        self.timers.set(index, &mut window.timer_at, wanted);
        Some(index)
    }
}
