//! `--local N`: all ranks of a group on one host, in a private network.
//!
//! The parent creates a host for each rank and a switch for each rail, and starts this program in
//! each host. It prints the output of rank 0. A rank that fails sends its reason to the parent,
//! which prints the one that caused the others.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::Signal;
use roce_netns::{Host, Link, VirtualNetwork};

use crate::error::{CliError, Result};
use crate::parent_death::die_with_parent;
use crate::rails::{address, interface};
use crate::ranks::{Policy, Stream, StreamKind, Supervisor};
use crate::switch::SwitchOptions;
use crate::switch::interconnect::Interconnect;
use crate::this_program;

/// The address of rank 0, the first one.
pub(crate) const ROOT: &str = "10.0.0.1:29500";

/// Creates the network and runs this process's command as every rank.
///
/// # Errors
/// The first failure, with its rank.
pub(crate) fn run(ranks: u32, rails: u32, link_mtu: u32, switch: &SwitchOptions) -> Result {
    let network = Network::new(ranks, rails, link_mtu, switch)?;
    eprintln!("private network: {}", network.in_words(link_mtu));
    let mut supervisor = Supervisor::new();
    let mut outputs = Vec::new();
    for (rank, host) in network.hosts.iter().enumerate() {
        let mut command = this_program::with_own_arguments();
        command.args(["--local-rank", &rank.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(from) = supervisor.start(host, command)?.stdout.take() {
            let stream = Stream { kind: StreamKind::Output, from, prefix: String::new() };
            outputs.push(supervisor.copy(stream, io::stdout(), move |line| {
                let text = line.strip_prefix(MARK)?;
                Some(Reason { rank, text: text.replace(MARK, "\n") })
            })?);
        }
    }
    let mut run = Run::default();
    supervisor.follow(&mut run)?;
    for output in outputs {
        let _ = output.join();
    }
    if supervisor.has_lost_reader() {
        return Err(CliError::Quit);
    }
    let ends = supervisor.ends().map(|(rank, status, was_overdue)| {
        let reason = run.reasons.remove(&rank);
        let reason = if was_overdue { Some(STOPPED.to_owned()) } else { reason };
        End { rank, status, reason }
    });
    judge(&ends.collect::<Vec<_>>())
}

/// Runs a rank of a private network; sends the reason of a failure to the parent.
pub(crate) fn within(work: impl FnOnce() -> Result) -> Result {
    die_with_parent()?;
    work().map_err(|failure| match failure {
        CliError::Message(text) => {
            // This process dies with its parent.
            let _ = writeln!(io::stdout(), "{MARK}{}", text.replace('\n', &MARK.to_string()));
            CliError::Reported(1)
        }
        other => other,
    })
}

/// Marks a reason and separates its lines: no text contains it.
const MARK: char = '\u{1e}';

/// The hosts of the ranks and a switch for each rail.
pub(crate) struct Network {
    /// Before the hosts: they end first.
    interconnects: Vec<Interconnect>,
    hosts: Vec<Host>,
    rails: u32,
}

impl Network {
    /// Creates the network, also as an ordinary user. No thread may exist yet.
    pub(crate) fn new(
        ranks: u32,
        rails: u32,
        link_mtu: u32,
        switch: &SwitchOptions,
    ) -> Result<Self> {
        roce_netns::enter_user_namespace_if_needed()?;
        let network = VirtualNetwork::new()?;
        let host = |rank| network.host(&format!("rank {rank}"));
        let hosts: Vec<Host> = (0..ranks).map(host).collect::<Result<_, _>>()?;
        let mut interconnects = Vec::new();
        for rail in 0..rails {
            let name = interface(rail);
            let ends: Vec<_> = hosts.iter().map(|host| (host, name.as_str())).collect();
            let link = Link { mtu: link_mtu };
            interconnects.push(Interconnect::connect(&network, &ends, link, switch, rail)?);
            for (host, rank) in hosts.iter().zip(0..) {
                host.address(&name, format!("{}/24", address(rail, rank)).parse()?)?;
                let number = rank + 1;
                // IPv6 is optional: it needs an MTU of 1280 and a kernel with IPv6.
                let _ = host.address(&name, format!("fd00:0:0:{rail}::{number}/64").parse()?);
            }
        }
        Ok(Self { interconnects, hosts, rails })
    }

    /// Returns the hosts by rank, and what connects them.
    pub(crate) fn into_parts(self) -> (Vec<Host>, Vec<Interconnect>) {
        (self.hosts, self.interconnects)
    }

    fn in_words(&self, link_mtu: u32) -> String {
        let (ranks, rails) = (self.hosts.len(), self.rails);
        let each = |rail| {
            let last = if ranks > 1 { format!(" to 10.0.{rail}.{ranks}") } else { String::new() };
            format!("{} 10.0.{rail}.1{last}", interface(rail))
        };
        let rails: Vec<String> = (0..rails).map(each).collect();
        let hosts = if ranks == 1 { "1 host" } else { &format!("{ranks} hosts") };
        let switches =
            if rails.len() == 1 { "a switch" } else { &format!("{} switches", rails.len()) };
        format!("{hosts} on {switches}, {}, MTU {link_mtu}", rails.join(", "))
    }
}

/// The reasons of ranks that failed.
#[derive(Default)]
struct Run {
    reasons: BTreeMap<usize, String>,
}

/// The reason that a rank has sent for its failure.
struct Reason {
    rank: usize,
    text: String,
}

impl Policy for Run {
    type News = Reason;

    fn on_news(&mut self, _: &mut Supervisor<Reason>, news: Reason) -> Result<ControlFlow<()>> {
        self.reasons.insert(news.rank, news.text);
        Ok(ControlFlow::Continue(()))
    }

    fn on_end(
        &mut self,
        ranks: &mut Supervisor<Reason>,
        _: usize,
        status: ExitStatus,
    ) -> ControlFlow<()> {
        if !status.success() {
            ranks.stop_later();
        }
        ControlFlow::Continue(())
    }

    fn on_lost_output(&mut self, rank: usize, error: &io::Error) {
        // The rank notices the closed pipe.
        self.reasons.insert(rank, format!("cannot print: {error}"));
    }
}

/// The end of a rank.
#[derive(Debug)]
struct End {
    rank: usize,
    status: ExitStatus,
    /// The reason that it sent.
    reason: Option<String>,
}

/// Returns the error that caused the others.
fn judge(ends: &[End]) -> Result {
    let failed: Vec<&End> = ends.iter().filter(|end| !end.status.success()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let killed: Vec<String> = failed.iter().filter_map(|end| killed_by(end)).collect();
    if !killed.is_empty() {
        return Err(CliError::new(format!("{}; all others stopped", killed.join(", "))));
    }
    // By reason: ranks that report another rank's failure explain nothing.
    let mut reasons: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let told = |end: &&End| end.reason.is_some();
    for end in failed.iter().filter(|end| told(end)) {
        reasons.entry(end.reason.as_deref().unwrap_or_default()).or_default().push(end.rank);
    }
    let is_first_hand = |reason: &str| {
        reason != STOPPED && !(reason.starts_with("rank ") && reason.contains(" failed: "))
    };
    if reasons.keys().any(|reason| is_first_hand(reason)) {
        reasons.retain(|reason, _| is_first_hand(reason));
    }
    let all = ends.len();
    let lines = reasons.into_iter().map(|(reason, mut of)| {
        of.sort_unstable();
        let names: Vec<String> = of.iter().map(usize::to_string).collect();
        match names.as_slice() {
            // All ranks have the same reason: the command is wrong.
            _ if of.len() == all => reason.to_owned(),
            [one] => format!("rank {one}: {reason}"),
            several => format!("ranks {}: {reason}", several.join(", ")),
        }
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        // For example a panic, which has been printed.
        let names: Vec<String> = failed.iter().map(|end| end.rank.to_string()).collect();
        return Err(CliError::new(format!("rank {} failed without a reason", names.join(", "))));
    }
    Err(CliError::new(lines.join("\n")))
}

fn killed_by(End { rank, status, reason }: &End) -> Option<String> {
    let number = status.signal().filter(|_| reason.is_none())?;
    let name = Signal::try_from(number).map_or(number.to_string(), |signal| signal.to_string());
    Some(format!("rank {rank} was killed by {name}"))
}

/// The reason of a rank that stayed too long after the failure of another, which it learns at once.
const STOPPED: &str = "it did not end by itself and was stopped";

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: usize, code: i32, reason: Option<&str>) -> End {
        let status = ExitStatus::from_raw(code);
        End { rank, status, reason: reason.map(str::to_owned) }
    }

    fn said(ends: &[End]) -> String {
        match judge(ends) {
            Err(CliError::Message(text)) => text,
            other => format!("{other:?}"),
        }
    }

    const FAILED: i32 = 1 << 8;

    #[test]
    fn the_cause_is_reported_without_its_consequences() {
        let gone = Some("rank 1 failed: its process is gone");
        let killed = [end(0, FAILED, gone), end(1, 9, None), end(2, FAILED, gone)];
        assert_eq!(said(&killed), "rank 1 was killed by SIGKILL; all others stopped");
        let broken =
            [end(2, FAILED, Some("no such device")), end(0, FAILED, gone), end(1, 0, None)];
        assert_eq!(said(&broken), "rank 2: no such device");
        assert_eq!(
            said(&[end(0, FAILED, gone), end(1, 0, None)]),
            "rank 0: rank 1 failed: its process is gone"
        );
        let early = [end(0, FAILED, Some("disk full")), end(1, 9, Some(STOPPED))];
        assert_eq!(said(&early), "rank 0: disk full");
    }

    #[test]
    fn a_reason_of_all_ranks_is_reported_once() {
        let ends = [end(0, FAILED, Some("no")), end(1, FAILED, Some("no"))];
        assert_eq!(said(&ends), "no");
        let ends = [end(0, FAILED, Some("no")), end(1, FAILED, Some("no")), end(2, 0, None)];
        assert_eq!(said(&ends), "ranks 0, 1: no");
        assert_eq!(said(&[end(0, FAILED, None)]), "rank 0 failed without a reason");
        assert!(judge(&[end(0, 0, None)]).is_ok());
    }
}
