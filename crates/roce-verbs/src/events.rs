//! Asynchronous events of queue pairs and ports.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use roce_transport::{AsyncEvent, EventSource};
use roce_wire::Qpn;

use crate::event_descriptor::EventDescriptor;
use crate::process::fork;

/// Most events in a queue, so that a program that never polls does not fill the memory.
const MAX_EVENTS: usize = 1024;

/// Events of one context that the application has not fetched; beyond [`MAX_EVENTS`] the oldest are
/// dropped.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// Counts the events in the list; used with its lock held.
    fd: EventDescriptor,
    events: Mutex<VecDeque<AsyncEvent>>,
    /// The context was shut down; written under the engine's lock.
    is_shut_down: AtomicBool,
    generation: fork::Generation,
}

impl EventQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: EventDescriptor::new()?,
            events: Mutex::default(),
            is_shut_down: AtomicBool::new(false),
            generation: fork::Generation::current(),
        })
    }

    /// Notes that the context has no queue pairs any more.
    pub(crate) fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Relaxed);
    }

    /// Returns true if the context has no queue pairs any more. The caller holds the engine's lock.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Relaxed)
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<AsyncEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        self.push_of(event, || true);
    }

    /// Adds an event unless its object `is_alive` no more, which is tested under the lock that
    /// [`remove`](Self::remove) takes.
    pub(crate) fn push_of(&self, event: AsyncEvent, is_alive: impl FnOnce() -> bool) {
        let mut events = self.events();
        if !is_alive() {
            return;
        }
        if events.len() == MAX_EVENTS {
            events.pop_front();
        } else {
            self.fd.added();
        }
        events.push_back(event);
    }

    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        // A child after fork shares the descriptor with its parent, and may inherit a locked list.
        if !self.generation.is_current() {
            return None;
        }
        let mut events = self.events();
        let event = events.pop_front()?;
        self.fd.removed(events.len());
        Some(event)
    }

    /// Notes that the program has read the descriptor.
    pub(crate) fn on_read(&self) {
        if self.generation.is_current() {
            let events = self.events();
            self.fd.count_anew(events.len());
        }
    }

    /// Removes the events of an object that was destroyed.
    pub(crate) fn remove(&self, source: EventSource) {
        if !self.generation.is_current() {
            return;
        }
        let mut events = self.events();
        events.retain(|event| event.source() != source);
        self.fd.removed(events.len());
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Which context gets an event: that of its object, and all of them for events of the port.
#[derive(Debug, Default)]
pub(crate) struct EventRouter {
    contexts: Vec<Weak<EventQueue>>,
    /// Those of queue pairs and shared receive queues. A completion queue knows its own.
    owners: HashMap<EventSource, Arc<EventQueue>>,
}

impl EventRouter {
    /// Adds a context.
    pub(crate) fn add_context(&mut self, events: &Arc<EventQueue>) {
        self.contexts.retain(|context| context.strong_count() > 0);
        self.contexts.push(Arc::downgrade(events));
    }

    /// Adds an object of a context.
    pub(crate) fn add(&mut self, source: EventSource, events: Arc<EventQueue>) {
        self.owners.insert(source, events);
    }

    /// Removes an object, and its events that were not fetched.
    pub(crate) fn remove(&mut self, source: EventSource) {
        if let Some(events) = self.owners.remove(&source) {
            events.remove(source);
        }
    }

    /// Returns the queue pairs of a context.
    pub(crate) fn queue_pairs_of(&self, context: &Arc<EventQueue>) -> Vec<Qpn> {
        let of_context = self.owners.iter().filter(|(_, owner)| Arc::ptr_eq(owner, context));
        let numbers = of_context.filter_map(|(source, _)| match source {
            EventSource::QueuePair(qpn) => Some(*qpn),
            _ => None,
        });
        numbers.collect()
    }

    /// Delivers an event of a port, a queue pair or a shared receive queue.
    pub(crate) fn push(&self, event: AsyncEvent) {
        match event.source() {
            EventSource::Port => {
                self.contexts.iter().filter_map(Weak::upgrade).for_each(|it| it.push(event));
            }
            source => {
                if let Some(events) = self.owners.get(&source) {
                    events.push(event);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce_transport::SrqHandle;
    use roce_wire::Qpn;

    const EVENT: AsyncEvent = AsyncEvent::QpFatal { qpn: Qpn::GSI };
    const OTHER: AsyncEvent = AsyncEvent::SrqLimitReached { srq: SrqHandle(3) };

    fn two_contexts() -> (EventRouter, [Arc<EventQueue>; 2]) {
        let mut router = EventRouter::default();
        let contexts = [(), ()].map(|()| Arc::new(EventQueue::new().unwrap()));
        contexts.iter().for_each(|context| router.add_context(context));
        (router, contexts)
    }

    fn all(queue: &EventQueue) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| queue.take()).collect()
    }

    #[test]
    fn an_event_of_an_object_goes_to_its_context_and_one_of_the_port_to_all() {
        let (mut router, [first, second]) = two_contexts();
        router.add(EVENT.source(), Arc::clone(&second));
        router.push(EVENT);
        router.push(AsyncEvent::GidChange);
        assert_eq!(all(&first), [AsyncEvent::GidChange]);
        assert_eq!(all(&second), [EVENT, AsyncEvent::GidChange]);
    }

    #[test]
    fn events_of_a_destroyed_object_are_gone_and_the_descriptor_counts_the_others_alone() {
        let (mut router, [context, _]) = two_contexts();
        router.add(EVENT.source(), Arc::clone(&context));
        router.add(OTHER.source(), Arc::clone(&context));
        for event in [EVENT, OTHER, EVENT] {
            router.push(event);
        }
        router.remove(EVENT.source());
        router.push(EVENT);
        assert_eq!(all(&context), [OTHER]);
        let mut fds = [nix::poll::PollFd::new(context.as_fd(), nix::poll::PollFlags::POLLIN)];
        let none = nix::poll::PollTimeout::ZERO;
        assert_eq!(nix::poll::poll(&mut fds, none).unwrap(), 0, "the descriptor is not readable");
    }
}
