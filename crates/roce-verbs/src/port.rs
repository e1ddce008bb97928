//! A device's port: the interface beneath it, and what becomes of it.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::PoisonError;

use roce_io::{InterfaceInfo, interfaces};
use roce_transport::AsyncEvent;
use roce_wire::{MacAddr, PathMtu};

use crate::engine::Engine;
use crate::gid::GidTable;
use crate::netlink::{NextHop, RouteError, Surroundings};

/// What a program may ask of a port; as `ibv_port_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// Whether frames can pass now.
    pub state: PortState,
    /// The largest path MTU that any port of this kind has.
    pub max_mtu: PathMtu,
    /// The largest path MTU that fits the interface now: its MTU less 80 bytes of
    /// headers, rounded down. `None` where not even 256 bytes fit.
    pub active_mtu: Option<PathMtu>,
    /// The interface's own MTU in bytes.
    pub netdev_mtu: u32,
    /// The largest message in bytes.
    pub max_message_len: u32,
    /// Rows of the GID table.
    pub gid_table_len: usize,
}

/// Whether a port can carry frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// The interface is up and has a carrier.
    Active,
    /// It is down, or nothing is plugged in.
    Down,
}

/// The interface beneath a device. Name, number and MAC stay; the rest may change.
#[derive(Debug)]
pub(crate) struct Port {
    name: String,
    index: u32,
    mac: MacAddr,
    now: Mutex<Changing>,
    surroundings: Mutex<Surroundings>,
}

#[derive(Clone, Copy, Debug)]
struct Changing {
    mtu: u32,
    state: PortState,
}

impl Changing {
    fn of(interface: &InterfaceInfo) -> Self {
        Self { mtu: interface.mtu, state: state_of(interface) }
    }

    fn attributes(self, gid_table_len: usize) -> PortAttributes {
        PortAttributes {
            state: self.state,
            max_mtu: PathMtu::B4096,
            active_mtu: PathMtu::for_netdev_mtu(self.mtu),
            netdev_mtu: self.mtu,
            max_message_len: 1 << 31,
            gid_table_len,
        }
    }
}

impl Port {
    pub(crate) fn open(interface: &InterfaceInfo) -> Result<Self, RouteError> {
        Ok(Self {
            name: interface.name.clone(),
            index: interface.index,
            mac: mac_of(interface),
            now: Mutex::new(Changing::of(interface)),
            surroundings: Mutex::new(Surroundings::open(&interface.name, interface.index)?),
        })
    }

    /// The way of packets from an own address to another.
    pub(crate) fn next_hop(&self, own: IpAddr, peer: IpAddr) -> Result<NextHop, RouteError> {
        let mut kernel = self.surroundings.lock().unwrap_or_else(PoisonError::into_inner);
        kernel.next_hop(own, peer)
    }

    /// The station that packets to `peer` go to now, where the kernel knows it.
    pub(crate) fn station(&self, peer: IpAddr) -> Option<MacAddr> {
        self.surroundings.lock().unwrap_or_else(PoisonError::into_inner).station(peer)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    pub(crate) fn active_mtu(&self) -> Option<PathMtu> {
        PathMtu::for_netdev_mtu(self.changing().mtu)
    }

    pub(crate) fn attributes(&self, gid_table_len: usize) -> PortAttributes {
        self.changing().attributes(gid_table_len)
    }

    fn changing(&self) -> Changing {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the interface again: addresses, MTU, carrier. What changed is told.
    pub(crate) fn refresh(&self, engine: &mut Engine) {
        let interface = interfaces()
            .ok()
            .and_then(|all| all.into_iter().find(|candidate| candidate.index == self.index));
        let (next, addresses) = match &interface {
            Some(found) => (Changing::of(found), addresses_of(found)),
            None => (Changing { state: PortState::Down, ..self.changing() }, Vec::new()),
        };
        let before = {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, next)
        };
        if before.state != next.state {
            engine.push_event(match next.state {
                PortState::Active => AsyncEvent::PortActive,
                PortState::Down => AsyncEvent::PortError,
            });
        }
        if before.mtu != next.mtu {
            engine.wire.set_mtu(next.mtu as usize);
        }
        if engine.gids.update(self.mac, &addresses) {
            engine.push_event(AsyncEvent::GidChange);
        }
    }
}

fn mac_of(interface: &InterfaceInfo) -> MacAddr {
    MacAddr(interface.mac.unwrap_or_default())
}

fn state_of(interface: &InterfaceInfo) -> PortState {
    if interface.flags.up && interface.flags.running { PortState::Active } else { PortState::Down }
}

fn addresses_of(interface: &InterfaceInfo) -> Vec<IpAddr> {
    interface.addresses.iter().map(|address| address.address).collect()
}

/// The port that an interface would show, were it opened.
pub(crate) fn attributes_of(interface: &InterfaceInfo, gid_table_len: usize) -> PortAttributes {
    Changing::of(interface).attributes(gid_table_len)
}

/// The GID table that an interface has now.
pub(crate) fn gids_of(interface: &InterfaceInfo) -> GidTable {
    GidTable::of(mac_of(interface), &addresses_of(interface))
}
