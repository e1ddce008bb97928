//! `roce switch`: a switch with queues, marks and pauses between real interfaces.

pub(crate) mod interconnect;
mod options;
mod report;
mod spec;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use roce_switch::SoftwareSwitch;
use roce_verbs::ThreadPlacement;

use crate::error::{CliError, Result};
use crate::output::print;
use crate::parent_death;
pub(crate) use options::SwitchOptions;
use spec::SwitchSpec;

/// Forward frames between interfaces through queues with a rate, marks and pauses
///
/// Every port sends and receives at the same rate. The queues, marks and pauses are those of `roce
/// simulate fabric`, in real time and with real packets. Other commands start this one between the
/// hosts of a private network: see their option --switch.
#[derive(Args, Clone, Debug)]
#[command(after_help = SwitchSpec::HELP)]
pub(crate) struct Options {
    /// Interface of a port; repeat it for each
    #[arg(long = "port", value_name = "INTERFACE", required = true)]
    ports: Vec<String>,
    /// Rate, buffer, marks, pauses and classes
    #[arg(long, value_name = "SPEC", default_value = "", hide_default_value = true)]
    spec: SwitchSpec,
    /// Write a report as JSON at the end, and at SIGUSR1; - is standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Run in the real-time class (SCHED_FIFO)
    #[arg(long)]
    realtime: bool,
    /// Runs between the hosts of a private network (set by --switch)
    #[arg(long, hide = true)]
    between_hosts: bool,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    if options.between_hosts {
        parent_death::die_with_parent()?;
    }
    // A switch that gets no processor stands still. Between hosts, where that is not permitted, it
    // competes with them.
    let realtime = options.realtime || options.between_hosts;
    let placement = ThreadPlacement { realtime, ..ThreadPlacement::default() };
    match placement.apply() {
        Err(error) if options.realtime => return Err(error.into()),
        _ => {}
    }
    if !options.between_hosts {
        check_ports(&options.ports)?;
    }
    if let Some(path) = &options.report {
        // Nothing is measured for a report that cannot be written.
        check_writable(path)?;
    }
    let signals = Signals::block(options.between_hosts)?;
    let interfaces = roce_io::interfaces()?;
    let mtu = options.ports.iter().filter_map(|port| {
        interfaces.iter().find(|interface| interface.name == *port).map(|it| it.mtu)
    });
    let max_frame = u64::from(mtu.max().unwrap_or(DEFAULT_MTU)) + MAX_HEADER_LEN;
    let settings = options.spec.settings(max_frame);
    let mut switch = SoftwareSwitch::open(&settings, &options.ports)?;
    if options.between_hosts {
        print(&format!("{}\n", interconnect::READY))?;
    } else {
        eprintln!("forwarding between {}; Ctrl-C ends it", options.ports.join(", "));
    }
    loop {
        switch.run_until_readable(signals.0.as_fd())?;
        let signal = signals.next()?;
        if let Some(path) = &options.report {
            let json = report::to_json(&options.spec.to_string(), &switch.report(), cpu_seconds());
            write(path, &format!("{}\n", serde_json::to_string_pretty(&json)?))?;
        }
        if signal != Signal::SIGUSR1 {
            break;
        }
    }
    eprintln!("{}", report::line(&switch.report()));
    Ok(())
}

fn check_ports(ports: &[String]) -> Result {
    if let Some(port) = ports.iter().enumerate().find(|(at, port)| ports[..*at].contains(port)) {
        return Err(CliError::new(format!("port {} is given twice", port.1)));
    }
    if ports.len() < 2 {
        return Err(CliError::new("a switch has at least two ports; repeat --port"));
    }
    Ok(())
}

/// Writes a report so that a reader finds the whole or the one before.
fn write(path: &Path, text: &str) -> Result {
    if path == Path::new("-") {
        return print(text);
    }
    let part = part_of(path);
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(|why| not_written(path, why))
}

/// Finds out whether [`write()`] would fail.
fn check_writable(path: &Path) -> Result {
    if path == Path::new("-") {
        return Ok(());
    }
    let part = part_of(path);
    std::fs::write(&part, "")
        .and_then(|()| std::fs::remove_file(&part))
        .map_err(|why| not_written(path, why))
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn not_written(path: &Path, why: std::io::Error) -> CliError {
    CliError::context(format!("cannot write {}", path.display()), why)
}

/// Returns the processor time of this process.
fn cpu_seconds() -> f64 {
    let seconds = |usage: nix::sys::resource::Usage| {
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
    };
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, seconds)
}

/// The signals that end the switch or ask for a report.
struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals in this thread. Between hosts Ctrl-C is for them: the parent ends the
    /// switch after them.
    fn block(between_hosts: bool) -> Result<Self> {
        let mut set: SigSet = [Signal::SIGTERM, Signal::SIGUSR1].into_iter().collect();
        if between_hosts {
            SigSet::from(Signal::SIGINT).thread_block()?;
        } else {
            set.add(Signal::SIGINT);
        }
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    fn next(&self) -> Result<Signal> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                return Ok(Signal::try_from(i32::try_from(info.ssi_signo).unwrap_or(0))?);
            }
        }
    }
}

const DEFAULT_MTU: u32 = 1500;
/// Bytes of an Ethernet header with two VLAN tags.
const MAX_HEADER_LEN: u64 = 14 + 2 * 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_two_at_least_and_different() {
        let refused = |ports: &[&str]| {
            let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
            check_ports(&ports).err().map(|why| format!("{why:?}"))
        };
        assert!(refused(&["a"]).unwrap().contains("at least two"));
        assert!(refused(&["a", "b", "a"]).unwrap().contains("port a is given twice"));
        assert_eq!(refused(&["a", "b"]), None);
    }

    #[test]
    fn a_report_that_cannot_be_written_is_refused_before_the_switch_starts() {
        let why = check_writable(Path::new("/nonexistent/report.json")).unwrap_err();
        let why = format!("{why:?}");
        assert!(why.contains("cannot write /nonexistent/report.json"), "{why}");
        check_writable(Path::new("-")).unwrap();
        let folder = std::env::temp_dir().join(format!("roce-report-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        check_writable(&folder.join("report.json")).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        std::fs::remove_dir(&folder).unwrap();
    }
}
