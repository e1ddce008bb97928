//! The ranks of a ring, running: programs of two kinds in several places.

use std::process::Command;
use std::time::{Duration, Instant};

use roce_guest::GuestProcess;
use roce_netns::process::{Launch, Running, Signal};

use super::job::Job;
use super::world::{INTERFACE, PROGRAM, RingWorld, host_address};
use crate::Fault;
use crate::world::program;

/// What a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `roce allreduce` in a host of ours.
    Ours,
    /// `ring_allreduce` on rxe in a guest.
    Rxe,
}

impl Kind {
    /// Its word in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Rxe => "rxe",
        }
    }
}

/// Ranks that were started together. Dropping it kills those that still run.
#[derive(Debug)]
pub struct Ranks(Vec<Rank>);

/// A rank that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Which.
    pub rank: usize,
    /// What it was.
    pub kind: Kind,
    /// Its exit status; `None` where a signal ended it.
    pub status: Option<i32>,
    /// All it wrote on standard output.
    pub stdout: String,
    /// All it wrote on standard error.
    pub stderr: String,
    /// How long after the call that waited for it.
    pub after: Duration,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, kind, status, stderr, .. } = self;
        match status {
            Some(status) => write!(f, "rank {rank} ({}) ended with {status}", kind.name())?,
            None => write!(f, "rank {rank} ({}) was killed", kind.name())?,
        }
        write!(f, ": {}", stderr.trim_end())
    }
}

#[derive(Debug)]
enum Rank {
    Rxe(GuestProcess),
    Ours(Running),
}

impl Ranks {
    /// Starts one rank for each of `kinds`, the first of which is ours: it has the bootstrap
    /// server. Those of a kind sit in different places. `job` says what each rank is told to do.
    ///
    /// # Errors
    /// When a program is missing, or a guest gone.
    pub fn start(
        world: &RingWorld,
        kinds: &[Kind],
        job: impl Fn(usize) -> Job,
    ) -> Result<Self, Fault> {
        let root = host_address(0);
        let (mut hosts, mut guests) = (0.., 0..);
        let mut ranks = Self(Vec::new());
        for (rank, kind) in kinds.iter().enumerate() {
            let (job, size) = (job(rank), kinds.len());
            ranks.0.push(match kind {
                Kind::Rxe => {
                    let guest = world.guest(guests.next().unwrap_or_default());
                    Rank::Rxe(guest.spawn(&format!(
                        "exec {PROGRAM} --rank {rank} --size {size} --root {root}:{PORT} {}",
                        job.theirs()
                    ))?)
                }
                Kind::Ours => {
                    let mut command = Command::new(program("roce")?);
                    command.arg("allreduce").args(job.ours()).env("NCCL_IB_HCA", INTERFACE);
                    command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
                    command.env("MASTER_ADDR", &root).env("MASTER_PORT", PORT.to_string());
                    command.env("LOCAL_RANK", "0").envs(job.environment());
                    let host = world.host(hosts.next().unwrap_or_default());
                    let started = Launch::from(command).grace(Duration::ZERO).start_in(host);
                    Rank::Ours(started.map_err(Fault::ours("start roce allreduce"))?)
                }
            });
        }
        Ok(ranks)
    }

    /// Kills a rank with SIGKILL.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn kill(&mut self, rank: usize) -> Result<(), Fault> {
        match &mut self.0[rank] {
            Rank::Rxe(process) => Ok(process.kill(9)?),
            Rank::Ours(running) => {
                running.signal(Signal::SIGKILL);
                Ok(())
            }
        }
    }

    /// Waits until all have ended.
    ///
    /// # Errors
    /// When one has not within `limit`; it names that and what the others said.
    pub fn wait(mut self, limit: Duration) -> Result<Vec<Ended>, Fault> {
        let start = Instant::now();
        let mut ended: Vec<Ended> = Vec::new();
        let mut waiting: Vec<_> = self.0.drain(..).enumerate().collect();
        while !waiting.is_empty() {
            let mut still = Vec::new();
            for (rank, process) in waiting {
                match process.try_end(rank, start)? {
                    Ok(end) => ended.push(end),
                    Err(process) => still.push((rank, process)),
                }
            }
            waiting = still;
            if !waiting.is_empty() && start.elapsed() > limit {
                let late: Vec<_> = waiting.iter().map(|(rank, _)| rank.to_string()).collect();
                self.0.extend(waiting.into_iter().map(|(_, process)| process));
                let rest: String = ended.iter().map(|end| format!("; {end}")).collect();
                let late = late.join(" and ");
                return Err(Fault::Wrong(format!("rank {late} not done within {limit:?}{rest}")));
            }
            std::thread::sleep(STEP);
        }
        ended.sort_by_key(|end| end.rank);
        Ok(ended)
    }
}

impl Rank {
    /// How it ended, or itself when it has not.
    fn try_end(self, rank: usize, start: Instant) -> Result<Result<Ended, Self>, Fault> {
        let after = start.elapsed();
        match self {
            Self::Rxe(mut process) => {
                let Some(output) = process.try_wait()? else { return Ok(Err(Self::Rxe(process))) };
                let (stdout, stderr) = (output.stdout, output.stderr);
                let status = output.status.code();
                Ok(Ok(Ended { rank, kind: Kind::Rxe, status, stdout, stderr, after }))
            }
            Self::Ours(running) => {
                if !running.has_ended() {
                    return Ok(Err(Self::Ours(running)));
                }
                let waited = running.wait(READ_LIMIT);
                let output = waited.map_err(Fault::ours("wait for roce allreduce"))?;
                let (stdout, stderr) = (output.stdout, output.stderr);
                let status = output.status.code();
                Ok(Ok(Ended { rank, kind: Kind::Ours, status, stdout, stderr, after }))
            }
        }
    }
}

/// Where rank 0 listens: what torchrun would choose.
const PORT: u16 = 29500;

/// Time to read what a rank that has ended wrote.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// How often ended ranks are looked for.
const STEP: Duration = Duration::from_millis(5);
