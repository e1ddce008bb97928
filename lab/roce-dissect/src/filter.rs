//! Filters of packets as text: comparisons of named fields, in the manner of Wireshark's display
//! filters.

mod condition;
mod error;
mod literal;
mod parser;
mod token;

use std::fmt;
use std::str::FromStr;

use self::condition::Condition;
pub use self::error::FilterError;
use crate::{Packet, PacketFields};

/// A condition on packets.
///
/// A field alone is true if the packet has it. A comparison is true if a value of the field meets it;
/// `!=` is true if the field is there and all of its values differ. Comparisons are joined by `and`,
/// `or`, `not` (or `&&`, `||`, `!`) and parentheses.
///
/// ```
/// use roce_dissect::{Filter, FilterError};
///
/// let filter: Filter = "psn in {0x10..0x1f} and not findings == gap".parse()?;
/// assert_eq!(filter.to_string(), "psn in {0x10..0x1f} and not findings == gap");
///
/// let error = "qp == 5 and bth.pns".parse::<Filter>().unwrap_err();
/// assert_eq!(error.position(), 12);
/// assert!(error.to_string().contains("bth.psn"));
/// # Ok::<(), FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    condition: Condition,
}

impl Filter {
    /// Most bytes of a filter's text.
    pub const MAX_LEN: usize = token::MAX_LEN;

    /// Returns true if the packet meets the condition.
    pub fn matches(&self, packet: &Packet<'_>) -> bool {
        self.matches_fields(&PacketFields::new(packet))
    }

    /// Returns true if the packet of these fields meets the condition.
    pub fn matches_fields(&self, fields: &PacketFields<'_, '_>) -> bool {
        self.condition.holds(fields)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    /// Parses a filter.
    ///
    /// # Errors
    /// [`FilterError`] with the place of the first mistake.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let condition = parser::parse(text)?;
        Ok(Self { text: text.to_owned(), condition })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
