//! Ethernet address.

use core::{fmt, net::IpAddr, str::FromStr};

/// Ethernet address, 48 bits.
///
/// ```
/// use roce_wire::MacAddr;
/// let mac: MacAddr = "02:00:00:00:00:2a".parse().unwrap();
/// assert_eq!(mac.to_string(), "02:00:00:00:00:2a");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

/// Text that is not six pairs of hexadecimal digits separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address: write six pairs of hexadecimal digits, as in 02:00:00:00:00:2a")]
pub struct MacAddrParseError;

impl MacAddr {
    /// Returns the address to which packets of a multicast group go; `None` if `address` is of no group.
    ///
    /// ```
    /// use roce_wire::MacAddr;
    /// let group = "239.129.2.3".parse().unwrap();
    /// assert_eq!(MacAddr::of_group(group).unwrap().to_string(), "01:00:5e:01:02:03");
    /// assert_eq!(MacAddr::of_group("10.0.0.1".parse().unwrap()), None);
    /// ```
    //= rule wire-group-mac: RFC 1112 section 6.4; RFC 2464 section 7
    //# A packet of an IPv4 group goes to 01:00:5e and the group's lower 23 bits, one of an IPv6 group to
    //# 33:33 and its lower 32 bits.
    pub fn of_group(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(group) if group.is_multicast() => {
                let [_, b, c, d] = group.octets();
                Some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(group) if group.is_multicast() => {
                let [.., a, b, c, d] = group.octets();
                Some(Self([0x33, 0x33, a, b, c, d]))
            }
            _ => None,
        }
    }
}

impl FromStr for MacAddr {
    type Err = MacAddrParseError;

    fn from_str(text: &str) -> Result<Self, MacAddrParseError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or(MacAddrParseError)?;
            // `from_str_radix` alone would accept "+1".
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacAddrParseError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddrParseError)?;
        }
        if parts.next().is_some() { Err(MacAddrParseError) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    //= test wire-group-mac
    fn groups_of_equal_lower_bits_share_an_address() {
        let mac = |text: &str| MacAddr::of_group(text.parse().unwrap()).unwrap().to_string();
        assert_eq!(mac("224.1.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("239.129.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("239.255.255.255"), "01:00:5e:7f:ff:ff");
        assert_eq!(mac("ff02::1:ff28:9c5a"), "33:33:ff:28:9c:5a");
        for unicast in ["10.0.0.1", "255.255.255.255", "fe80::1"] {
            assert_eq!(MacAddr::of_group(unicast.parse().unwrap()), None, "{unicast}");
        }
    }

    #[test]
    fn text_that_is_not_six_pairs_of_digits_is_refused() {
        for text in ["", "02:00", "02:00:00:00:00:2a:00", "2:0:0:0:0:2a", "+2:00:00:00:00:2a"] {
            assert_eq!(text.parse::<MacAddr>(), Err(MacAddrParseError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_address_equals_the_one_parsed_from_its_text(bytes: [u8; 6]) {
            prop_assert_eq!(MacAddr(bytes).to_string().parse(), Ok(MacAddr(bytes)));
        }
    }
}
