//! What the sentences of scripted faults have in common: words, numbers, ranks and queue pairs.
//!
//! ```text
//! range = number ["to" number] | "from" number
//! nth   = number ("st" | "nd" | "rd" | "th")
//! owner = {"of" ("queue pair" number | "rank" number)}
//! time  = number ("ns" | "us" | "ms" | "s")
//! ```

use core::fmt::{self, Display, Formatter};
use core::time::Duration;

/// A sentence that is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} where {expected} is expected; such as \"drop request 3 of queue pair 2\"", Found(self.word))]
pub struct FaultRuleError<'a> {
    /// The first word that is wrong; empty at the end of the sentence.
    pub word: &'a str,
    /// What may stand there.
    pub expected: &'static str,
}

struct Found<'a>(&'a str);

impl Display for Found<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the end") } else { write!(f, "{:?}", self.0) }
    }
}

pub(crate) type Result<'a, T> = core::result::Result<T, FaultRuleError<'a>>;

/// Which of the packets, calls or completions of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// These, from 1, both included; with [`u64::MAX`] as the last one all from the first on.
    Range(u64, u64),
    /// Every one whose number is divisible by this; 1 is every one.
    Every(u64),
    /// So many of a million, chosen by chance: see [`RuleCounter::with_seed`](crate::RuleCounter::with_seed).
    Share(u32),
}

impl Which {
    /// Returns true if the one with this number, from 1, is meant. Of a share it is `chance`, below a million, that
    /// decides.
    ///
    /// ```
    /// use roce_faults::Which;
    /// assert!(Which::Every(3).includes(6, 0) && !Which::Range(4, 5).includes(6, 0));
    /// assert!(Which::Share(10_000).includes(6, 9_999) && !Which::Share(10_000).includes(6, 10_000));
    /// ```
    pub const fn includes(self, number: u64, chance: u32) -> bool {
        match self {
            Self::Range(first, last) => first <= number && number <= last,
            Self::Every(step) => number.is_multiple_of(step),
            Self::Share(millionths) => chance < millionths,
        }
    }

    /// Writes what stands before the kind.
    pub(crate) fn write_before(self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(1) => f.write_str("every "),
            Self::Every(step) => write!(f, "every {step}{} ", ending(step)),
            Self::Share(millionths) => write!(f, "{} of ", Percent(millionths)),
            Self::Range(..) => Ok(()),
        }
    }

    /// Writes what stands behind the kind.
    pub(crate) fn write_behind(self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(_) => Ok(()),
            Self::Share(_) => f.write_str("s"),
            Self::Range(first, last) if first == last => write!(f, " {first}"),
            Self::Range(first, u64::MAX) => write!(f, " from {first}"),
            Self::Range(first, last) => write!(f, " {first} to {last}"),
        }
    }
}

/// A share of a million as a percentage.
struct Percent(u32);

impl Display for Percent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (whole, mut part) = (self.0 / 10_000, self.0 % 10_000);
        let mut digits = 4;
        while part > 0 && part.is_multiple_of(10) {
            (part, digits) = (part / 10, digits - 1);
        }
        match part {
            0 => write!(f, "{whole}%"),
            part => write!(f, "{whole}.{part:0digits$}%"),
        }
    }
}

/// A time in the largest unit that shows all of it.
pub(crate) struct Time(pub(crate) Duration);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let fits = |(_, unit): &&(&str, u64)| nanos.is_multiple_of(u128::from(*unit));
        let (name, unit) = UNITS.iter().find(fits).copied().unwrap_or(("ns", 1));
        write!(f, "{}{name}", nanos / u128::from(unit))
    }
}

/// Longest time of a rule.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// Units of time in nanoseconds, the longest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

fn parse_time(word: &str) -> Option<Duration> {
    let digits = word.find(|char: char| !char.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let total = number.parse::<u64>().ok()?.checked_mul(*nanos)?;
    Some(Duration::from_nanos(total)).filter(|time| *time <= MAX_TIME)
}

/// The queue pair and the rank that a sentence names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) queue_pair: Option<u32>,
    pub(crate) rank: Option<u32>,
}

impl Display for Owner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.queue_pair {
            write!(f, " of queue pair {number}")?;
        }
        self.rank.map_or(Ok(()), |rank| write!(f, " of rank {rank}"))
    }
}

