//! Addresses as the C library has them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::plain::{Plain, behind, behind_mut};
use super::structures::sockaddr_ib;
use super::values::AF_IB;

/// An address of a family that rdma_cm knows.
///
/// ```
/// use roce_abi::rdma_cm::SocketAddress;
///
/// let address = SocketAddress::Ip("10.0.0.1:7174".parse().unwrap());
/// let mut bytes = [0; 128];
/// assert_eq!(address.write(&mut bytes), 16);
/// assert_eq!(bytes[..8], [2, 0, 28, 6, 10, 0, 0, 1]);
/// assert_eq!(SocketAddress::read(&bytes), Some(address));
/// assert_eq!(SocketAddress::read(&[0; 128]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    /// `AF_INET` or `AF_INET6`.
    Ip(SocketAddr),
    /// `AF_IB`.
    Ib(sockaddr_ib),
}

impl SocketAddress {
    /// Reads an address; `None` if its family is another one. Bytes that are missing are zeros.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let family = u16::read(bytes);
        let port = u16::from_be_bytes(Plain::read(behind(bytes, 2)));
        if family == AF_IB {
            return Some(Self::Ib(sockaddr_ib::read(bytes)));
        }
        match i32::from(family) {
            libc::AF_INET => {
                let address: [u8; 4] = Plain::read(behind(bytes, 4));
                Some(Self::Ip(SocketAddrV4::new(Ipv4Addr::from(address), port).into()))
            }
            libc::AF_INET6 => {
                let flow = u32::from_be_bytes(Plain::read(behind(bytes, 4)));
                let address: [u8; 16] = Plain::read(behind(bytes, 8));
                let scope = u32::read(behind(bytes, 24));
                Some(Self::Ip(SocketAddrV6::new(Ipv6Addr::from(address), port, flow, scope).into()))
            }
            _ => None,
        }
    }

    /// Returns the number of bytes.
    pub const fn size(&self) -> usize {
        match self {
            Self::Ip(SocketAddr::V4(_)) => size_of::<libc::sockaddr_in>(),
            Self::Ip(SocketAddr::V6(_)) => size_of::<libc::sockaddr_in6>(),
            Self::Ib(_) => size_of::<sockaddr_ib>(),
        }
    }

    /// Writes the address to the front of `out`, and returns the number of bytes that it has. What does
    /// not fit is left out.
    pub fn write(&self, out: &mut [u8]) -> u16 {
        let family = |out: &mut [u8], family: i32| (family as u16).write(out);
        match self {
            Self::Ip(SocketAddr::V4(address)) => {
                family(out, libc::AF_INET);
                address.port().to_be_bytes().write(behind_mut(out, 2));
                address.ip().octets().write(behind_mut(out, 4));
            }
            Self::Ip(SocketAddr::V6(address)) => {
                family(out, libc::AF_INET6);
                address.port().to_be_bytes().write(behind_mut(out, 2));
                address.flowinfo().to_be_bytes().write(behind_mut(out, 4));
                address.ip().octets().write(behind_mut(out, 8));
                address.scope_id().write(behind_mut(out, 24));
            }
            Self::Ib(address) => address.write(out),
        }
        self.size() as u16
    }
}
