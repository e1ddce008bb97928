//! `roce run`: an unmodified verbs program on this library.

mod capture;
mod child;
mod counters;
mod descendants;
mod exec;
mod exit_code;
mod failure;
mod front;
mod keeper;
pub(crate) mod library;
mod mounts;
mod orphans;
mod placeholder;
mod prefix;
mod privileges;
mod program;
mod ranks;
mod run_folder;
mod scratch;
mod server_wait;
mod signals;
mod socket_giver;
mod supervisor;
mod survivors;
mod timeout;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command, ValueEnum};
use nix::sys::prctl;
use roce_verbs::{
    Backend, DeviceConfig, DeviceNames, NamedDevice, PeersInRun, PortState, environment,
};
use roce_view::Tree;

use crate::backend::{BackendOption, has_packet_sockets};
use crate::congestion::CongestionOptions;
use crate::error::{CliError, Result};
use crate::faults::{self, Faults, Report};
use crate::loader_variables;
use crate::local::ring;
use crate::parent_death;
use crate::ranks::pid_of;
use crate::switch::SwitchOptions;
use crate::traffic;
use capture::{Capture, Patience};
use child::Limits;
use exit_code::{TIMED_OUT, not_run};
use front::Front;
use keeper::Services;
use prefix::Prefix;
use run_folder::RunFolder;
use scratch::Scratch;
use signals::Signals;
use survivors::Waited;
use timeout::Timeout;

pub(crate) use exec::Options as ExecOptions;
pub(crate) use exec::run as run_exec;

const EXAMPLES: &str = "\
A server and its client, each in a private host (rank 1 gets the address of rank 0):
  roce run --local 2 -- ib_write_bw
  roce run --local 2 -- ib_send_lat -s 64 {peer?}

A program on the interfaces of this host (without CAP_NET_RAW by UDP sockets):
  roce run -- ibv_devinfo
  roce run --dev rxe0=eth1 -- ib_write_bw -d rxe0 server

With --local these are replaced in the arguments: {rank}, {size}, {address} (the rank's own),
{peer} (the address of rank 0, for rank 0 that of rank 1) and {peer?} (the same, but nothing for
rank 0). With two ranks and none of these, rank 1 gets {peer} as its last argument. Where there
are such arguments, the other ranks start as soon as rank 0 listens on a TCP port or by rdma_cm.
Any other {word} is refused: write {{word}} for a {word} that the program is to get.

Ranks that find each other by torchrun's variables, such as those of torch.distributed:
  roce run --local 3 --torchrun -- python3 train.py

With one rank or more than two, and none of these, all ranks run the same line: servers then wait
for ever. The ranks write to pipes; with --prefix none, or with `stdbuf -oL` in front, a program
writes each line at once. When the run ends, by a signal too, all processes of its ranks end.

The exit code is the program's, 128+N if signal N ended it, and with --local that of the rank that
failed first. It is 124 if --timeout stopped the run; 125 if roce fails, or if rank 0 ends with 0
before it listens, so that the others never run; 126 if the program cannot be started, 127 if it is
missing.
docs/run.md says which programs run.";

/// Run an unmodified RDMA program on this library: perftest, UCX, Open MPI
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Name a device and its interface; repeat it for several [default: roce0, roce1, …]
    ///
    /// NAME=* makes a device of each interface, with names that count on: rxe0=* gives rxe0, rxe1 and so on.
    #[arg(long = "dev", value_name = "NAME=INTERFACE")]
    devices: Vec<String>,
    /// Run the program in N private hosts on this machine; needs no root, leaves nothing behind
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    local: Option<u32>,
    /// MTU of the private network's links in bytes; path MTU 4096 needs at least 4176
    #[arg(long, value_name = "BYTES", default_value_t = 4200, value_parser = traffic::link_mtu)]
    #[arg(requires = "local")]
    link_mtu: u32,
    #[command(flatten)]
    switch: SwitchOptions,
    /// How the program sees the files below /sys/class/infiniband and /dev/infiniband
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ViewMode::Auto)]
    view: ViewMode,
    /// Write all packets to a pcapng file, each once; with --local those of all ranks
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print the devices' nonzero counters at the end, on standard error
    #[arg(long)]
    counters: bool,
    #[command(flatten)]
    backend: BackendOption,
    #[command(flatten)]
    congestion: CongestionOptions,
    #[command(flatten)]
    faults: Faults,
    /// Wait for what the program has started, too, such as a daemon; the exit code is the program's
    #[arg(long)]
    wait: bool,
    /// Stop the run after a time, with exit code 124: seconds, or with the suffix s, m, h or d
    #[arg(long, value_name = "TIME")]
    timeout: Option<Timeout>,
    /// What stands before the lines of the ranks
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Prefix::Rank)]
    #[arg(requires = "local")]
    prefix: Prefix,
    /// Set RANK, WORLD_SIZE, MASTER_ADDR and the like as torchrun does; no argument is added
    #[arg(long, requires = "local")]
    torchrun: bool,
    /// The process that has started this one, the keeper of the run (set without --local)
    #[arg(long, hide = true)]
    front: Option<u32>,
    /// The process that has started this one, the supervisor of the ranks (set by --local)
    #[arg(long, hide = true)]
    supervise: Option<u32>,
    /// The rank that this process runs (set by --local)
    #[arg(long, hide = true)]
    local_rank: Option<u32>,
    /// Folder of the run (set by --local)
    #[arg(long, hide = true)]
    run_folder: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// How a program sees the files of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViewMode {
    /// By mount where that is permitted, else by preload
    Auto,
    /// In a mount namespace of its own: complete, needs CAP_SYS_ADMIN
    Mount,
    /// By replaced calls of the C library: needs no privilege
    Preload,
    /// Not at all
    None,
}

