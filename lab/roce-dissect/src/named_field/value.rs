//! Values of fields.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use roce_wire::MacAddr;

/// Kind of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// A number of up to 64 bits.
    Number,
    /// True or false.
    Flag,
    /// Text.
    Text,
    /// An IP address, or a GID as one.
    Address,
    /// An Ethernet address.
    Mac,
    /// Bytes.
    Bytes,
    /// A layer, which is there or not.
    Layer,
}

/// A value of a field; its `Display` is what `-T fields` of `roce dissect` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number.
    Number {
        /// Number.
        value: u64,
        /// Hexadecimal digits to display; 0 for a decimal number, 1 for as many as there are.
        hex_digits: u8,
    },
    /// One bit.
    Flag(bool),
    /// Text.
    Text(Cow<'a, str>),
    /// An IP address.
    Address(IpAddr),
    /// An Ethernet address.
    Mac(MacAddr),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl FieldValue<'_> {
    /// Returns a number that is displayed in decimal.
    pub(super) fn decimal(value: impl Into<u64>) -> Self {
        Self::Number { value: value.into(), hex_digits: 0 }
    }

    /// Returns a number that is displayed in hexadecimal, without leading zeros.
    pub(super) const fn hex(value: u64) -> Self {
        Self::Number { value, hex_digits: 1 }
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "number",
            Self::Flag => "flag",
            Self::Text => "text",
            Self::Address => "address",
            Self::Mac => "Ethernet address",
            Self::Bytes => "bytes",
            Self::Layer => "layer",
        })
    }
}

impl fmt::Display for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { value, hex_digits: 0 } => write!(f, "{value}"),
            Self::Number { value, hex_digits } => {
                write!(f, "0x{value:0width$x}", width = usize::from(*hex_digits))
            }
            Self::Flag(set) => f.write_str(if *set { "1" } else { "0" }),
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address}"),
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
