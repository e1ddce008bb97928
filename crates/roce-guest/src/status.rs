//! The end of a command in the guest.

use std::fmt;

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command exited with this status; 0 is success.
    Exited(u8),
    /// A signal with this number ended the command.
    Killed(u8),
}

impl Status {
    /// Returns true if the command exited with status 0.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// Returns the status if the command exited.
    pub const fn code(self) -> Option<i32> {
        match self {
            Self::Exited(status) => Some(status as i32),
            Self::Killed(_) => None,
        }
    }

    pub(crate) fn from_code(code: u32) -> Self {
        match u8::try_from(code) {
            Ok(status) => Self::Exited(status),
            Err(_) => Self::Killed((code & 0xff) as u8),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "status {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
        }
    }
}
