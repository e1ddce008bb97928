//! Where a received datagram came from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce_wire::GRH_LEN;

/// What the 40 bytes in front of a received datagram say of its way.
///
/// [`ProtectionDomain::create_ah_from_completion`](crate::ProtectionDomain::create_ah_from_completion)
/// reads them itself.
///
/// ```
/// use roce_verbs::{DatagramSource, GRH_LEN};
///
/// let mut grh = [0; GRH_LEN];
/// grh[20] = 0x45; // an IPv4 header of 20 bytes
/// grh[32..36].copy_from_slice(&[10, 0, 0, 1]);
/// let datagram = DatagramSource::parse(&grh).unwrap();
/// assert_eq!(datagram.source, std::net::IpAddr::from([10, 0, 0, 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// The sender's address.
    pub source: IpAddr,
    /// The address to which the sender has sent it.
    pub destination: IpAddr,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
}

/// Length of an IPv4 header without options.
const IPV4_LEN: usize = 20;

impl DatagramSource {
    /// Reads an IPv6 header, or an IPv4 header in the second half; `None` if they hold neither.
    ///
    /// A device need not clear the first half in front of an IPv4 header. Where both could be, it is
    /// IPv4 if the checksum is that of an IPv4 header.
    pub fn parse(grh: &[u8; GRH_LEN]) -> Option<Self> {
        let ipv4: &[u8; IPV4_LEN] = grh.last_chunk()?;
        let (is_ipv6, is_ipv4) = (grh[0] >> 4 == 6, ipv4[0] >> 4 == 4);
        match is_ipv4 && (!is_ipv6 || (ipv4[0] == 0x45 && has_valid_checksum(ipv4))) {
            true => Some(Self::from_ipv4(ipv4)),
            false if is_ipv6 => Some(Self::from_ipv6(grh)),
            false => None,
        }
    }

    fn from_ipv4(header: &[u8; IPV4_LEN]) -> Self {
        let address = |at| {
            let bytes: [u8; 4] = std::array::from_fn(|i| header[at + i]);
            Ipv4Addr::from(bytes).into()
        };
        let (source, destination) = (address(12), address(16));
        Self { source, destination, traffic_class: header[1], flow_label: 0 }
    }

    fn from_ipv6(header: &[u8; GRH_LEN]) -> Self {
        let address = |at| {
            let bytes: [u8; 16] = std::array::from_fn(|i| header[at + i]);
            Ipv6Addr::from(bytes).into()
        };
        let (source, destination) = (address(8), address(24));
        let front = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let traffic_class = (front >> 20) as u8; // its lower 8 bits
        Self { source, destination, traffic_class, flow_label: front & 0xf_ffff }
    }
}

/// Returns true if the ones' complement sum over the header is that of a valid one.
fn has_valid_checksum(header: &[u8; IPV4_LEN]) -> bool {
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.1 to 10.0.0.2, type of service 0x68, with its checksum.
    const IPV4: [u8; IPV4_LEN] =
        [0x45, 0x68, 0, 68, 0x12, 0x34, 0x40, 0, 64, 17, 0x14, 0x0b, 10, 0, 0, 1, 10, 0, 0, 2];

    fn behind(front: [u8; 20], header: [u8; IPV4_LEN]) -> [u8; GRH_LEN] {
        let mut grh = [0; GRH_LEN];
        grh[..20].copy_from_slice(&front);
        grh[20..].copy_from_slice(&header);
        grh
    }

    fn ipv6(destination: [u8; 16]) -> [u8; GRH_LEN] {
        let mut grh = [0; GRH_LEN];
        grh[..8].copy_from_slice(&[0x66, 0x8a, 0xbc, 0xde, 0, 48, 17, 64]);
        grh[8..24].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        grh[24..].copy_from_slice(&destination);
        grh
    }

    fn of_ipv4() -> DatagramSource {
        DatagramSource {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            traffic_class: 0x68,
            flow_label: 0,
        }
    }

    #[test]
    fn an_ipv4_header_is_found_behind_zeros_and_behind_whatever_stood_there() {
        assert!(has_valid_checksum(&IPV4), "the example is a sound header");
        assert_eq!(DatagramSource::parse(&behind([0; 20], IPV4)), Some(of_ipv4()));
        assert_eq!(DatagramSource::parse(&behind([0x60; 20], IPV4)), Some(of_ipv4()));
    }

    #[test]
    fn an_ipv6_header_whose_bytes_look_like_ipv4_is_ipv6_unless_the_checksum_fits() {
        let address = |first| {
            let mut bytes = [0; 16];
            bytes[0] = first;
            bytes
        };
        let seen = DatagramSource::parse(&ipv6(address(0xfd))).unwrap();
        assert_eq!(seen.source, "fd00::1".parse::<IpAddr>().unwrap());
        assert_eq!(seen.destination, "fd00::".parse::<IpAddr>().unwrap());
        assert_eq!((seen.traffic_class, seen.flow_label), (0x68, 0xabcde));
        // The source's bytes 12 to 15 stand where an IPv4 header begins.
        let mut grh = ipv6(address(0xfd));
        grh[20] = 0x45;
        assert!(DatagramSource::parse(&grh).unwrap().source.is_ipv6());
        let mut broken = behind([0x60; 20], IPV4);
        broken[30] ^= 1;
        assert!(DatagramSource::parse(&broken).unwrap().source.is_ipv6());
    }

    #[test]
    fn bytes_of_no_ip_header_name_no_source() {
        assert_eq!(DatagramSource::parse(&[0; GRH_LEN]), None);
        assert_eq!(DatagramSource::parse(&[0xff; GRH_LEN]), None);
    }
}
