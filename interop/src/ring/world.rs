//! Where mixed rings take place: hosts of ours and guests with rxe on one switch.

use std::path::Path;
use std::thread;
use std::time::Duration;

use roce_guest::{Guest, GuestConfig, Image};
use roce_netns::{Host, Link, Switch, VirtualNetwork};

use crate::Fault;
use crate::testbed::{Testbed, link_mtu};

/// The interface of each host of ours.
pub(crate) const INTERFACE: &str = "eth0";
/// As many as a ring of four with one rank in a guest needs, and the other way round.
const PLACES: u8 = 3;
/// Where a guest has the program.
pub(crate) const PROGRAM: &str = "/bin/ring_allreduce";

/// Three hosts of ours and three guests on a switch.
#[derive(Debug)]
pub struct RingWorld {
    switch: Switch,
    hosts: Vec<Host>,
    guests: Vec<Guest>,
}

/// The address of a host of ours.
pub(crate) fn host_address(place: usize) -> String {
    format!("10.9.1.{}", 1 + place)
}

/// The address of a guest.
pub(crate) fn guest_address(place: usize) -> String {
    format!("10.9.1.{}", 11 + place)
}

impl RingWorld {
    /// Boots the guests, all at once, and puts the program there.
    ///
    /// # Errors
    /// When there is no right to make namespaces and taps, or a guest does not come up.
    pub fn boot(image: &Image) -> Result<Self, Fault> {
        let network = || Fault::ours("make a private network");
        let virtual_network = VirtualNetwork::new().map_err(network())?;
        let switch =
            virtual_network.switch("switch", Link { mtu: link_mtu(4096) }).map_err(network())?;
        let mut hosts = Vec::new();
        for place in 0..usize::from(PLACES) {
            let host = virtual_network.host(&format!("ours{place}")).map_err(network())?;
            switch.connect(&host, INTERFACE).map_err(network())?;
            let address = format!("{}/24", host_address(place));
            let address = address.parse().expect("an address with its prefix length");
            host.address(INTERFACE, address).map_err(network())?;
            hosts.push(host);
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop");
        let sources = [source.join("ring_allreduce.c"), source.join("ring")];
        let program = image.compile(&sources.each_ref().map(|path| &**path), &["ibverbs", "m"])?;
        let program = std::fs::read(program).map_err(Fault::ours("read the program"))?;

        for place in 0..PLACES {
            switch.tap(&tap(place)).map_err(network())?;
        }
        let (plug, program) = (&switch, &*program);
        let guests: Result<Vec<Guest>, Fault> = thread::scope(|scope| {
            let boot = |place| scope.spawn(move || boot_guest(place, image, plug, program));
            // All are started before the first is waited for.
            let booting: Vec<_> = (0..PLACES).map(boot).collect();
            booting.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        Ok(Self { switch, hosts, guests: guests? })
    }

    /// The host of ours at a place, 0 .. 3.
    pub fn host(&self, place: usize) -> &Host {
        &self.hosts[place]
    }

    /// The guest at a place, 0 .. 3.
    pub fn guest(&self, place: usize) -> &Guest {
        &self.guests[place]
    }

    /// The namespace of the switch, where everything that passes can be seen.
    pub fn switch(&self) -> &Host {
        self.switch.host()
    }

    /// Gives our hosts' links an MTU and leaves the guests' as they are.
    ///
    /// # Errors
    /// When a host refuses it.
    pub(crate) fn set_our_path_mtu(&self, path_mtu: usize) -> Result<(), Fault> {
        let set = |host: &Host| host.set_mtu(INTERFACE, link_mtu(path_mtu));
        self.hosts.iter().try_for_each(set).map_err(Fault::ours("set the MTU"))
    }

    /// Powers the guests off.
    ///
    /// # Errors
    /// When one had to be killed.
    pub fn power_off(self) -> Result<(), Fault> {
        self.guests.into_iter().try_for_each(|guest| Ok(guest.power_off()?))
    }
}

impl Testbed for RingWorld {
    fn set_path_mtu(&self, path_mtu: usize) -> Result<(), Fault> {
        self.set_our_path_mtu(path_mtu)?;
        for (place, guest) in self.guests.iter().enumerate() {
            let address = format!("{}/24", guest_address(place));
            guest.set_network(link_mtu(path_mtu), &[&address])?;
        }
        Ok(())
    }

    fn set_netem(&self, what: &str) -> Result<(), Fault> {
        self.guests.iter().try_for_each(|guest| Ok(guest.set_netem(what)?))
    }
}

fn tap(place: u8) -> String {
    format!("guest{place}")
}

fn boot_guest(place: u8, image: &Image, switch: &Switch, program: &[u8]) -> Result<Guest, Fault> {
    let config = GuestConfig {
        // One processor: with two, rxe's requester and completer race when a resend begins while
        // an acknowledgement is taken, and it then sends a message's packets under wrong PSNs.
        processors: 1,
        memory_mib: MEMORY_MIB,
        // Three at once, maybe on two processors.
        boot_limit: BOOT_LIMIT,
        mac: [0x52, 0x54, 0x00, 0x09, 0x01, 11 + place],
        ..GuestConfig::new(&tap(place))
    };
    let guest = Guest::boot(image, &config, |command| switch.host().spawn(command))?;
    guest.push(PROGRAM, program, 0o755)?;
    let place = usize::from(place);
    guest.set_network(link_mtu(4096), &[&format!("{}/24", guest_address(place))])?;
    // Packets are meant to get lost, not the guest's questions for hardware addresses. Another guest
    // may still be booting: it is asked again and again.
    let peers = (0..usize::from(PLACES)).map(host_address);
    let others = (0..usize::from(PLACES)).filter(|other| *other != place).map(guest_address);
    let peers: Vec<String> = peers.chain(others).collect();
    guest.run_ok(&format!(
        "for peer in {}; do \
             for tries in $(seq 30); do ping -c 1 -W 1 $peer >/dev/null && break; done; \
             mac=$(ip neigh show $peer | sed 's/.*lladdr \\([^ ]*\\).*/\\1/'); \
             ip neigh replace $peer dev eth0 lladdr $mac nud permanent || exit 1; \
         done",
        peers.join(" ")
    ))?;
    Ok(guest)
}

/// Enough for the rings' buffers, which are small.
const MEMORY_MIB: u32 = 384;
const BOOT_LIMIT: Duration = Duration::from_secs(180);
