//! The options of all commands that move packets.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use roce_io::OpenError;
use roce_verbs::{
    Device, DeviceConfig, DeviceInfo, Error, FaultConfig, PathMtu, Readiness, ThreadPlacement,
};

use crate::backend::{self, BackendOption};
use crate::capture_pipe;
use crate::congestion::CongestionOptions;
use crate::error::{CliError, Result};
use crate::faults::{Faults, Rails, Report};
use crate::link::{self, LinkWatch};
use crate::parse_number;
use crate::rails::{self, MAX_RAILS};
use crate::switch::SwitchOptions;
use crate::termination::Termination;

/// The interface at both ends of a private network.
pub(crate) const LOCAL_INTERFACE: &str = "eth0";

/// Options of the packet path and of both ends.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all traffic commands")]
pub(crate) struct Traffic {
    /// Run both ends here, in a private network; needs no root, leaves nothing behind
    #[arg(long)]
    pub(crate) local: bool,
    /// MTU of the private network's link in bytes; path MTU 4096 needs at least 4176
    #[arg(long, value_name = "BYTES", default_value_t = 4200, value_parser = link_mtu)]
    #[arg(requires = "local", conflicts_with = "host")]
    pub(crate) link_mtu: u32,
    /// Networks between the two ends, each with an interface of both (eth0, eth1, …): --ib-dev names the one to use
    #[arg(
        long,
        value_name = "K",
        default_value_t = 1,
        requires = "local",
        conflicts_with = "host"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_RAILS))]
    pub(crate) rails: u32,
    #[command(flatten)]
    pub(crate) switch: SwitchOptions,
    /// Write all packets to a pcapng file, as they are on the wire (with --local: the client's)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) backend: BackendOption,
    /// Segmentation offload (UDP GSO): send several packets in one frame
    #[arg(long, value_enum, default_value_t = GsoMode::Auto, value_name = "WHEN")]
    pub(crate) gso: GsoMode,
    /// Traffic class of every packet; 2 in its low two bits lets switches mark packets (ECN)
    #[arg(long, alias = "tos", short_alias = 'T', value_name = "N", default_value_t = 0)]
    pub(crate) tclass: u8,
    #[command(flatten)]
    pub(crate) congestion: CongestionOptions,
    /// Pin this end's threads to a CPU (with --local: the client's,the server's)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpu: Vec<usize>,
    /// Run these threads in the real-time class (SCHED_FIFO)
    #[arg(long)]
    pub(crate) realtime: bool,
    /// Longest spin before sleeping, in microseconds
    #[arg(long, value_name = "US", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) spin: u64,
    /// Print the device's nonzero counters at the end, on standard error
    #[arg(long)]
    pub(crate) counters: bool,
    #[command(flatten)]
    pub(crate) faults: Faults,
    /// The end of a private network that this process runs (set by --local)
    #[arg(long, hide = true, value_enum)]
    pub(crate) role: Option<Role>,
}

/// When to use UDP segmentation offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GsoMode {
    On,
    Off,
    Auto,
}

impl From<GsoMode> for roce_verbs::GsoMode {
    fn from(mode: GsoMode) -> Self {
        match mode {
            GsoMode::On => Self::On,
            GsoMode::Off => Self::Off,
            GsoMode::Auto => Self::Auto,
        }
    }
}

/// The end of a private network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    Server,
    Client,
}

impl Traffic {
    /// Opens an interface by name, or the first usable one (in a private network, the only one),
    /// runs `work` on it, and writes the capture and the counters.
    pub(crate) fn on_device(
        &self,
        name: Option<&str>,
        work: impl FnOnce(&Device) -> Result,
    ) -> Result {
        let name = match (name, self.role) {
            (Some(name), _) => name.to_owned(),
            (None, Some(_)) => LOCAL_INTERFACE.to_owned(),
            (None, None) => first_usable()?,
        };
        self.faults.check_ranks(self.role.map(|_| 2))?;
        self.faults.check_rails(Rails::OfCommand(self.rails))?;
        let placement = self.placement()?;
        placement.apply()?;
        let config = DeviceConfig {
            thread: placement,
            backend: self.backend.choice()?,
            rail: Some(rails::rail_of(&name).unwrap_or(0)),
            ..self.device_config()
        };
        let capture = config.capture.as_deref();
        // The reader of a pipe sees no end before the device has opened it, too.
        let _pipe = capture.map(capture_pipe::prepare).transpose()?;
        // Before any thread exists, since each takes over what is blocked.
        let tells = self.role.is_some() && (self.counters || self.faults.any());
        let termination = tells.then(Termination::block).transpose()?;
        let device = open(&name, config)?;
        if let Some(termination) = termination {
            let (traffic, device) = (self.clone(), device.clone());
            // The failure of the other end is that of the command.
            termination.handle(move || drop(traffic.finish(&device)))?;
        }
        let watch = LinkWatch::start(&device)?;
        let outcome = work(&device).map_err(|failure| match failure {
            CliError::Message(text) if link::is_down(&device) => {
                CliError::new(format!("{text}\nThe link of {name} is down."))
            }
            other => other,
        });
        drop(watch);
        outcome.and(self.finish(&device))
    }

