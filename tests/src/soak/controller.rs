//! Starts the processes, kills them, and judges what they report.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_netns::Host;
use roce_netns::process::{Launch, Output, Running, Signal};

use super::Result;
use super::options::{Options, SLACK, derived_seed};
use super::report::{PairState, Report};
use super::trend::Trend;
use crate::fixtures::Cable;

/// Result of a soak.
#[derive(Debug)]
pub struct Summary {
    /// The random seed; the same seed repeats faults, requests and kills, though not their times.
    pub seed: u64,
    kills: u64,
    totals: PairState,
    /// Violations.
    pub violations: Vec<String>,
}

/// Runs the soak with `program` in the other roles; `say` hears a line every ten seconds, and each
/// violation at once.
///
/// # Errors
/// The network cannot be made or a program cannot be started.
pub fn run(options: &Options, program: &Path, say: &mut dyn FnMut(&str)) -> Result<Summary> {
    let seed = options.seed.unwrap_or_else(rand::random);
    say(&format!("seed {seed}"));
    let cable = Cable::with_mtu(MTU);
    let mut soak = Soak::start(options, seed, program, [cable.left.clone(), cable.right.clone()])?;
    say(&format!("survivors use {}", soak.backends.join(" and ")));
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let mut line_due = Instant::now() + LINE_EVERY;
    let mut told = 0;
    while Instant::now() < end && soak.violations.len() < MAX_VIOLATIONS {
        soak.take_reports(Duration::from_millis(20));
        soak.kill_and_restart()?;
        for violation in &soak.violations[told..] {
            say(&format!("violation: {violation}"));
        }
        told = soak.violations.len();
        if Instant::now() >= line_due {
            line_due += LINE_EVERY;
            say(&soak.in_words());
        }
    }
    say(&soak.in_words());
    Ok(soak.finish())
}

struct Soak {
    options: Options,
    seed: u64,
    started: Instant,
    random: StdRng,
    program: PathBuf,
    hosts: [Host; 2],
    survivors: [Survivor; 2],
    /// The back ends of the survivors' devices.
    backends: Vec<String>,
    pairs: Vec<Pair>,
    /// Peers that were killed and have not ended yet.
    dying: Vec<Running>,
    reports: Receiver<Heard>,
    tell: Sender<Heard>,
    processes: u64,
    kills: u64,
    violations: Vec<String>,
}

/// A line of a process: a report of survivor `.0`, or an error.
enum Heard {
    Report(usize, Report),
    Complaint(String),
}

struct Survivor {
    process: Running,
    trend: Trend,
    heard: Instant,
    is_closed: bool,
}

struct Pair {
    state: PairState,
    peer: Peer,
    killed: Option<Instant>,
    /// When the peer is to be killed, or started again.
    due: Instant,
}

enum Peer {
    Alive { process: Running, started: Instant, connections_before: u64 },
    Dead,
}

impl Soak {
    fn start(options: &Options, seed: u64, program: &Path, hosts: [Host; 2]) -> Result<Self> {
        let (tell, reports) = mpsc::channel();
        let now = Instant::now();
        let mut processes = 0;
        let mut survivor = |which: usize| -> Result<Survivor> {
            let pairs: Vec<String> = (0..options.pairs)
                .filter(|pair| survivor_of(*pair) == which)
                .map(|pair| pair.to_string())
                .collect();
            processes += 1;
            let seed = derived_seed(seed, processes);
            let launch = role(program, "survivor", &pairs.join(","), which, seed).with_stdin();
            let launch = launch.stdout(reports_to(&tell, which));
            let process = start(&hosts[which], launch, &format!("survivor {which}"), &tell)?;
            Ok(Survivor { process, trend: Trend::default(), heard: now, is_closed: false })
        };
        let survivors = [survivor(0)?, survivor(1)?];
        let mut backends = Vec::new();
        for _ in &survivors {
            match reports.recv_timeout(SILENCE) {
                Ok(Heard::Report(_, Report::Ready { backend })) => backends.push(backend),
                Ok(Heard::Complaint(text)) => return Err(text.into()),
                _ => return Err("a survivor did not get ready".into()),
            }
        }
        let period = Duration::from_secs_f64(options.kill_every);
        let pairs = (0..options.pairs).map(|pair| Pair {
            state: PairState { pair, ..PairState::default() },
            peer: Peer::Dead,
            killed: None,
            // Spread over the time from one kill to the next.
            due: now + period.mul_f64(f64::from(pair) / f64::from(options.pairs) * 0.5),
        });
        Ok(Self {
            pairs: pairs.collect(),
            dying: Vec::new(),
            options: options.clone(),
            seed,
            started: now,
            random: StdRng::seed_from_u64(seed),
            program: program.to_owned(),
            hosts,
            survivors,
            backends,
            reports,
            tell,
            processes,
            kills: 0,
            violations: Vec::new(),
        })
    }

