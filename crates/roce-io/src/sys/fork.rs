//! Forks of this process: which objects are a parent's, and moments at which none happens.

use std::{
    cell::Cell,
    mem, ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use super::descriptors;

/// The process in which an object was made. A child made by `fork`, or by a `clone` that copies the memory,
/// is another one; a child made by `vfork` has its parent's memory, and is the same.
///
/// ```
/// use roce_io::process::Generation;
///
/// let made = Generation::current();
/// assert!(made.is_current());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(u64);

/// Forks between the first process and this one, as far as they were noticed.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of this process where the kernel has no page for it.
static WITHOUT_PAGE: AtomicU64 = AtomicU64::new(FIRST);

/// The number of this process, in a page that the kernel fills with zeros in every child that gets a copy of
/// the memory: a child of a bare `clone` runs no handler.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const WITHOUT_PAGE).cast_mut());

/// The number of the first process.
const FIRST: u64 = 1;

fn number() -> &'static AtomicU64 {
    // SAFETY: it points to a static or to a page that is never unmapped, and an atomic of any bytes is valid.
    unsafe { &*NUMBER.load(Ordering::Relaxed) }
}

impl Generation {
    /// Returns the generation of the calling process.
    pub fn current() -> Self {
        watch();
        match number().load(Ordering::Acquire) {
            // A child that has run no handler.
            0 => {
                begin_as_child();
                Self(number().load(Ordering::Acquire))
            }
            number => Self(number),
        }
    }

    /// Returns true if there was no fork since. Costs two loads.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == number().load(Ordering::Relaxed)
    }
}

/// Has forks noticed.
fn watch() {
    // Not a `Once`: a child made while another thread runs it would wait for ever. A handler that is
    // registered twice counts a fork twice, which does no harm.
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.load(Ordering::Acquire) {
        return;
    }
    make_page();
    // SAFETY: the handlers access atomics, sleep, and make system calls, which may be done after a fork. A
    // refusal (no memory) leaves forks to the page.
    unsafe { libc::pthread_atfork(Some(before), Some(in_the_parent), Some(in_the_child)) };
    IS_WATCHED.store(true, Ordering::Release);
}

fn make_page() {
    let (len, rights) = (mem::size_of::<AtomicU64>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing; the advice is for it alone.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return;
        }
        if libc::madvise(page, len, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, len);
            return;
        }
        page.cast::<AtomicU64>()
    };
    // SAFETY: a whole page, aligned, of zeros.
    unsafe { &*page }.store(WITHOUT_PAGE.load(Ordering::Relaxed), Ordering::Relaxed);
    let before = (&raw const WITHOUT_PAGE).cast_mut();
    if NUMBER.compare_exchange(before, page, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: another thread was faster, and none has seen this page.
        unsafe { libc::munmap(page.cast(), len) };
    }
}

/// Threads between the making of a descriptor and its entry in the table.
static MAKING: AtomicU32 = AtomicU32::new(0);
/// Threads in `fork`.
static FORKING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Forks of this thread under way: it runs the handlers of others, which may make and close descriptors, and
    /// fork themselves.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What of [`MAKING`] is this thread: a signal handler that forks there does not wait for itself.
    static OWN_MAKING: Cell<u32> = const { Cell::new(0) };
}

/// Runs `make` while no fork happens: what it makes is then known to be this process's before a child has a
/// copy. It takes no lock, and does not call this.
pub(crate) fn between_forks<T>(make: impl FnOnce() -> T) -> T {
    // A child that has run no handler gives up what is its parent's before it makes anything of its own.
    let _begun = Generation::current();
    if DEPTH.get() > 0 {
        return make();
    }
    let mut is_counted = false;
    // A handler that runs in the middle of this forks itself: neither waits for ever.
    for _ in 0..MAX_NAPS {
        OWN_MAKING.set(OWN_MAKING.get() + 1);
        MAKING.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            is_counted = true;
            break;
        }
        MAKING.fetch_sub(1, Ordering::SeqCst);
        OWN_MAKING.set(OWN_MAKING.get() - 1);
        nap();
    }
    let made = make();
    if is_counted {
        // In a child, which has none counted, there is nothing to take away.
        let less = |it: u32| it.checked_sub(1);
        let _counted = MAKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        OWN_MAKING.set(OWN_MAKING.get() - 1);
    }
    made
}

/// Waits of [`NAP`] that a fork and the making of a descriptor wait for each other at most: a second.
const MAX_NAPS: u32 = 10_000;
const NAP: Duration = Duration::from_micros(100);

fn nap() {
    std::thread::sleep(NAP);
}

extern "C" fn before() {
    DEPTH.set(DEPTH.get() + 1);
    FORKING.fetch_add(1, Ordering::SeqCst);
    for _ in 0..MAX_NAPS {
        if MAKING.load(Ordering::SeqCst) <= OWN_MAKING.get() {
            return;
        }
        nap();
    }
}

extern "C" fn in_the_parent() {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    let _counted = FORKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
}

extern "C" fn in_the_child() {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    let has_page = !std::ptr::eq(number(), &raw const WITHOUT_PAGE);
    if has_page && number().load(Ordering::Acquire) != 0 {
        // Another handler has opened a device: what it has made is the child's.
        MAKING.store(0, Ordering::SeqCst);
        FORKING.store(0, Ordering::SeqCst);
        return;
    }
    begin_as_child();
}

/// Gives up what belongs to the parent.
fn begin_as_child() {
    MAKING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    let next = FORKS.fetch_add(1, Ordering::AcqRel) + 1 + FIRST;
    number().store(next, Ordering::Release);
    descriptors::give_up();
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_signal_handler_that_forks_while_its_thread_makes_a_descriptor_does_not_wait_for_that() {
        let took = between_forks(|| {
            let began = Instant::now();
            before();
            in_the_parent();
            began.elapsed()
        });
        assert!(took < MAX_NAPS * NAP / 2, "{took:?}");
    }

    #[test]
    fn a_handler_of_the_thread_that_forks_waits_for_no_fork() {
        before();
        let began = Instant::now();
        // As a program's handler of `fork` that was registered before ours. Ten would take ten seconds.
        (0..10).for_each(|_| between_forks(|| ()));
        let took = began.elapsed();
        in_the_parent();
        assert!(took < MAX_NAPS * NAP, "{took:?}");
    }
}