    /// Writes what the command has to tell of the device at its end, which helps most after a failure.
    fn finish(&self, device: &Device) -> Result {
        let counted = if self.counters { print_counters(device) } else { Ok(()) };
        let flushed = device.flush_capture().map_err(|error| match &self.pcap {
            Some(path) => CliError::context(format!("writing {}", path.display()), error),
            None => error.into(),
        });
        let script = match self.role {
            Some(Role::Server) => Vec::new(),
            _ => self.faults.script(),
        };
        let happened = match script.is_empty() {
            true => Ok(()),
            false => Report::new(&script, device.fault_events()).finish(|_| true),
        };
        counted.and(flushed).and(happened)
    }

    /// Returns the placement of this end's threads.
    fn placement(&self) -> Result<ThreadPlacement> {
        let ends = if self.role.is_some() { 2 } else { 1 };
        if self.cpu.len() > ends {
            let text = match ends {
                1 => "--cpu takes one CPU for this end; the other end has a --cpu of its own",
                _ => "--cpu takes two CPUs: the client's and the server's",
            };
            return Err(CliError::new(text));
        }
        let place = usize::from(self.role == Some(Role::Server));
        Ok(ThreadPlacement { cpu: self.cpu.get(place).copied(), realtime: self.realtime })
    }

    /// Returns the faults of this end, which in a private network is the client, rank 1.
    fn fault_config(&self) -> FaultConfig {
        let is_private = self.role.is_some();
        let ranks = if is_private { [Some(1), Some(0)] } else { [None; 2] };
        FaultConfig { rank: ranks[0], peer_rank: ranks[1], ..self.faults.config() }
    }

    fn device_config(&self) -> DeviceConfig {
        // In a private network the client alone injects faults and captures: two ends would apply
        // the rates twice and write to one file.
        let active = self.role != Some(Role::Server);
        DeviceConfig {
            other_identifications: roce_verbs::environment::other_identifications(),
            trusts_port_holder: roce_verbs::environment::trusts_port_holder(),
            gso: self.gso.into(),
            spin: Duration::from_micros(self.spin),
            capture: self.pcap.clone().filter(|_| active),
            faults: (active && self.faults.any()).then(|| self.fault_config()),
            congestion: self.congestion.cc,
            link_rate: self.switch.link_rate(),
            ..DeviceConfig::default()
        }
    }
}

/// Parses the MTU of a link that carries at least the smallest path MTU.
pub(crate) fn link_mtu(text: &str) -> Result<u32, String> {
    let mtu = parse_number::parse_u32(text)?;
    let carries_roce = (336..=65535).contains(&mtu);
    carries_roce.then_some(mtu).ok_or_else(|| "use 336 to 65535".to_owned())
}

/// Returns the interfaces that can carry RoCE now: first those with an IPv4 address, then those
/// with another routed address, then the others.
pub(crate) fn usable_interfaces() -> Result<Vec<String>> {
    let mut devices = Device::list()?;
    devices.retain(|device| device.readiness() != Readiness::NotReady);
    devices.sort_by_key(DeviceInfo::readiness);
    Ok(devices.into_iter().map(|device| device.interface.name).collect())
}

/// Returns the first of these interfaces.
pub(crate) fn first_usable() -> Result<String> {
    usable_interfaces()?.into_iter().next().ok_or_else(|| {
        CliError::new(
            "no interface can carry RoCE now: an Ethernet interface must be up and have an address \
             (see `roce devices`); or add --local for a private network",
        )
    })
}

/// Opens a device; without the required privileges, the error suggests --local.
fn open(name: &str, config: DeviceConfig) -> Result<Device> {
    let choice = config.backend;
    let opened = Device::open(name, config).inspect(|device| backend::tell(choice, device));
    opened.map_err(|error| match error {
        Error::Open(OpenError::NotPermitted { .. }) => {
            CliError::new(format!("{error}; or add --local, which needs no privileges"))
        }
        _ => error.into(),
    })
}

/// Returns the requested path MTU, or else the largest; fails if the interface does not carry it.
pub(crate) fn path_mtu(device: &Device, requested: Option<PathMtu>) -> Result<PathMtu> {
    let port = device.port()?;
    let wanted = requested.or(port.active_mtu).unwrap_or(PathMtu::B256);
    if port.active_mtu.is_some_and(|most| wanted <= most) {
        return Ok(wanted);
    }
    Err(Error::PathMtuTooLarge {
        requested: wanted.bytes(),
        interface: device.interface().to_owned(),
        netdev_mtu: port.netdev_mtu,
        allowed: port.active_mtu.map_or(0, PathMtu::bytes),
        needed: wanted.bytes() + PathMtu::OVERHEAD as usize,
    }
    .into())
}

/// Checks that a row of the GID table can be used; the error names those that can.
pub(crate) fn check_gid(device: &Device, requested: Option<u8>) -> Result {
    let Some(index) = requested else { return Ok(()) };
    let table = device.gid_table()?;
    let usable: Vec<_> = table.iter().filter(|row| row.usable).collect();
    if usable.iter().any(|row| row.index == index) {
        return Ok(());
    }
    let rows: Vec<String> =
        usable.iter().map(|row| format!("{} ({})", row.index, row.gid.ip())).collect();
    Err(CliError::new(format!(
        "GID index {index} of {} is not usable; use one of {}",
        device.interface(),
        rows.join(", ")
    )))
}

/// Prints the nonzero counters.
pub(crate) fn print_counters(device: &Device) -> Result {
    for (name, count) in device.counters()?.into_iter().filter(|(_, count)| *count > 0) {
        eprintln!("{name:32} {count:>12}");
    }
    Ok(())
}
