//! The first failure of several ranks.

use std::fmt::{self, Display, Formatter};

use nix::sys::signal::Signal;

/// The end of a rank that makes a run fail; shown, it is the sentence for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) rank: usize,
    /// Exit code as a shell gives it.
    pub(crate) code: u8,
    /// What the failure meant for the other ranks.
    pub(crate) others: Others,
}

/// The other ranks of a run, of which one has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// They ended without a signal of this command, or there are none.
    Ended,
    /// They were told to end.
    Stopped,
    /// They waited for the failed rank to listen.
    NotStarted,
}

impl Display for Failure {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "rank {} ", self.rank)?;
        match signal_of(self.code) {
            Some(signal) => write!(out, "was ended by {}", Shown(signal))?,
            None => write!(out, "ended with code {}", self.code)?,
        }
        match self.others {
            Others::Ended => Ok(()),
            Others::Stopped => write!(out, ", so the others were stopped"),
            Others::NotStarted => {
                write!(
                    out,
                    " before it listened on a TCP port or by rdma_cm, so the others were not started"
                )
            }
        }
    }
}

/// Returns the signal that an exit code stands for. The process that waits for the program has this
/// code only.
fn signal_of(code: u8) -> Option<Signal> {
    Signal::try_from(i32::from(code.checked_sub(128)?)).ok()
}

/// A signal with its number and its name.
pub(crate) struct Shown(pub(crate) Signal);

impl Display for Shown {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "signal {} ({})", self.0 as i32, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_rank_its_end_and_what_became_of_the_others() {
        let text = |rank, code, others| Failure { rank, code, others }.to_string();
        assert_eq!(text(1, 139, Others::Ended), "rank 1 was ended by signal 11 (SIGSEGV)");
        assert_eq!(
            text(0, 7, Others::Stopped),
            "rank 0 ended with code 7, so the others were stopped"
        );
        assert_eq!(text(2, 128, Others::Ended), "rank 2 ended with code 128");
        assert_eq!(text(2, 255, Others::Ended), "rank 2 ended with code 255");
        assert_eq!(
            text(0, 1, Others::NotStarted),
            "rank 0 ended with code 1 before it listened on a TCP port or by rdma_cm, so the others were not started"
        );
    }
}
