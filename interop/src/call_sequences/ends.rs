//! Sequences with two ends, each a process on rxe in the guest or on our libraries.
//!
//! The reference has both ends on rxe. In each other combination an end has to print what the same end of the
//! reference prints.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use roce_guest::{GuestProcess, Image};
use roce_netns::{Host, Link, VirtualNetwork};

use super::output::Sequence;
use super::places::{self, Batch, IN_GUEST};
use super::{Allowed, Summary};
use crate::fault::expect;
use crate::process;
use crate::testbed::link_mtu;
use crate::world::{GUEST_ADDRESS, INTERFACE, OUR_ADDRESS, program};
use crate::{Fault, Testbed, World};

/// What an end runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    /// rxe in the guest.
    Rxe,
    /// Ours, on the tap of the guest.
    Ours,
    /// Ours, in one of two private hosts.
    Private(usize),
}

/// What both ends run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combination {
    /// What rows of the table call it.
    pub name: &'static str,
    devices: [Device; 2],
}

/// Both ends on rxe in one guest.
pub const REFERENCE: Combination =
    Combination { name: "rxe rxe", devices: [Device::Rxe, Device::Rxe] };

/// The combinations that are compared with the reference.
pub const COMBINATIONS: [Combination; 4] = [
    Combination { name: "ours rxe", devices: [Device::Ours, Device::Rxe] },
    Combination { name: "rxe ours", devices: [Device::Rxe, Device::Ours] },
    Combination { name: "ours ours", devices: [Device::Private(0), Device::Private(1)] },
    // As the reference has them.
    Combination { name: "ours ours, one host", devices: [Device::Ours, Device::Ours] },
];

/// A guest with rxe, and hosts of ours.
#[derive(Debug)]
pub struct Places {
    world: World,
    hosts: [Host; 2],
}

/// The interface of each private host.
const PRIVATE_INTERFACE: &str = "veth0";

/// Their addresses.
const PRIVATE_ADDRESSES: [&str; 2] = ["10.9.1.1", "10.9.1.2"];

/// What the two ends printed.
pub type Printed = [Vec<Sequence>; 2];

/// How much longer a step waits for what it causes in a sequence that is executed again.
const PATIENCE: u32 = 3;

/// An end that runs.
#[derive(Debug)]
enum Running {
    Guest(GuestProcess),
    Host(roce_netns::process::Running),
}

impl Places {
    /// Boots a guest and makes the hosts.
    ///
    /// # Errors
    /// As [`World::boot`].
    pub fn boot(image: &Image) -> Result<Self, Fault> {
        let world = World::boot(image)?;
        world.set_path_mtu(4096)?;
        let failed = || Fault::ours("make private hosts");
        let network = VirtualNetwork::new().map_err(failed())?;
        let first = network.host("first").map_err(failed())?;
        let second = network.host("second").map_err(failed())?;
        let link = Link { mtu: link_mtu(4096) };
        let interface = |host| (host, PRIVATE_INTERFACE);
        network.veth(interface(&first), interface(&second), link).map_err(failed())?;
        let hosts = [first, second];
        for (host, address) in hosts.iter().zip(PRIVATE_ADDRESSES) {
            let address = format!("{address}/24").parse().expect("an address with its prefix");
            host.address(PRIVATE_INTERFACE, address).map_err(failed())?;
        }
        Ok(Self { world, hosts })
    }

    /// Executes a batch with the reference and with combinations, and adds to the summary of each what its
    /// comparison shows. `see` gets what the ends of the reference and of a combination printed.
    ///
    /// A sequence that differs is executed again alone, and with more time for what arrives: only what differs
    /// again is a difference.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn compare(
        &self,
        program: &Path,
        batch: Batch,
        allowed: &mut Allowed,
        summaries: &mut [(Combination, Summary)],
        mut see: impl FnMut(Combination, &Printed, &Printed),
    ) -> Result<(), Fault> {
        let reference = self.run(program, batch, REFERENCE, 1)?;
        for (combination, summary) in summaries {
            allowed.combination = Some(combination.name);
            let seen = self.run(program, batch, *combination, 1)?;
            see(*combination, &reference, &seen);
            let mut first = Summary::default();
            first.add_ends(allowed, &reference, &seen);
            for found in std::mem::take(&mut first.found) {
                let alone = Batch { first: found.seed, count: 1, processes: 1, ..batch };
                let reference = self.run(program, alone, REFERENCE, PATIENCE)?;
                let seen = self.run(program, alone, *combination, PATIENCE)?;
                let mut again = Summary::default();
                again.add_ends(allowed, &reference, &seen);
                // Where a reference hangs, nothing is known.
                match (again.compared, again.found.is_empty()) {
                    (0, _) => first.found.push(found),
                    (_, true) => first.unsteady.push(found),
                    (_, false) => first.found.append(&mut again.found),
                }
            }
            summary.merge(first);
        }
        Ok(())
    }

    /// Executes a batch, and returns what each end printed. `patience` multiplies the time that each step waits
    /// for what it causes.
    ///
    /// # Errors
    /// When a program cannot be started or does not end in time, or the guest has ended.
    pub fn run(
        &self,
        program: &Path,
        batch: Batch,
        combination: Combination,
        patience: u32,
    ) -> Result<Printed, Fault> {
        places::install(&self.world, program)?;
        let [first, second] = combination.devices;
        let limit = Duration::from_secs((120 + 10 * batch.count) * u64::from(patience));
        let start = |device, end, peer: Device| {
            let end = [end, peer.address(), &patience.to_string()].map(str::to_owned);
            self.start(device, &end, program, batch)
        };
        let (a, b) = (start(first, "a", second)?, start(second, "b", first)?);
        Ok([a.sequences(limit)?, b.sequences(limit)?])
    }

    /// Ends the guest.
    pub fn power_off(self) {
        let _ended = self.world.guest.power_off();
    }

    fn start(
        &self,
        device: Device,
        end: &[String],
        path: &Path,
        batch: Batch,
    ) -> Result<Running, Fault> {
        let arguments = [&batch.arguments(), end].concat();
        let (host, interface) = match device {
            Device::Rxe => {
                let line = format!("exec {IN_GUEST} rxe0 {}", arguments.join(" "));
                return Ok(Running::Guest(self.world.guest.spawn(&line)?));
            }
            Device::Ours => (&self.world.host, INTERFACE),
            Device::Private(number) => (&self.hosts[number], PRIVATE_INTERFACE),
        };
        let mut command = Command::new(program("roce")?);
        command.args(["run", "--dev", &format!("roce0={interface}"), "--"]);
        command.arg(path).arg("roce0").args(arguments).env("ROCE_QUEUES", "rxe");
        Ok(Running::Host(process::start(Some(host), command)?))
    }
}

impl Device {
    fn address(self) -> &'static str {
        match self {
            Self::Rxe => GUEST_ADDRESS,
            Self::Ours => OUR_ADDRESS,
            Self::Private(number) => PRIVATE_ADDRESSES[number],
        }
    }
}

impl Running {
    fn sequences(self, limit: Duration) -> Result<Vec<Sequence>, Fault> {
        let text = match self {
            Self::Guest(mut process) => process.wait(limit)?.stdout,
            Self::Host(running) => {
                let outcome = process::wait(running, limit)?;
                let (status, text) = (outcome.status, outcome.text());
                expect(status.success(), || {
                    let last = text.lines().last().unwrap_or_default();
                    format!("an end on our libraries ended with {status}; its last line: {last}")
                })?;
                text
            }
        };
        Ok(Sequence::read_all(&text))
    }
}
