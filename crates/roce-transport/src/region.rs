//! A registered region, and what it allows.

use crate::{AccessFlags, RemoteAddr, Sge};

/// A registered region: what the application tells its peer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Local and remote key.
    pub key: u32,
    /// Start address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Region {
    /// Returns an SGE of part of the region, without a check of bounds.
    pub const fn piece(self, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.key, addr: self.addr.wrapping_add(offset), len }
    }

    /// Returns the address at this offset for a READ, a WRITE or an atomic of the peer, without a check of bounds.
    pub const fn remote(self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.addr.wrapping_add(offset), rkey: self.key }
    }
}

/// Permitted accesses to a region; local reads are always permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// The flags of the registration.
    pub access: AccessFlags,
    /// The peer may invalidate the key.
    pub invalidatable: bool,
}

impl Rights {
    /// All accesses; not invalidatable.
    pub const ALL: Self = Self { access: AccessFlags::ALL, invalidatable: false };
}

impl From<AccessFlags> for Rights {
    fn from(access: AccessFlags) -> Self {
        Self { access, invalidatable: false }
    }
}
