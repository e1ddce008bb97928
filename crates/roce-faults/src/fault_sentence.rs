//! Sentences of each kind: about packets, verbs, links or devices.

use crate::device_rule::DeviceRule;
use crate::fault_rule::FaultRule;
use crate::link_rule::LinkRule;
use crate::sentence::{FaultRuleError, Result};
use crate::verb_rule::VerbRule;

/// A sentence about packets, verbs, links or devices.
///
/// ```
/// use roce_faults::FaultSentence;
///
/// for text in ["drop request 3", "fail reg-mr from 5 with ENOMEM", "rail 1 down from 2s to 5s"] {
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
    /// A fault of links.
    Links(LinkRule),
    /// What devices lack.
    Devices(DeviceRule),
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
            Some("rail") => LinkRule::parse(text).map(Self::Links),
            Some("device") => DeviceRule::parse(text).map(Self::Devices),
            word => Err(FaultRuleError {
                word: word.unwrap_or_default(),
                expected: "drop, duplicate, delay, hold, damage, mark, fail, raise, rail or device",
            }),
        }
    }

    /// Returns the rail that the sentence names.
    pub const fn rail(&self) -> Option<u32> {
        match self {
            Self::Packets(rule) => rule.packets.rail,
            Self::Verbs(_) | Self::Devices(_) => None,
            Self::Links(rule) => Some(rule.rail),
        }
    }

    /// Returns the rank that the sentence names.
    pub const fn rank(&self) -> Option<u32> {
        match self {
            Self::Packets(rule) => rule.packets.rank,
            Self::Verbs(rule) => rule.at.rank,
            Self::Links(rule) => rule.rank,
            Self::Devices(rule) => rule.rank,
        }
    }
}

impl core::fmt::Display for FaultSentence {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Packets(rule) => rule.fmt(f),
            Self::Verbs(rule) => rule.fmt(f),
            Self::Links(rule) => rule.fmt(f),
            Self::Devices(rule) => rule.fmt(f),
        }
    }
}
