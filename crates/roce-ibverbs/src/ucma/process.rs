//! The channels and identifiers of a process.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_verbs::Generation;

use super::channel::Channel;
use super::cookies::{Cookies, cookie_of};
use super::identifiers::Identifiers;
use super::joins::Joins;

/// What one process has. It lives for ever: a child made by `fork` makes its own, and leaves its parent's
/// alone, in which another thread may hold the lock.
#[derive(Debug)]
pub(super) struct Process {
    id: libc::pid_t,
    generation: Generation,
    /// What the parent had, before a child after `fork` made its own.
    parent: *const Process,
    cookies: Cookies,
    state: Mutex<State>,
}

// SAFETY: the pointer leads to another process's part, which lives for ever and is itself `Sync`.
unsafe impl Send for Process {}
// SAFETY: as above.
unsafe impl Sync for Process {}

/// What the lock is for. Events leave their channel, and are counted, only with the lock held; so
/// an identifier that is destroyed has been told of all or of none of an event.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The channels by cookie.
    pub(super) channels: HashMap<u64, Arc<Channel>>,
    pub(super) ids: Identifiers,
    pub(super) joins: Joins,
}

/// The process that runs now, if it had a channel.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// What a descriptor is.
pub(super) enum Lookup {
    /// A channel of this process.
    Channel(&'static Process, Arc<Channel>),
    /// A channel that a parent has opened.
    Inherited,
    /// Anything else.
    Foreign,
}

/// Finds the channel of a descriptor.
pub(super) fn find(fd: c_int) -> Lookup {
    // SAFETY: null, or leaked by `of_caller`.
    let Some(mut process) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else {
        return Lookup::Foreign;
    };
    let cookie = cookie_of(fd);
    if cookie == 0 {
        return Lookup::Foreign;
    }
    if process.id == own_id() && process.cookies.has(cookie) {
        let channel = process.state().channels.get(&cookie).map(Arc::clone);
        return channel.map_or(Lookup::Foreign, |channel| Lookup::Channel(process, channel));
    }
    loop {
        if process.id != own_id() && process.cookies.has(cookie) {
            return Lookup::Inherited;
        }
        // SAFETY: as above.
        match unsafe { process.parent.as_ref() } {
            Some(parent) => process = parent,
            None => return Lookup::Foreign,
        }
    }
}

fn own_id() -> libc::pid_t {
    // SAFETY: has no requirement.
    unsafe { libc::getpid() }
}

impl Process {
    /// Returns the calling process's part, which the first call makes; `None` in a child after `vfork` of a
    /// process that has one. It has the memory of its parent, which would lose its part.
    pub(super) fn of_caller() -> Option<&'static Self> {
        loop {
            let before = CURRENT.load(Ordering::Acquire);
            // SAFETY: null, or leaked below.
            if let Some(process) = unsafe { before.as_ref() } {
                if process.id == own_id() {
                    return Some(process);
                }
                if process.generation.is_current() {
                    return None;
                }
            }
            let new = Box::into_raw(Box::new(Self {
                id: own_id(),
                generation: Generation::current(),
                parent: before,
                cookies: Cookies::default(),
                state: Mutex::default(),
            }));
            if CURRENT.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: from `Box::into_raw` above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a channel.
    pub(super) fn add(&self, channel: Channel) {
        let cookie = channel.cookie;
        self.state().channels.insert(cookie, Arc::new(channel));
        self.cookies.add(cookie);
    }

    /// Ends a channel and the identifiers on it.
    pub(super) fn release(&self, channel: &Channel) {
        self.cookies.remove(channel.cookie);
        let mut state = self.state();
        state.channels.remove(&channel.cookie);
        state.joins.remove_those_on(channel.cookie);
        for identifier in state.ids.take_those_of(channel.cookie) {
            identifier.id.destroy();
        }
    }

    /// Releases the channels whose descriptors were closed without a call of `close`: by `dup2`, for
    /// instance.
    pub(super) fn release_closed(&self) {
        let channels: Vec<_> = self.state().channels.values().map(Arc::clone).collect();
        for channel in channels.iter().filter(|channel| channel.bell.is_hung_up()) {
            self.release(channel);
        }
    }
}
