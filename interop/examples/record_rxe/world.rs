//! Two guests on one switch.

use std::thread;
use std::time::Duration;

use roce_guest::{Guest, GuestConfig, Image};
use roce_interop::Agent;
use roce_netns::{Host, Link, Switch, VirtualNetwork};

use crate::{Error, Family};

/// Where the client's cable ends at the switch: everything passes there once.
pub(crate) const TAP: &str = "guest0";
/// Path MTU 1024.
const LINK_MTU: u32 = 1500;

/// The client, the server, and the switch between them.
pub(crate) struct World {
    switch: Switch,
    guests: Vec<Guest>,
}

impl World {
    /// Boots both guests at once, and lets them learn each other's hardware addresses.
    pub(crate) fn boot(image: &Image) -> Result<Self, Error> {
        let switch = VirtualNetwork::new()?.switch("switch", Link { mtu: LINK_MTU })?;
        (0..2).try_for_each(|place| switch.tap(&tap(place)))?;
        let plug = &switch;
        let guests: Result<Vec<Guest>, Error> = thread::scope(|scope| {
            let boot = |place| scope.spawn(move || boot_guest(place, image, plug));
            // Both are started before the first is waited for.
            let booting = [boot(0), boot(1)];
            booting.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        let world = Self { switch, guests: guests? };
        for family in [Family::V4, Family::V6] {
            world.ping(family)?;
        }
        Ok(world)
    }

    /// Lets the client ping the server.
    pub(crate) fn ping(&self, family: Family) -> Result<(), Error> {
        let ping = format!("ping -c 1 -W 10 {}", family.address(1));
        Ok(self.client().run_ok(&ping).map(drop)?)
    }

    /// The guest that asks.
    pub(crate) fn client(&self) -> &Guest {
        &self.guests[0]
    }

    /// The guest that answers.
    pub(crate) fn server(&self) -> &Guest {
        &self.guests[1]
    }

    /// The namespace of the switch.
    pub(crate) fn switch(&self) -> &Host {
        self.switch.host()
    }

    /// Ends both guests.
    pub(crate) fn power_off(self) -> Result<(), Error> {
        self.guests.into_iter().try_for_each(|guest| Ok(guest.power_off()?))
    }
}

fn tap(place: usize) -> String {
    format!("guest{place}")
}

fn boot_guest(place: usize, image: &Image, switch: &Switch) -> Result<Guest, Error> {
    let config = GuestConfig {
        // With two processors rxe now and then sends a message's packets under wrong PSNs.
        processors: 1,
        memory_mib: 384,
        // Two at once, maybe on a busy machine.
        boot_limit: Duration::from_secs(180),
        mac: [0x52, 0x54, 0x00, 0x09, 0x00, 0x02 + place as u8],
        ..GuestConfig::new(&tap(place))
    };
    let guest = Guest::boot(image, &config, |command| switch.host().spawn(command))?;
    Agent::install(image, &guest)?;
    let addresses =
        [format!("{}/24", Family::V4.address(place)), format!("{}/64", Family::V6.address(place))];
    guest.set_network(LINK_MTU, &addresses.each_ref().map(String::as_str))?;
    Ok(guest)
}
