//! The port of a device: the state of its interface.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::PoisonError;

use roce_engine::{Consumer, GidTable};
use roce_io::{FaultScript, InterfaceInfo};
use roce_transport::{AsyncEvent, MAX_POSTED_LEN};
use roce_wire::{MacAddr, PathMtu};

use crate::engine::Engine;
use crate::netlink::Link;

/// The attributes of a port; as `ibv_port_attr`.
///
/// It follows the interface. Where the interface's MTU is lowered below what the path MTU of
/// connected queue pairs needs, [`active_mtu`](Self::active_mtu) shows it; packets that no longer
/// fit are dropped and counted as `socket_sent_too_long`. Requests whose packets fit go on. The
/// others are sent again until their retries are used up and then complete with
/// [`RetryExceeded`](crate::CompletionStatus::RetryExceeded), or go on if the MTU is raised again
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// State of the link.
    pub state: PortState,
    /// Largest path MTU of any port.
    pub max_mtu: PathMtu,
    /// Largest path MTU that fits the interface now: its MTU less 80 bytes of headers, rounded down.
    /// `None` if not even 256 bytes fit.
    pub active_mtu: Option<PathMtu>,
    /// MTU of the interface in bytes.
    pub netdev_mtu: u32,
    /// Largest message in bytes.
    pub max_message_len: u32,
    /// Rows of the GID table.
    pub gid_table_len: usize,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// The interface is up and has a carrier.
    Active,
    /// The interface is down or has no carrier.
    Down,
}

/// The interface of a device. Its number stays, and the name is that at the time when the device was
/// opened; the rest may change.
#[derive(Debug)]
pub(crate) struct Port {
    name: String,
    index: u32,
    current: Mutex<Snapshot>,
    /// The faults of links that are told of the carrier, and the rail.
    faults: Option<(FaultScript, u32)>,
}

#[derive(Clone, Debug)]
struct Snapshot {
    mac: MacAddr,
    mtu: u32,
    state: PortState,
    /// The interface was removed, or moved to another network namespace.
    is_gone: bool,
    addresses: Vec<IpAddr>,
}

impl Snapshot {
    fn of(interface: &InterfaceInfo) -> Self {
        Self {
            mac: mac_of(interface),
            mtu: interface.mtu,
            state: state_of(interface.flags.up && interface.flags.running),
            is_gone: false,
            addresses: addresses_of(interface),
        }
    }

    fn update(&mut self, link: Option<Link>) {
        self.is_gone = link.is_none();
        match link {
            Some(link) => {
                (self.mac, self.mtu, self.state) = (link.mac, link.mtu, state_of(link.is_running));
            }
            None => {
                self.state = PortState::Down;
                self.addresses.clear();
            }
        }
    }

    fn attributes(&self, gid_table_len: usize) -> PortAttributes {
        PortAttributes {
            state: self.state,
            max_mtu: PathMtu::B4096,
            active_mtu: PathMtu::for_netdev_mtu(self.mtu),
            netdev_mtu: self.mtu,
            max_message_len: MAX_POSTED_LEN as u32,
            gid_table_len,
        }
    }
}

