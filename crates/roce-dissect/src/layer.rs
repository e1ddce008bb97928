//! A packet as a tree: layers, their fields, and the bytes of each. Made on demand only.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use roce_wire::{Gid, MacAddr};

use crate::Finding;

/// One header, or the payload, or the ICRC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What people call it.
    pub name: &'static str,
    /// Its bytes, counted from the start of the captured frame.
    pub range: Range<usize>,
    /// What is in it, in the order of the bytes.
    pub fields: Vec<Field>,
}

/// One field of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What people call it.
    pub name: &'static str,
    /// What it holds.
    pub value: Value,
    /// The bytes it stands in, counted from the start of the captured frame. Fields that share a
    /// byte have the same range.
    pub bytes: Range<usize>,
    /// What that means, in words; often empty.
    pub note: Cow<'static, str>,
}

/// What a field holds; its `Display` is how people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number that is counted in.
    Decimal(u64),
    /// A number that is a name or a pattern, with so many hexadecimal digits.
    Hex {
        /// The number.
        value: u64,
        /// Digits to write, 1 ..= 16.
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
    /// Bytes without further meaning here; where they stand says which.
    Bytes {
        /// How many.
        len: usize,
    },
    /// Words.
    Text(Cow<'static, str>),
}

/// One packet with everything in it: what `roce dissect -v` prints and a ladder shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dissection {
    /// One line: what it is and what matters in it.
    pub summary: String,
    /// Outermost first.
    pub layers: Vec<Layer>,
    /// What was found wrong, or worth knowing.
    pub findings: Vec<Finding>,
}

impl Layer {
    /// A layer without fields.
    pub const fn new(name: &'static str, range: Range<usize>) -> Self {
        Self { name, range, fields: Vec::new() }
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// A field without a note.
    pub const fn new(name: &'static str, value: Value, bytes: Range<usize>) -> Self {
        Self { name, value, bytes, note: Cow::Borrowed("") }
    }

    /// The same field with a note.
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
