//! What the sentences of scripted faults have in common: words, numbers, ranks and queue pairs.
//!
//! ```text
//! range = number ["to" number] | "from" number
//! nth   = number ("st" | "nd" | "rd" | "th")
//! owner = {"of" ("queue pair" number | "rank" number)}
//! ```

use core::fmt::{self, Display, Formatter};

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
}

impl Which {
    /// Returns true if the one with this number, from 1, is meant.
    ///
    /// ```
    /// use roce_faults::Which;
    /// assert!(Which::Every(3).includes(6) && !Which::Range(4, 5).includes(6));
    /// ```
    pub const fn includes(self, number: u64) -> bool {
        match self {
            Self::Range(first, last) => first <= number && number <= last,
            Self::Every(step) => number.is_multiple_of(step),
        }
    }

    /// Writes what stands before the kind.
    pub(crate) fn write_before(self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(1) => f.write_str("every "),
            Self::Every(step) => write!(f, "every {step}{} ", ending(step)),
            Self::Range(..) => Ok(()),
        }
    }

    /// Writes what stands behind the kind.
    pub(crate) fn write_behind(self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(_) => Ok(()),
            Self::Range(first, last) if first == last => write!(f, " {first}"),
            Self::Range(first, u64::MAX) => write!(f, " from {first}"),
            Self::Range(first, last) => write!(f, " {first} to {last}"),
        }
    }
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
