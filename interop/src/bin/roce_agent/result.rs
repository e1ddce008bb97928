//! Results of commands.

use std::error::Error;

/// An error goes to the harness as the reply.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;
