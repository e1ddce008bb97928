//! Status of a resolved service.

use core::fmt;

/// Status of a SIDR_REP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// Queue pair and Q_Key are valid.
    pub const VALID: Self = Self(0);
    /// No listener for the service id.
    pub const UNSUPPORTED: Self = Self(1);
    /// Rejected by the listener.
    pub const REJECTED: Self = Self(2);
    /// No queue pair.
    pub const NO_QUEUE_PAIR: Self = Self(3);
}

/// The meaning; nothing for a value without one.
impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "valid",
            1 => "service not supported",
            2 => "rejected by the service",
            3 => "no queue pair",
            4 => "redirected to another port",
            5 => "version not supported",
            _ => "",
        })
    }
}