    /// Handles reports of the processes; waits at most this long.
    fn take_reports(&mut self, wait: Duration) {
        let deadline = Instant::now() + wait;
        loop {
            match self.reports.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Heard::Report(which, report)) => self.take(which, report),
                Ok(Heard::Complaint(text)) => {
                    let at = self.started.elapsed();
                    let starved = self.starved();
                    self.violations.push(format!("{text} (at {at:.1?}; {starved})"));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let silent = self.survivors.iter_mut().enumerate();
        for (which, survivor) in silent.filter(|(_, it)| it.heard.elapsed() > SILENCE) {
            let text = format!("survivor {which} has reported nothing for {SILENCE:?}");
            self.violations.push(text);
            survivor.heard = Instant::now();
        }
    }

    fn take(&mut self, which: usize, report: Report) {
        let survivor = &mut self.survivors[which];
        survivor.heard = Instant::now();
        match report {
            Report::Ready { .. } => {}
            Report::Violation(text) => {
                let at = self.started.elapsed();
                let kills = self.pairs.iter().map(|pair| match &pair.killed {
                    Some(killed) => format!("{:.1}", killed.elapsed().as_secs_f64()),
                    None => "-".to_owned(),
                });
                let kills = kills.collect::<Vec<_>>().join(" ");
                self.violations.push(format!(
                    "{text} (at {at:.1?}; seconds since the last kill of each pair: {kills})"
                ));
            }
            Report::State { pairs, resources } => {
                survivor.trend.add(resources);
                for state in pairs {
                    if let Some(pair) = self.pairs.get_mut(state.pair as usize) {
                        pair.state = state;
                    }
                }
            }
            Report::Closed { before, after } => {
                survivor.is_closed = true;
                if after.descriptors > before.descriptors || after.threads > before.threads {
                    let text = format!(
                        "survivor {which} had {before:?} before it opened its device and {after:?} \
                         after it had closed it"
                    );
                    self.violations.push(text);
                }
            }
        }
    }

    /// Kills peers and starts them again, each when its time has come.
    fn kill_and_restart(&mut self) -> Result<()> {
        let period = Duration::from_secs_f64(self.options.kill_every);
        for index in 0..self.pairs.len() {
            let now = Instant::now();
            if now < self.pairs[index].due {
                continue;
            }
            let state = self.pairs[index].state;
            match &mut self.pairs[index].peer {
                Peer::Dead => {
                    let process = self.start_peer(index)?;
                    let connections_before = state.connections;
                    let pair = &mut self.pairs[index];
                    pair.peer = Peer::Alive { process, started: now, connections_before };
                    pair.due = now + period.mul_f64(0.85);
                }
                Peer::Alive { process, started, connections_before } => {
                    if let Some(status) = process.exit_status() {
                        self.violations.push(format!("the peer of pair {index} ended: {status}"));
                    } else if state.connections == *connections_before || state.operations_now == 0
                    {
                        // Not connected yet, which must not last.
                        if started.elapsed() < CONNECT_BOUND {
                            continue;
                        }
                        let text = format!(
                            "pair {index} was not connected again within {CONNECT_BOUND:?}: {state:?}"
                        );
                        self.violations.push(text);
                    }
                    self.kills += 1;
                    self.kill(index);
                    // Some come back while requests to the dead one are still sent again.
                    let pause = period.mul_f64(self.random.random_range(0.0..0.3));
                    self.pairs[index].due = now + pause;
                }
            }
        }
        Ok(())
    }

    /// Kills a peer, and does not wait for its end: on a busy machine that takes a while, in which
    /// others are to be killed.
    fn kill(&mut self, index: usize) {
        self.dying.retain(|it| !it.has_ended());
        let peer = std::mem::replace(&mut self.pairs[index].peer, Peer::Dead);
        if let Peer::Alive { process, .. } = peer {
            process.signal(Signal::SIGKILL);
            self.dying.push(process);
            self.pairs[index].killed = Some(Instant::now());
        }
    }

    fn start_peer(&mut self, index: usize) -> Result<Running> {
        self.processes += 1;
        let which = survivor_of(index as u32);
        let seed = derived_seed(self.seed, self.processes);
        let launch = role(&self.program, "peer", &index.to_string(), which, seed);
        let launch = launch.stdout(Output::Discard);
        start(&self.hosts[1 - which], launch, &format!("peer of pair {index}"), &self.tell)
    }

    /// Kills all peers, lets the survivors close everything, and judges.
    fn finish(mut self) -> Summary {
        (0..self.pairs.len()).for_each(|index| self.kill(index));
        for survivor in &mut self.survivors {
            // Its end asks the survivor to end.
            survivor.process.close_stdin();
        }
        let deadline = Instant::now() + SILENCE;
        while Instant::now() < deadline && !self.survivors.iter().all(|it| it.is_closed) {
            self.take_reports(Duration::from_millis(50));
        }
        for (which, survivor) in self.survivors.iter().enumerate() {
            if !survivor.is_closed {
                self.violations.push(format!("survivor {which} did not end within {SILENCE:?}"));
            }
            let pairs = (0..self.options.pairs).filter(|pair| survivor_of(*pair) == which);
            let grown = survivor.trend.growth(pairs.count() as u64);
            self.violations.extend(grown.iter().map(|it| format!("survivor {which}: {it}")));
        }
        Summary {
            seed: self.seed,
            kills: self.kills,
            totals: self.totals(),
            violations: self.violations,
        }
    }

    /// Returns how long the survivors' threads have waited for a processor at most, and when.
    fn starved(&self) -> String {
        let each = self.pairs.iter().map(|pair| {
            let PairState { starved, starved_at, .. } = pair.state;
            format!("{:.0} at {starved_at}", starved as f64 / 1000.0)
        });
        let each = each.collect::<Vec<_>>().join(", ");
        format!("longest waits of survivors for a processor, in ms and at second: {each}")
    }

    fn totals(&self) -> PairState {
        let mut sum = PairState::default();
        for PairState { connections, operations, bytes, failed, longest, .. } in
            self.pairs.iter().map(|pair| pair.state)
        {
            sum.connections += connections;
            sum.operations += operations;
            sum.bytes += bytes;
            sum.failed += failed;
            sum.longest = sum.longest.max(longest);
        }
        sum
    }

    fn in_words(&self) -> String {
        let totals = self.totals();
        let each = self.survivors.iter().map(|survivor| {
            let held = survivor.trend.latest();
            format!(
                "{} KiB, {} fds, {} threads, {} maps",
                held.resident, held.descriptors, held.threads, held.maps
            )
        });
        format!(
            "{:5.0} s: {} kills, {} connections, {} operations, {} MiB, {} failed with a dead peer, \
             longest {:.0} ms; survivors hold {}; {} violations",
            self.started.elapsed().as_secs_f64(),
            self.kills,
            totals.connections,
            totals.operations,
            totals.bytes >> 20,
            totals.failed,
            totals.longest as f64 / 1000.0,
            each.collect::<Vec<_>>().join(" | "),
            self.violations.len(),
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "violation: {violation}")?;
        }
        write!(
            f,
            "{}: {} kills, {} connections, {} operations, {} violations; seed {}",
            if self.violations.is_empty() { "passed" } else { "FAILED" },
            self.kills,
            self.totals.connections,
            self.totals.operations,
            self.violations.len(),
            self.seed
        )
    }
}

