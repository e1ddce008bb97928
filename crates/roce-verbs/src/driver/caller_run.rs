//! The run of posts that the calling thread is in.

use std::cell::Cell;

use roce_engine::policy::CallerRun;

std::thread_local! {
    /// The run of posts that this thread is in, and the shard of which (an address, which is
    /// only compared).
    static RUN: Cell<(usize, CallerRun)> = const { Cell::new((0, CallerRun::NONE)) };
}

/// Ends the calling thread's run of posts.
#[inline]
pub(super) fn end_run() {
    RUN.set((0, CallerRun::NONE));
}

/// Returns the calling thread's run of posts to the shard at this address.
#[inline]
pub(super) fn run_on(shard: usize) -> CallerRun {
    match RUN.get() {
        (its, run) if its == shard => run,
        _ => CallerRun::NONE,
    }
}

/// Notes the calling thread's run of posts to the shard at this address.
#[inline]
pub(super) fn set_run(shard: usize, run: CallerRun) {
    RUN.set((shard, run));
}