/// The words of a sentence that are left.
#[derive(Clone)]
pub(crate) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(crate) fn peek(&self) -> &'a str {
        self.rest.split_whitespace().next().unwrap_or_default()
    }

    /// Takes the next word; empty at the end.
    pub(crate) fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.rest = self.rest.trim_start().get(word.len()..).unwrap_or_default();
        word
    }

    pub(crate) fn takes(&mut self, word: &str) -> bool {
        let is_next = self.peek() == word;
        if is_next {
            self.next();
        }
        is_next
    }

    pub(crate) fn need(&mut self, wanted: &str, expected: &'static str) -> Result<'a, ()> {
        match self.next() {
            word if word == wanted => Ok(()),
            word => Err(FaultRuleError { word, expected }),
        }
    }

    /// Returns the next word that is `wanted`; empty if there is none.
    pub(crate) fn find(&self, wanted: &str) -> &'a str {
        self.rest.split_whitespace().find(|word| *word == wanted).unwrap_or_default()
    }

    /// Refuses further words.
    pub(crate) fn end(&mut self) -> Result<'a, ()> {
        self.need("", "the end, or \"of\"")
    }

    /// Returns true if a time follows, behind this word.
    pub(crate) fn has_time_behind(&self, word: &str) -> bool {
        let mut ahead = self.clone();
        ahead.takes(word) && parse_time(ahead.peek()).is_some()
    }

    pub(crate) fn time(&mut self) -> Result<'a, Duration> {
        let word = self.next();
        let expected = "a time such as 10us, 5ms or 2s, at most a day";
        parse_time(word).ok_or(FaultRuleError { word, expected })
    }

    /// Takes a percentage, if there is one, in millionths.
    pub(crate) fn share(&mut self) -> Result<'a, Option<u32>> {
        let word = self.peek();
        let Some(number) = word.strip_suffix('%') else { return Ok(None) };
        self.next();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let scale = [10_000, 1000, 100, 10, 1].get(part.len());
        let share = digits(whole).then(|| whole.parse::<u32>().ok()).flatten().zip(scale);
        let share = share.filter(|_| digits(part)).and_then(|(whole, scale)| {
            let part = part.parse::<u32>().ok()?.checked_mul(*scale)?;
            whole.checked_mul(10_000)?.checked_add(part)
        });
        let share = share.filter(|share| (1..=1_000_000).contains(share));
        let expected = "a percentage from 0.0001% to 100%";
        share.map(Some).ok_or(FaultRuleError { word, expected })
    }

    /// Takes a number such as 3rd, if there is one: 1 without.
    pub(crate) fn step(&mut self) -> Result<'a, u64> {
        let word = self.peek();
        let Some(digits) = ordinal(word) else { return Ok(1) };
        self.next();
        let expected = "a number from 1 with its ending, such as 1st or 3rd,";
        let step = digits.parse().ok().filter(|step| *step > 0);
        step.ok_or(FaultRuleError { word, expected })
    }

    /// Takes a number, a first and a last one, or a first one.
    pub(crate) fn range(&mut self) -> Result<'a, Which> {
        if self.takes("from") {
            return Ok(Which::Range(self.number(1)?, u64::MAX));
        }
        let first = self.number(1)?;
        let last = if self.takes("to") { self.last_from(first)? } else { first };
        Ok(Which::Range(first, last))
    }

    /// Takes the last number of a range.
    fn last_from(&mut self, first: u64) -> Result<'a, u64> {
        let refused = FaultRuleError {
            word: self.peek(),
            expected: "a last number that is not below the first",
        };
        self.number(first).map_err(|_| refused)
    }

    /// Takes queue pair and rank, each once at most.
    pub(crate) fn owner(&mut self) -> Result<'a, Owner> {
        let mut owner = Owner::default();
        while self.takes("of") {
            match self.next() {
                "queue" if owner.queue_pair.is_none() => {
                    self.need("pair", "\"pair\"")?;
                    owner.queue_pair = Some(self.number(1)?);
                }
                "rank" if owner.rank.is_none() => owner.rank = Some(self.number(0)?),
                word => {
                    let expected = "\"queue pair\" or \"rank\", each once";
                    return Err(FaultRuleError { word, expected });
                }
            }
        }
        Ok(owner)
    }

    /// Takes a number that is at least `least`.
    pub(crate) fn number<T: core::str::FromStr + PartialOrd>(&mut self, least: T) -> Result<'a, T> {
        let word = self.next();
        let number = word.parse().ok().filter(|number| *number >= least);
        number.ok_or(FaultRuleError {
            word,
            expected: "a number (packets and queue pairs count from 1)",
        })
    }
}

/// Returns the digits of a number such as 3rd, which may have any of the four endings.
fn ordinal(word: &str) -> Option<&str> {
    let number = ["st", "nd", "rd", "th"].iter().find_map(|ending| word.strip_suffix(ending))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

/// Returns true if a word is a name with hyphens for spaces, in letters of either case.
pub(crate) fn is_name(name: &str, word: &str) -> bool {
    let same = |(left, right): (u8, u8)| {
        left.eq_ignore_ascii_case(&right) || (left == b' ' && right == b'-')
    };
    name.len() == word.len() && name.bytes().zip(word.bytes()).all(same)
}

fn ending(number: u64) -> &'static str {
    match (number % 10, number % 100) {
        (1, teen) if teen != 11 => "st",
        (2, teen) if teen != 12 => "nd",
        (3, teen) if teen != 13 => "rd",
        _ => "th",
    }
}
