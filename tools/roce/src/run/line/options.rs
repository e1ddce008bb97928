//! The options of `roce run`, which every process of a run reads.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command, ValueEnum};
use roce_faults::Requirement;
use roce_verbs::{DeviceNames, environment};
use serde::{Deserialize, Serialize};

use super::prefix::Prefix;
use super::timeout::Timeout;
use crate::as_text;
use crate::backend::BackendOption;
use crate::congestion::CongestionOptions;
use crate::error::{CliError, Result};
use crate::faults::Faults;
use crate::rails::MAX_RAILS;
use crate::sentence::{self, Sentence};
use crate::switch::SwitchOptions;
use crate::traffic;

const EXAMPLES: &str = "\
A server and its client, each in a private host (rank 1 gets the address of rank 0):
  roce run --local 2 -- ib_write_bw
  roce run --local 2 -- ib_send_lat -s 64 {peer?}

A program on the interfaces of this host (without CAP_NET_RAW by UDP sockets):
  roce run -- ibv_devinfo
  roce run --dev rxe0=eth1 -- ib_write_bw -d rxe0 server

With --local these are replaced in the arguments: {rank}, {size}, {address} (the rank's own),
{peer} (the address of rank 0, for rank 0 that of rank 1), {peer?} (the same, but nothing for
rank 0) and {interface} (eth0); with --rails, {address:1}, {peer:1}, {peer?:1} and {interface:1}
are those of rail 1. With two ranks and none of these, rank 1 gets {peer} as its last argument.
Where there are such arguments, the other ranks start as soon as rank 0 listens on a TCP port or by
rdma_cm.
Any other {word} is refused: write {{word}} for a {word} that the program is to get.

Ranks that find each other by torchrun's variables, such as those of torch.distributed:
  roce run --local 3 --torchrun -- python3 train.py

With one rank or more than two, and none of these, all ranks run the same line: servers then wait
for ever. The ranks write to pipes; with --prefix none, or with `stdbuf -oL` in front, a program
writes each line at once. When the run ends, by a signal too, all processes of its ranks end.

The exit code is the program's, 128+N if signal N ended it, and with --local that of the rank that
failed first. It is 124 if --timeout stopped the run; 125 if roce fails, or if rank 0 ends with 0
before it listens, so that the others never run; 123 if it does not show what --require asks for; 126 if the program cannot be started, 127 if it is
missing.
docs/run.md says which programs run.";

/// Run an unmodified RDMA program on this library: perftest, UCX, Open MPI
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Name a device and its interface; repeat it for several [default: roce0, roce1, …]
    ///
    /// NAME=* makes a device of each interface, with names that count on: rxe0=* gives rxe0, rxe1 and so on.
    #[arg(long = "dev", value_name = "NAME=INTERFACE")]
    pub(in crate::run) devices: Vec<String>,
    /// Run the program in N private hosts on this machine; needs no root, leaves nothing behind
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(in crate::run) local: Option<u32>,
    /// Networks between the hosts, each with an interface of every host (eth0, eth1, …) and so with a device
    #[arg(long, value_name = "K", default_value_t = 1, requires = "local")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_RAILS))]
    pub(in crate::run) rails: u32,
    /// MTU of the private network's links in bytes; path MTU 4096 needs at least 4176
    #[arg(long, value_name = "BYTES", default_value_t = 4200, value_parser = traffic::link_mtu)]
    #[arg(requires = "local")]
    pub(in crate::run) link_mtu: u32,
    #[command(flatten)]
    pub(in crate::run) switch: SwitchOptions,
    /// How the program sees the files below /sys/class/infiniband and /dev/infiniband
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ViewMode::Auto)]
    pub(in crate::run) view: ViewMode,
    /// Write all packets to a pcapng file, each once; with --local those of all ranks
    #[arg(long, value_name = "FILE")]
    #[serde(with = "as_text::optional_path")]
    pub(in crate::run) pcap: Option<PathBuf>,
    /// Print the devices' nonzero counters at the end, on standard error
    #[arg(long)]
    pub(in crate::run) counters: bool,
    #[command(flatten)]
    pub(in crate::run) backend: BackendOption,
    #[command(flatten)]
    pub(in crate::run) congestion: CongestionOptions,
    #[command(flatten)]
    pub(in crate::run) faults: Faults,
    /// What the run has to show, such as 'completions resume within 1s after each fault'; repeat it for several. The
    /// exit code is 123 if it does not (docs/failover.md)
    #[arg(long, value_name = "SENTENCE", value_parser = Requirement::read, requires = "local")]
    #[serde(with = "sentence")]
    pub(in crate::run) require: Vec<Requirement>,
    /// Wait for what the program has started, too, such as a daemon; the exit code is the program's
    #[arg(long)]
    pub(in crate::run) wait: bool,
    /// Stop the run after a time, with exit code 124: seconds, or with the suffix s, m, h or d
    #[arg(long, value_name = "TIME")]
    #[serde(with = "as_text::optional")]
    pub(in crate::run) timeout: Option<Timeout>,
    /// What stands before the lines of the ranks
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Prefix::Rank)]
    #[arg(requires = "local")]
    pub(in crate::run) prefix: Prefix,
    /// Set RANK, WORLD_SIZE, MASTER_ADDR and the like as torchrun does; no argument is added
    #[arg(long, requires = "local")]
    pub(in crate::run) torchrun: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "PROGRAM")]
    pub(in crate::run) command: Vec<OsString>,
}

