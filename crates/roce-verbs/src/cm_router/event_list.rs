//! The events of a channel that wait for the program.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_io::process::Own;

use crate::process::fork;

/// What is told when events enter or leave the list of a channel.
///
/// It is called with locks held, from any thread that drives a device: it must not call into this
/// crate, and must not wait.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use roce_verbs::cm::EventNotifier;
///
/// /// Counts the events that wait.
/// #[derive(Default)]
/// struct Waiting(AtomicUsize);
///
/// impl EventNotifier for Waiting {
///     fn added(&self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///     fn removed(&self, count: usize) {
///         self.0.fetch_sub(count, Ordering::Relaxed);
///     }
/// }
/// let waiting = Waiting::default();
/// waiting.added();
/// waiting.removed(1);
/// assert_eq!(waiting.0.into_inner(), 0);
/// ```
pub trait EventNotifier: Send + Sync {
    /// An event has entered the list.
    fn added(&self);
    /// So many events have left the list.
    fn removed(&self, count: usize);
}

/// What shows that events wait.
pub(crate) enum Signal {
    /// A semaphore: a descriptor that is readable while events wait.
    Descriptor(Own<EventFd>),
    /// A notifier of the program's.
    Notifier(Arc<dyn EventNotifier>),
}

impl Signal {
    pub(crate) fn descriptor() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_SEMAPHORE | EfdFlags::EFD_NONBLOCK;
        Ok(Self::Descriptor(Own::make(|| EventFd::from_value_and_flags(0, flags))?))
    }

    fn added(&self) {
        match self {
            Self::Descriptor(fd) => {
                let _written = fd.write(1);
            }
            Self::Notifier(notifier) => notifier.added(),
        }
    }

    fn removed(&self, count: usize) {
        match self {
            Self::Descriptor(fd) => {
                for _ in 0..count {
                    let _read = fd.read();
                }
            }
            Self::Notifier(notifier) if count > 0 => notifier.removed(count),
            Self::Notifier(_) => {}
        }
    }
}

/// The events of a channel that wait for the program.
pub(crate) struct EventList<T> {
    waiting: Mutex<Waiting<T>>,
    signal: Signal,
    generation: fork::Generation,
}

struct Waiting<T> {
    events: VecDeque<T>,
    /// The channel is gone.
    is_closed: bool,
}

impl<T> EventList<T> {
    pub(crate) fn new(signal: Signal) -> Self {
        let waiting = Mutex::new(Waiting { events: VecDeque::new(), is_closed: false });
        Self { waiting, signal, generation: fork::Generation::current() }
    }

    /// Returns true in the process that made it.
    pub(crate) fn is_current(&self) -> bool {
        self.generation.is_current()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, unless the channel is gone.
    pub(crate) fn push(&self, event: T) {
        let mut waiting = self.waiting();
        if !waiting.is_closed {
            waiting.events.push_back(event);
            self.signal.added();
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        // A child after fork may inherit a locked list.
        if !self.is_current() {
            return None;
        }
        let mut waiting = self.waiting();
        let event = waiting.events.pop_front()?;
        self.signal.removed(1);
        Some(event)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_current() || self.waiting().events.is_empty()
    }

    /// Removes the events that `leaves` selects, and returns them in their order.
    pub(crate) fn take(&self, leaves: impl Fn(&T) -> bool) -> Vec<T> {
        let mut waiting = self.waiting();
        let all = std::mem::take(&mut waiting.events);
        let (taken, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(leaves);
        waiting.events = stay.into();
        self.signal.removed(taken.len());
        taken
    }

    /// Removes all events, and takes no more.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        let all: Vec<_> = std::mem::take(&mut waiting.events).into();
        self.signal.removed(all.len());
        all
    }

    /// Returns the descriptor that is readable while events wait, if it has one.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.signal {
            Signal::Descriptor(fd) => Some(fd.as_fd()),
            Signal::Notifier(_) => None,
        }
    }
}

impl<T> std::fmt::Debug for EventList<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventList").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout};

    fn is_readable(list: &EventList<u32>) -> bool {
        let mut fds = [PollFd::new(list.fd().unwrap(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_events_wait() {
        let list = EventList::new(Signal::descriptor().unwrap());
        assert!(!is_readable(&list) && list.is_empty());
        (0..4).for_each(|event| list.push(event));
        assert_eq!(list.take(|event| event % 2 == 1), [1, 3]);
        assert!(is_readable(&list) && !list.is_empty());
        assert_eq!((list.pop(), is_readable(&list)), (Some(0), true));
        assert_eq!((list.pop(), is_readable(&list), list.pop()), (Some(2), false, None));
        list.push(5);
        assert_eq!((list.close(), is_readable(&list)), (vec![5], false));
        list.push(6);
        assert!(list.is_empty() && !is_readable(&list));
    }
}