impl ViewMode {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mount => "mount",
            Self::Preload => "preload",
            Self::None => "none",
        }
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let outcome = check_name(&options.command).and_then(|()| {
        let Some(size) = options.local else {
            let Some(starter) = options.front else { return front::start() };
            let (front, input) = Front::meet(starter)?;
            return run_here(options, options.command.clone(), Some((front, input)));
        };
        match (options.local_rank, options.supervise) {
            (Some(rank), _) => parent_death::die_with_parent().and_then(|()| {
                let line = match options.torchrun {
                    true => placeholder::filled(&options.command, rank, size),
                    false => placeholder::line_of(&options.command, rank, size),
                };
                run_here(options, line, None)
            }),
            (None, Some(starter)) => ranks::run(options, size, starter),
            (None, None) => supervisor::start(options),
        }
    });
    outcome.map_err(not_run)
}

/// Refuses an option in the place of the program: it is misspelt, or one of the program.
fn check_name(line: &[OsString]) -> Result {
    let name = line.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    if !name.starts_with('-') {
        return Ok(());
    }
    let option = name.split_once('=').map_or(&*name, |(option, _)| option);
    let similar =
        similar_option(option).map(|known| format!("; a similar option of roce is {known}"));
    Err(CliError::new(format!(
        "there is no option {option}; options of the program go behind its name{}",
        similar.unwrap_or_default()
    )))
}

/// Returns the option of this command that is spelt nearly like another, if there is one.
fn similar_option(unknown: &str) -> Option<String> {
    let command = Options::augment_args(Command::new("run").no_binary_name(true));
    // As a value of the command, the unknown option would be taken.
    let command = command.mut_arg("command", |argument| argument.allow_hyphen_values(false));
    let error = command.try_get_matches_from([unknown]).err()?;
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(known)) => Some(known.clone()),
        _ => None,
    }
}

