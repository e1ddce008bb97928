//! A program on the interfaces of this network namespace: the work of a keeper, and of each rank.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use roce_verbs::{
    Backend, DeviceConfig, DeviceNames, FaultConfig, NamedDevice, PeersInRun, RunPlan, environment,
};
use roce_view::Tree;

use super::devices;
use super::front::Front;
use super::keeper::{self, Services};
use super::stage::Stage;
use super::survivors::{self, Waited};
use crate::backend::has_packet_sockets;
use crate::error::{CliError, Result};
use crate::faults::Rails;
use crate::rails;
use crate::ranks::pid_of;
use crate::run::folder::plan;
use crate::run::folder::run_folder::RunFolder;
use crate::run::folder::scratch::Scratch;
use crate::run::line::options::Options;
use crate::run::line::prefix::Prefix;
use crate::run::outcome::capture::{self, Capture, Patience};
use crate::run::outcome::counters;
use crate::run::outcome::exit_code::TIMED_OUT;
use crate::run::outcome::failure;
use crate::run::outcome::fault_log;
use crate::run::outcome::verdict;
use crate::run::processes::child::{self, End, Limits};
use crate::run::processes::signals::Signals;
use crate::run::program::exec::Launch;
use crate::run::program::executable::{self, Program};
use crate::run::program::library::{self, Libraries};
use crate::run::program::privileges;
use crate::run::program::socket_giver;

/// Where a program runs.
pub(super) enum Place {
    /// On this host. This process is the keeper, with its end of the socket and the standard input of the program.
    Host { front: Front, input: OwnedFd, folder: RunFolder },
    /// In a private host, as a rank of the run of a folder.
    PrivateHost { rank: u32, folder: PathBuf, began: Duration },
}

/// Runs a line.
pub(super) fn run(options: &Options, place: Place, line: Vec<OsString>) -> Result {
    let begin = Instant::now();
    let (rank, keeper, folder, began) = match place {
        Place::Host { front, input, folder } => {
            let path = folder.path().to_owned();
            (None, Some((front, input, folder)), path, roce_io::monotonic())
        }
        Place::PrivateHost { rank, folder, began } => (Some(rank), None, folder, began),
    };
    let job = Job::find(options, rank, folder, began, &line)?;
    let scratch = job.lay_out()?;
    let mut process = job.command(&scratch)?;
    // Before any thread exists, since each takes over what is blocked.
    let signals = Signals::block()?;
    if job.backend != Backend::Udp && has_packet_sockets() {
        socket_giver::start(&scratch.sockets())?;
        process.env(environment::SOCKETS, scratch.sockets());
    }
    let (front, folder) = match keeper {
        Some((front, input, folder)) => {
            process.stdin(input);
            (Some(front), Some(folder))
        }
        None => (None, None),
    };
    let socket = front.as_ref().map(AsFd::as_fd);
    let timeout = options.timeout.as_ref().map(|timeout| (begin + timeout.duration, timeout));
    let captured =
        options.pcap.as_ref().map(|path| capture::file_of(path, &job.folder)).transpose()?;
    let mut capture = None;
    if let (Some(path), Some(file)) = (&options.pcap, &captured) {
        process.env(environment::PCAP, file);
        if !job.is_rank() {
            let patience = Patience { signals: &signals, starter: socket, timeout };
            capture = Some(Capture::create(path, file, &patience)?);
        }
    }
    let device_names = job.devices.iter().map(|device| device.name.clone()).collect();
    let services = Services { scratch, device_names, config: job.orphan_config(captured) };
    let running = services.start()?;
    let end = job.follow(process, &signals, timeout.map(|(end, _)| end), front.as_ref())?;
    let totals = running.end();
    let uncopied = capture.and_then(Capture::end);
    if options.counters {
        // Elsewhere the supervisor puts the rank in front.
        counters::print(&totals, rank.filter(|_| options.prefix == Prefix::None));
    }
    let outcome = job.outcome(end);
    match front {
        Some(front) => {
            keeper::keep(front, outcome, job.name(), &signals, &services, uncopied, folder)
        }
        None => outcome,
    }
}

