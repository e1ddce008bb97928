//! Memberships of this host in multicast groups.

use std::io;
use std::net::IpAddr;

use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};

/// The membership of an interface in a multicast group: while one exists, the kernel reports the group to
/// the routers and switches of the link (IGMP, MLD), and the interface receives its frames.
///
/// It is a UDP socket that receives nothing, so the kernel ends the membership with the process. The
/// kernel counts the memberships of a group.
///
/// ```no_run
/// use roce_io::MulticastMembership;
///
/// let membership = MulticastMembership::join("239.1.2.3".parse().unwrap(), 2)?;
/// drop(membership); // leaves the group
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct MulticastMembership {
    _socket: Socket,
}

impl MulticastMembership {
    /// Joins a group on the interface with this index, in the network namespace of this thread. Takes a
    /// descriptor.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for an address of no group, `ENODEV` without the interface.
    pub fn join(group: IpAddr, interface: u32) -> io::Result<Self> {
        let domain = if group.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, None)?;
        match group {
            IpAddr::V4(group) => {
                if interface == 0 {
                    // The kernel would choose one.
                    return Err(io::Error::from_raw_os_error(libc::ENODEV));
                }
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))?;
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, interface)?,
        }
        Ok(Self { _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Index of `lo`, the first interface of every network namespace.
    const LO: u32 = 1;

    #[test]
    fn an_address_of_no_group_is_refused() {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let refused = MulticastMembership::join(localhost, LO).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let group = "239.1.2.3".parse().unwrap();
        let refused = MulticastMembership::join(group, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }
}