/// Pairs take turns, so that both hosts have processes of both kinds.
fn survivor_of(pair: u32) -> usize {
    pair as usize % 2
}

/// Returns the launch of a process that ends with the controller.
fn role(program: &Path, name: &str, pairs: &str, survivor: usize, seed: u64) -> Launch {
    let address = SocketAddr::from(([10, 1, 0, 1 + survivor as u8], PORT));
    let launch = Launch::new(program).args([name, "--pairs", pairs]);
    let launch = launch.args(["--address", &address.to_string(), "--seed", &seed.to_string()]);
    launch.end_with_parent().grace(Duration::ZERO)
}

/// Returns the output of a survivor, whose lines are reports.
fn reports_to(tell: &Sender<Heard>, which: usize) -> Output {
    let tell = tell.clone();
    Output::each_line(move |line| {
        let report = serde_json::from_str(line);
        let heard = report.map_or_else(
            |_| Heard::Complaint(format!("survivor {which} said {line}")),
            |report| Heard::Report(which, report),
        );
        // The listener is gone only at the end.
        let _ = tell.send(heard);
    })
}

/// Starts a process whose lines on standard error are complaints.
fn start(host: &Host, launch: Launch, name: &str, tell: &Sender<Heard>) -> Result<Running> {
    let (tell, name) = (tell.clone(), name.to_owned());
    let complaints = Output::each_line(move |line| {
        let _ = tell.send(Heard::Complaint(format!("{name}: {line}")));
    });
    Ok(launch.stderr(complaints).start_in(host)?)
}

const MTU: u32 = 1500;
const PORT: u16 = 7471;
const LINE_EVERY: Duration = Duration::from_secs(10);
/// A survivor reports each second; the machine may have other things to do.
const SILENCE: Duration = Duration::from_secs(30);
/// From the start of a peer to its first operation: the failure of the connection before, and
/// waiting for processors.
const CONNECT_BOUND: Duration = Duration::from_secs(10).saturating_add(SLACK);
/// Enough to see what is wrong.
const MAX_VIOLATIONS: usize = 5;
