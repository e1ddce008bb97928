//! `--local N`: the program in private hosts.
//!
//! The supervisor creates the hosts and starts this command again in each, as a rank. It prefixes the
//! lines of the ranks' output, passes signals on, and ends with the exit code of the first rank that
//! failed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use roce_netns::Host;

use super::child::{self, pid_of};
use super::failure::{Failure, Others};
use super::output::{Prefix, copy_lines};
use super::rdma_cm_watch::{self, RdmaCmWatch};
use super::run_folder::RunFolder;
use super::server_wait::ServerWait;
use super::signals::{Received, Signals};
use super::{END_TIMEOUT, Options, descendants, placeholder, supervisor};
use crate::error::{CliError, Result};
use crate::local::{self, Pair, ring};
use crate::switch::SwitchOptions;
use crate::switch::interconnect::Interconnect;

/// Runs the program in `size` private hosts, as the supervisor that the process `starter` has started.
pub(crate) fn run(options: &Options, size: u32, starter: u32) -> Result {
    let begin = Instant::now();
    supervisor::become_one(starter)?;
    // Before any thread exists, since each takes over what is blocked.
    let signals = Signals::block()?;
    options.faults.check_ranks(Some(size))?;
    if let Some(file) = &options.pcap {
        super::create_capture(file)?;
    }
    let Hosts { hosts, interconnect } = Hosts::new(size, options.link_mtu, &options.switch)?;
    let folder = RunFolder::new()?;
    let fault_log = super::fault_log(folder.path());
    File::create_new(&fault_log)?;
    let watch = RdmaCmWatch::new(folder.path());
    let has_server = placeholder::has_server(&options.command, size);
    let run = Run {
        options,
        hosts: &hosts,
        folder: &folder,
        ranks: Vec::new(),
        readers: Vec::new(),
        server: has_server.then(|| ServerWait::new(Instant::now(), size)),
        has_server,
        timeout: options.timeout.as_ref().map(|timeout| begin + timeout.duration),
        deadline: None,
        failure: None,
        was_told: false,
        is_interrupted: false,
        code: None,
    };
    let code = run.follow(signals, watch.as_ref(), interconnect);
    descendants::kill_all();
    let code = code?;
    let faults = options.report_faults(&fault_log);
    // The failure of the program is its own.
    if code == 0 { faults } else { Err(CliError::Reported(code)) }
}

/// The private hosts and their network.
struct Hosts {
    hosts: Vec<Host>,
    interconnect: Vec<Interconnect>,
}

impl Hosts {
    /// Creates the hosts, also as an ordinary user. No thread may exist yet. Two hosts have a cable,
    /// more have a bridge, unless there is a switch.
    fn new(size: u32, link_mtu: u32, switch: &SwitchOptions) -> Result<Self> {
        if size == 2 {
            let (hosts, interconnect) = Pair::new(link_mtu, switch)?.into_parts();
            return Ok(Self { hosts, interconnect: interconnect.into_iter().collect() });
        }
        let (hosts, interconnect) = ring::Network::new(size, 1, link_mtu, switch)?.into_parts();
        Ok(Self { hosts, interconnect })
    }
}

/// What happens while the ranks run.
enum Event {
    /// A signal for this process.
    Signal(Received),
    /// The reader of this command's output has gone away.
    ReaderGone,
    /// The process that has started the supervisor was killed.
    StarterGone,
}

struct Run<'a> {
    options: &'a Options,
    hosts: &'a [Host],
    folder: &'a RunFolder,
    ranks: Vec<Rank>,
    readers: Vec<thread::JoinHandle<()>>,
    /// The wait of the other ranks for rank 0, while it lasts.
    server: Option<ServerWait>,
    /// Rank 0 is a server, on which the others wait.
    has_server: bool,
    /// When the time of the run is over.
    timeout: Option<Instant>,
    /// When the ranks that are left get a signal, and which.
    deadline: Option<(Instant, Signal)>,
    failure: Option<Failure>,
    /// The ranks were told to end, so that their exit codes mean nothing.
    was_told: bool,
    /// A signal came from the user or a program: it explains how the ranks end.
    is_interrupted: bool,
    /// The exit code, if it is not that of the first failure.
    code: Option<u8>,
}

