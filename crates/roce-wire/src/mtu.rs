//! Path MTU.

use core::fmt;

/// Path MTU: payload bytes of every packet of a message but the last.
///
/// ```
/// use roce_wire::PathMtu;
/// let mtu = PathMtu::for_netdev_mtu(1500).unwrap();
/// assert_eq!(mtu.bytes(), 1024);
/// assert_eq!(mtu.code(), 3); // as `enum ibv_mtu` counts
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl PathMtu {
    /// All path MTUs, smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Bytes of the netdev's MTU that are not payload: the longest headers over IPv6, and the ICRC.
    pub const OVERHEAD: u32 = 80;

    /// Creates one; `None` unless `bytes` is one of 256, 512, 1024, 2048, 4096.
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// Creates one; `None` unless `code` is 1 ..= 5.
    //= rule wire-mtu-codes: InfiniBand, clause not known; include/rdma/ib_verbs.h: ib_mtu
    //# Path MTUs are 256 to 4096 bytes, with the codes 1 to 5.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// Returns the largest path MTU for an interface MTU of `netdev_mtu` bytes; `None` below 336.
    //= rule wire-mtu-of-interface: rxe_param.h: eth_mtu_int_to_enum
    //# The largest path MTU of an interface leaves 80 bytes of its MTU for headers.
    pub fn for_netdev_mtu(netdev_mtu: u32) -> Option<Self> {
        let room = netdev_mtu.checked_sub(Self::OVERHEAD)? as usize;
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= room)
    }

    /// Returns the payload bytes, 256 ..= 4096.
    pub const fn bytes(self) -> usize {
        128 << self.code()
    }

    /// Returns the code of verbs and connection management, 1 ..= 5.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test wire-mtu-codes
    #[test]
    fn bytes_and_code_name_the_same_mtu() {
        for (mtu, bytes) in PathMtu::ALL.into_iter().zip([256, 512, 1024, 2048, 4096]) {
            assert_eq!(mtu.bytes(), bytes);
            assert_eq!(PathMtu::from_bytes(bytes), Some(mtu));
            assert_eq!(PathMtu::from_code(mtu.code()), Some(mtu));
        }
        assert_eq!(PathMtu::from_code(0), None);
        assert_eq!(PathMtu::from_code(6), None);
        assert_eq!(PathMtu::from_bytes(1500), None);
    }

    //= test wire-mtu-of-interface
    #[test]
    fn each_path_mtu_begins_80_bytes_above_itself() {
        for mtu in PathMtu::ALL {
            let threshold = mtu.bytes() as u32 + 80;
            assert_eq!(PathMtu::for_netdev_mtu(threshold), Some(mtu));
            assert!(PathMtu::for_netdev_mtu(threshold - 1) < Some(mtu));
        }
        assert_eq!(PathMtu::for_netdev_mtu(335), None);
        assert_eq!(PathMtu::for_netdev_mtu(0), None);
        assert_eq!(PathMtu::for_netdev_mtu(65536), Some(PathMtu::B4096));
    }
}
