//! The requests between `ibv_wr_start` and `ibv_wr_complete`.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use roce_abi::ibv_ah;
use roce_verbs::{InlineData, SendWr};

/// The requests between `ibv_wr_start` and `ibv_wr_complete`. A program may use a queue pair from
/// several threads: the one that has started holds the lock of the structure until it completes.
#[derive(Default)]
pub(crate) struct Staging(UnsafeCell<Staged>);

impl Staging {
    /// Changes what is staged.
    ///
    /// # Safety
    /// The calling thread holds the lock of the queue pair's structure, and `change` does not call this.
    pub(crate) unsafe fn with<T>(&self, change: impl FnOnce(&mut Staged) -> T) -> T {
        // SAFETY: the caller's promise.
        change(unsafe { &mut *self.0.get() })
    }
}

/// The requests, and what they need.

#[derive(Default)]
pub(crate) struct Staged {
    pub(crate) requests: Vec<SendWr>,
    /// The destinations of datagrams, by the position of the request.
    pub(crate) destinations: Vec<Option<(*mut ibv_ah, u32, u32)>>,
    /// Memory for long inline data.
    pub(crate) buffers: Vec<InlineData>,
    /// The `errno` value of the first call that failed.
    pub(crate) failed: c_int,
}

impl Staged {
    /// Removes the requests. Memory is kept for the next ones.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.destinations.clear();
    }
}
