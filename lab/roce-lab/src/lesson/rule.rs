//! Scripted faults in lesson files.

use std::time::Duration;

use roce_fabric::Impairment;
use roce_faults::{FaultAction, FaultRule, PacketKind, PacketSelector, Which};
use serde::Deserialize;

use super::Span;

/// A scripted fault that a simulated link has, as a sentence: `drop packet 3`.
///
/// ```
/// use roce_lab::Rule;
/// assert!("drop packet 3".parse::<Rule>().is_ok());
/// assert!("hold packet 3 behind 2 packets".parse::<Rule>().is_err());
/// assert!("drop every packet from 2s to 4s".parse::<Rule>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Rule(FaultRule);

/// Most numbers of packets that are written one by one.
const MAX_LISTED: u64 = 16;

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = FaultRule::parse(text).map_err(|error| format!("in {text:?}: {error}"))?;
        let refused = || {
            format!(
                "{text:?}: a simulated link holds no packet, damages a bit by its number, and knows neither \
                 rails nor times"
            )
        };
        Impairment::ruled([rule]).map(|_| Self(rule)).ok_or_else(refused)
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Returns the impairment that rules describe.
pub(crate) fn impairment(rules: &[Rule]) -> Impairment {
    // Each has been checked.
    Impairment::ruled(rules.iter().map(|rule| rule.0)).unwrap_or_default()
}

/// Returns what rules do to the packets of a host, in words.
pub(crate) fn in_words(rules: &[Rule]) -> String {
    let listed = |action| -> Option<Vec<u64>> {
        let numbers = rules.iter().map(|rule| numbers(rule.0).filter(|_| rule.0.action == action));
        Some(numbers.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
    };
    let frames = |frames: Vec<u64>| match frames[..] {
        [frame] => format!("frame {frame}"),
        _ => format!("frames {frames:?}"),
    };
    if let Some(lost) = listed(FaultAction::Drop) {
        return format!("(the network will lose {} from here)", frames(lost));
    }
    if let Some(marked) = listed(FaultAction::Mark) {
        return format!("(a switch will mark {} from here)", frames(marked));
    }
    if let [Rule(rule)] = rules
        && let Some([frame]) = numbers(*rule).as_deref()
    {
        match rule.action {
            FaultAction::Damage(Some(bit)) => {
                return format!("(the network will flip bit {bit} of frame {frame} from here)");
            }
            FaultAction::Delay(by) => {
                return format!("(the network will delay frame {frame} from here by {})", span(by));
            }
            FaultAction::Duplicate(_) => {
                return format!("(the network will deliver frame {frame} from here twice)");
            }
            _ => {}
        }
    }
    let rules: Vec<_> = rules.iter().map(|rule| rule.0.to_string()).collect();
    format!("(of what is sent from here, the network will {})", rules.join(", "))
}

fn span(by: Duration) -> Span {
    Span::from_nanos(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the numbers of the frames that a rule names, if it names nothing else.
fn numbers(rule: FaultRule) -> Option<Vec<u64>> {
    let PacketSelector { kind, which, direction, queue_pair, rank, .. } = rule.packets;
    let is_plain = kind == PacketKind::Any && (direction, queue_pair, rank) == (None, None, None);
    match which {
        Which::Range(first, last) if is_plain && last - first < MAX_LISTED => {
            Some((first..=last).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_in_the_words_of_the_lessons() {
        let told = |rules: &[&str]| {
            let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            in_words(&rules)
        };
        for (rules, words) in [
            (&["drop packet 3"][..], "(the network will lose frame 3 from here)"),
            (
                &["drop packet 3", "drop packet 5"],
                "(the network will lose frames [3, 5] from here)",
            ),
            (&["mark packets 1 to 3"], "(a switch will mark frames [1, 2, 3] from here)"),
            (&["damage bit 5 of packet 1"], "(the network will flip bit 5 of frame 1 from here)"),
            (&["delay packet 1 by 3us"], "(the network will delay frame 1 from here by 3µs)"),
            (
                &["duplicate packet 1 after 1us"],
                "(the network will deliver frame 1 from here twice)",
            ),
            (
                &["drop request 3 of queue pair 2"],
                "(of what is sent from here, the network will drop request 3 of queue pair 2)",
            ),
        ] {
            assert_eq!(told(rules), words);
        }
    }
}
