//! The peers that queue pairs of a device send to.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::endpoint::timer_queue::TimerQueue;
use crate::peer_window::{PeerView, PeerWindow, Ticket};
use crate::{Instant, PeerWindowConfig};

/// One [`PeerWindow`] for each address that a queue pair sends to.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    entries: Vec<PeerEntry>,
    free: Vec<usize>,
    by_address: BTreeMap<IpAddr, usize>,
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
    /// Returns the index of the peer at `address`, to which one more queue pair sends.
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

    /// One queue pair less sends to this peer; `ticket` if it waited.
    pub(crate) fn release(&mut self, index: usize, ticket: Option<Ticket>) {
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

    /// Returns what a queue pair learns of this peer; `ticket` if it waits.
    pub(crate) fn view(&mut self, index: usize, ticket: Option<Ticket>, time: Instant) -> PeerView {
        let window = self.window(index);
        let is_blocked = ticket.is_some() && !window.admits();
        let changed_at = window.changed_at();
        if is_blocked {
            // A driver that sends nothing has not started the timer yet.
            self.on_blocked(index, time);
        }
        PeerView { is_blocked, changed_at }
    }

    /// A queue pair is blocked by the window of this peer.
    pub(crate) fn on_blocked(&mut self, index: usize, now: Instant) {
        let window = &mut self.entries[index].window;
        window.on_blocked(now);
        let wanted = window.timeout_at();
        self.timers.set(index, &mut window.timer_at, wanted);
    }

    /// Earliest deadline of a peer timeout.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.timers.earliest()
    }

    /// Takes a peer whose deadline has passed, after its window has been told.
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
