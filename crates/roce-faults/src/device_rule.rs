//! Devices that lack something, as a sentence such as `device of rank 1 has max-sge 1`.
//!
//! ```text
//! rule  = "device" ["of rank" number] "has" limit
//! limit = "no" ("srq" | "atomics") | ("max-inline" | "max-sge" | "max-qp-rd-atom" | "port-speed") number
//! ```

use core::fmt::{self, Display, Formatter};

use crate::sentence::{FaultRuleError, Result, Words};

/// What devices lack.
///
/// ```
/// use roce_faults::{DeviceLimit, DeviceRule};
///
/// let rule = DeviceRule::parse("device of rank 1 has max-sge 1")?;
/// assert_eq!(rule, DeviceRule { rank: Some(1), limit: DeviceLimit::MaxSge(1) });
/// assert_eq!(rule.to_string(), "device of rank 1 has max-sge 1");
/// # Ok::<(), roce_faults::FaultRuleError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceRule {
    /// The rank whose devices lack it, from 0; without one those of all.
    pub rank: Option<u32>,
    /// What they lack.
    pub limit: DeviceLimit,
}

/// A limit of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceLimit {
    /// It has no shared receive queues.
    NoSrq,
    /// It has no atomic operations.
    NoAtomics,
    /// Most bytes of an inline request.
    MaxInline(u32),
    /// Most pieces of a request, at least 1.
    MaxSge(u32),
    /// Most READs and atomics that a queue pair has outstanding at either end.
    MaxQpRdAtom(u32),
    /// Speed of the port in Mbit/s.
    PortSpeed(u32),
}

/// The limits of a device: what the rules of a script say together.
///
/// ```
/// use roce_faults::{DeviceLimits, DeviceRule};
///
/// let rule = |text| DeviceRule::parse(text).unwrap();
/// let rules = [rule("device has no srq"), rule("device of rank 1 has max-sge 1")];
/// let limits = DeviceLimits::of(&rules, Some(0));
/// assert!(limits.has_no_srq && limits.max_sge.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// It has no shared receive queues.
    pub has_no_srq: bool,
    /// It has no atomic operations.
    pub has_no_atomics: bool,
    /// Most bytes of an inline request.
    pub max_inline: Option<u32>,
    /// Most pieces of a request.
    pub max_sge: Option<u32>,
    /// Most outstanding READs and atomics of a queue pair.
    pub max_qp_rd_atom: Option<u32>,
    /// Speed of the port in Mbit/s.
    pub port_speed: Option<u32>,
}

impl DeviceLimits {
    /// Returns the limits of the devices of a rank. Of several rules about one thing the last holds.
    pub fn of(rules: &[DeviceRule], rank: Option<u32>) -> Self {
        let mut limits = Self::default();
        for rule in rules.iter().filter(|rule| rule.rank.is_none() || rule.rank == rank) {
            match rule.limit {
                DeviceLimit::NoSrq => limits.has_no_srq = true,
                DeviceLimit::NoAtomics => limits.has_no_atomics = true,
                DeviceLimit::MaxInline(most) => limits.max_inline = Some(most),
                DeviceLimit::MaxSge(most) => limits.max_sge = Some(most),
                DeviceLimit::MaxQpRdAtom(most) => limits.max_qp_rd_atom = Some(most),
                DeviceLimit::PortSpeed(speed) => limits.port_speed = Some(speed),
            }
        }
        limits
    }
}

impl DeviceRule {
    /// Parses a sentence.
    ///
    /// # Errors
    /// [`FaultRuleError`] with the first word that is wrong.
    pub fn parse(text: &str) -> Result<'_, Self> {
        let mut words = Words::of(text);
        words.need("device", "\"device\"")?;
        let mut rank = None;
        if words.takes("of") {
            words.need("rank", "\"rank\" and its number")?;
            rank = Some(words.number(0)?);
        }
        words.need("has", "\"has\", or \"of rank\" and a number")?;
        let limit = match words.next() {
            "no" => match words.next() {
                "srq" => DeviceLimit::NoSrq,
                "atomics" => DeviceLimit::NoAtomics,
                word => return Err(FaultRuleError { word, expected: "\"srq\" or \"atomics\"" }),
            },
            "max-inline" => DeviceLimit::MaxInline(words.number(0)?),
            "max-sge" => DeviceLimit::MaxSge(words.number(1)?),
            "max-qp-rd-atom" => DeviceLimit::MaxQpRdAtom(words.number(0)?),
            "port-speed" => DeviceLimit::PortSpeed(words.number(1)?),
            word => {
                let expected =
                    "\"no srq\", \"no atomics\", max-inline, max-sge, max-qp-rd-atom or port-speed";
                return Err(FaultRuleError { word, expected });
            }
        };
        words.end()?;
        Ok(Self { rank, limit })
    }
}

impl Display for DeviceRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("device ")?;
        if let Some(rank) = self.rank {
            write!(f, "of rank {rank} ")?;
        }
        match self.limit {
            DeviceLimit::NoSrq => f.write_str("has no srq"),
            DeviceLimit::NoAtomics => f.write_str("has no atomics"),
            DeviceLimit::MaxInline(most) => write!(f, "has max-inline {most}"),
            DeviceLimit::MaxSge(most) => write!(f, "has max-sge {most}"),
            DeviceLimit::MaxQpRdAtom(most) => write!(f, "has max-qp-rd-atom {most}"),
            DeviceLimit::PortSpeed(speed) => write!(f, "has port-speed {speed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_written_as_it_is_read_and_a_wrong_word_is_named() {
        for text in [
            "device has no srq",
            "device of rank 3 has no atomics",
            "device has max-inline 0",
            "device has max-sge 1",
            "device has max-qp-rd-atom 1",
            "device has port-speed 200000",
        ] {
            assert_eq!(DeviceRule::parse(text).unwrap().to_string(), text);
        }
        for (text, word) in [
            ("device", ""),
            ("device of host 1", "host"),
            ("device lacks srq", "lacks"),
            ("device has no windows", "windows"),
            ("device has max-sge 0", "0"),
            ("device has max-inline many", "many"),
            ("device has no srq today", "today"),
        ] {
            assert_eq!(DeviceRule::parse(text).unwrap_err().word, word, "{text}");
        }
    }

    #[test]
    fn of_several_rules_about_one_thing_the_last_holds() {
        let rules = ["device has max-sge 4", "device of rank 1 has max-sge 2", "device has no srq"];
        let rules = rules.map(|text| DeviceRule::parse(text).unwrap());
        assert_eq!(DeviceLimits::of(&rules, Some(1)).max_sge, Some(2));
        assert_eq!(DeviceLimits::of(&rules, None).max_sge, Some(4));
    }
}
