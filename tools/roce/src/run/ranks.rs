//! `--local N`: the program in private hosts.
//!
//! The supervisor creates the hosts and starts this command again in each, as a rank. It prefixes the
//! lines of the ranks' output, passes signals on, and ends with the exit code of the first rank that
//! failed.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use roce_io::monotonic;
use roce_netns::Host;
use roce_verbs::FaultSentence;

use super::links::LinkFaults;
use super::server_wait::{self, ServerWait};
use super::stage::Stage;
use super::supervisor;
use crate::error::{CliError, Result};
use crate::local::{Pair, ring};
use crate::ranks::{Policy, Stream, StreamKind, Supervisor};
use crate::run::folder::plan;
use crate::run::folder::run_folder::RunFolder;
use crate::run::line::options::Options;
use crate::run::line::placeholder;
use crate::run::line::prefix::Prefix;
use crate::run::outcome::capture::{self, Capture, Patience};
use crate::run::outcome::exit_code::{FAILED, TIMED_OUT};
use crate::run::outcome::failure::{Failure, Others};
use crate::run::outcome::fault_log;
use crate::run::outcome::verdict;
use crate::run::processes::child;
use crate::run::processes::descendants;
use crate::run::processes::signals::{Received, Signals, Wake, ends_programs};
use crate::switch::interconnect::Interconnect;
use crate::traffic::LOCAL_INTERFACE;

/// Runs the program in private hosts, as the supervisor that the process `starter` has started for the run of a
/// folder.
pub(crate) fn run(folder: &Path, starter: u32) -> Result {
    let begin = Instant::now();
    supervisor::become_one(starter)?;
    let folder = RunFolder::adopt(folder)?;
    supervisor::tell_starter()?;
    let options: Options = plan::read(folder.path())?;
    let size = options.local.unwrap_or(1);
    // Before any thread exists, since each takes over what is blocked.
    let signals = Signals::block()?;
    let Hosts { hosts, interconnect } = Hosts::new(&options, size)?;
    let timeout = options.timeout.as_ref().map(|timeout| (begin + timeout.duration, timeout));
    let capture = match &options.pcap {
        Some(path) => {
            let file = capture::file_of(path, folder.path())?;
            let input = io::stdin();
            let patience = Patience { signals: &signals, starter: Some(input.as_fd()), timeout };
            Some(Capture::create(path, &file, &patience)?)
        }
        None => None,
    };
    let has_server = !options.torchrun && placeholder::has_server(&options.command, size);
    let began = monotonic();
    let links = LinkFaults::new(&options.faults, &interconnect, size, began, folder.path())?;
    let mut run = Run {
        options: &options,
        began,
        hosts: &hosts,
        folder: &folder,
        readers: Vec::new(),
        server: has_server.then(|| ServerWait::new(Instant::now(), size)),
        has_server,
        timeout: timeout.map(|(end, _)| end),
        failure: None,
        was_told: false,
        is_interrupted: false,
        code: None,
    };
    links.map_or(Ok(()), LinkFaults::start)?;
    let code = run.follow(signals, interconnect);
    descendants::kill_all();
    let _file = capture.and_then(Capture::end);
    let code = code?;
    let faults = fault_log::report(&options.faults, folder.path());
    let verdict = verdict::report(&options, size, began, folder.path());
    // The failure of the program is its own.
    if code == 0 { faults.and(verdict) } else { Err(CliError::Reported(code)) }
}

/// The private hosts and their network.
struct Hosts {
    hosts: Vec<Host>,
    interconnect: Vec<Interconnect>,
}

impl Hosts {
    /// Creates the hosts, also as an ordinary user. No thread may exist yet. Two hosts with one rail have a
    /// cable, others have a bridge for each rail, unless there is a switch. So have links that go down: their other
    /// ends are in no host.
    fn new(options: &Options, size: u32) -> Result<Self> {
        let Options { rails, link_mtu, switch, faults, .. } = options;
        let is_link = |sentence: &FaultSentence| matches!(sentence, FaultSentence::Links(_));
        let (hosts, interconnect) = match size {
            2 if !faults.script().iter().any(is_link) => {
                Pair::new(*link_mtu, *rails, switch)?.into_parts()
            }
            _ => ring::Network::new(size, *rails, *link_mtu, switch)?.into_parts(),
        };
        for host in &hosts {
            host.default_route(LOCAL_INTERFACE)?;
        }
        Ok(Self { hosts, interconnect })
    }
}

