//! Scripted faults of verbs: which call or completion meets which fault, as a sentence such as `fail
//! post-send 3 of queue pair 2 with ENOMEM`.
//!
//! [`VerbRule::parse`] reads a sentence and `Display` writes it; [`VerbCounter`] finds the calls and
//! completions.

mod errno;
mod moment;
mod names;
mod outcome;
mod text;

pub use self::errno::Errno;
pub use self::moment::VerbMoment;
pub use self::outcome::{FaultEventKind, FaultStatus};
use crate::sentence::Which;

/// A fault, and the calls or completions that meet it.
///
/// ```
/// use roce_faults::{VerbFault, VerbMoment, VerbRule};
///
/// let rule = VerbRule::parse("fail ibv_post_send 3 of queue pair 2 with ENOMEM")?;
/// assert_eq!(rule.at.moment, VerbMoment::PostSend);
/// assert!(matches!(rule.fault, VerbFault::Errno(errno) if errno.code() == 12));
/// assert_eq!(rule.to_string(), "fail post-send 3 of queue pair 2 with ENOMEM");
/// let error = VerbRule::parse("fail post-send 3 with ENOMEN").unwrap_err();
/// assert_eq!(error.word, "ENOMEN");
/// # Ok::<(), roce_faults::FaultRuleError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerbRule {
    /// What happens.
    pub fault: VerbFault,
    /// When it happens.
    pub at: VerbSelector,
}

/// What happens at a call or a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerbFault {
    /// The call fails with this error, and does nothing else.
    Errno(Errno),
    /// The completion has this status, and its queue pair fails.
    Status(FaultStatus),
    /// This event is raised.
    Raise(FaultEventKind),
}

/// Which calls or completions are meant. Where nothing is said, all are: of every queue pair and rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerbSelector {
    /// Kind; the others are not counted.
    pub moment: VerbMoment,
    /// Which of them.
    pub which: Which,
    /// Queue pair, from 1 in the order in which the process makes them.
    pub queue_pair: Option<u32>,
    /// Rank, from 0.
    pub rank: Option<u32>,
}

/// Finds the calls or completions of one [`VerbSelector`].
#[derive(Clone, Debug)]
pub struct VerbCounter {
    selector: VerbSelector,
    seen: u64,
}

impl VerbCounter {
    /// Begins before the first call.
    pub const fn new(selector: VerbSelector) -> Self {
        Self { selector, seen: 0 }
    }

    /// Counts the next call or completion, of a queue pair by its number if it has one; returns true if
    /// it is one of those that are meant.
    ///
    /// ```
    /// use roce_faults::{VerbCounter, VerbMoment, VerbRule};
    ///
    /// let rule = VerbRule::parse("fail completion from 2 with retry-exceeded").unwrap();
    /// let mut counter = VerbCounter::new(rule.at);
    /// assert!(!counter.admits(VerbMoment::SendCompletion, Some(1)));
    /// assert!(!counter.admits(VerbMoment::PostSend, Some(1)));
    /// assert!(counter.admits(VerbMoment::RecvCompletion, Some(2)));
    /// ```
    pub fn admits(&mut self, moment: VerbMoment, queue_pair: Option<u32>) -> bool {
        let VerbSelector { moment: wanted, which, queue_pair: of, .. } = self.selector;
        if !wanted.includes(moment) || (of.is_some() && of != queue_pair) {
            return false;
        }
        self.seen = self.seen.saturating_add(1);
        which.includes(self.seen, 0)
    }
}

#[cfg(test)]
mod tests;
