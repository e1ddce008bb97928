//! `--local N`: the program in private hosts.
//!
//! The parent creates the hosts and starts this command again in each, as a rank. It prefixes the
//! lines of the ranks' output, passes signals on, and ends with the exit code of the first rank that
//! failed.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use roce_netns::Host;

use super::child::{self, Received, Signals};
use super::failure::{Failure, Others};
use super::{Options, placeholder, scratch};
use crate::error::{CliError, Result};
use crate::local::{self, Pair, ring};
use crate::switch::SwitchOptions;
use crate::switch::interconnect::Interconnect;

/// Runs the program in `size` private hosts.
pub(crate) fn run(options: &Options, size: u32) -> Result {
    placeholder::check(&options.command)?;
    // Before any thread exists, since each takes over what is blocked.
    let signals = Signals::block()?;
    let hosts = Hosts::new(size, options.link_mtu, &options.switch)?;
    let mut run = Run {
        hosts: &hosts.hosts,
        ranks: Vec::new(),
        has_server: placeholder::has_server(&options.command, size),
    };
    let code = run.follow(signals)?;
    if code == 0 { Ok(()) } else { Err(CliError::Reported(code)) }
}

/// The private hosts and their network.
struct Hosts {
    /// Before the hosts: it ends first.
    _interconnect: Vec<Interconnect>,
    hosts: Vec<Host>,
}

impl Hosts {
    /// Creates the hosts, also as an ordinary user. No thread may exist yet. Two hosts have a cable,
    /// more have a bridge, unless there is a switch.
    fn new(size: u32, link_mtu: u32, switch: &SwitchOptions) -> Result<Self> {
        if size == 2 {
            let (hosts, interconnect) = Pair::new(link_mtu, switch)?.into_parts();
            return Ok(Self { hosts, _interconnect: interconnect.into_iter().collect() });
        }
        let (hosts, interconnect) = ring::Network::new(size, 1, link_mtu, switch)?.into_parts();
        Ok(Self { hosts, _interconnect: interconnect })
    }
}

/// What happens while the ranks run.
enum Event {
    /// A rank has ended and was not waited for.
    Ended(usize),
    /// A signal for this process.
    Signal(Received),
    /// The reader of this command's output has gone away.
    ReaderGone,
}

struct Run<'a> {
    hosts: &'a [Host],
    ranks: Vec<Rank>,
    /// Rank 0 is a server, on which the others wait.
    has_server: bool,
}

struct Rank {
    child: Child,
    /// The status, once the process was waited for.
    status: Option<ExitStatus>,
}