/// What happens beside the ranks.
enum News {
    /// A signal for this process.
    Signal(Received),
    /// The process that has started the supervisor was killed.
    StarterGone,
}

struct Run<'a> {
    options: &'a Options,
    /// When the run began, for the times of faults.
    began: Duration,
    hosts: &'a [Host],
    folder: &'a RunFolder,
    /// Threads that copy output.
    readers: Vec<thread::JoinHandle<Box<dyn Write + Send>>>,
    /// The wait of the other ranks for rank 0, while it lasts.
    server: Option<ServerWait>,
    /// Rank 0 is a server, on which the others wait.
    has_server: bool,
    /// When the time of the run is over.
    timeout: Option<Instant>,
    failure: Option<Failure>,
    /// The ranks were told to end, so that their exit codes mean nothing.
    was_told: bool,
    /// A signal came from the user or a program: it explains how the ranks end.
    is_interrupted: bool,
    /// The exit code, if it is not that of the first failure.
    code: Option<u8>,
}

impl Run<'_> {
    /// Starts all ranks and waits for their ends. Returns the exit code.
    fn follow(&mut self, signals: Signals, interconnect: Vec<Interconnect>) -> Result<u8> {
        let mut ranks = Supervisor::new();
        ranks.report("signals", move |report| {
            while let Ok(Wake::Signal(signal)) = signals.wait(None, None) {
                if !report(News::Signal(signal)) {
                    break;
                }
            }
        })?;
        ranks.report("starter", |report| {
            supervisor::wait_for_end_of_starter();
            report(News::StarterGone);
        })?;
        self.start(&mut ranks, 0)?;
        if !self.has_server {
            self.start_others(&mut ranks)?;
        }
        ranks.follow(self)?;
        // A switch is a process, too, and writes its report.
        drop(interconnect);
        // What the program has left behind holds the pipes.
        descendants::kill_all();
        let patience = Instant::now() + OUTPUT_TIMEOUT;
        while !self.readers.iter().all(thread::JoinHandle::is_finished) && Instant::now() < patience
        {
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(failure) = self.failure.filter(|_| !self.is_interrupted) {
            eprintln!("roce: {failure}");
        }
        Ok(self.code.or(self.failure.map(|failure| failure.code)).unwrap_or(0))
    }

    fn start_others(&mut self, ranks: &mut Supervisor<News>) -> Result {
        (1..self.hosts.len()).try_for_each(|rank| self.start(ranks, rank))
    }

    /// Starts a rank, with threads that print its output.
    fn start(&mut self, ranks: &mut Supervisor<News>, rank: usize) -> Result {
        let number = u32::try_from(rank).map_err(|_| CliError::new("too many ranks"))?;
        let began = u64::try_from(self.began.as_nanos()).unwrap_or(u64::MAX);
        let mut command = Stage::Rank { number, began }.command(self.folder.path());
        command.stdin(Stdio::null());
        if self.options.prefix == Prefix::Rank {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let host = self.hosts.get(rank).ok_or_else(|| CliError::new("a rank without a host"))?;
        let child = ranks.start(host, command)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        if let Some(from) = stdout {
            let prefix = Prefix::of(rank, io::stdout().is_terminal());
            let stream = Stream { kind: StreamKind::SharedOutput, from, prefix };
            self.readers.push(ranks.copy(stream, boxed(io::stdout()), |_| None)?);
        }
        if let Some(from) = stderr {
            let prefix = Prefix::of(rank, io::stderr().is_terminal());
            let stream = Stream { kind: StreamKind::Messages, from, prefix };
            self.readers.push(ranks.copy(stream, boxed(io::stderr()), |_| None)?);
        }
        Ok(())
    }

    /// Passes a signal on. One that ends programs gives them a limited time.
    fn on_signal(&mut self, ranks: &mut Supervisor<News>, received: Received) {
        self.is_interrupted = true;
        let signal = match received {
            Received::FromProcess(signal) => {
                ranks.signal_all(signal);
                signal
            }
            // Ctrl-C: all processes of the terminal have it.
            Received::FromKernel(signal) => signal,
            Received::ChildChanged => return,
        };
        if ends_programs(signal) {
            ranks.kill_later();
        }
    }

    /// Ends a run whose time is over.
    fn end_late_run(&mut self, ranks: &mut Supervisor<News>) {
        let time = self.options.timeout.as_ref().map(ToString::to_string).unwrap_or_default();
        let reason = if self.server.is_some() {
            "; rank 0 did not listen on a TCP port or by rdma_cm"
        } else {
            ""
        };
        eprintln!("roce: the run was stopped after {time} (--timeout){reason}");
        self.code = Some(TIMED_OUT);
        self.was_told = true;
        ranks.stop();
    }

    /// Waits for the children that have ended. Breaks if the run is over.
    fn reap(&mut self, ranks: &mut Supervisor<News>) -> ControlFlow<()> {
        while let Some((process, status)) = descendants::reap() {
            if let Some(rank) = ranks.note_end(process, status) {
                self.on_end(ranks, rank, status)?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl Policy for Run<'_> {
    type News = News;

    fn on_news(&mut self, ranks: &mut Supervisor<News>, news: News) -> Result<ControlFlow<()>> {
        match news {
            News::Signal(Received::ChildChanged) => return Ok(self.reap(ranks)),
            News::Signal(received) => self.on_signal(ranks, received),
            News::StarterGone => {
                self.is_interrupted = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_end(
        &mut self,
        ranks: &mut Supervisor<News>,
        rank: usize,
        status: ExitStatus,
    ) -> ControlFlow<()> {
        let code = child::code_of(status);
        self.was_told |= ranks.has_lost_reader();
        if code != 0 && !self.was_told {
            self.failure.get_or_insert(Failure { rank, code, others: Others::Ended });
        }
        if self.server.is_some() {
            let is_explained = code != 0 || self.is_interrupted || self.was_told;
            if !is_explained {
                eprintln!(
                    "roce: rank 0 ended before it listened on a TCP port or by rdma_cm, so the other \
                     ranks were not started; if it is no server, write --local 1, or a placeholder such as \
                     {{rank}} or {{peer}} in its arguments"
                );
            }
            match &mut self.failure {
                Some(failure) => failure.others = Others::NotStarted,
                None => self.code = self.code.or(Some(FAILED)),
            }
            return ControlFlow::Break(());
        }
        if code != 0 || (self.has_server && ranks.is_only_first()) {
            ranks.stop_later();
        }
        ControlFlow::Continue(())
    }

    fn wakes_at(&self) -> Option<Instant> {
        let look = self.server.as_ref().map(ServerWait::next_look);
        [look, self.timeout].into_iter().flatten().min()
    }

    fn on_time(&mut self, ranks: &mut Supervisor<News>, now: Instant) -> Result {
        if self.timeout.is_some_and(|timeout| now >= timeout) {
            self.timeout = None;
            self.end_late_run(ranks);
        }
        if let Some(server) = self.server.as_mut().filter(|server| now >= server.next_look()) {
            let process = ranks.process(0);
            if process.is_some_and(server_wait::is_listening) {
                self.server = None;
                self.start_others(ranks)?;
            } else {
                server.looked(now);
            }
        }
        Ok(())
    }

    fn on_overdue(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.others = Others::Stopped;
        }
        self.was_told |= !self.is_interrupted;
    }
}

fn boxed(output: impl Write + Send + 'static) -> Box<dyn Write + Send> {
    Box::new(output)
}

/// Time for output that arrives after the ends of all ranks.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
