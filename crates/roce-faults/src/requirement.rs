//! What a run has to show, as a sentence such as `completions resume within 1s after each fault`.
//!
//! ```text
//! requirement = "completions resume within" time "after each fault"
//!             | "no standstill above" time
//!             | ["no"] ("packets" | "packet") "on rail" number ["of rank" number] "after" time
//! ```

use core::fmt::{self, Display, Formatter};
use core::time::Duration;

use crate::sentence::{FaultRuleError, Result, Time, Words};

/// What a run has to show.
///
/// ```
/// use core::time::Duration;
/// use roce_faults::Requirement;
///
/// let text = "no packet on rail 1 of rank 0 after 6s";
/// let requirement = Requirement::parse(text)?;
/// let after = Duration::from_secs(6);
/// assert_eq!(requirement, Requirement::NoPacket { rail: 1, rank: Some(0), after });
/// assert_eq!(requirement.to_string(), text);
/// # Ok::<(), roce_faults::FaultRuleError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// After a link went down, the ranks that it concerns complete something within this time.
    Resume {
        /// The time.
        within: Duration,
    },
    /// No rank passes more than this time between two completions.
    NoStandstill {
        /// The time.
        above: Duration,
    },
    /// Nothing is sent on a rail after a time of the run.
    NoPacket {
        /// The rail, from 0.
        rail: u32,
        /// The rank that may not send; without one none may.
        rank: Option<u32>,
        /// The time, from the beginning of the run.
        after: Duration,
    },
    /// Something is sent on a rail after a time of the run.
    Packets {
        /// The rail, from 0.
        rail: u32,
        /// The rank that has to send; without one each has to.
        rank: Option<u32>,
        /// The time, from the beginning of the run.
        after: Duration,
    },
}

impl Requirement {
    /// Parses a sentence.
    ///
    /// # Errors
    /// [`FaultRuleError`] with the first word that is wrong.
    pub fn parse(text: &str) -> Result<'_, Self> {
        let mut words = Words::of(text);
        let requirement = match words.next() {
            "completions" => {
                words.all(&["resume", "within"])?;
                let within = words.time()?;
                words.all(&["after", "each", "fault"])?;
                Self::Resume { within }
            }
            "no" if words.takes("standstill") => {
                words.need("above", "\"above\" and a time")?;
                Self::NoStandstill { above: words.time()? }
            }
            "no" => {
                let word = words.next();
                if !matches!(word, "packet" | "packets") {
                    return Err(FaultRuleError { word, expected: "\"standstill\" or \"packet\"" });
                }
                let (rail, rank, after) = place(&mut words)?;
                Self::NoPacket { rail, rank, after }
            }
            "packets" | "packet" => {
                let (rail, rank, after) = place(&mut words)?;
                Self::Packets { rail, rank, after }
            }
            word => {
                let expected = "\"completions resume within\", \"no standstill above\", \"no packet on \
                                rail\" or \"packets on rail\"";
                return Err(FaultRuleError { word, expected });
            }
        };
        words.end()?;
        Ok(requirement)
    }

    /// Returns the rail and the rank that the sentence names.
    pub const fn place(&self) -> (Option<u32>, Option<u32>) {
        match *self {
            Self::Resume { .. } | Self::NoStandstill { .. } => (None, None),
            Self::NoPacket { rail, rank, .. } | Self::Packets { rail, rank, .. } => {
                (Some(rail), rank)
            }
        }
    }
}

fn place<'a>(words: &mut Words<'a>) -> Result<'a, (u32, Option<u32>, Duration)> {
    words.need("on", "\"on rail\" and a number")?;
    let rail = words.rail()?;
    let mut rank = None;
    if words.takes("of") {
        words.need("rank", "\"rank\" and its number")?;
        rank = Some(words.number(0)?);
    }
    words.need("after", "\"after\" and a time")?;
    Ok((rail, rank, words.time()?))
}

impl<'a> Words<'a> {
    /// Takes these words.
    fn all(&mut self, wanted: &[&str]) -> Result<'a, ()> {
        let expected = "\"completions resume within TIME after each fault\"";
        wanted.iter().try_for_each(|word| self.need(word, expected))
    }
}

impl Display for Requirement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (what, rail, rank, after) = match *self {
            Self::Resume { within } => {
                return write!(f, "completions resume within {} after each fault", Time(within));
            }
            Self::NoStandstill { above } => {
                return write!(f, "no standstill above {}", Time(above));
            }
            Self::NoPacket { rail, rank, after } => ("no packet", rail, rank, after),
            Self::Packets { rail, rank, after } => ("packets", rail, rank, after),
        };
        write!(f, "{what} on rail {rail}")?;
        if let Some(rank) = rank {
            write!(f, " of rank {rank}")?;
        }
        write!(f, " after {}", Time(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_written_as_it_is_read_and_a_wrong_word_is_named() {
        for text in [
            "completions resume within 1s after each fault",
            "no standstill above 500ms",
            "no packet on rail 1 after 6s",
            "packets on rail 1 of rank 0 after 6s",
        ] {
            assert_eq!(Requirement::parse(text).unwrap().to_string(), text);
        }
        for (text, word) in [
            ("", ""),
            ("completions stop", "stop"),
            ("completions resume within 1", "1"),
            ("completions resume within 1s after every fault", "every"),
            ("no stop above 1s", "stop"),
            ("no packet at rail 1 after 6s", "at"),
            ("packets on rail 1 before 6s", "before"),
            ("packets on rail 1 after 6s please", "please"),
        ] {
            assert_eq!(Requirement::parse(text).unwrap_err().word, word, "{text}");
        }
    }
}
