//! Events that were delivered to the program, which it acknowledges.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Counts the events of one object. Destroying the object waits until the program has acknowledged
/// all that it was given.
///
/// The object is removed first from where events find it, under the lock under which they are counted.
/// So no event is delivered while this waits.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Events that were delivered and are not acknowledged. Programs acknowledge what they like, so the
    /// count wraps.
    owed: Mutex<u32>,
    changed: Condvar,
}

impl Acks {
    fn owed(&self) -> MutexGuard<'_, u32> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the program gets an event.
    pub(crate) fn deliver(&self) {
        let mut owed = self.owed();
        *owed = owed.wrapping_add(1);
    }

    /// Notes that the program has acknowledged `count` events, also in `completed`, the field of verbs.h that
    /// counts them.
    ///
    /// # Safety
    /// `completed` is a field of the object, which the program does not write.
    pub(crate) unsafe fn acknowledge(&self, count: u32, completed: *mut u32) {
        let mut owed = self.owed();
        // SAFETY: the caller's promise; the object lives at least until the last event is acknowledged.
        unsafe { *completed = (*completed).wrapping_add(count) };
        *owed = owed.wrapping_sub(count);
        if *owed == 0 {
            // With the lock held: afterwards the object, with this, may be gone.
            self.changed.notify_all();
        }
    }

    /// Waits until all events are acknowledged.
    pub(crate) fn wait(&self) {
        let _all = self.changed.wait_while(self.owed(), |owed| *owed != 0);
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
            let mut completed = 7;
            for _ in 0..2 {
                // SAFETY: a variable of this thread.
                unsafe { acks.acknowledge(1, &raw mut completed) };
            }
            waiter.join().unwrap();
            assert_eq!(completed, 9);
        });
    }
}
