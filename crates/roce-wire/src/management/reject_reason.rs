//! Reason of a REJ.

use core::fmt;

/// Reason of a REJ.
///
/// ```
/// use roce_wire::management::RejectReason;
/// assert_eq!(RejectReason(8), RejectReason::INVALID_SERVICE_ID);
/// assert_eq!(RejectReason(8).to_string(), "no listener for the service id");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// The sender of a REQ has given up.
    pub const TIMEOUT: Self = Self(4);
    /// No listener for the service id.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The transport service of the REQ is not supported.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The connection is unknown to its peer, or known as an older one.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The GID is not the receiver's.
    pub const INVALID_GID: Self = Self(12);
    /// An alternate path on a network that has none.
    pub const INVALID_ALTERNATE_GID: Self = Self(18);
    /// The path MTU exceeds that of the receiver's interface.
    pub const INVALID_MTU: Self = Self(26);
    /// Refused by the application, or by its library.
    pub const CONSUMER: Self = Self(28);
}

/// The meaning; nothing for a value without one.
impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "no queue pair left",
            2 => "no end-to-end context left",
            3 => "no resources left",
            4 => "timed out",
            5 => "request not supported",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "no listener for the service id",
            9 => "invalid transport service",
            10 => "stale connection",
            11 => "no such reliable datagram channel",
            12 => "invalid primary GID",
            13 => "invalid primary LID",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "invalid alternate GID",
            19 => "invalid alternate LID",
            20 => "invalid alternate SL",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "the listener is elsewhere, by CM",
            25 => "the listener is elsewhere, by LID and GID",
            26 => "invalid path MTU",
            27 => "not enough responder resources",
            28 => "refused by the application",
            29 => "RNR retry count refused",
            30 => "duplicate communication id",
            31 => "invalid class version",
            32 => "invalid flow label",
            33 => "invalid alternate flow label",
            _ => "",
        })
    }
}
