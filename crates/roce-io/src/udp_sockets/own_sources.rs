//! The addresses that datagrams of this host itself may show as their source.
//!
//! The kernel lets every user send from any IPv6 address (`IPV6_FREEBIND`), to this host, too, by `lo`. A socket
//! that is bound to an interface receives what comes by `lo` to an address of that interface, and cannot tell.
//! So a filter looks at the interface that a datagram came by.

use std::{
    fs, io,
    net::{IpAddr, Ipv6Addr},
};

use socket2::SockFilter;

use crate::filter;

/// Most addresses that a filter compares.
const MAX_ADDRESSES: usize = 256;
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
    /// Reads the addresses of this thread's network namespace.
    pub(super) fn of_host(interface: &str) -> io::Result<Self> {
        let text = match fs::read_to_string("/proc/thread-self/net/if_inet6") {
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let (own, others): (Vec<_>, Vec<_>) =
            text.lines().filter_map(parse).partition(|(_, name)| *name == interface);
        let [own, others] = [own, others].map(|all| all.into_iter().map(|it| it.0).collect());
        Ok(Self { own, others })
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

/// Reads a line of `if_inet6`: address, number of the interface, length of the prefix, scope, flags, name.
fn parse(line: &str) -> Option<(Ipv6Addr, &str)> {
    let mut fields = line.split_whitespace();
    let address = u128::from_str_radix(fields.next()?, 16).ok()?;
    Some((address.into(), fields.nth(4)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_and_no_other_line_taken_for_one() {
        let line = "fd000001000000000000000000000001 02 40 00 80     eth0";
        assert_eq!(parse(line), Some(("fd00:1::1".parse().unwrap(), "eth0")));
        for other in ["", "x", "fd00 02 40 00 80"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
