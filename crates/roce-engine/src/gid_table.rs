//! The GID table: the addresses of a device.

use std::fmt;
use std::net::IpAddr;

use roce_wire::{Gid, MacAddr};

/// One row of a device's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Number of the row: a `gid_index`.
    pub index: u8,
    /// The address, IPv4 in its IPv6-mapped form.
    pub gid: Gid,
    /// Framing of packets with this GID.
    pub kind: GidType,
    /// The interface has the address. Row 0 is the link-local address that follows from the MAC;
    /// peers cannot resolve it where the interface does not have it.
    pub usable: bool,
}

/// The framing of packets with a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidType {
    /// UDP over IPv4 or IPv6, port 4791.
    RoceV2,
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RoCE v2")
    }
}

/// The addresses of one interface in the order in which rdma_rxe numbers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GidTable(Vec<GidEntry>);

/// Most rows: an index is a byte.
const MAX_ROWS: usize = 255;

impl GidTable {
    /// Makes the table of an interface. Row 0 is the link-local address that follows from the MAC,
    /// then come the interface's addresses as the kernel lists them, each once.
    pub fn of(mac: MacAddr, addresses: &[IpAddr]) -> Self {
        let link_local = Gid::link_local_from(mac);
        let mut gids = vec![(link_local, addresses.iter().any(|ip| Gid::from(*ip) == link_local))];
        for ip in addresses {
            let gid = Gid::from(*ip);
            if gids.iter().all(|(other, _)| *other != gid) && gids.len() < MAX_ROWS {
                gids.push((gid, true));
            }
        }
        let row = |(index, (gid, usable)): (usize, (Gid, bool))| GidEntry {
            index: index as u8,
            gid,
            kind: GidType::RoceV2,
            usable,
        };
        Self(gids.into_iter().enumerate().map(row).collect())
    }

    /// Applies changes of the interface: an address keeps its row as long as the interface has it, a
    /// new one gets the first free row. Returns true if the table changed.
    pub fn update(&mut self, mac: MacAddr, addresses: &[IpAddr]) -> bool {
        let now = Self::of(mac, addresses);
        let mut next = self.0.clone();
        // Row 0 follows the MAC address. Its address before is treated like any other.
        if let (Some(row), Some(first)) = (next.first_mut(), now.0.first()) {
            *row = *first;
        }
        for entry in &mut next {
            let known = now.0.iter().find(|new| new.gid == entry.gid);
            entry.usable = known.is_some_and(|new| new.usable);
        }
        for new in &now.0 {
            if next.iter().any(|entry| entry.gid == new.gid) {
                continue;
            }
            let free = next.iter().skip(1).position(|entry| !entry.usable);
            let index = free.map_or(next.len(), |behind_the_first| behind_the_first + 1);
            let entry = GidEntry { index: index as u8, ..*new };
            match next.get_mut(index) {
                Some(row) => *row = entry,
                None if index < MAX_ROWS => next.push(entry),
                None => {}
            }
        }
        let changed = next != self.0;
        self.0 = next;
        changed
    }

    /// Returns all rows, by number.
    pub fn rows(&self) -> &[GidEntry] {
        &self.0
    }

    /// Returns the row with this number, if it is usable.
    pub fn usable(&self, index: u8) -> Option<GidEntry> {
        self.0.get(usize::from(index)).copied().filter(|entry| entry.usable)
    }

    /// Returns the first usable IPv4 row, else the first usable IPv6 row.
    pub fn default_index(&self) -> Option<u8> {
        let usable = || self.0.iter().filter(|entry| entry.usable);
        let is_v4 = |entry: &&GidEntry| entry.gid.ip().is_ipv4();
        let routed = |entry: &&GidEntry| entry.index != 0;
        let best = usable().find(is_v4).or_else(|| usable().find(routed));
        best.or_else(|| usable().next()).map(|entry| entry.index)
    }

    /// Returns the number of the usable row that has this address.
    pub fn row_of(&self, address: IpAddr) -> Option<u8> {
        let gid = Gid::from(address);
        self.0.iter().find(|entry| entry.usable && entry.gid == gid).map(|entry| entry.index)
    }

    /// Returns the number of the first usable row of the same family as `address`, one that is routed if
    /// there is one.
    pub fn first_of_family(&self, address: IpAddr) -> Option<u8> {
        let is_like =
            |entry: &&GidEntry| entry.usable && entry.gid.ip().is_ipv4() == address.is_ipv4();
        let routed = self.0.iter().filter(|entry| entry.index != 0).find(is_like);
        routed.or_else(|| self.0.iter().find(is_like)).map(|entry| entry.index)
    }

    /// Returns true if the table has this address and it is usable.
    #[inline]
    pub fn owns(&self, address: IpAddr) -> bool {
        let gid = Gid::from(address);
        self.0.iter().any(|entry| entry.usable && entry.gid == gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2));

    fn link_local() -> IpAddr {
        Gid::link_local_from(MAC).ip()
    }

    #[test]
    fn rows_are_numbered_as_rxe_numbers_them() {
        let table = GidTable::of(MAC, &[V4, link_local(), V6]);
        let seen: Vec<_> = table.rows().iter().map(|e| (e.index, e.gid.ip(), e.usable)).collect();
        assert_eq!(seen, [(0, link_local(), true), (1, V4, true), (2, V6, true)]);
        assert_eq!(table.default_index(), Some(1));
    }

    #[test]
    fn a_link_local_row_that_the_kernel_does_not_own_is_listed_and_not_used() {
        let table = GidTable::of(MAC, &[]);
        assert!(!table.rows()[0].usable && table.default_index().is_none());
        assert!(!table.owns(link_local()));
    }

    #[test]
    fn without_ipv4_the_default_is_a_routed_ipv6_address() {
        let table = GidTable::of(MAC, &[link_local(), V6]);
        assert_eq!(table.default_index(), Some(1));
    }

    #[test]
    fn an_address_keeps_its_row_while_others_come_and_go() {
        let mut table = GidTable::of(MAC, &[V4, V6]);
        assert!(table.update(MAC, &[V6]));
        assert_eq!(table.usable(1), None);
        assert_eq!(table.usable(2).map(|e| e.gid.ip()), Some(V6));
        let other = IpAddr::from([10, 9, 0, 9]);
        assert!(table.update(MAC, &[V6, other]));
        assert_eq!(table.usable(1).map(|e| e.gid.ip()), Some(other));
        assert!(!table.update(MAC, &[V6, other]));
    }

    #[test]
    fn the_first_row_follows_the_mac_and_the_address_before_stays_reachable() {
        let mut table = GidTable::of(MAC, &[link_local(), V4]);
        let mac = MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x57]);
        assert!(table.update(mac, &[link_local(), V4]));
        assert_eq!(table.rows()[0].gid, Gid::link_local_from(mac));
        assert!(!table.rows()[0].usable && table.owns(link_local()));
        assert_eq!(table.usable(1).map(|e| e.gid.ip()), Some(V4));
        assert_eq!(table.usable(2).map(|e| e.gid.ip()), Some(link_local()));
    }
}
