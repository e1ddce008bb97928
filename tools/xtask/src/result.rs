//! The result of a command.

use std::error::Error;

/// The result of a command; errors are shown to the user.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;
