//! The words of an command: a verb, names, and `key=value` pairs.

use crate::result::Result;

/// One command, cut at its spaces.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        Self(line.split_whitespace().collect())
    }

    /// The word at a place; empty behind the last.
    pub(crate) fn at(&self, place: usize) -> &'a str {
        self.0.get(place).copied().unwrap_or_default()
    }

    /// The text behind `key=`.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// The number behind `key=`, decimal or with 0x; `otherwise` without that word.
    ///
    /// # Errors
    /// When it is not a number, or does not fit.
    pub(crate) fn number<N: TryFrom<u64>>(&self, key: &str, otherwise: N) -> Result<N> {
        let Some(text) = self.text(key) else { return Ok(otherwise) };
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let number = number.map_err(|error| format!("{key}={text}: {error}"))?;
        N::try_from(number).map_err(|_| format!("{key}={text} is too large").into())
    }
}
