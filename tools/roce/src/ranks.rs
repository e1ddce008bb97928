//! The processes of a run: their output, their ends, and the signals for those that stay.
//!
//! A [`Supervisor`] starts ranks in hosts and waits for their ends; a [`Policy`] decides what an end, a
//! line of output or a point in time means.
//!
//! A rank is a child of the standard library and no `roce_netns::process::Running`, which reads all output as
//! text and reaps its process itself: the bytes of a rank are copied as they are, a rank notices that nothing
//! takes them, and the supervisor of `roce run` reaps all its children.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::Host;

use crate::error::{CliError, Result};
use lines::copy_lines;

mod lines;

/// Decides how a run goes on.
pub(crate) trait Policy {
    /// What lines of ranks and other threads report.
    type News: Send + 'static;

    /// Handles news. Breaks if the run is over, whatever ranks are left.
    fn on_news(
        &mut self,
        ranks: &mut Supervisor<Self::News>,
        news: Self::News,
    ) -> Result<ControlFlow<()>>;

    /// Handles the end of a rank. Breaks as [`on_news`](Self::on_news) does.
    fn on_end(
        &mut self,
        ranks: &mut Supervisor<Self::News>,
        rank: usize,
        status: ExitStatus,
    ) -> ControlFlow<()>;

    /// Handles that output of a rank cannot be written, for another reason than a reader that has gone.
    fn on_lost_output(&mut self, _rank: usize, _error: &io::Error) {}

    /// Returns when [`on_time`](Self::on_time) has something to do.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn on_time(&mut self, _ranks: &mut Supervisor<Self::News>, _now: Instant) -> Result {
        Ok(())
    }

    /// Notes that ranks which stayed too long got a signal.
    fn on_overdue(&mut self) {}
}

/// What a rank writes.
pub(crate) struct Stream<R> {
    pub(crate) kind: StreamKind,
    pub(crate) from: R,
    /// What stands before each line.
    pub(crate) prefix: String,
}

/// What the end of a stream means, and of its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Standard output of the rank alone. Its end shows that of the rank; without a reader the run ends.
    Output,
    /// Standard output, also of descendants. Without a reader the run ends.
    SharedOutput,
    /// Standard error. If it cannot be written, the run goes on.
    Messages,
}

/// What happens while ranks run.
enum Event<N> {
    /// The output of a rank has ended, which shows its end.
    Closed(usize),
    /// Output of a rank cannot be written.
    CannotPrint(usize, io::Error),
    News(N),
}

/// The ranks of a run.
pub(crate) struct Supervisor<N> {
    ranks: Vec<Rank>,
    tell: Sender<Event<N>>,
    news: Receiver<Event<N>>,
    /// When the ranks that are left get a signal, and which.
    deadline: Option<(Instant, Signal)>,
    has_lost_reader: bool,
}

/// A process of a run.
#[derive(Debug)]
struct Rank {
    child: Child,
    /// The status, once the process was waited for.
    status: Option<ExitStatus>,
    /// The rank stayed too long and got a signal.
    was_overdue: bool,
}

