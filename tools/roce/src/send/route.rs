//! Interface, own address and next hop of a destination.

use std::collections::HashMap;
use std::net::IpAddr;

use roce_io::{InterfaceAddress, InterfaceInfo, LO_SOURCE, interfaces};
use roce_verbs::{AddressVector, Device, DeviceConfig, Gid};
use roce_wire::{MacAddr, OuterHeaders};

use super::port::Port;
use crate::error::{CliError, Result};
use crate::traffic;

/// The way of packets, found with the first of them.
#[derive(Debug)]
pub(super) struct Route {
    wanted: Option<String>,
    is_dry: bool,
    interface: Option<InterfaceInfo>,
    next_hops: HashMap<IpAddr, MacAddr>,
}

impl Route {
    /// Creates the route over an interface, if one is named. A dry run asks the network nothing.
    pub(super) fn new(device: Option<&str>, is_dry: bool) -> Self {
        let wanted = device.map(str::to_owned);
        Self { wanted, is_dry, interface: None, next_hops: HashMap::new() }
    }

    /// Returns true if nothing is sent.
    pub(super) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// Opens the interface for packets to a destination.
    pub(super) fn open(&mut self, to: Option<IpAddr>) -> Result<Port> {
        Port::open(&self.interface(to)?)
    }

    /// Returns outer headers without the MAC address of the next hop.
    pub(super) fn outer_headers(&mut self, to: IpAddr) -> Result<OuterHeaders> {
        let interface = match self.interface(Some(to)) {
            Ok(interface) => interface,
            Err(_) if self.is_dry => return Ok(OuterHeaders::new(unspecified(to), to)),
            Err(error) => return Err(error),
        };
        let own = own_address(&interface, to);
        let own = match own {
            Some(own) => own,
            None if self.is_dry => unspecified(to),
            None => {
                let version = if to.is_ipv4() { 4 } else { 6 };
                return Err(CliError::new(format!(
                    "{} has no IPv{version} address to send to {to} from; give it one, or name \
                     another interface with -d",
                    interface.name
                )));
            }
        };
        let source_mac = source_mac(&interface);
        Ok(OuterHeaders { source_mac, ..OuterHeaders::new(own, to) })
    }

    /// Returns the MAC address of the interface.
    pub(super) fn own_mac(&mut self, to: IpAddr) -> Result<MacAddr> {
        match self.interface(Some(to)) {
            Ok(interface) => Ok(source_mac(&interface)),
            Err(_) if self.is_dry => Ok(MacAddr([0; 6])),
            Err(error) => Err(error),
        }
    }

    /// Returns the MAC address of the next hop to a destination.
    pub(super) fn next_hop(&mut self, to: IpAddr) -> Result<MacAddr> {
        if self.is_dry {
            return Ok(MacAddr([0; 6]));
        }
        if let Some(group) = MacAddr::of_group(to) {
            return Ok(group);
        }
        if let Some(known) = self.next_hops.get(&to) {
            return Ok(*known);
        }
        let interface = self.interface(Some(to))?;
        if interface.flags.loopback {
            return Ok(MacAddr([0; 6]));
        }
        let own = own_address(&interface, to);
        let found = own.map(|own| resolve(&interface.name, own, to)).transpose();
        let found = found
            .map_err(|error| CliError::new(format!("{error}; or name the next hop: {NEXT_HOP}")))?;
        let mac = found.flatten().ok_or_else(|| {
            CliError::new(format!(
                "no route leads to {to} from {}; name another interface with -d, or the next hop: \
                 {NEXT_HOP}",
                interface.name
            ))
        })?;
        if mac == MacAddr([0; 6]) {
            let text = format!("{to} is an address of this host: send over -d lo, or elsewhere");
            return Err(CliError::new(text));
        }
        if self.next_hops.len() < MAX_NEXT_HOPS {
            self.next_hops.insert(to, mac);
        }
        Ok(mac)
    }

    fn interface(&mut self, to: Option<IpAddr>) -> Result<InterfaceInfo> {
        if let Some(interface) = &self.interface {
            return Ok(interface.clone());
        }
        let all = interfaces()?;
        let in_network = || {
            let to = to?;
            let fits = |it: &&InterfaceInfo| {
                it.flags.up && it.flags.ethernet && it.addresses.iter().any(|own| has(own, to))
            };
            all.iter().find(fits).map(|it| it.name.clone())
        };
        let name = match self.wanted.clone().or_else(in_network) {
            Some(name) => name,
            None => traffic::first_usable()?,
        };
        let found = all.iter().find(|it| it.name == name).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
            CliError::new(format!("there is no interface {name}; there are {}", names.join(", ")))
        })?;
        self.interface = Some(found.clone());
        Ok(found.clone())
    }
}

/// Asks the kernel for the next hop. The device is closed again before anything is sent: it would answer
/// packets of connection management.
fn resolve(interface: &str, own: IpAddr, to: IpAddr) -> Result<Option<MacAddr>, roce_verbs::Error> {
    let device = Device::open(interface, DeviceConfig::default())?;
    let table = device.gid_table()?;
    let row = table.iter().find(|row| row.usable && row.gid.ip() == own);
    let Some(row) = row else { return Ok(None) };
    let path = device.resolve(&AddressVector::new(row.index, Gid::from(to)))?;
    path.next_hop_mac()
}

/// Returns the MAC address that devices expect in frames of an interface: on `lo` they take no others.
fn source_mac(interface: &InterfaceInfo) -> MacAddr {
    match interface.flags.loopback {
        true => LO_SOURCE,
        false => MacAddr(interface.mac.unwrap_or_default()),
    }
}

/// Returns the address that packets to a destination come from: one in its network, or the first of its
/// IP version that is routed.
fn own_address(interface: &InterfaceInfo, to: IpAddr) -> Option<IpAddr> {
    let same = || interface.addresses.iter().filter(|own| own.address.is_ipv4() == to.is_ipv4());
    let in_network = same().find(|own| has(own, to));
    let is_routed = |own: &&InterfaceAddress| match own.address {
        IpAddr::V6(address) => !address.is_unicast_link_local(),
        IpAddr::V4(_) => true,
    };
    in_network.or_else(|| same().find(is_routed)).or_else(|| same().next()).map(|own| own.address)
}

/// Returns true if an address is in the network of an interface's own.
fn has(own: &InterfaceAddress, address: IpAddr) -> bool {
    let prefix = u32::from(own.prefix_len);
    let shared = match (own.address, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    shared >= prefix
}

fn unspecified(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

const NEXT_HOP: &str = "--set ethernet.destination=MAC";

/// A capture may have any number of destinations.
const MAX_NEXT_HOPS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_network_if_it_shares_its_prefix() {
        let own = |address: &str, prefix_len| InterfaceAddress {
            address: address.parse().unwrap(),
            prefix_len,
        };
        let address = |text: &str| text.parse().unwrap();
        assert!(has(&own("10.9.0.1", 24), address("10.9.0.200")));
        assert!(!has(&own("10.9.0.1", 24), address("10.9.1.1")));
        assert!(has(&own("10.9.0.1", 0), address("1.2.3.4")));
        assert!(!has(&own("10.9.0.1", 0), address("fd00::1")));
        assert!(has(&own("fd00::1", 64), address("fd00::2")));
        assert!(!has(&own("fd00::1", 128), address("fd00::2")));
    }
}
