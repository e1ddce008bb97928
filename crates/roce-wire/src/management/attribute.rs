//! Kinds of messages.

use super::{Apr, CmField, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

/// Kind of a message of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[repr(u16)]
pub enum CmAttribute {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1a,
}

impl CmAttribute {
    /// All kinds, in the order of their codes.
    //= rule cm-messages: InfiniBand 12.6
    //# The messages of connection management have the attributes 0x10 to 0x1a.
    pub const ALL: [Self; 11] = [
        Self::Req,
        Self::Mra,
        Self::Rej,
        Self::Rep,
        Self::Rtu,
        Self::Dreq,
        Self::Drep,
        Self::SidrReq,
        Self::SidrRep,
        Self::Lap,
        Self::Apr,
    ];

    /// Creates one; `None` unless `code` is 0x10 ..= 0x1a.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.code() == code)
    }

    /// Returns the attribute on the wire.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Returns the name, as in `SIDR REQ`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Mra => "MRA",
            Self::Rej => "REJ",
            Self::Rep => "REP",
            Self::Rtu => "RTU",
            Self::Dreq => "DREQ",
            Self::Drep => "DREP",
            Self::SidrReq => "SIDR REQ",
            Self::SidrRep => "SIDR REP",
            Self::Lap => "LAP",
            Self::Apr => "APR",
        }
    }

    /// Returns names and places of the message's fields.
    pub const fn fields(self) -> &'static [CmField] {
        match self {
            Self::Req => Req::FIELDS,
            Self::Mra => Mra::FIELDS,
            Self::Rej => Rej::FIELDS,
            Self::Rep => Rep::FIELDS,
            Self::Rtu => Rtu::FIELDS,
            Self::Dreq => Dreq::FIELDS,
            Self::Drep => Drep::FIELDS,
            Self::SidrReq => SidrReq::FIELDS,
            Self::SidrRep => SidrRep::FIELDS,
            Self::Lap => Lap::FIELDS,
            Self::Apr => Apr::FIELDS,
        }
    }
}
