//! A packet as a tree of layers and fields with their bytes; built on request.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use roce_wire::{Gid, MacAddr};

/// A header, the payload or the ICRC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Name.
    pub name: &'static str,
    /// Byte range from the start of the captured frame.
    pub range: Range<usize>,
    /// Fields in the order of the bytes.
    pub fields: Vec<Field>,
}

/// A field of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: Value,
    /// Byte range from the start of the captured frame. Fields that share a byte have the same
    /// range.
    pub bytes: Range<usize>,
    /// Bit range from the start of the captured frame; the most significant bit of a byte is its first.
    pub bits: Range<usize>,
    /// Meaning of the value; often empty.
    pub note: Cow<'static, str>,
}

/// Value of a field; its `Display` is the usual notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A decimal number.
    Decimal(u64),
    /// A hexadecimal number.
    Hex {
        /// Number.
        value: u64,
        /// Digits to display, 1 ..= 16.
        digits: u8,
    },
    /// One bit.
    Flag(bool),
    /// An IP address.
    Address(IpAddr),
    /// An Ethernet address.
    Mac(MacAddr),
    /// A GID.
    Gid(Gid),
    /// Uninterpreted bytes; [`Field::bytes`] has their range.
    Bytes {
        /// Number of bytes.
        len: usize,
    },
    /// Text.
    Text(Cow<'static, str>),
}

impl Layer {
    /// Returns a layer without fields.
    pub const fn new(name: &'static str, range: Range<usize>) -> Self {
        Self { name, range, fields: Vec::new() }
    }

    /// Returns the field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// Returns a field without a note.
    pub const fn new(name: &'static str, value: Value, bytes: Range<usize>) -> Self {
        let bits = bytes.start.saturating_mul(8)..bytes.end.saturating_mul(8);
        Self { name, value, bytes, bits, note: Cow::Borrowed("") }
    }

    /// Returns the field with a note.
    #[must_use]
    pub fn noted(self, note: impl Into<Cow<'static, str>>) -> Self {
        Self { note: note.into(), ..self }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal(value) => write!(f, "{value}"),
            Self::Hex { value, digits } => {
                write!(f, "0x{value:0width$x}", width = usize::from(*digits))
            }
            Self::Flag(set) => f.write_str(if *set { "1" } else { "0" }),
            Self::Address(address) => write!(f, "{address}"),
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Gid(gid) => write!(f, "{gid}"),
            Self::Bytes { len } => write!(f, "{len} bytes"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