/// What is run, and with what.
struct Job<'a> {
    options: &'a Options,
    rank: Option<u32>,
    /// The folder of the run.
    folder: PathBuf,
    /// When the run began: see [`roce_io::monotonic`].
    began: Duration,
    line: &'a [OsString],
    program: Program,
    libraries: Libraries,
    devices: Vec<NamedDevice>,
    backend: Backend,
}

impl<'a> Job<'a> {
    /// Finds all that is needed, and changes nothing.
    fn find(
        options: &'a Options,
        rank: Option<u32>,
        folder: PathBuf,
        began: Duration,
        line: &'a [OsString],
    ) -> Result<Self> {
        let name = line.first().ok_or_else(|| CliError::new("name a program"))?;
        let program = executable::find(name)?;
        let libraries = library::find()?;
        let devices = match rank {
            Some(_) => devices::with_carrier(&options.devices_of_private_host())?,
            None => devices::named(&options.devices_or_inherited())?,
        };
        let backend = privileges::choose(options.backend.choice()?)?;
        options.faults.check_ranks(options.local)?;
        options.faults.check_rails(match rank {
            Some(_) => Rails::OfRun(options.rails),
            None => Rails::Devices(devices.len()),
        })?;
        environment::shards().map_err(CliError::new)?;
        environment::connection_timing().map_err(CliError::new)?;
        environment::registers_memfd().map_err(CliError::new)?;
        Ok(Self { options, rank, folder, began, line, program, libraries, devices, backend })
    }

    /// Writes the files that the program and the library find.
    fn lay_out(&self) -> Result<Scratch> {
        let scratch = Scratch::new(&self.folder, self.rank.unwrap_or(0))?;
        self.libraries.link_below(&scratch)?;
        Tree::new(&self.devices, roce_view::hardware_folder)
            .write_to(&scratch.view())
            .map_err(|error| CliError::context("writing the view of the devices", error))?;
        // A run within a run has the faults of that one if it has none.
        let outer = environment::run_plan().ok().flatten().cloned().unwrap_or_default();
        let options = self.options;
        let mut told = RunPlan { folder: scratch.plan().folder, ..outer };
        if !options.require.is_empty() {
            told.activity = Some(verdict::path(&self.folder));
        }
        if options.faults.any() {
            told.fault_log = Some(fault_log::path(&self.folder));
        }
        told.capture_at_receiver |= self.captures_at_receiver();
        told.rails = match self.rank {
            Some(_) => (0..options.rails).map(rails::interface).collect(),
            None => self.devices.iter().map(|device| device.info.interface.name.clone()).collect(),
        };
        told.counters_each_round |=
            options.counters || options.pcap.is_some() || options.faults.any();
        told.write()?;
        let preload = match self.program.can_have_libraries() {
            true => self.libraries.preloaded(&scratch)?.map(OsString::from).to_vec(),
            false => Vec::new(),
        };
        let launch = Launch {
            view: options.view,
            is_private_host: self.is_rank(),
            preload,
            program: self.program.path.clone().into(),
            line: self.line.to_vec(),
        };
        plan::write(scratch.path(), &launch)?;
        Ok(scratch)
    }

    /// Returns the command of the process that becomes the program.
    fn command(&self, scratch: &Scratch) -> Result<Command> {
        let mut process = Stage::Program { parent: std::process::id() }.command(scratch.path());
        let options = self.options;
        let names: DeviceNames = self.devices.iter().cloned().collect();
        process.env(environment::RUN, scratch.path());
        process.env(environment::DEVICES, names.to_string());
        process.env(environment::BACKEND, self.backend.name());
        process.env(environment::CC, options.congestion.cc.to_string());
        process.env(environment::PEERS, if self.is_rank() { "all" } else { "host" });
        if let Some(rate) = options.switch.link_rate() {
            process.env(environment::LINK_RATE, rate.to_string());
        }
        if let Some(faults) = self.fault_text() {
            let value = environment::faults_value(faults, &scratch.path().join("faults"))?;
            process.env(environment::FAULTS, value);
        }
        process.envs(self.launcher_variables());
        Ok(process)
    }

