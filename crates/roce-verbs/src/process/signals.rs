//! Signals that wait until a thread has left a section.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Signals that the kernel sends to a thread because of what it executes.
const FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

/// Returns all signals except those of faults. The kernel ends a process of which a thread faults that blocks the
/// signal, without a call of the handler that the program may have.
pub(crate) fn all_but_faults() -> SigSet {
    let mut signals = SigSet::all();
    FAULTS.into_iter().for_each(|signal| signals.remove(signal));
    signals
}

/// Blocks the signals of the thread that makes it, except those of faults, until it is dropped: no handler of the
/// program, which may call `exit`, interrupts a section whose lock `exit` needs. For short sections that no request
/// passes through: it costs two system calls.
#[derive(Debug)]
pub(crate) struct SignalsBlocked {
    /// Those that the thread had not blocked before.
    ours: SigSet,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        let mut ours = all_but_faults();
        match ours.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
            Ok(before) => before.iter().for_each(|signal| ours.remove(signal)),
            Err(_) => ours.clear(),
        }
        Self { ours }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // Not the mask of before: the section may have unblocked the signals of faults.
        let _unblocked = self.ours.thread_unblock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_for_the_end_of_the_section_and_those_of_faults_stay_as_the_section_leaves_them()
    {
        let is_blocked = |signal| SigSet::thread_get_mask().unwrap().contains(signal);
        let mut own = SigSet::empty();
        own.add(Signal::SIGUSR2);
        own.add(Signal::SIGSEGV);
        own.thread_block().unwrap();
        let section = SignalsBlocked::new();
        assert!(is_blocked(Signal::SIGALRM) && is_blocked(Signal::SIGTERM));
        assert!(!is_blocked(Signal::SIGBUS));
        // As the first verb of a thread does.
        let mut fault = SigSet::empty();
        fault.add(Signal::SIGSEGV);
        fault.thread_unblock().unwrap();
        drop(section);
        assert!(!is_blocked(Signal::SIGALRM) && !is_blocked(Signal::SIGTERM));
        assert!(is_blocked(Signal::SIGUSR2) && !is_blocked(Signal::SIGSEGV));
    }
}