impl<N: Send + 'static> Supervisor<N> {
    pub(crate) fn new() -> Self {
        let (tell, news) = mpsc::channel();
        Self { ranks: Vec::new(), tell, news, deadline: None, has_lost_reader: false }
    }

    /// Starts the next rank in a host.
    pub(crate) fn start(&mut self, host: &Host, command: Command) -> Result<&mut Child> {
        let child = host.spawn(command)?;
        self.ranks.push(Rank { child, status: None, was_overdue: false });
        self.ranks.last_mut().map(|rank| &mut rank.child).ok_or_else(|| CliError::new("no rank"))
    }

    /// Copies output of the latest rank to `to`, line by line. Lines that `told` makes news of are left
    /// out. The thread returns `to`.
    pub(crate) fn copy<W: Write + Send + 'static>(
        &mut self,
        stream: Stream<impl Read + Send + 'static>,
        mut to: W,
        told: impl Fn(&str) -> Option<N> + Send + 'static,
    ) -> Result<JoinHandle<W>> {
        let (rank, tell) = (self.ranks.len().saturating_sub(1), self.tell.clone());
        Ok(thread::Builder::new().spawn(move || {
            let is_told = |line: &str| {
                let news = told(line).map(|news| tell.send(Event::News(news)));
                news.is_some()
            };
            // The pipe closes here: a rank whose output nothing takes notices that.
            let copied = copy_lines(stream.from, &mut to, &stream.prefix, is_told);
            if let Err(error) = copied
                && stream.kind != StreamKind::Messages
            {
                let _ = tell.send(Event::CannotPrint(rank, error));
            }
            if stream.kind == StreamKind::Output {
                let _ = tell.send(Event::Closed(rank));
            }
            to
        })?)
    }

    /// Starts a thread that reports news. It ends with the first error of its channel.
    pub(crate) fn report(
        &self,
        name: &str,
        work: impl FnOnce(&dyn Fn(N) -> bool) + Send + 'static,
    ) -> Result {
        let tell = self.tell.clone();
        let report = move || work(&|news| tell.send(Event::News(news)).is_ok());
        thread::Builder::new().name(name.to_owned()).spawn(report)?;
        Ok(())
    }

    /// Waits for the ends of all ranks, or until the policy breaks.
    pub(crate) fn follow(&mut self, policy: &mut impl Policy<News = N>) -> Result {
        while self.ranks.iter().any(|rank| rank.status.is_none()) {
            let deadline = self.deadline.map(|(at, _)| at);
            let left = match [policy.wakes_at(), deadline].into_iter().flatten().min() {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            match self.news.recv_timeout(left) {
                Ok(Event::News(news)) => {
                    if policy.on_news(self, news)?.is_break() {
                        return Ok(());
                    }
                }
                Ok(Event::Closed(rank)) => {
                    if let Some(ended) = self.ranks.get_mut(rank) {
                        let status = ended.child.wait()?;
                        ended.status = Some(status);
                        if policy.on_end(self, rank, status).is_break() {
                            return Ok(());
                        }
                    }
                }
                Ok(Event::CannotPrint(_, error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.has_lost_reader = true;
                    self.stop();
                }
                Ok(Event::CannotPrint(rank, error)) => policy.on_lost_output(rank, &error),
                Err(_) => {}
            }
            let now = Instant::now();
            policy.on_time(self, now)?;
            if let Some((_, signal)) = self.deadline.filter(|(at, _)| now >= *at) {
                self.running_mut().for_each(|rank| rank.was_overdue = true);
                self.signal_all(signal);
                policy.on_overdue();
                self.deadline = Some((now + END_TIMEOUT, Signal::SIGKILL));
            }
        }
        Ok(())
    }

    /// Notes the end of the rank with this process, and returns its number.
    pub(crate) fn note_end(&mut self, process: u32, status: ExitStatus) -> Option<usize> {
        let is_it = |rank: &Rank| rank.child.id() == process && rank.status.is_none();
        let rank = self.ranks.iter().position(is_it)?;
        self.ranks.get_mut(rank)?.status = Some(status);
        Some(rank)
    }

    /// Returns true if the reader of this command's output has gone away.
    pub(crate) fn has_lost_reader(&self) -> bool {
        self.has_lost_reader
    }

    /// Returns the process of a rank that runs.
    pub(crate) fn process(&self, rank: usize) -> Option<u32> {
        self.ranks.get(rank).filter(|rank| rank.status.is_none()).map(|rank| rank.child.id())
    }

    /// Returns true if rank 0 runs, and no other.
    pub(crate) fn is_only_first(&self) -> bool {
        let mut ranks = self.ranks.iter().enumerate();
        ranks.all(|(number, rank)| rank.status.is_none() == (number == 0))
    }

    /// Returns the status of each rank that has ended, and whether it had stayed too long.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, ExitStatus, bool)> {
        let end = |(number, rank): (usize, &Rank)| Some((number, rank.status?, rank.was_overdue));
        self.ranks.iter().enumerate().filter_map(end)
    }

    /// Gives the ranks [`END_TIMEOUT`] to end by themselves, if that is not decided yet.
    pub(crate) fn stop_later(&mut self) {
        self.deadline.get_or_insert_with(|| (Instant::now() + END_TIMEOUT, Signal::SIGTERM));
    }

    /// Asks all ranks to end, and kills them later.
    pub(crate) fn stop(&mut self) {
        self.signal_all(Signal::SIGTERM);
        self.kill_later();
    }

    /// Lets the ranks be killed in a while, if that is not decided yet.
    pub(crate) fn kill_later(&mut self) {
        if self.deadline.is_none_or(|(_, signal)| signal != Signal::SIGKILL) {
            self.deadline = Some((Instant::now() + END_TIMEOUT, Signal::SIGKILL));
        }
    }

    /// Sends a signal to the ranks that run.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        for rank in self.running_mut() {
            // It was not waited for, so its number is still its own.
            let _ = kill(pid_of(&rank.child), signal);
        }
    }

    fn running_mut(&mut self) -> impl Iterator<Item = &mut Rank> {
        self.ranks.iter_mut().filter(|rank| rank.status.is_none())
    }
}

/// Returns the process of a child.
pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap_or(i32::MAX))
}

/// Time that ranks have to end by themselves after another one has ended, and again after a signal.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(3);
