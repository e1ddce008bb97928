//! Noticing `fork`: a child must not touch what its parent's threads were working on.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Counts the forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process in which something was made, seen over its line of descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Generation(u64);

impl Generation {
    /// The process that calls.
    pub(crate) fn current() -> Self {
        // Not a `Once`: a child that is made while another thread runs it would wait for ever. A
        // handler that is registered twice counts a fork twice, which does no harm.
        static IS_WATCHED: AtomicBool = AtomicBool::new(false);
        if !IS_WATCHED.load(Ordering::Acquire) {
            // SAFETY: the handler only adds to an atomic, which may be done after a fork.
            // A refusal (no memory) leaves the generation as it is.
            unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
            IS_WATCHED.store(true, Ordering::Release);
        }
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether no fork lies between then and now. Costs one load.
    pub(crate) fn is_current(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

extern "C" fn in_the_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A static value of which every process has its own.
///
/// A child after `fork` begins with the default one: a lock inside its parent's may be held by a
/// thread that the child does not have. What the parent's held is neither dropped nor freed in the
/// child.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    made: AtomicPtr<(Generation, T)>,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { made: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This process's value, if it has been asked for before.
    pub(crate) fn existing(&self) -> Option<&'static T> {
        let made = self.made.load(Ordering::Acquire);
        // SAFETY: the pointer is null or comes from `Box::into_raw` in `get`, and what it points
        // to is never changed or freed.
        let (generation, value) = unsafe { made.as_ref() }?;
        generation.is_current().then_some(value)
    }

    /// This process's value.
    pub(crate) fn get(&self) -> &'static T {
        loop {
            let before = self.made.load(Ordering::Acquire);
            if let Some(value) = self.existing() {
                return value;
            }
            let new = Box::into_raw(Box::new((Generation::current(), T::default())));
            let swap = self.made.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire);
            if swap.is_err() {
                // SAFETY: `new` comes from `Box::into_raw` above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}
