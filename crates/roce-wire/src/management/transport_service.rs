//! The service of a connection.

/// Service of the queue pairs that a REQ connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransportService {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// A service that another field names: XRC.
    Extended = 3,
}

impl TransportService {
    /// Returns the service of the two low bits of `code`.
    pub const fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }

    /// Returns the code, 0 ..= 3.
    pub const fn code(self) -> u8 {
        self as u8
    }
}
