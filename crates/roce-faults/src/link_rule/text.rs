//! Rules as sentences.
//!
//! ```text
//! rule   = "rail" number ["of rank" number] outage
//! outage = "down" ["from" time [("to" | "for") time]] | "down at" packets ["for" time]
//!        | "flap every" time "for" time ["from" time [("to" | "for") time]]
//! ```
//!
//! `packets` are those of rules for packets, whose own window stands behind `at`; `time` is that of all
//! [sentences](crate::sentence).

use core::fmt::{self, Display, Formatter};
use core::time::Duration;

use super::{LinkRule, Outage};
use crate::sentence::{FaultRuleError, Result, Time, Words};
use crate::window::Window;

impl LinkRule {
    /// Parses a sentence.
    ///
    /// # Errors
    /// [`FaultRuleError`] with the first word that is wrong.
    pub fn parse(text: &str) -> Result<'_, Self> {
        let mut words = Words::of(text);
        let rail = words.rail()?;
        let mut rank = None;
        if words.takes("of") {
            words.need("rank", "\"rank\" and its number")?;
            rank = Some(words.number(0)?);
        }
        let outage = match words.next() {
            "down" if words.takes("at") => {
                let packets = words.packets()?;
                let length = if words.takes("for") { words.time()? } else { Duration::MAX };
                Outage::At { packets, length }
            }
            "down" => Outage::During(Window::take(&mut words)?),
            "flap" => {
                words.need("every", "\"every\" and a time")?;
                let period = words.time()?;
                words.need("for", "\"for\" and a time")?;
                let word = words.peek();
                let length = words.time()?;
                if length.is_zero() || length >= period {
                    let expected = "a time that is shorter than that between two outages";
                    return Err(FaultRuleError { word, expected });
                }
                Outage::Flap { period, length, window: Window::take(&mut words)? }
            }
            word => return Err(FaultRuleError { word, expected: "\"down\" or \"flap\"" }),
        };
        words.end()?;
        Ok(Self { rail, rank, outage })
    }
}

impl Display for LinkRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { rail, rank, outage } = self;
        write!(f, "rail {rail}")?;
        if let Some(rank) = rank {
            write!(f, " of rank {rank}")?;
        }
        match outage {
            Outage::During(window) => write!(f, " down{window}"),
            Outage::Flap { period, length, window } => {
                write!(f, " flap every {} for {}{window}", Time(*period), Time(*length))
            }
            Outage::At { packets, length: Duration::MAX } => write!(f, " down at {packets}"),
            Outage::At { packets, length } => write!(f, " down at {packets} for {}", Time(*length)),
        }
    }
}