    /// Starts the program, and waits for its end.
    fn follow(
        &self,
        mut process: Command,
        signals: &Signals,
        timeout: Option<Instant>,
        front: Option<&Front>,
    ) -> Result<End> {
        let limits = match self.is_rank() {
            true => Limits::None,
            false => Limits::Own { timeout },
        };
        let waits = self.options.wait;
        if self.is_rank() && waits {
            prctl::set_child_subreaper(true)?;
        }
        let child =
            process.spawn().map_err(|error| CliError::context("starting roce again", error))?;
        // It has the program's standard input, whose other end may wait for its closing.
        drop(process);
        let mut end = child::follow(pid_of(&child), signals, limits, front.map(AsFd::as_fd))?;
        if waits {
            let timeout = timeout.filter(|_| !self.is_rank());
            end.has_timed_out |= survivors::wait(signals, timeout, front)? == Waited::TimedOut;
        }
        Ok(end)
    }

    /// Returns what the end of the program means for the run, and tells the user of it.
    fn outcome(&self, end: End) -> Result {
        let faults = match self.is_rank() {
            true => Ok(()),
            false => fault_log::report(&self.options.faults, &self.folder),
        };
        let name = self.name().display();
        // The supervisor prints this with the rank's number.
        if let Some(signal) = end.signal().filter(|_| !self.is_rank()) {
            eprintln!("roce: {name} was ended by {}", failure::Shown(signal));
        }
        if let Some(timeout) = self.options.timeout.as_ref().filter(|_| end.has_timed_out) {
            eprintln!("roce: {name} was stopped after {timeout} (--timeout)");
            return Err(CliError::Reported(TIMED_OUT));
        }
        match child::code_of(end.status) {
            0 => faults,
            code => Err(CliError::Reported(code)),
        }
    }

    fn name(&self) -> &Path {
        Path::new(self.line.first().map_or("".as_ref(), OsString::as_os_str))
    }

    /// Returns true if this process runs one of several ranks.
    fn is_rank(&self) -> bool {
        self.rank.is_some()
    }

    fn captures_at_receiver(&self) -> bool {
        self.is_rank() && self.options.switch.switch.is_some()
    }

    /// Returns the variables of torchrun for a rank, if they are wanted. Each rank is alone on its host.
    fn launcher_variables(&self) -> Vec<(&'static str, String)> {
        let (true, Some(rank), Some(size)) = (self.options.torchrun, self.rank, self.options.local)
        else {
            return Vec::new();
        };
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", size.to_string()),
            ("LOCAL_RANK", "0".to_owned()),
            ("LOCAL_WORLD_SIZE", "1".to_owned()),
            ("MASTER_ADDR", rails::address(0, 0)),
            ("MASTER_PORT", "29500".to_owned()),
        ]
    }

    /// Returns the text of the faults, if there are any. With several ranks the sender of a packet
    /// injects them, so that each packet meets them once: what peers of the run have sent is left alone.
    fn fault_text(&self) -> Option<String> {
        let faults = &self.options.faults;
        let config = self.rank.map_or_else(|| faults.config(), |rank| faults.of_rank(rank));
        let config = FaultConfig { began: Some(self.began), ..config };
        let are_told = faults.any() || !self.options.require.is_empty();
        are_told.then(|| config.to_string())
    }

    /// Returns how devices are opened that tell peers of processes which have died. Their packets are
    /// recorded as those of the program, but meet no faults: rules count those of the program. They take no
    /// interface from another process that uses AF_XDP.
    fn orphan_config(&self, capture: Option<PathBuf>) -> DeviceConfig {
        let backend = self.backend;
        DeviceConfig {
            backend: if backend == Backend::AfXdp { Backend::AfPacket } else { backend },
            capture,
            peers: if self.is_rank() { PeersInRun::All } else { PeersInRun::ThisHost },
            capture_at_receiver: self.captures_at_receiver(),
            ..DeviceConfig::default()
        }
    }
}