struct Rank {
    child: Child,
    /// The status, once the process was waited for.
    status: Option<ExitStatus>,
}

impl Run<'_> {
    /// Starts all ranks and waits for their ends. Returns the exit code.
    fn follow(
        mut self,
        signals: Signals,
        watch: Option<&RdmaCmWatch>,
        interconnect: Vec<Interconnect>,
    ) -> Result<u8> {
        let (tell, news) = mpsc::channel();
        let of_signals = tell.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while let Ok(Some(signal)) = signals.next_until(None) {
                if of_signals.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        })?;
        let of_starter = tell.clone();
        thread::Builder::new().name("starter".to_owned()).spawn(move || {
            supervisor::wait_for_end_of_starter();
            let _ = of_starter.send(Event::StarterGone);
        })?;
        self.start(0, &tell)?;
        if !self.has_server {
            self.start_others(&tell)?;
        }
        self.wait_for_all(&news, &tell)?;
        // A switch is a process, too, and writes its report.
        drop(interconnect);
        // What the program has left behind holds the pipes.
        descendants::kill_all();
        let patience = Instant::now() + OUTPUT_TIMEOUT;
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        let failure = self.failure.filter(|_| !self.is_interrupted);
        if let Some(failure) = failure {
            eprintln!("roce: {failure}");
            if watch.is_some_and(RdmaCmWatch::was_opened) {
                rdma_cm_watch::print_hint();
            }
        }
        Ok(self.code.or(self.failure.map(|failure| failure.code)).unwrap_or(0))
    }

    fn start_others(&mut self, tell: &Sender<Event>) -> Result {
        (1..self.hosts.len()).try_for_each(|rank| self.start(rank, tell))
    }

    /// Starts a rank, with threads that print its output.
    fn start(&mut self, rank: usize, tell: &Sender<Event>) -> Result {
        let number = rank.to_string();
        let more = ["--local-rank", &number, "--run-folder"].map(OsStr::new);
        let folder = self.folder.path().as_os_str();
        let mut command = local::myself_with(&[&more[..], &[folder]].concat());
        command.stdin(Stdio::null());
        if self.options.prefix == Prefix::Rank {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let host = self.hosts.get(rank).ok_or_else(|| CliError::new("a rank without a host"))?;
        let mut child = host.spawn(command)?;
        if let Some(stdout) = child.stdout.take() {
            let (tell, colour) = (tell.clone(), io::stdout().is_terminal());
            self.spawn_reader(move || {
                if !copy_lines(rank, Some(stdout), &mut io::stdout(), colour) {
                    let _ = tell.send(Event::ReaderGone);
                }
            })?;
        }
        if let Some(stderr) = child.stderr.take() {
            let colour = io::stderr().is_terminal();
            self.spawn_reader(move || {
                copy_lines(rank, Some(stderr), &mut io::stderr(), colour);
            })?;
        }
        self.ranks.push(Rank { child, status: None });
        Ok(())
    }

    fn spawn_reader(&mut self, work: impl FnOnce() + Send + 'static) -> Result {
        self.readers.push(thread::Builder::new().spawn(work)?);
        Ok(())
    }

    fn wait_for_all(&mut self, news: &Receiver<Event>, tell: &Sender<Event>) -> Result {
        while self.ranks.iter().any(|rank| rank.status.is_none()) {
            let look = self.server.as_ref().map(ServerWait::next_look);
            let wake =
                [look, self.timeout, self.deadline.map(|(at, _)| at)].into_iter().flatten().min();
            let left =
                wake.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match news.recv_timeout(left) {
                Ok(Event::Signal(Received::ChildChanged)) => {
                    if self.reap().is_break() {
                        return Ok(());
                    }
                }
                Ok(Event::Signal(received)) => self.on_signal(received),
                Ok(Event::ReaderGone) => {
                    self.was_told = true;
                    self.signal_all(Signal::SIGTERM);
                    self.kill_later();
                }
                Ok(Event::StarterGone) => {
                    self.is_interrupted = true;
                    return Ok(());
                }
                Err(_) => {}
            }
            self.on_time(tell)?;
        }
        Ok(())
    }

    /// Passes a signal on. One that ends programs gives them a limited time.
    fn on_signal(&mut self, received: Received) {
        use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        self.is_interrupted = true;
        let signal = match received {
            Received::FromProcess(signal) => {
                self.signal_all(signal);
                signal
            }
            // Ctrl-C: all processes of the terminal have it.
            Received::FromKernel(signal) => signal,
            Received::ChildChanged => return,
        };
        if matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) {
            self.kill_later();
        }
    }

    /// Does what is due.
    fn on_time(&mut self, tell: &Sender<Event>) -> Result {
        let now = Instant::now();
        if self.timeout.is_some_and(|timeout| now >= timeout) {
            self.timeout = None;
            self.end_late_run();
        }
        if let Some(server) = self.server.as_mut().filter(|server| now >= server.next_look()) {
            let process = self.ranks.first().filter(|rank| rank.status.is_none());
            if process.is_some_and(|rank| roce_netns::is_listening(rank.child.id(), None)) {
                self.server = None;
                self.start_others(tell)?;
            } else {
                server.looked(now);
            }
        }
        if let Some((_, signal)) = self.deadline.filter(|(at, _)| now >= *at) {
            self.signal_all(signal);
            if let Some(failure) = &mut self.failure {
                failure.others = Others::Stopped;
            }
            self.was_told |= !self.is_interrupted;
            self.deadline = Some((now + END_TIMEOUT, Signal::SIGKILL));
        }
        Ok(())
    }

    /// Ends a run whose time is over.
    fn end_late_run(&mut self) {
        let time = self.options.timeout.as_ref().map(ToString::to_string).unwrap_or_default();
        let reason =
            if self.server.is_some() { "; rank 0 did not listen on a TCP port" } else { "" };
        eprintln!("roce: the run was stopped after {time} (--timeout){reason}");
        self.code = Some(super::TIMED_OUT);
        self.was_told = true;
        self.signal_all(Signal::SIGTERM);
        self.kill_later();
    }

    /// Waits for the children that have ended. Breaks if the run is over.
    fn reap(&mut self) -> ControlFlow<()> {
        while let Some((process, status)) = descendants::reap() {
            let is_it = |rank: &Rank| rank.child.id() == process && rank.status.is_none();
            if let Some(rank) = self.ranks.iter().position(is_it) {
                self.on_end(rank, status)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Notes the end of a rank. Breaks if the others will not be started.
    fn on_end(&mut self, rank: usize, status: ExitStatus) -> ControlFlow<()> {
        if let Some(ended) = self.ranks.get_mut(rank) {
            ended.status = Some(status);
        }
        let code = child::code_of(status);
        if code != 0 && !self.was_told {
            self.failure.get_or_insert(Failure { rank, code, others: Others::Ended });
        }
        if self.server.is_some() {
            let is_explained = code != 0 || self.is_interrupted || self.was_told;
            if !is_explained {
                eprintln!(
                    "roce: rank 0 ended before it listened on a TCP port, so the other ranks were \
                     not started; if it is no server, write --local 1, or a placeholder such as \
                     {{rank}} or {{peer}} in its arguments"
                );
            }
            match &mut self.failure {
                Some(failure) => failure.others = Others::NotStarted,
                None => self.code = self.code.or(Some(super::FAILED)),
            }
            return ControlFlow::Break(());
        }
        let is_running = |rank: &Rank| rank.status.is_none();
        let only_server = self.has_server
            && self
                .ranks
                .iter()
                .enumerate()
                .all(|(number, rank)| is_running(rank) == (number == 0));
        if (code != 0 || only_server) && self.deadline.is_none() {
            self.deadline = Some((Instant::now() + END_TIMEOUT, Signal::SIGTERM));
        }
        ControlFlow::Continue(())
    }

    /// Lets the ranks be killed in a while, if that is not decided yet.
    fn kill_later(&mut self) {
        if self.deadline.is_none_or(|(_, signal)| signal != Signal::SIGKILL) {
            self.deadline = Some((Instant::now() + END_TIMEOUT, Signal::SIGKILL));
        }
    }

    /// Sends a signal to the ranks that run, which pass it on to their programs.
    fn signal_all(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.status.is_none()) {
            let _ = kill(pid_of(&rank.child), signal);
        }
    }
}

/// Time for output that arrives after the ends of all ranks.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
