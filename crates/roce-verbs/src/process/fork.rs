//! Detects `fork`: a child must not touch the objects of its parent's threads.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rand::distr::{Distribution, StandardUniform};
use rand::rngs::OsRng;
use rand::{Rng, TryRngCore};

pub(crate) use roce_io::process::Generation;

/// Returns the kernel's random number generator, for numbers that must differ between processes.
///
/// `rand::rng()` has its state in the process: a child after `fork` would draw the same numbers as
/// its parent.
pub(crate) fn rng() -> impl Rng {
    OsRng.unwrap_err()
}

/// Draws a number that no other process draws.
pub(crate) fn random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    rng().random()
}

/// A static value that every process has for itself.
///
/// A child after `fork` begins with the default value: a lock inside its parent's may be held by a
/// thread that the child does not have. The parent's value is neither dropped nor freed in the
/// child.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    made: AtomicPtr<(Generation, T)>,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { made: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns this process's value, if [`get`](Self::get) has made it.
    pub(crate) fn existing(&self) -> Option<&'static T> {
        let made = self.made.load(Ordering::Acquire);
        // SAFETY: the pointer is null or comes from `Box::into_raw` in `get`, and what it points
        // to is never changed or freed.
        let (generation, value) = unsafe { made.as_ref() }?;
        generation.is_current().then_some(value)
    }

    /// Returns this process's value, which the first call makes.
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

/// Returns what `work` returns in a child after `fork`; `None` if the child does not end in ten seconds.
#[cfg(test)]
pub(crate) fn in_child(work: impl FnOnce() -> bool) -> Option<bool> {
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    // SAFETY: the child runs `work`, of tests that need no lock but those that they are about, and ends.
    let child = match unsafe { fork() }.unwrap() {
        // SAFETY: ends the process without running the handlers of the test program.
        ForkResult::Child => unsafe { libc::_exit(i32::from(work())) },
        ForkResult::Parent { child } => child,
    };
    for _ in 0..10_000 {
        if let WaitStatus::Exited(_, code) = waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            return Some(code == 1);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    use nix::unistd::{ForkResult, fork};

    #[test]
    fn a_child_after_fork_does_not_draw_the_numbers_of_its_parent() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let _state_before_the_fork: u64 = rng().random();
        // SAFETY: the child draws a number, writes it and ends; it takes no lock.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let is_written = writer.write_all(&rng().random::<u64>().to_ne_bytes()).is_ok();
                // SAFETY: ends the process without running the handlers of the test program.
                unsafe { libc::_exit(i32::from(!is_written)) }
            }
            ForkResult::Parent { child } => {
                drop(writer);
                let mut drawn = [0; 8];
                reader.read_exact(&mut drawn).unwrap();
                nix::sys::wait::waitpid(child, None).unwrap();
                assert_ne!(rng().random::<u64>(), u64::from_ne_bytes(drawn));
            }
        }
    }
}
