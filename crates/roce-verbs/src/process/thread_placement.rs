//! The CPU and the scheduling class of threads.

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread, in system calls about threads.
const SELF: Pid = Pid::from_raw(0);

/// The lowest priority of the real-time class: above every ordinary thread, below threads to which an
/// administrator gave a higher one.
const PRIORITY: libc::c_int = 1;

/// Time slice of a driver thread: the shortest that the kernel grants.
const SHORT_SLICE: Duration = Duration::from_micros(100);

/// The CPU and scheduling class of a thread. The default leaves both to the system.
///
/// ```
/// use roce_verbs::ThreadPlacement;
///
/// // A CPU that this process may use on any machine.
/// let allowed = ThreadPlacement::allowed_cpus()?;
/// let placement = ThreadPlacement { cpu: allowed.first().copied(), realtime: false };
/// std::thread::spawn(move || placement.apply()).join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// The only CPU to run on, by the system's number; any CPU when `None`.
    pub cpu: Option<usize>,
    /// Run in the real-time class (`SCHED_FIFO`, lowest priority): ordinary threads of the same CPU
    /// then wait. For machines with idle cores: a thread that spins leaves the others only the time
    /// that the kernel's throttle reserves.
    pub realtime: bool,
}

/// An error of the placement of a thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadPlacementError {
    /// There is no such CPU, or this process may not use it.
    #[error("this process may not run on CPU {cpu}; choose one of {}", list(allowed))]
    NoSuchCpu {
        /// The requested CPU.
        cpu: usize,
        /// The CPUs that the process may use.
        allowed: Vec<usize>,
    },
    /// This process may not use the real-time class.
    #[error(
        "the real-time class is not allowed here: it takes CAP_SYS_NICE (root of the machine, \
         or `setcap cap_sys_nice+ep` on the program) or a limit above 0 (`ulimit -r`, `rtprio` in \
         limits.conf); run without it otherwise"
    )]
    RealtimeNotAllowed,
    /// Another error of the system.
    #[error("the system refused to place a thread: {0}")]
    System(#[from] io::Error),
}

impl ThreadPlacement {
    /// Places the calling thread. Threads that it starts later inherit the placement.
    ///
    /// # Errors
    /// [`ThreadPlacementError`]; the thread may then be bound to its CPU, but is not in the
    /// real-time class.
    pub fn apply(self) -> Result<(), ThreadPlacementError> {
        if let Some(cpu) = self.cpu {
            bind(cpu)?;
        }
        if self.realtime { become_realtime() } else { Ok(()) }
    }

    /// Returns the CPUs that the calling thread may run on, ascending.
    ///
    /// # Errors
    /// That of the system call, which normally does not fail.
    pub fn allowed_cpus() -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(SELF)?;
        Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
    }
}

/// Lets the calling thread run on every CPU, whatever its creator was bound to.
pub(crate) fn unbind() {
    let mut everywhere = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        let _set = everywhere.set(cpu);
    }
    let _allowed = sched_setaffinity(SELF, &everywhere);
}

fn bind(cpu: usize) -> Result<(), ThreadPlacementError> {
    let mut set = CpuSet::new();
    match set.set(cpu).and_then(|()| sched_setaffinity(SELF, &set)) {
        Ok(()) => Ok(()),
        // The number is too large for a set, or the CPU does not exist or is not allowed.
        Err(Errno::EINVAL) => {
            Err(ThreadPlacementError::NoSuchCpu { cpu, allowed: ThreadPlacement::allowed_cpus()? })
        }
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

fn become_realtime() -> Result<(), ThreadPlacementError> {
    // Children made by `fork` begin as ordinary threads: a shell started from here must not
    // inherit what only this thread was granted.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a whole `sched_param` that outlives the call; 0 is the
    // calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return Ok(());
    }
    match Errno::last() {
        Errno::EPERM => Err(ThreadPlacementError::RealtimeNotAllowed),
        errno => Err(io::Error::from(errno).into()),
    }
}

/// Asks for the shortest time slices for the calling thread, unless it has another scheduling class.
///
/// Since Linux 6.12 such a thread, when it wakes, runs at once on a CPU whose thread has longer slices,
/// for instance a program that reads its memory until a message comes. Otherwise it could wait for
/// the end of that slice, some milliseconds. It gets no larger share of the CPU. Older kernels ignore
/// the request.
///
/// # Errors
/// That of the system calls. The thread is then as it was.
pub(crate) fn shorten_slices() -> io::Result<()> {
    let attributes = attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    let shorter = libc::sched_attr { sched_runtime: SHORT_SLICE.as_nanos() as u64, ..attributes };
    // SAFETY: the pointer is to a whole `sched_attr` that outlives the call; the first 0 is the
    // calling thread, the second no flags.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const shorter, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the scheduling attributes of the calling thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is to `size` bytes that outlive the call; the first 0 is the calling
    // thread, the second no flags.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` in a thread of its own, so that the thread of the test is not moved.
    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().expect("no panic")
    }

    #[test]
    fn a_bound_thread_may_run_on_its_cpu_alone_and_an_unbound_one_on_all() {
        let before = ThreadPlacement::allowed_cpus().unwrap();
        let cpu = *before.last().unwrap();
        let [bound, free] = in_a_thread(move || {
            ThreadPlacement { cpu: Some(cpu), realtime: false }.apply().unwrap();
            let bound = ThreadPlacement::allowed_cpus().unwrap();
            unbind();
            [bound, ThreadPlacement::allowed_cpus().unwrap()]
        });
        assert_eq!(bound, [cpu]);
        assert!(before.iter().all(|cpu| free.contains(cpu)), "{free:?}");
    }

    #[test]
    fn a_thread_with_short_slices_keeps_its_class_and_its_nice_value() {
        let [before, after] = in_a_thread(|| {
            // SAFETY: two plain numbers; the thread ends with this test.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 7) };
            let before = attributes().unwrap();
            shorten_slices().unwrap();
            [before, attributes().unwrap()]
        });
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, 7));
        // A kernel that does not know slices of threads reports none.
        let expected = if before.sched_runtime == 0 { 0 } else { SHORT_SLICE.as_nanos() as u64 };
        assert_eq!(after.sched_runtime, expected);
    }

    #[test]
    fn an_error_about_a_missing_cpu_lists_the_allowed_ones() {
        for cpu in [CpuSet::count() - 1, CpuSet::count(), usize::MAX] {
            let refusal =
                in_a_thread(move || ThreadPlacement { cpu: Some(cpu), realtime: false }.apply())
                    .unwrap_err();
            let allowed = ThreadPlacement::allowed_cpus().unwrap();
            let text = refusal.to_string();
            assert!(text.contains(&format!("choose one of {}", list(&allowed))), "{text}");
        }
    }

    #[test]
    fn a_thread_becomes_realtime_or_gets_an_error_that_names_the_capability() {
        let (outcome, policy) = in_a_thread(|| {
            let outcome = ThreadPlacement { cpu: None, realtime: true }.apply();
            // SAFETY: it only asks; 0 is the calling thread.
            (outcome, unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK)
        });
        match outcome {
            Ok(()) => assert_eq!(policy, libc::SCHED_FIFO),
            Err(error) => {
                assert!(error.to_string().contains("CAP_SYS_NICE"), "{error}");
                assert_eq!(policy, libc::SCHED_OTHER);
            }
        }
    }
}
