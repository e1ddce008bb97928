//! The options of every command that moves packets.

use std::fs::File;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use roce_io::OpenError;
use roce_verbs::{Device, DeviceConfig, DeviceInfo, Error, FaultConfig, Odds, PathMtu, PortState};

use crate::failure::{Failure, Outcome};
use crate::{local, number};

/// How packets travel, and where both ends are.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all traffic commands")]
pub(crate) struct Traffic {
    /// Run both ends here, in a private network made for it; needs no root, leaves nothing
    #[arg(long)]
    pub(crate) local: bool,
    /// MTU of the private network's link in bytes; 4176 is the least for path MTU 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4200, value_parser = link_mtu)]
    #[arg(requires = "local", conflicts_with = "host")]
    pub(crate) link_mtu: u32,
    /// Write all packets to a pcapng file, as they are on the wire (with --local: the client's)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Hand runs of packets to the kernel whole: auto does so where that is known to be cheap
    #[arg(long, value_enum, default_value_t = Trains::Auto, value_name = "WHEN")]
    pub(crate) trains: Trains,
    /// Print the device's counters that are not zero at the end, on standard error
    #[arg(long)]
    pub(crate) counters: bool,
    #[command(flatten)]
    pub(crate) faults: Faults,
    /// Which end of a private network this process is (set by --local)
    #[arg(long, hide = true, value_enum)]
    pub(crate) role: Option<Role>,
}

/// Harm done to packets on purpose, at this end and in both directions.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
pub(crate) struct Faults {
    /// Lose each packet with this probability (0.01 or 1%), in either direction
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = number::parse_probability)]
    pub(crate) loss: f64,
    /// Double each packet with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = number::parse_probability)]
    pub(crate) duplicate: f64,
    /// Let up to three packets overtake each packet with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = number::parse_probability)]
    pub(crate) reorder: f64,
    /// Turn over one bit of each packet with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = number::parse_probability)]
    pub(crate) corrupt: f64,
    /// What the dice for these begin with: the same seed, the same dice
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::parse)]
    pub(crate) seed: u64,
}

/// When runs of packets go to the kernel whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trains {
    On,
    Off,
    Auto,
}

/// An end of a private network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    Server,
    Client,
}

impl Traffic {
    /// Opens an interface by name, or the first that is up and has an address (in a private
    /// network, the only one), does `work` on it, and writes out capture and counters.
    pub(crate) fn on_device(
        &self,
        name: Option<&str>,
        work: impl FnOnce(&Device) -> Outcome,
    ) -> Outcome {
        let name = match (name, self.role) {
            (Some(name), _) => name.to_owned(),
            (None, Some(_)) => local::INTERFACE.to_owned(),
            (None, None) => first_usable()?,
        };
        let config = self.device_config();
        if let Some(path) = &config.capture {
            File::create(path)
                .map_err(|error| Failure::of(format!("writing {}", path.display()), error))?;
        }
        let device = open(&name, config)?;
        let outcome = work(&device);
        // After a failure they are wanted most.
        if self.counters {
            print_counters(&device)?;
        }
        let flushed = device.flush_capture().map_err(|error| match &self.pcap {
            Some(path) => Failure::of(format!("writing {}", path.display()), error),
            None => error.into(),
        });
        outcome.and(flushed)
    }

    fn device_config(&self) -> DeviceConfig {
        let trains = match self.trains {
            Trains::On => roce_verbs::Trains::On,
            Trains::Off => roce_verbs::Trains::Off,
            Trains::Auto => roce_verbs::Trains::Auto,
        };
        // In a private network one end does the harm and the recording: two would throw the
        // dice twice, and write to one file.
        let active = self.role != Some(Role::Server);
        DeviceConfig {
            trains,
            capture: self.pcap.clone().filter(|_| active),
            faults: (active && self.faults.any()).then(|| self.faults.config()),
            ..DeviceConfig::default()
        }
    }
}

impl Faults {
    pub(crate) fn any(&self) -> bool {
        self.loss + self.duplicate + self.reorder + self.corrupt > 0.0
    }

    fn config(&self) -> FaultConfig {
        let odds = Odds {
            drop: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            corrupt: self.corrupt,
            ..Odds::default()
        };
        FaultConfig { seed: self.seed, inbound: odds, outbound: odds, ..FaultConfig::default() }
    }
}

/// Parses the MTU of a link that carries at least the smallest path MTU.
fn link_mtu(text: &str) -> Result<u32, String> {
    let mtu = number::parse_u32(text)?;
    let carries_roce = (336..=65535).contains(&mtu);
    carries_roce.then_some(mtu).ok_or_else(|| "it lies between 336 and 65535".to_owned())
}

/// The interface that suits best: with an IPv4 address, else with another that is routed,
/// else with any; the first of those.
fn first_usable() -> Outcome<String> {
    let rank = |device: &DeviceInfo| {
        let usable = || device.gids.iter().filter(|row| row.usable);
        let works = device.port.state == PortState::Active && device.port.active_mtu.is_some();
        if !works || usable().count() == 0 {
            None
        } else if usable().any(|row| row.gid.is_ipv4()) {
            Some(0)
        } else if usable().any(|row| row.index != 0) {
            Some(1)
        } else {
            Some(2)
        }
    };
    let candidates = Device::list()?;
    let best = candidates.into_iter().filter(|device| rank(device).is_some()).min_by_key(rank);
    best.map(|device| device.interface.name).ok_or_else(|| {
        Failure::new(
            "no interface here can carry RoCE now: it takes an Ethernet interface that is up and \
             has an address (`roce devices` shows what there is). To try things without one, \
             add --local",
        )
    })
}

/// Opens it, and names the way out that this command has where a right is missing.
fn open(name: &str, config: DeviceConfig) -> Outcome<Device> {
    Device::open(name, config).map_err(|error| match error {
        Error::Open(OpenError::NotPermitted { .. }) => {
            Failure::new(format!("{error}. To try things without any right, add --local"))
        }
        _ => error.into(),
    })
}

/// The path MTU that was asked for, or else the largest; refused before anybody waits for a
/// peer if the interface does not carry it.
pub(crate) fn path_mtu(device: &Device, asked: Option<PathMtu>) -> Outcome<PathMtu> {
    let port = device.port()?;
    let wanted = asked.or(port.active_mtu).unwrap_or(PathMtu::B256);
    if port.active_mtu.is_some_and(|most| wanted <= most) {
        return Ok(wanted);
    }
    Err(Error::PathMtuTooLarge {
        asked: wanted.bytes(),
        interface: device.interface().to_owned(),
        netdev_mtu: port.netdev_mtu,
        allowed: port.active_mtu.map_or(0, PathMtu::bytes),
        needed: wanted.bytes() + PathMtu::OVERHEAD as usize,
    }
    .into())
}

fn print_counters(device: &Device) -> Outcome {
    for (name, count) in device.counters()?.into_iter().filter(|(_, count)| *count > 0) {
        eprintln!("{name:32} {count:>12}");
    }
    Ok(())
}