/// How a program sees the files of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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

impl Options {
    /// Returns the names of devices, else those of the environment if they hold for any interfaces: others
    /// are interfaces of the host.
    pub(in crate::run) fn devices_of_private_host(&self) -> Vec<String> {
        let named = self.devices_or_inherited();
        let fits = |named: &[String]| {
            named.join(",").parse().is_ok_and(|names: DeviceNames| names.is_every_interface())
        };
        if self.devices.is_empty() && !fits(&named) { Vec::new() } else { named }
    }

    /// Returns the names of devices, else those of the environment.
    pub(in crate::run) fn devices_or_inherited(&self) -> Vec<String> {
        let inherited = || std::env::var(environment::DEVICES).into_iter().collect();
        if self.devices.is_empty() { inherited() } else { self.devices.clone() }
    }
}

impl Options {
    /// Refuses an option in the place of the program: it is misspelt, or one of the program.
    pub(in crate::run) fn check_name(&self) -> Result {
        let name = self.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use clap::FromArgMatches;

    use super::*;
    use crate::run::folder::plan;

    fn options<'a>(line: impl IntoIterator<Item = &'a OsStr>) -> Options {
        let command = Options::augment_args(Command::new("run").no_binary_name(true));
        Options::from_arg_matches(&command.get_matches_from(line)).unwrap()
    }

    fn refusal(name: &str) -> Option<String> {
        match options([name, "ib_write_bw"].map(OsStr::new)).check_name() {
            Err(CliError::Message(text)) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn every_stage_of_a_run_has_the_options_of_its_command_line() {
        let given = "--dev a=eth0 --local 2 --rails 3 --link-mtu 1500 --switch rate=2G,pfc=3 --view preload \
                       --counters --backend udp --cc dcqcn,rp_ai_rate=10 --loss 1% --duplicate 2% --delay 3% --reorder 4% --corrupt 5% --mark 6% --max-delay 3us \
                       --seed 7 --wait --timeout 1.5m --prefix none --torchrun";
        let path = OsStr::from_bytes(b"no\xfftext");
        let line = given.split_whitespace().map(OsStr::new).chain(
            [
                "--fault",
                "drop request 3 of queue pair 2",
                "--fault",
                "fail post-send 3 with ENOMEM",
                "--require",
                "no standstill above 1s",
            ]
            .into_iter()
            .chain(["--switch-report"])
            .map(OsStr::new)
            .chain([path, OsStr::new("--pcap"), path, OsStr::new("--"), path]),
        );
        let options = options(line);
        let folder = std::env::temp_dir().join(format!("roce-options-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        plan::write(&folder, &options).unwrap();
        let read: Options = plan::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(format!("{read:?}"), format!("{options:?}"));
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
