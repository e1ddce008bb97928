//! Noticing `fork`: a child must not touch what its parent's threads were working on.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process in which something was made, seen over its line of descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Generation(u64);

impl Generation {
    /// The process that calls.
    pub(crate) fn current() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which may be done after a fork.
            // A refusal (no memory) leaves the generation as it is.
            unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        });
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
