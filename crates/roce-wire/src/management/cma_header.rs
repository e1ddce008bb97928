//! Addresses and port that rdma_cm writes before the private data of requests.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the header in bytes.
pub const CMA_HEADER_LEN: usize = 36;

/// Addresses and port of a request of rdma_cm: the first bytes of the private data of REQ and
/// SIDR_REQ.
///
/// ```
/// use roce_wire::management::CmaHeader;
/// let [source, destination] = ["10.9.0.2", "10.9.0.1"].map(|text| text.parse().unwrap());
/// let header = CmaHeader::new(55238, source, destination).unwrap();
/// let bytes = header.to_bytes();
/// assert_eq!(bytes[..4], [0, 0x40, 0xd7, 0xc6]);
/// assert_eq!(CmaHeader::decode(&bytes), Ok(header));
/// assert_eq!(header.destination(), destination);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CmaHeader {
    /// Port of the sender.
    pub source_port: u16,
    /// Addresses of sender and receiver.
    pub addresses: CmaAddresses,
}

/// Addresses of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum CmaAddresses {
    V4 { source: Ipv4Addr, destination: Ipv4Addr },
    V6 { source: Ipv6Addr, destination: Ipv6Addr },
}

/// Reason why private data does not begin with addresses of rdma_cm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmaHeaderError {
    /// Fewer than 36 bytes.
    #[error("rdma_cm's addresses need 36 bytes of private data, {0} left")]
    Length(usize),
    /// Another version of this header.
    #[error("version {0} of rdma_cm's addresses")]
    Version(u8),
    /// Neither IPv4 nor IPv6.
    #[error("IP version {0} in rdma_cm's addresses")]
    IpVersion(u8),
}

impl CmaHeader {
    /// Creates one; `None` if one address is IPv4 and the other IPv6.
    pub const fn new(source_port: u16, source: IpAddr, destination: IpAddr) -> Option<Self> {
        let addresses = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                CmaAddresses::V4 { source, destination }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                CmaAddresses::V6 { source, destination }
            }
            _ => return None,
        };
        Some(Self { source_port, addresses })
    }

    /// Reads the front of private data.
    ///
    /// # Errors
    /// The private data is not rdma_cm's, or of a later version.
    //= rule cm-cma-header: cma.c: cma_hdr; cma.c: cma_format_hdr
    //# The private data of a request begins with a version, the IP version, the port of the sender, and
    //# the addresses of sender and receiver, an IPv4 address in the last 4 of 16 bytes.
    pub fn decode(private_data: &[u8]) -> Result<Self, CmaHeaderError> {
        let Some((bytes, _)) = private_data.split_first_chunk::<CMA_HEADER_LEN>() else {
            return Err(CmaHeaderError::Length(private_data.len()));
        };
        let [version, ip_version, p0, p1, addresses @ ..] = bytes;
        if *version != 0 {
            return Err(CmaHeaderError::Version(*version));
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&addresses[at..at + 16]);
            u128::from_be_bytes(octets)
        };
        let (source, destination) = (address(0), address(16));
        let addresses = match ip_version >> 4 {
            4 => CmaAddresses::V4 {
                source: Ipv4Addr::from_bits(source as u32),
                destination: Ipv4Addr::from_bits(destination as u32),
            },
            6 => CmaAddresses::V6 {
                source: Ipv6Addr::from_bits(source),
                destination: Ipv6Addr::from_bits(destination),
            },
            other => return Err(CmaHeaderError::IpVersion(other)),
        };
        Ok(Self { source_port: u16::from_be_bytes([*p0, *p1]), addresses })
    }

    /// Returns the bytes on the wire.
    pub fn to_bytes(self) -> [u8; CMA_HEADER_LEN] {
        let (version, source, destination) = match self.addresses {
            CmaAddresses::V4 { source, destination } => {
                (4, source.to_bits().into(), destination.to_bits().into())
            }
            CmaAddresses::V6 { source, destination } => {
                (6, source.to_bits(), destination.to_bits())
            }
        };
        let mut bytes = [0; CMA_HEADER_LEN];
        bytes[1] = version << 4;
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[4..20].copy_from_slice(&u128::to_be_bytes(source));
        bytes[20..].copy_from_slice(&u128::to_be_bytes(destination));
        bytes
    }

    /// Returns the address of the sender.
    pub const fn source(self) -> IpAddr {
        match self.addresses {
            CmaAddresses::V4 { source, .. } => IpAddr::V4(source),
            CmaAddresses::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// Returns the address of the receiver.
    pub const fn destination(self) -> IpAddr {
        match self.addresses {
            CmaAddresses::V4 { destination, .. } => IpAddr::V4(destination),
            CmaAddresses::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }
}