impl Run<'_> {
    /// Starts all ranks and waits for their ends. Returns the exit code.
    fn follow(&mut self, signals: Signals) -> Result<u8> {
        let (tell, news) = mpsc::channel();
        let of_signals = tell.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while let Ok(signal) = signals.next() {
                if of_signals.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        })?;
        let mut readers = Vec::new();
        readers.extend(self.start(0, &tell)?);
        if !self.has_server {
            self.start_others(&tell, &mut readers)?;
        }
        let (code, failure) = self.wait_for_all(&news, &tell, &mut readers)?;
        // A process that the program has left behind may hold the pipes: its output is not waited
        // for.
        let patience = Instant::now() + OUTPUT_TIMEOUT;
        while readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < patience {
            thread::sleep(POLL_INTERVAL);
        }
        // A process that was killed cannot remove its folder.
        let was_killed = |rank: &&Rank| rank.status.is_some_and(|end| end.signal().is_some());
        for rank in self.ranks.iter().filter(was_killed) {
            scratch::remove_of(rank.child.id());
        }
        if let Some(failure) = failure {
            eprintln!("roce: {failure}");
        }
        Ok(code)
    }

    fn start_others(&mut self, tell: &Sender<Event>, readers: &mut Vec<Reader>) -> Result {
        for rank in 1..self.hosts.len() {
            readers.extend(self.start(rank, tell)?);
        }
        Ok(())
    }

    /// Starts a rank, with threads that print its output and wait for its end.
    fn start(&mut self, rank: usize, tell: &Sender<Event>) -> Result<[Reader; 2]> {
        let mut command = local::myself_with(&["--local-rank", &rank.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let host = self.hosts.get(rank).ok_or_else(|| CliError::new("a rank without a host"))?;
        let mut child = host.spawn(command)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let of_stdout = tell.clone();
        let colour = io::stdout().is_terminal();
        let first = spawn_reader(move || {
            if !copy_lines(rank, stdout, &mut io::stdout(), colour) {
                let _ = of_stdout.send(Event::ReaderGone);
            }
        })?;
        let colour = io::stderr().is_terminal();
        let second = spawn_reader(move || {
            copy_lines(rank, stderr, &mut io::stderr(), colour);
        })?;
        let (tell, id) = (tell.clone(), pid_of(&child));
        spawn_reader(move || {
            // Does not reap it, so that its number stays its own until it was waited for.
            let _ = waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let _ = tell.send(Event::Ended(rank));
        })?;
        self.ranks.push(Rank { child, status: None });
        Ok([first, second])
    }

    /// Returns the exit code, and the failure if the user does not know of it.
    fn wait_for_all(
        &mut self,
        news: &Receiver<Event>,
        tell: &Sender<Event>,
        readers: &mut Vec<Reader>,
    ) -> Result<(u8, Option<Failure>)> {
        let mut failure: Option<Failure> = None;
        // A signal came from the user or a program: it explains how the ranks end.
        let mut is_interrupted = false;
        // When the ranks that are left are told to end, and then are killed.
        let mut deadline: Option<Instant> = None;
        let mut was_told = false;
        while self.ranks.iter().any(|rank| rank.status.is_none()) {
            let waits_for_server = self.has_server && self.ranks.len() < self.hosts.len();
            match news.recv_timeout(next_look(waits_for_server, deadline)) {
                Ok(Event::Ended(rank)) => {
                    let Some(ended) = self.ranks.get_mut(rank) else { continue };
                    let status = ended.child.wait()?;
                    ended.status = Some(status);
                    let code = child::code_of(status);
                    if code != 0 && !was_told {
                        failure.get_or_insert(Failure { rank, code, others: Others::Ended });
                    }
                    let started = self.ranks.len();
                    if waits_for_server {
                        if code == 0 && !is_interrupted {
                            eprintln!(
                                "roce: rank 0 ended before it listened on a TCP port, so the other \
                                 ranks were not started; if it is no server, write --local 1, or a \
                                 placeholder such as {{rank}} or {{peer}} in its arguments"
                            );
                        }
                        let others = Others::NotStarted;
                        let failure = failure.map(|failure| Failure { others, ..failure });
                        let code = failure.map_or(super::FAILED, |failure| failure.code);
                        return Ok((code, failure.filter(|_| !is_interrupted)));
                    }
                    let left: Vec<usize> = (0..started).filter(|&r| self.is_running(r)).collect();
                    let only_server = self.has_server && left == [0];
                    if (code != 0 || only_server) && deadline.is_none() {
                        deadline = Some(Instant::now() + END_TIMEOUT);
                    }
                }
                Ok(Event::Signal(Received::FromProcess(signal))) => {
                    is_interrupted = true;
                    self.signal_all(signal);
                }
                Ok(Event::Signal(Received::FromKernel)) => {
                    is_interrupted = true;
                    // Ctrl-C: all processes of the terminal have it.
                    deadline.get_or_insert(Instant::now() + END_TIMEOUT);
                }
                Ok(Event::Signal(Received::ChildChanged)) => {}
                Ok(Event::ReaderGone) => {
                    self.signal_all(Signal::SIGTERM);
                    was_told = true;
                    deadline = Some(Instant::now() + END_TIMEOUT);
                }
                Err(_) => {}
            }
            if waits_for_server && self.is_running(0) && self.server_listens() {
                self.start_others(tell, readers)?;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.signal_all(if was_told { Signal::SIGKILL } else { Signal::SIGTERM });
                if let Some(failure) = &mut failure {
                    failure.others = Others::Stopped;
                }
                was_told = true;
                deadline = Some(Instant::now() + END_TIMEOUT);
            }
        }
        let code = failure.map_or(0, |failure| failure.code);
        Ok((code, failure.filter(|_| !is_interrupted)))
    }

    fn is_running(&self, rank: usize) -> bool {
        self.ranks.get(rank).is_some_and(|rank| rank.status.is_none())
    }

    fn server_listens(&self) -> bool {
        self.ranks.first().is_some_and(|rank| roce_netns::is_listening(rank.child.id(), None))
    }

    /// Sends a signal to the ranks that run, which pass it on to their programs.
    fn signal_all(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.status.is_none()) {
            let _ = kill(pid_of(&rank.child), signal);
        }
    }
}

type Reader = thread::JoinHandle<()>;

fn spawn_reader(work: impl FnOnce() + Send + 'static) -> Result<Reader> {
    Ok(thread::Builder::new().spawn(work)?)
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap_or(i32::MAX))
}

/// Returns how long to wait for the next event.
fn next_look(waits_for_server: bool, deadline: Option<Instant>) -> Duration {
    match deadline {
        _ if waits_for_server => POLL_INTERVAL,
        Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        None => Duration::from_secs(3600),
    }
}

/// Copies lines with the number of their rank in front. Returns false if they have no reader.
fn copy_lines(rank: usize, from: Option<impl Read>, to: &mut impl Write, colour: bool) -> bool {
    let Some(from) = from else { return true };
    let prefix = prefix_of(rank, colour);
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if let Err(error) = to.write_all(&line).and_then(|()| to.flush()) {
            return error.kind() != io::ErrorKind::BrokenPipe;
        }
    }
}

/// Returns what stands before a rank's lines.
fn prefix_of(rank: usize, colour: bool) -> String {
    const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];
    match COLOURS.get(rank % COLOURS.len()).filter(|_| colour) {
        Some(code) => format!("\x1b[{code}m[{rank}]\x1b[0m "),
        None => format!("[{rank}] "),
    }
}

/// Time that the ranks have to end after the first failure or Ctrl-C, and again after they were told
/// to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Time between two looks whether the server listens.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time for output that arrives after the ends of all ranks.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);

/// Longest line in bytes that is kept in one piece.
const MAX_LINE: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_rank_in_front() {
        let mut out = Vec::new();
        assert!(copy_lines(1, Some(&b"one\n\ntwo"[..]), &mut out, false));
        assert_eq!(out, b"[1] one\n[1] \n[1] two\n");
        assert_eq!(prefix_of(0, true), "\x1b[36m[0]\x1b[0m ");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut out = Vec::new();
        let long = vec![b'x'; MAX_LINE as usize + 1];
        assert!(copy_lines(0, Some(long.as_slice()), &mut out, false));
        assert_eq!(out.len(), long.len() + 2 * "[0] \n".len());
    }
}
