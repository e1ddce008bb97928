//! Mistakes in filters.

use std::fmt;
use std::ops::Range;

/// A mistake in the text of a filter, and its place.
///
/// Its text shows the line of the filter with a mark below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    line: String,
    /// Letters before the mistake, in its line.
    column: usize,
    /// Letters of the mistake.
    width: usize,
    position: usize,
    message: String,
}

impl FilterError {
    /// Returns the error for a range of bytes of the text.
    pub(super) fn new(text: &str, bytes: Range<usize>, message: impl Into<String>) -> Self {
        let start = floor(text, bytes.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let end = floor(text, bytes.end).clamp(start, line_end);
        // A long line is shown around its mistake.
        let shown_from = floor(text, start.saturating_sub(MAX_BEFORE)).max(line_start);
        let shown_to = floor(text, end.saturating_add(MAX_BEHIND)).clamp(end, line_end);
        Self {
            line: text[shown_from..shown_to].replace(|letter: char| letter.is_control(), " "),
            column: text[shown_from..start].chars().count(),
            width: text[start..end].chars().count().max(1),
            position: start,
            message: message.into(),
        }
    }

    /// Returns the number of bytes before the mistake.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Returns what is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Returns the largest boundary of letters that is not behind `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message)?;
        writeln!(f, "  {}", self.line)?;
        write!(f, "  {:column$}{:^<width$}", "", "", column = self.column, width = self.width)
    }
}

impl std::error::Error for FilterError {}

const MAX_BEFORE: usize = 60;
const MAX_BEHIND: usize = 40;
