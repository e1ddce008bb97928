//! Asynchronous events of queue pairs and ports.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_transport::AsyncEvent;

/// Events that the application has not fetched; beyond [`MAX_EVENTS`] the oldest are dropped.
#[derive(Debug)]
pub(crate) struct EventQueue {
    fd: EventFd,
    events: Mutex<VecDeque<AsyncEvent>>,
}

/// Most events in the queue, so that a program that never polls does not fill the memory.
const MAX_EVENTS: usize = 1024;

impl EventQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let fd = EventFd::from_value_and_flags(0, flags).map_err(io::Error::from)?;
        Ok(Self { fd, events: Mutex::default() })
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == MAX_EVENTS {
            events.pop_front();
        } else {
            // One on the semaphore for each event in the list.
            let _written = self.fd.write(1);
        }
        events.push_back(event);
    }

    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let event = events.pop_front()?;
        let _read = self.fd.read();
        Some(event)
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
