//! Global identifier.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::MacAddr;

/// Global identifier: the IP address of a port, written as 16 bytes.
///
/// An IPv4 address is mapped to `::ffff:a.b.c.d`.
///
/// ```
/// use roce_wire::Gid;
/// use std::net::IpAddr;
/// let address: IpAddr = "10.9.0.1".parse().unwrap();
/// let gid = Gid::from(address);
/// assert_eq!(gid.to_string(), "::ffff:10.9.0.1");
/// assert_eq!(gid.ip(), address);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

/// Text that is neither an IPv4 nor an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a GID: write an IPv4 or an IPv6 address")]
pub struct GidParseError;

impl Gid {
    /// Returns the link-local GID of an interface with this Ethernet address: `fe80::` and its
    /// EUI-64.
    ///
    /// ```
    /// use roce_wire::{Gid, MacAddr};
    /// let gid = Gid::link_local_from(MacAddr([0x02, 0, 0, 0, 0, 0x2a]));
    /// assert_eq!(gid.to_string(), "fe80::ff:fe00:2a");
    /// ```
    //= rule wire-gid-link-local: RFC 4291 appendix A
    //# The link-local GID holds the MAC address with 0xfffe in its middle and the universal bit
    //# inverted.
    pub const fn link_local_from(mac: MacAddr) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        // The universal/local bit is stored flipped in an EUI-64 interface identifier.
        Self([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 0x02, b, c, 0xff, 0xfe, d, e, f])
    }

    /// Returns the address; a mapped one as IPv4.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Returns true for an IPv4 address of the form `::ffff:a.b.c.d`.
    pub fn is_ipv4(self) -> bool {
        self.ip().is_ipv4()
    }
}

impl From<Ipv4Addr> for Gid {
    //= rule wire-gid-ipv4: RoCEv2, clause not known; RFC 4291 section 2.5.5.2
    //# The GID of an IPv4 address is its IPv4-mapped IPv6 address.
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl FromStr for Gid {
    type Err = GidParseError;

    fn from_str(text: &str) -> Result<Self, GidParseError> {
        text.parse::<IpAddr>().map(Self::from).map_err(|_| GidParseError)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid:{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-gid-link-local
    #[test]
    fn a_locally_administered_mac_clears_the_bit_in_its_gid() {
        let gid = Gid::link_local_from(MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        assert_eq!(gid, "fe80::5054:ff:fe12:3456".parse().unwrap());
    }

    proptest! {
        //= test wire-gid-ipv4
        #[test]
        fn every_ipv4_address_survives_its_gid(octets: [u8; 4]) {
            let address = Ipv4Addr::from(octets);
            prop_assert_eq!(Gid::from(address).ip(), IpAddr::V4(address));
            prop_assert!(Gid::from(address).is_ipv4());
        }

        #[test]
        fn a_gid_equals_the_one_parsed_from_its_address_or_text(bytes: [u8; 16]) {
            prop_assert_eq!(Gid::from(Gid(bytes).ip()), Gid(bytes));
            prop_assert_eq!(Gid(bytes).to_string().parse(), Ok(Gid(bytes)));
        }
    }
}
