//! The action that the program has chosen for a signal, which handlers read at any time.

use core::ffi::c_int;
use core::mem::{MaybeUninit, zeroed};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// What a program passes to `sigaction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) handler: usize,
    pub(super) flags: c_int,
    /// The signals that the kernel knows.
    pub(super) mask: u64,
}

impl Action {
    pub(super) fn of(c: &libc::sigaction) -> Self {
        // SAFETY: a set is at least eight bytes, the first of them those of the kernel's signals.
        let mask = unsafe { (&raw const c.sa_mask).cast::<u64>().read_unaligned() };
        Self { handler: c.sa_sigaction, flags: c.sa_flags, mask }
    }

    pub(super) fn to_c(self) -> libc::sigaction {
        // SAFETY: integers, and an optional function.
        let mut c: libc::sigaction = unsafe { zeroed() };
        (c.sa_sigaction, c.sa_flags) = (self.handler, self.flags);
        // SAFETY: as in `of`.
        unsafe { (&raw mut c.sa_mask).cast::<u64>().write_unaligned(self.mask) };
        c
    }
}

/// A program's action for one signal.
///
/// A reader waits for no writer: there are two places, and `version` says which is valid. So a child of a
/// process that was forked during a write has a whole action too.
#[derive(Debug)]
pub(super) struct ProgramAction {
    version: AtomicU32,
    places: [Place; 2],
}

#[derive(Debug)]
struct Place {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl Place {
    const fn new() -> Self {
        let (handler, flags) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));
        Self { handler, flags, mask: AtomicU64::new(0) }
    }
}

impl ProgramAction {
    pub(super) const fn new() -> Self {
        Self { version: AtomicU32::new(0), places: [Place::new(), Place::new()] }
    }

    pub(super) fn load(&self) -> Action {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let place = &self.places[version as usize % 2];
            let action = Action {
                handler: place.handler.load(Ordering::Relaxed),
                flags: place.flags.load(Ordering::Relaxed),
                mask: place.mask.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return action;
            }
        }
    }

    pub(super) fn store(&self, _: &Writing, action: Action) {
        let next = self.version.load(Ordering::Relaxed).wrapping_add(1);
        let place = &self.places[next as usize % 2];
        fence(Ordering::Release);
        place.handler.store(action.handler, Ordering::Relaxed);
        place.flags.store(action.flags, Ordering::Relaxed);
        place.mask.store(action.mask, Ordering::Relaxed);
        self.version.store(next, Ordering::Release);
    }
}

/// The right to change actions, of one thread at a time, which no handler interrupts.
#[derive(Debug)]
pub(super) struct Writing {
    /// The thread's mask of before.
    mask: libc::sigset_t,
}

/// The process whose thread changes actions; 0 for none. In a child of `fork` the number of its parent
/// stands for none, since the child does not have that thread.
static WRITER: AtomicI32 = AtomicI32::new(0);

impl Writing {
    pub(super) fn begin() -> Self {
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are the stack's, and initialised by the calls, which handlers may make.
        let (mask, own) = unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), mask.as_mut_ptr());
            (mask.assume_init(), libc::getpid())
        };
        loop {
            let holder = WRITER.load(Ordering::Relaxed);
            if holder != own
                && WRITER
                    .compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Self { mask };
            }
            core::hint::spin_loop();
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        WRITER.store(0, Ordering::Release);
        // SAFETY: the thread's own mask of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_read_as_it_was_written_although_others_are_written_meanwhile() {
        static ACTION: ProgramAction = ProgramAction::new();
        let of = |n: usize| Action { handler: n, flags: n as c_int, mask: n as u64 };
        std::thread::scope(|scope| {
            for writer in 0..2 {
                scope.spawn(move || {
                    for n in 0..20_000 {
                        ACTION.store(&Writing::begin(), of(2 * n + writer));
                    }
                });
            }
            for _ in 0..100_000 {
                let seen = ACTION.load();
                assert_eq!(seen, of(seen.handler));
            }
        });
    }

    #[test]
    fn an_action_is_the_same_behind_the_structure_of_c() {
        let action = Action { handler: 0x1234, flags: libc::SA_ONSTACK, mask: 1 << 63 | 5 };
        assert_eq!(Action::of(&action.to_c()), action);
    }

    #[test]
    fn a_child_of_fork_waits_for_no_writer_of_its_parent() {
        let writing = Writing::begin();
        // SAFETY: the child takes and gives back the right, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(Writing::begin());
            // SAFETY: ends the process without running the handlers of the test program.
            unsafe { libc::_exit(0) }
        }
        drop(writing);
        let mut status = 0;
        // SAFETY: waits for the own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
