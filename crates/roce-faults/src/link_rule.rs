//! Scripted faults of links: which rail is down when, as a sentence such as `rail 1 of rank 0 down from 5s for 3s`.
//!
//! [`LinkRule::parse`] reads a sentence and `Display` writes it.

mod text;

use core::time::Duration;

use crate::fault_rule::PacketSelector;
use crate::window::Window;

/// A link that is down at times.
///
/// ```
/// use core::time::Duration;
/// use roce_faults::LinkRule;
///
/// let rule = LinkRule::parse("rail 1 of rank 0 down from 5s for 3s")?;
/// assert_eq!((rule.rail, rule.rank), (1, Some(0)));
/// assert!(rule.is_down(Duration::from_secs(7), None));
/// assert_eq!(rule.next_change(Duration::from_secs(7), None), Some(Duration::from_secs(8)));
/// assert_eq!(rule.to_string(), "rail 1 of rank 0 down from 5s to 8s");
/// # Ok::<(), roce_faults::FaultRuleError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkRule {
    /// The rail, from 0.
    pub rail: u32,
    /// The rank whose link it is, from 0; without one all links of the rail.
    pub rank: Option<u32>,
    /// When it is down.
    pub outage: Outage,
}

/// When a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outage {
    /// Once.
    During(Window),
    /// Again and again.
    Flap {
        /// Time between the begins of two outages, the first of which is one such time behind the begin of the window.
        period: Duration,
        /// How long each takes, less than the period.
        length: Duration,
        /// When it may begin.
        window: Window,
    },
    /// From a packet on, which is lost.
    At {
        /// The packet; while the link is down none counts.
        packets: PacketSelector,
        /// For how long; [`Duration::MAX`] is to the end of the run.
        length: Duration,
    },
}

impl LinkRule {
    /// Returns true if the link is down at a time since the beginning of the run. `met` is when its packet came by
    /// the last time, if it is a rule with one.
    pub fn is_down(&self, time: Duration, met: Option<Duration>) -> bool {
        match self.outage {
            Outage::During(window) => window.includes(time),
            Outage::Flap { period, length, window } => {
                let Some(begin) = last_begin(time, period, window) else { return false };
                time < begin.saturating_add(length)
            }
            Outage::At { length, .. } => {
                met.is_some_and(|met| met <= time && time < met.saturating_add(length))
            }
        }
    }

    /// Returns the first time behind another at which the link goes down or comes back, as far as it is known.
    pub fn next_change(&self, time: Duration, met: Option<Duration>) -> Option<Duration> {
        let next = match self.outage {
            Outage::During(Window { from, until }) => {
                if time < from {
                    from
                } else {
                    until
                }
            }
            Outage::Flap { period, length, window } => {
                let begin = last_begin(time, period, window);
                let end = begin.map(|begin| begin.saturating_add(length));
                let next_begin = match begin {
                    Some(begin) => begin.saturating_add(period),
                    None => window.from.saturating_add(period),
                };
                let next_begin = Some(next_begin).filter(|begin| *begin < window.until);
                end.filter(|end| time < *end).or(next_begin)?
            }
            Outage::At { length, .. } => met?.saturating_add(length),
        };
        (next > time && next < Duration::MAX).then_some(next)
    }
}

/// Returns when the last outage began before a time, or at it.
fn last_begin(time: Duration, period: Duration, window: Window) -> Option<Duration> {
    let last = window.until.saturating_sub(Duration::from_nanos(1)).min(time);
    let since = last.checked_sub(window.from)?.as_nanos();
    let full = since.checked_div(period.as_nanos())?;
    let nanos = u64::try_from(full.checked_mul(period.as_nanos())?).ok()?;
    (full > 0).then(|| window.from.saturating_add(Duration::from_nanos(nanos)))
}

#[cfg(test)]
mod tests;
