//! Mistakes in scripts.

use std::fmt;

/// A mistake in a script, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    line: usize,
    message: String,
}

impl ScriptError {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    /// Returns the line, from 1.
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Returns what is wrong, without the line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ScriptError {}