/// Runs a line on the interfaces of this network namespace. A keeper has its end of the socket and the standard
/// input of the program.
fn run_here(options: &Options, line: Vec<OsString>, keeper: Option<(Front, OwnedFd)>) -> Result {
    let begin = Instant::now();
    let (front, input) = keeper.unzip();
    let [name, arguments @ ..] = line.as_slice() else {
        return Err(CliError::new("name a program"));
    };
    let program = program::find(name)?;
    let loads_libraries = program.can_have_libraries();
    let libraries = library::find()?;
    let devices = match options.local_rank {
        Some(_) => devices_with_carrier(&options.devices_of_private_host())?,
        None => devices(&options.devices_or_inherited())?,
    };
    let backend = privileges::choose(options.backend.choice()?)?;

    options.faults.check_ranks(options.local)?;
    environment::shards().map_err(CliError::new)?;
    environment::connection_timing().map_err(CliError::new)?;
    // That of a rank belongs to the supervisor.
    let own_folder = options.run_folder.is_none().then(RunFolder::new).transpose()?;
    let of_supervisor = options.run_folder.as_deref().unwrap_or(Path::new(""));
    let folder = own_folder.as_ref().map_or(of_supervisor, RunFolder::path).to_owned();
    let scratch = Scratch::new(&folder, options.local_rank.unwrap_or(0))?;
    // One log for all ranks: that of the supervisor.
    let log = fault_log(&folder);
    if own_folder.is_some() {
        File::create_new(&log)?;
    }
    libraries.link_below(&scratch)?;
    Tree::new(&devices, roce_view::hardware_folder)
        .write_to(&scratch.view())
        .map_err(|error| CliError::context("writing the view of the devices", error))?;

    let mut process = Process::new("/proc/self/exe");
    process.args(["exec-in-view", "--view", options.view.name(), "--parent"]);
    process.arg(std::process::id().to_string()).arg("--scratch").arg(scratch.path());
    process.args(options.local_rank.map(|_| "--private-host"));
    if loads_libraries {
        let paths = libraries.preloaded(&scratch)?;
        process.args(paths.iter().flat_map(|path| ["--preload".as_ref(), path.as_os_str()]));
    }
    process.arg("--program").arg(&program.path).arg("--").arg(name).args(arguments);
    loader_variables::give_back(&mut process);
    if let Some(input) = input {
        process.stdin(input);
    }
    let device_names: Vec<_> = devices.iter().map(|device| device.name.clone()).collect();
    let names: DeviceNames = devices.into_iter().collect();
    process.env(environment::DEVICES, names.to_string());
    process.env(environment::BACKEND, backend.name());
    process.env(environment::COUNTERS, scratch.counters());
    process.env(environment::CONNECTIONS, scratch.connections());
    process.env(environment::CC, options.congestion.cc.to_string());
    if let Some(rate) = options.switch.link_rate() {
        process.env(environment::LINK_RATE, rate.to_string());
    }
    if let Some(faults) = options.fault_text() {
        let value = environment::faults_value(faults, &scratch.path().join("faults"))?;
        process.env(environment::FAULTS, value).env(environment::FAULT_LOG, &log);
    }
    if options.is_rank() && options.switch.switch.is_some() {
        process.env(environment::PCAP_AT_RECEIVER, "1");
    }
    process.envs(options.launcher_variables());
    process.env(environment::PEERS, if options.is_rank() { "all" } else { "host" });
    if options.counters || options.pcap.is_some() || options.faults.any() {
        process.env(environment::COUNTERS_EACH_ROUND, "1");
    }
    // Before any thread exists, since each takes over what is blocked.
    let signals = Signals::block()?;
    if backend != Backend::Udp && has_packet_sockets() {
        socket_giver::start(&scratch.sockets())?;
        process.env(environment::SOCKETS, scratch.sockets());
    }
    let socket = front.as_ref().map(AsFd::as_fd);
    let timeout = options.timeout.as_ref().map(|timeout| (begin + timeout.duration, timeout));
    let captured = options.pcap.as_ref().map(|path| capture::file_of(path, &folder)).transpose()?;
    let mut capture = None;
    if let (Some(path), Some(file)) = (&options.pcap, &captured) {
        process.env(environment::PCAP, file);
        if !options.is_rank() {
            let patience = Patience { signals: &signals, starter: socket, timeout };
            capture = Some(Capture::create(path, file, &patience)?);
        }
    }
    let timeout = timeout.map(|(end, _)| end);
    let config = options.orphan_config(backend, captured);
    let services = Services { scratch, device_names, config };
    let running = services.start()?;
    let limits = match options.local_rank {
        Some(_) => Limits::None,
        None => Limits::Own { timeout },
    };
    if options.is_rank() && options.wait {
        prctl::set_child_subreaper(true)?;
    }
    let child = process.spawn().map_err(|error| CliError::context("starting roce again", error))?;
    // It has the program's standard input, whose other end may wait for its closing.
    drop(process);
    let mut end = child::follow(pid_of(&child), &signals, limits, socket)?;
    if options.wait {
        let timeout = timeout.filter(|_| !options.is_rank());
        end.has_timed_out |=
            survivors::wait(&signals, timeout, front.as_ref())? == Waited::TimedOut;
    }
    let totals = running.end();
    let uncopied = capture.and_then(Capture::end);
    if options.counters {
        // Elsewhere the supervisor puts the rank in front.
        let rank = options.local_rank.filter(|_| options.prefix == Prefix::None);
        counters::print(&totals, rank);
    }
    let faults = match options.is_rank() {
        true => Ok(()),
        false => options.report_faults(&log),
    };
    // The supervisor prints this with the rank's number.
    if let Some(signal) = end.signal().filter(|_| options.local_rank.is_none()) {
        eprintln!("roce: {} was ended by {}", Path::new(name).display(), failure::Shown(signal));
    }
    let mut outcome = match child::code_of(end.status) {
        0 => faults,
        code => Err(CliError::Reported(code)),
    };
    if let Some(timeout) = options.timeout.as_ref().filter(|_| end.has_timed_out) {
        eprintln!("roce: {} was stopped after {timeout} (--timeout)", Path::new(name).display());
        outcome = Err(CliError::Reported(TIMED_OUT));
    }
    match front {
        Some(front) => {
            let program = Path::new(name);
            keeper::keep(front, outcome, program, &signals, &services, uncopied, own_folder)
        }
        None => outcome,
    }
}

/// Returns the file in the folder of a run to which processes append events of scripted faults.
fn fault_log(folder: &Path) -> PathBuf {
    folder.join("faults")
}

