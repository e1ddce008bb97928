//! Where threads run and how urgently: on one CPU, in the real-time class.

use std::io;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The thread that calls, in the kernel's calls about threads.
const SELF: Pid = Pid::from_raw(0);

/// The lowest priority of the real-time class: above every ordinary thread, below what an
/// administrator has made more urgent.
const PRIORITY: libc::c_int = 1;

/// Where a thread runs and how urgently. The default leaves both to the system.
///
/// ```
/// use roce_verbs::ThreadPlacement;
///
/// // Whatever the machine, the CPU that this runs on may be asked for.
/// let allowed = ThreadPlacement::allowed_cpus()?;
/// let placement = ThreadPlacement { cpu: allowed.first().copied(), realtime: false };
/// std::thread::spawn(move || placement.apply()).join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// The only CPU to run on, by the system's number; any when `None`.
    pub cpu: Option<usize>,
    /// Whether to run in the real-time class (`SCHED_FIFO`, lowest priority): ordinary
    /// threads of the same CPU then wait. Meant for machines with cores to spare: a thread
    /// that spins leaves others only what the kernel's throttle keeps for them.
    pub realtime: bool,
}

/// Why a thread could not be placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadPlacementError {
    /// There is no such CPU, or this process may not use it.
    #[error("CPU {cpu} is not one that this process may run on; it may run on {}", list(allowed))]
    NoSuchCpu {
        /// What was asked for.
        cpu: usize,
        /// What may be asked for.
        allowed: Vec<usize>,
    },
    /// The real-time class is not for this process.
    #[error(
        "the real-time class is not allowed here: it takes CAP_SYS_NICE (root of the machine, \
         or `setcap cap_sys_nice+ep` on the program) or a limit above 0 (`ulimit -r`, `rtprio` in \
         limits.conf); run without it otherwise"
    )]
    RealtimeNotAllowed,
    /// The kernel's other reasons.
    #[error("the system refused to place a thread: {0}")]
    System(#[from] io::Error),
}

impl ThreadPlacement {
    /// Puts the calling thread there. Threads that it starts later inherit it.
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

    /// The CPUs that the calling thread may run on, ascending.
    ///
    /// # Errors
    /// What the kernel says, which has no reason to refuse.
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
        // Beyond what a set can hold, not there, or not ours.
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

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to a thread of its own, so that the test's stays where it is.
    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().expect("no panic")
    }

    #[test]
    fn a_bound_thread_may_run_on_its_cpu_alone_and_one_let_go_on_all_again() {
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
    fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
        for cpu in [CpuSet::count() - 1, CpuSet::count(), usize::MAX] {
            let refusal =
                in_a_thread(move || ThreadPlacement { cpu: Some(cpu), realtime: false }.apply())
                    .unwrap_err();
            let allowed = ThreadPlacement::allowed_cpus().unwrap();
            let text = refusal.to_string();
            assert!(text.contains(&format!("may run on {}", list(&allowed))), "{text}");
        }
    }

    #[test]
    fn a_thread_is_realtime_afterwards_or_is_told_what_it_takes() {
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
