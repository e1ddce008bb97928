//! Sentences of either kind: about packets, or about verbs.

use crate::fault_rule::FaultRule;
use crate::sentence::{FaultRuleError, Result};
use crate::verb_rule::VerbRule;

/// A sentence about packets or about verbs.
///
/// ```
/// use roce_faults::FaultSentence;
///
/// for text in ["drop request 3", "fail reg-mr from 5 with ENOMEM"] {
///     assert_eq!(FaultSentence::parse(text)?.to_string(), text);
/// }
/// # Ok::<(), roce_faults::FaultRuleError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultSentence {
    /// A fault of packets.
    Packets(FaultRule),
    /// A fault of calls or completions.
    Verbs(VerbRule),
}

impl FaultSentence {
    /// Parses a sentence.
    ///
    /// # Errors
    /// [`FaultRuleError`] with the first word that is wrong.
    pub fn parse(text: &str) -> Result<'_, Self> {
        match text.split_whitespace().next() {
            Some("fail" | "raise") => VerbRule::parse(text).map(Self::Verbs),
            Some("drop" | "duplicate" | "delay" | "hold" | "damage" | "mark") => {
                FaultRule::parse(text).map(Self::Packets)
            }
            word => Err(FaultRuleError {
                word: word.unwrap_or_default(),
                expected: "drop, duplicate, delay, hold, damage, mark, fail or raise",
            }),
        }
    }

    /// Returns the rank that the sentence names.
    pub const fn rank(&self) -> Option<u32> {
        match self {
            Self::Packets(rule) => rule.packets.rank,
            Self::Verbs(rule) => rule.at.rank,
        }
    }
}

impl core::fmt::Display for FaultSentence {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Packets(rule) => rule.fmt(f),
            Self::Verbs(rule) => rule.fmt(f),
        }
    }
}
