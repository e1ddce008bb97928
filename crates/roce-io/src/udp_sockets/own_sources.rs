//! The addresses that datagrams of this host itself may show as their source.
//!
//! The kernel lets every user send from any IPv6 address (`IPV6_FREEBIND`), to this host, too, by `lo`. A socket
//! that is bound to an interface receives what comes by `lo` to an address of that interface, and cannot tell.
//! So a filter looks at the interface that a datagram came by.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use socket2::SockFilter;

use crate::{filter, interfaces};

/// Most addresses that a filter compares. Linux before 6.8 has memory for two such filters of a socket, and needs both
/// while one replaces the other.
const MAX_ADDRESSES: usize = 64;
/// The number of `lo` in every network namespace.
const LO: u32 = 1;

/// The IPv6 addresses of this host.
#[derive(Debug)]
pub(super) struct OwnSources {
    /// Those of the device's interface.
    own: Vec<Ipv6Addr>,
    /// Those of other interfaces when the device was opened.
    others: Vec<Ipv6Addr>,
}

impl OwnSources {
    /// Lists the addresses of this thread's network namespace. Of other interfaces than this one those of a single link
    /// are left out: they reach none of its addresses.
    pub(super) fn of_host(interface: &str) -> io::Result<Self> {
        Ok(Self::among(interfaces::listed_addresses()?, interface))
    }

    fn among(all: Vec<(String, IpAddr)>, interface: &str) -> Self {
        let mut this = Self { own: Vec::new(), others: Vec::new() };
        for (name, address) in all {
            match address {
                IpAddr::V6(address) if name == interface => this.own.push(address),
                IpAddr::V6(address) if !address.is_unicast_link_local() => {
                    this.others.push(address);
                }
                _ => {}
            }
        }
        this
    }

    /// Sets the addresses of the device's interface.
    pub(super) fn set(&mut self, addresses: &[IpAddr]) {
        let of_ipv6 = |address: &IpAddr| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(*address),
        };
        self.own = addresses.iter().filter_map(of_ipv6).collect();
    }

    /// Returns the filter for sockets that receive: of what comes by `lo`, it passes IPv4, whose source the kernel
    /// has checked, and what shows an address of this host.
    pub(super) fn filter(&self) -> Vec<SockFilter> {
        let all: Vec<_> =
            self.own.iter().chain(&self.others).copied().take(MAX_ADDRESSES).collect();
        filter::only_sources_on(LO, &all)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use socket2::SockRef;

    use super::*;

    /// Returns true if a datagram from ::1 to ::1 passes the filter for these sources.
    fn passes(own: &[Ipv6Addr]) -> bool {
        let receiver = UdpSocket::bind("[::1]:0").unwrap();
        let filter = OwnSources { own: own.to_vec(), others: Vec::new() }.filter();
        receiver.set_nonblocking(true).unwrap();
        SockRef::from(&receiver).attach_filter(&filter).unwrap();
        let sender = UdpSocket::bind("[::1]:0").unwrap();
        sender.send_to(b"datagram", receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut [0; 16]).is_ok()
    }

    #[test]
    fn a_datagram_passes_if_each_byte_of_its_source_is_that_of_an_own_address() {
        let same = Ipv6Addr::LOCALHOST;
        assert!(passes(&[same]) && !passes(&[]));
        let others: Vec<_> = (0..16).map(|at| flipped(same.octets(), at)).collect();
        for other in &others {
            assert!(!passes(&[*other]), "{other}");
            assert!(passes(&[*other, same]) && passes(&[same, *other]), "{other}");
        }
        assert!(!passes(&others));
        let most: Vec<_> = others.iter().copied().cycle().take(MAX_ADDRESSES - 1).collect();
        assert!(passes(&[&most[..], &[same]].concat()));
    }

    fn flipped(mut octets: [u8; 16], at: usize) -> Ipv6Addr {
        octets[at] ^= 0x80;
        octets.into()
    }

    /// Linux before 6.8 has 20480 bytes for the filters of a socket (`net.core.optmem_max`), later ones 131072.
    #[test]
    fn the_longest_filter_replaces_another_one() {
        let longest = OwnSources { own: vec![Ipv6Addr::LOCALHOST; 1000], others: Vec::new() };
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        for _ in 0..2 {
            SockRef::from(&socket).attach_filter(&longest.filter()).unwrap();
        }
    }

    #[test]
    fn addresses_of_the_host_are_sources_but_those_of_other_links() {
        let all = [
            ("lo", "::1"),
            ("eth0", "10.0.0.1"),
            ("eth0", "fd00::1"),
            ("eth0", "fe80::1"),
            ("eth1", "fd00::2"),
            ("eth1", "fe80::2"),
        ];
        let all = all.map(|(name, address)| (name.to_owned(), address.parse().unwrap()));
        let sources = OwnSources::among(all.to_vec(), "eth0");
        let parsed = |all: [&str; 2]| all.map(|it| it.parse::<Ipv6Addr>().unwrap()).to_vec();
        assert_eq!(sources.own, parsed(["fd00::1", "fe80::1"]));
        assert_eq!(sources.others, parsed(["::1", "fd00::2"]));
    }
}
