//! `--local N`: all ranks of a group on one host, in a private network.
//!
//! The parent creates a host for each rank and a switch for each rail, and starts this program in
//! each host. It prints the output of rank 0. A rank that fails sends its reason to the parent,
//! which prints the one that caused the others.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use roce_netns::{Host, Link, VirtualNetwork};

use crate::error::{CliError, Result};
use crate::local::{die_with_parent, myself};
use crate::switch::SwitchOptions;
use crate::switch::interconnect::Interconnect;

/// The address of rank 0, the first one.
pub(crate) const ROOT: &str = "10.0.0.1:29500";

/// Returns the name of a rail's interface, the same at every rank.
pub(crate) fn interface(rail: u32) -> String {
    format!("eth{rail}")
}

/// Returns the address of a rank, counted from 0, on a rail.
pub(crate) fn address(rail: u32, rank: u32) -> String {
    format!("10.0.{rail}.{}", rank.saturating_add(1))
}

/// Creates the network and runs this process's command as every rank.
///
/// # Errors
/// The first failure, with its rank.
pub(crate) fn run(ranks: u32, rails: u32, link_mtu: u32, switch: &SwitchOptions) -> Result {
    let network = Network::new(ranks, rails, link_mtu, switch)?;
    eprintln!("private network: {}", network.in_words(link_mtu));
    let mut children = Vec::new();
    for (rank, host) in network.hosts.iter().enumerate() {
        let mut command = myself();
        command.args(["--local-rank", &rank.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        children.push(host.spawn(command)?);
    }
    Run { children }.finish(&mut io::stdout())
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

/// The running ranks.
struct Run {
    children: Vec<Child>,
}

/// What a rank's output ended with.
#[derive(Debug)]
enum OutputEnd {
    /// The rank closed its output; the reason of its failure, if it sent one.
    Closed(Option<String>),
    /// The reader of this command's output has gone away.
    ReaderGone,
}

/// The end of a rank.
#[derive(Debug)]
struct End {
    rank: usize,
    status: ExitStatus,
    /// The reason that it sent.
    reason: Option<String>,
}

impl Run {
    fn finish(mut self, output: &mut (impl Write + Send)) -> Result {
        let (tell, news) = mpsc::channel();
        let pipes: Vec<_> = self.children.iter_mut().map(|child| child.stdout.take()).collect();
        let output = std::sync::Mutex::new(output);
        let ends = thread::scope(|scope| {
            for (rank, pipe) in pipes.into_iter().enumerate() {
                let (tell, output) = (tell.clone(), &output);
                scope.spawn(move || watch(rank, pipe, output, &tell));
            }
            drop(tell);
            self.follow(&news)
        })?;
        ends.map_or(Err(CliError::Reported(0)), |ends| judge(&ends))
    }

    /// Waits until all have ended, and stops those that stay too long after a failure. Stops all and
    /// returns `None` if the reader of the output has gone away.
    fn follow(&mut self, news: &Receiver<(usize, OutputEnd)>) -> io::Result<Option<Vec<End>>> {
        let mut ends = Vec::new();
        let mut patience = Duration::MAX;
        while ends.len() < self.children.len() {
            match news.recv_timeout(patience) {
                Ok((_, OutputEnd::ReaderGone)) => {
                    for child in &mut self.children {
                        // It may have ended already.
                        let _ = child.kill();
                        child.wait()?;
                    }
                    return Ok(None);
                }
                Ok((rank, OutputEnd::Closed(reason))) => {
                    let status = self.children[rank].wait()?;
                    if !status.success() {
                        patience = END_TIMEOUT;
                    }
                    ends.push(End { rank, status, reason });
                }
                Err(_) => {
                    for (rank, child) in self.children.iter_mut().enumerate() {
                        if ends.iter().all(|end: &End| end.rank != rank) {
                            // It may have ended already.
                            let _ = child.kill();
                            let status = child.wait()?;
                            ends.push(End { rank, status, reason: Some(STOPPED.to_owned()) });
                        }
                    }
                }
            }
        }
        Ok(Some(ends))
    }
}

/// Copies the output of a rank line by line, without its reason.
fn watch(
    rank: usize,
    pipe: Option<impl Read>,
    output: &std::sync::Mutex<&mut (impl Write + Send)>,
    tell: &Sender<(usize, OutputEnd)>,
) {
    let mut end = OutputEnd::Closed(None);
    let mut lines = pipe.map(BufReader::new);
    let mut line = Vec::new();
    while let Some(reader) = &mut lines {
        line.clear();
        if reader.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            break;
        }
        match std::str::from_utf8(&line).ok().and_then(|text| text.strip_prefix(MARK)) {
            Some(text) => {
                end = OutputEnd::Closed(Some(text.trim_end().replace(MARK, "\n")));
            }
            None => {
                let mut output = output.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Err(error) = output.write_all(&line).and_then(|()| output.flush()) {
                    end = match error.kind() {
                        io::ErrorKind::BrokenPipe => OutputEnd::ReaderGone,
                        // The rank notices the closed pipe.
                        _ => OutputEnd::Closed(Some(format!("cannot print: {error}"))),
                    };
                    break;
                }
            }
        }
    }
    drop(lines);
    // The receiver waits for all ranks.
    let _ = tell.send((rank, end));
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

/// Time that the other ranks may take to end after a failure, which they learn at once.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// The reason of a rank that took longer.
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