impl Port {
    pub(crate) fn of(interface: &InterfaceInfo, faults: Option<(FaultScript, u32)>) -> Self {
        Self {
            name: interface.name.clone(),
            index: interface.index,
            current: Mutex::new(Snapshot::of(interface)),
            faults,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn mac(&self) -> MacAddr {
        self.with_current(|now| now.mac)
    }

    pub(crate) fn active_mtu(&self) -> Option<PathMtu> {
        self.with_current(|now| PathMtu::for_netdev_mtu(now.mtu))
    }

    /// Returns the largest path MTU of connections that connection management makes.
    //= rule cm-path-mtu: include/rdma/ib_addr.h: iboe_get_mtu
    //# The path MTU of a connection leaves 96 bytes of the interface's MTU for headers.
    pub(crate) fn connection_mtu(&self) -> Option<PathMtu> {
        self.with_current(|now| connection_mtu_for(now.mtu))
    }

    pub(crate) fn attributes(&self, gid_table_len: usize) -> PortAttributes {
        self.with_current(|now| now.attributes(gid_table_len))
    }

    fn with_current<T>(&self, work: impl FnOnce(&mut Snapshot) -> T) -> T {
        work(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the state of the interface (`Some(None)`: it is gone) and its addresses, as far as they
    /// were queried, and returns what changed, for the engines.
    pub(crate) fn store(
        &self,
        link: Option<Option<Link>>,
        addresses: Option<&[IpAddr]>,
    ) -> PortChange {
        let (before, next) = self.with_current(|now| {
            let before = now.clone();
            if let Some(addresses) = addresses {
                now.addresses = addresses.to_vec();
            }
            if let Some(link) = link {
                now.update(link);
            }
            (before, now.clone())
        });
        if let Some((faults, rail)) = self.faults.as_ref().filter(|_| before.state != next.state) {
            faults.note_carrier(*rail, next.state == PortState::Active);
        }
        if next.mtu < before.mtu {
            let (interface, before, now) = (&self.name, before.mtu, next.mtu);
            tracing::warn!(
                interface,
                before,
                now,
                "the MTU was lowered; longer packets of connected queue pairs are dropped"
            );
        }
        PortChange { is_of_link: link.is_some(), before, next }
    }
}

/// A change of a port.
#[derive(Debug)]
pub(crate) struct PortChange {
    /// The interface was queried.
    is_of_link: bool,
    before: Snapshot,
    next: Snapshot,
}

impl PortChange {
    /// Applies the change to an engine of the device. Returns true if its GID table is another than
    /// before.
    pub(crate) fn apply(&self, engine: &mut Engine) -> bool {
        let Self { is_of_link, before, next } = self;
        // Also if it is what it was: a device whose frame is refused reads a lowered MTU by itself, which may be
        // raised again before the first query.
        if *is_of_link {
            engine.set_mtu(next.mtu as usize);
        }
        if before.mac != next.mac {
            engine.paths_mut().set_source_mac(next.mac);
        }
        if before.addresses != next.addresses {
            engine.set_addresses(&next.addresses);
        }
        engine.gids_mut().update(next.mac, &next.addresses)
    }

    /// Raises the events of the change for the contexts of an engine.
    pub(crate) fn raise_events(&self, engine: &mut Engine, has_other_gids: bool) {
        let Self { before, next, .. } = self;
        if before.state != next.state {
            engine.consumer_mut().push_event(match next.state {
                PortState::Active => AsyncEvent::PortActive,
                PortState::Down => AsyncEvent::PortError,
            });
        }
        if next.is_gone && !before.is_gone {
            engine.consumer_mut().push_event(AsyncEvent::DeviceFatal);
        }
        if has_other_gids {
            engine.consumer_mut().push_event(AsyncEvent::GidChange);
        }
    }
}

/// Bytes of headers that connection management leaves room for beyond those of the port's path MTU.
const FURTHER_HEADERS: u32 = 16;

fn connection_mtu_for(netdev_mtu: u32) -> Option<PathMtu> {
    PathMtu::for_netdev_mtu(netdev_mtu.saturating_sub(FURTHER_HEADERS))
}

fn mac_of(interface: &InterfaceInfo) -> MacAddr {
    MacAddr(interface.mac.unwrap_or_default())
}

fn state_of(is_running: bool) -> PortState {
    if is_running { PortState::Active } else { PortState::Down }
}

fn addresses_of(interface: &InterfaceInfo) -> Vec<IpAddr> {
    interface.addresses.iter().map(|address| address.address).collect()
}

/// Returns the port attributes of an interface.
pub(crate) fn attributes_of(interface: &InterfaceInfo, gid_table_len: usize) -> PortAttributes {
    Snapshot::of(interface).attributes(gid_table_len)
}

/// Returns the GID table of an interface.
pub(crate) fn gids_of(interface: &InterfaceInfo) -> GidTable {
    GidTable::of(mac_of(interface), &addresses_of(interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test cm-path-mtu
    #[test]
    fn the_path_mtu_of_connections_leaves_room_for_96_bytes_of_headers() {
        let limits = [(351, None), (352, Some(256)), (4191, Some(2048)), (4192, Some(4096))];
        for (netdev, expected) in limits {
            assert_eq!(connection_mtu_for(netdev).map(PathMtu::bytes), expected, "{netdev}");
        }
    }
}
