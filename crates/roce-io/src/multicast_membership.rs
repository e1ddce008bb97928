//! Memberships of this host in multicast groups.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::{Domain, InterfaceIndexOrAddress, Type};

use crate::process::Generation;
use crate::sys;
use crate::sys::socket::Socket;

/// The memberships of one interface in multicast groups. While one exists, the kernel reports the group to
/// the routers and switches of the link (IGMP, MLD), and the interface receives its frames.
///
/// They belong to UDP sockets that receive nothing, so the kernel ends them with the process. Each socket
/// has up to 20, the kernel's default limit for IPv4; one that has none left is closed.
///
/// ```no_run
/// use roce_io::MulticastMemberships;
///
/// let of_interface = MulticastMemberships::new(2);
/// let group = "239.1.2.3".parse().unwrap();
/// let (first, second) = (of_interface.join(group)?, of_interface.join(group)?);
/// drop(first);
/// drop(second); // leaves the group
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MulticastMemberships(Arc<Shared>);

/// A share in the membership of an interface in a multicast group, which ends with the last one.
///
/// In a child process after `fork` it may be dropped, which ends nothing.
#[derive(Debug)]
pub struct MulticastMembership {
    group: IpAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    interface: u32,
    /// Most groups at a time.
    limit: usize,
    /// The process that has the sockets.
    process: Generation,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    groups: HashMap<IpAddr, Group>,
    /// The sockets by number; a number is used again.
    sockets: HashMap<usize, GroupSocket>,
}

/// A group of which the interface is a member.
#[derive(Debug)]
struct Group {
    shares: usize,
    /// Number of its socket.
    socket: usize,
}

/// A socket with memberships in groups of one IP version.
#[derive(Debug)]
struct GroupSocket {
    socket: Socket,
    is_v4: bool,
    groups: usize,
}

/// Most groups of an interface.
const MAX_GROUPS: usize = 8192;
/// Most groups of a socket: `net.ipv4.igmp_max_memberships` by default.
const MAX_GROUPS_OF_SOCKET: usize = 20;

impl MulticastMemberships {
    /// Returns the memberships of the interface with this index, none so far.
    pub fn new(interface: u32) -> Self {
        Self::with_limit(interface, MAX_GROUPS)
    }

    fn with_limit(interface: u32, limit: usize) -> Self {
        let process = Generation::current();
        Self(Arc::new(Shared { interface, limit, process, table: Mutex::default() }))
    }

    /// Joins a group, in the network namespace of this thread, unless the interface is a member. Takes a
    /// descriptor for every 20 groups.
    ///
    /// # Errors
    /// `ENOMEM` above 8192 groups; the kernel's otherwise: `EINVAL` for an address of no group, `ENODEV`
    /// without the interface.
    pub fn join(&self, group: IpAddr) -> io::Result<MulticastMembership> {
        if self.0.interface == 0 {
            // The kernel would choose one.
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let mut table = self.0.table();
        let Table { groups, sockets } = &mut *table;
        let count = groups.len();
        match groups.get_mut(&group) {
            Some(known) => known.shares += 1,
            None if count >= self.0.limit => {
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            None => {
                let socket = join(sockets, group, self.0.interface)?;
                groups.insert(group, Group { shares: 1, socket });
            }
        }
        Ok(MulticastMembership { group, shared: Arc::clone(&self.0) })
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MulticastMembership {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            return;
        }
        let mut table = self.shared.table();
        let Table { groups, sockets } = &mut *table;
        let Some(group) = groups.get_mut(&self.group) else { return };
        group.shares -= 1;
        if group.shares > 0 {
            return;
        }
        let number = group.socket;
        groups.remove(&self.group);
        let Some(of_group) = sockets.get_mut(&number) else { return };
        of_group.groups -= 1;
        if of_group.groups == 0 {
            sockets.remove(&number);
            return;
        }
        // The kernel has ended the membership already if the interface is gone.
        let _ended = match self.group {
            IpAddr::V4(group) => {
                let interface = InterfaceIndexOrAddress::Index(self.shared.interface);
                of_group.socket.leave_multicast_v4_n(&group, &interface)
            }
            IpAddr::V6(group) => of_group.socket.leave_multicast_v6(&group, self.shared.interface),
        };
    }
}

/// Joins a group on a socket that has room, or on a new one. Returns its number.
fn join(
    sockets: &mut HashMap<usize, GroupSocket>,
    group: IpAddr,
    interface: u32,
) -> io::Result<usize> {
    let has_room =
        |it: &GroupSocket| it.is_v4 == group.is_ipv4() && it.groups < MAX_GROUPS_OF_SOCKET;
    if let Some((number, with_room)) = sockets.iter_mut().find(|(_, it)| has_room(it)) {
        match join_on(&with_room.socket, group, interface) {
            Ok(()) => {
                with_room.groups += 1;
                return Ok(*number);
            }
            // The administrator may have set a smaller limit for each socket.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
    let domain = if group.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = sys::socket::open(domain, Type::DGRAM, None)?;
    join_on(&socket, group, interface)?;
    let number = (0..).find(|number| !sockets.contains_key(number)).unwrap_or_default();
    sockets.insert(number, GroupSocket { socket, is_v4: group.is_ipv4(), groups: 1 });
    Ok(number)
}

fn join_on(socket: &Socket, group: IpAddr, interface: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
        }
        IpAddr::V6(group) => socket.join_multicast_v6(&group, interface),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Index of `lo`, the first interface of every network namespace.
    const LO: u32 = 1;

    fn group(number: u8) -> IpAddr {
        IpAddr::from([239, 1, 2, number])
    }

    #[test]
    fn an_address_of_no_group_and_an_interface_that_is_none_are_refused() {
        let on_lo = MulticastMemberships::new(LO);
        let refused = on_lo.join(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let refused = MulticastMemberships::new(0).join(group(3)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
        assert!(on_lo.0.table().sockets.is_empty());
    }

    #[test]
    fn a_socket_has_20_groups_and_is_closed_with_the_last_one() {
        let on_lo = MulticastMemberships::new(LO);
        let mut all: Vec<_> = (0..40).map(|number| on_lo.join(group(number)).unwrap()).collect();
        let sockets = || on_lo.0.table().sockets.len();
        assert_eq!(sockets(), 2);
        all.push(on_lo.join(group(40)).unwrap());
        let count = |number| on_lo.0.table().groups.get(&group(number)).map(|it| it.shares);
        assert_eq!((sockets(), count(0), count(41)), (3, Some(1), None));
        let again = on_lo.join(group(7)).unwrap();
        assert_eq!((sockets(), count(7)), (3, Some(2)));
        drop(all.remove(7));
        assert_eq!((count(7), sockets()), (Some(1), 3));
        // The kernel has left the group: it lets the socket join it again.
        drop(again);
        all.push(on_lo.join(group(7)).unwrap());
        assert_eq!((count(7), sockets()), (Some(1), 3));
        drop(all);
        assert_eq!((sockets(), on_lo.0.table().groups.len()), (0, 0));
    }

    #[test]
    fn groups_beyond_the_limit_are_refused_and_known_ones_are_not() {
        let on_lo = MulticastMemberships::with_limit(LO, 2);
        let kept = [on_lo.join(group(1)).unwrap(), on_lo.join(group(2)).unwrap()];
        let refused = on_lo.join(group(3)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM));
        drop(on_lo.join(group(1)).unwrap());
        drop(kept);
        drop(on_lo.join(group(3)).unwrap());
    }
}