impl Options {
    /// Returns the variables of torchrun for a rank, if they are wanted. Each rank is alone on its host.
    fn launcher_variables(&self) -> Vec<(&'static str, String)> {
        let (true, Some(rank), Some(size)) = (self.torchrun, self.local_rank, self.local) else {
            return Vec::new();
        };
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", size.to_string()),
            ("LOCAL_RANK", "0".to_owned()),
            ("LOCAL_WORLD_SIZE", "1".to_owned()),
            ("MASTER_ADDR", ring::address(0, 0)),
            ("MASTER_PORT", "29500".to_owned()),
        ]
    }

    /// Returns true if this process runs one of several ranks.
    fn is_rank(&self) -> bool {
        self.local_rank.is_some()
    }

    /// Returns the text of the faults, if there are any. With several ranks the sender of a packet
    /// injects them, so that each packet meets them once: what peers of the run have sent is left alone.
    fn fault_text(&self) -> Option<String> {
        let config = match self.local_rank {
            Some(rank) => self.faults.of_rank(rank),
            None => self.faults.config(),
        };
        self.faults.any().then(|| config.to_string())
    }

    /// Returns how devices are opened that tell peers of processes which have died. Their packets are
    /// recorded as those of the program, but meet no faults: rules count those of the program. They take no
    /// interface from another process that uses AF_XDP.
    fn orphan_config(&self, backend: Backend, capture: Option<PathBuf>) -> DeviceConfig {
        DeviceConfig {
            backend: if backend == Backend::AfXdp { Backend::AfPacket } else { backend },
            capture,
            peers: if self.is_rank() { PeersInRun::All } else { PeersInRun::ThisHost },
            capture_at_receiver: self.is_rank() && self.switch.switch.is_some(),
            ..DeviceConfig::default()
        }
    }

    /// Prints what happened of the scripted faults.
    ///
    /// # Errors
    /// Some never happened.
    fn report_faults(&self, log: &Path) -> Result {
        let script = self.faults.script();
        if script.is_empty() {
            return Ok(());
        }
        Report::new(&script, faults::read_log(log)?).finish(|_| true)
    }

    /// Returns the names of devices, else those of the environment if they hold for any interfaces: others
    /// are interfaces of the host.
    fn devices_of_private_host(&self) -> Vec<String> {
        let named = self.devices_or_inherited();
        let fits = |named: &[String]| {
            named.join(",").parse().is_ok_and(|names: DeviceNames| names.is_every_interface())
        };
        if self.devices.is_empty() && !fits(&named) { Vec::new() } else { named }
    }

    /// Returns the names of devices, else those of the environment.
    fn devices_or_inherited(&self) -> Vec<String> {
        let inherited = || std::env::var(environment::DEVICES).into_iter().collect();
        if self.devices.is_empty() { inherited() } else { self.devices.clone() }
    }
}

/// Returns the devices of these names, or all.
pub(crate) fn devices(named: &[String]) -> Result<Vec<NamedDevice>> {
    let names: DeviceNames = named.join(",").parse()?;
    let devices = NamedDevice::list(&names)?;
    let is_listed =
        |wanted: &str| devices.iter().any(|device| device.info.interface.name == wanted);
    if let Some(missing) = names.interfaces().find(|interface| !is_listed(interface)) {
        return Err(CliError::new(format!(
            "there is no Ethernet interface {missing}; `roce devices` lists those that can carry RoCE"
        )));
    }
    if devices.is_empty() {
        return Err(CliError::new(
            "this network namespace has no Ethernet interface, so there is no device; add one (see \
             `roce devices`), or add --local 2 for a private network",
        ));
    }
    Ok(devices)
}

/// Returns the devices of a private host as soon as their links are up: the kernel reports that some
/// time after both ends of a link were set up.
fn devices_with_carrier(named: &[String]) -> Result<Vec<NamedDevice>> {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    loop {
        let devices = devices(named)?;
        let is_up = |device: &NamedDevice| device.info.port.state == PortState::Active;
        if devices.iter().all(is_up) || Instant::now() >= deadline {
            return Ok(devices);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Time that the links of a private host may take; the kernel needs at most a second.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> Option<String> {
        match check_name(&[name.into(), "ib_write_bw".into()]) {
            Err(CliError::Message(text)) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn an_option_is_not_taken_for_the_program() {
        for (option, shown, similar) in [
            ("--los", "--los", "; a similar option of roce is --loss"),
            ("--swich=rate=1G", "--swich", "; a similar option of roce is --switch"),
            ("-n", "-n", ""),
        ] {
            let told = format!(
                "there is no option {shown}; options of the program go behind its name{similar}"
            );
            assert_eq!(refusal(option), Some(told));
        }
        for program in ["ib_write_bw", "./-n", ""] {
            assert_eq!(refusal(program), None);
        }
    }
}
