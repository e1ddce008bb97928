//! Events that were delivered to the program, which it acknowledges.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Counts the events of one object. Destroying the object waits until the program has acknowledged
/// all that it was given.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    delivered: AtomicU32,
    acknowledged: Mutex<u32>,
    changed: Condvar,
}

impl Acks {
    /// Notes that the program gets an event.
    pub(crate) fn deliver(&self) {
        self.delivered.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the program has acknowledged `count` events.
    pub(crate) fn acknowledge(&self, count: u32) {
        let mut acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        *acknowledged = acknowledged.wrapping_add(count);
        self.changed.notify_all();
    }

    /// Waits until all events are acknowledged.
    pub(crate) fn wait(&self) {
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_owed =
            |acknowledged: &mut u32| *acknowledged != self.delivered.load(Ordering::Acquire);
        let _all = self.changed.wait_while(acknowledged, is_owed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let acks = Acks::default();
        acks.wait();
        acks.deliver();
        acks.deliver();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| acks.wait());
            acks.acknowledge(1);
            acks.acknowledge(1);
            waiter.join().unwrap();
        });
    }
}
