//! The programs that a benchmark compares.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use super::network::IFNAME;
use super::pair::{self, PairOutput};
use super::{Network, RunConfig, Tools};
use crate::report::Figures;
use roce_netns::process::{Launch, Readiness, Running};

/// What a run gives: figures, or why there are none.
pub type RunResult = Result<Figures, String>;

/// A program, or several, that runs once and gives figures.
pub struct Candidate {
    /// Short: what comparisons name.
    pub name: Cow<'static, str>,
    /// For people.
    pub title: String,
    /// The programs that it needs.
    pub needs: Vec<&'static str>,
    /// Points of the axis at which it runs; `None`: all.
    pub x_range: Option<RangeInclusive<u64>>,
    /// Runs it once.
    pub run: Rc<dyn Fn(&RunContext<'_>) -> RunResult>,
}

impl Candidate {
    /// One that needs some programs, and what it does.
    pub fn new(
        name: &'static str,
        title: impl Into<String>,
        needs: &[&'static str],
        run: impl Fn(&RunContext<'_>) -> RunResult + 'static,
    ) -> Self {
        let (title, needs) = (title.into(), needs.to_vec());
        Self { name: name.into(), title, needs, x_range: None, run: Rc::new(run) }
    }

    /// Returns true if it runs this stack, and not only programs of others or without a protocol.
    pub(crate) fn runs_this_stack(&self) -> bool {
        self.needs.iter().any(|program| ["roce", "idle_qps", "wake_up"].contains(program))
    }

    /// The same with programs of another folder.
    pub(crate) fn with_tools(&self, name: String, title: String, tools: Rc<Tools>) -> Self {
        let (run, needs) = (Rc::clone(&self.run), self.needs.clone());
        let run = move |context: &RunContext<'_>| {
            if let Some(why) = tools.lacks(&needs) {
                return Err(format!("{}: {why}", tools.folder().display()));
            }
            let with = RunContext { tools: &tools, started: RefCell::default(), ..*context };
            let figures = run(&with);
            context.started.borrow_mut().append(&mut with.into_started());
            figures
        };
        let (needs, x_range) = (self.needs.clone(), self.x_range.clone());
        Self { name: name.into(), title, needs, x_range, run: Rc::new(run) }
    }

    /// The same at one point of the axis only, for a candidate that does not depend on x.
    #[must_use]
    pub fn only_at(self, x: u64) -> Self {
        Self { x_range: Some(x..=x), ..self }
    }

    /// The same up to this point of the axis, its maximum.
    #[must_use]
    pub fn up_to(self, x: u64) -> Self {
        Self { x_range: Some(0..=x), ..self }
    }

    /// The same beside two busy loops for each processor, which run as long as it does.
    ///
    /// Programs that are given a number of operations get fewer of them: as many as take about as
    /// long as without the loops if one takes `slower` times as long.
    #[must_use]
    pub fn beside_busy_loops(self, slower: f64) -> Self {
        let run = self.run;
        let run = move |context: &RunContext<'_>| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let mut loops = Vec::new();
            for cpu in (0..processors).flat_map(|cpu| [cpu; LOOPS_PER_PROCESSOR]) {
                // They are ended when this returns, or with this process.
                loops.push(context.start(CLIENT, &busy_loop(cpu))?);
            }
            let slow = RunContext { slower, started: RefCell::default(), ..*context };
            let played = run(&slow);
            context.started.borrow_mut().append(&mut slow.into_started());
            if loops.iter().any(Running::has_ended) {
                return Err("a busy loop has ended too early".to_owned());
            }
            played
        };
        Self { run: Rc::new(run), ..self }
    }

    /// Returns true if it runs at this point of the axis.
    pub fn runs_at(&self, x: Option<u64>) -> bool {
        let points = self.x_range.as_ref().zip(x);
        points.is_none_or(|(points, x)| points.contains(&x))
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a candidate needs for a run.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// Where programs are.
    pub tools: &'a Tools,
    /// The benchmark's network.
    pub network: &'a Network,
    /// How long it may take.
    pub config: RunConfig,
    /// Where on the axis; 0 where there is none.
    pub x: u64,
    /// How many times as long an operation takes as it does alone, about.
    pub(crate) slower: f64,
    /// The command lines of the programs that were started.
    started: RefCell<Vec<String>>,
}

impl<'a> RunContext<'a> {
    /// A place on a benchmark's axis, 0 where it has none.
    pub(crate) fn new(tools: &'a Tools, network: &'a Network, config: RunConfig, x: u64) -> Self {
        Self { tools, network, config, x, slower: 1.0, started: RefCell::default() }
    }

    /// The command lines of the programs that were started.
    pub(crate) fn into_started(self) -> Vec<String> {
        self.started.into_inner()
    }

    /// How many operations take about as long as a run over time, if one takes so many seconds
    /// where nothing else runs.
    pub(crate) fn operations(&self, seconds_each: f64) -> f64 {
        self.config.seconds / (seconds_each * self.slower)
    }

    /// Limit on the run of a program, after which it is ended.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.config.seconds * 3.0 + 20.0)
    }

    /// Runs a server in the second host and a client in the first.
    ///
    /// # Errors
    /// See [`run_pair`](super::run_pair).
    pub fn pair(
        &self,
        server: &Launch,
        readiness: impl Into<Readiness>,
        client: &Launch,
    ) -> Result<PairOutput, String> {
        let [here, there] = [self.network.host(CLIENT), self.network.host(SERVER)];
        self.note(server);
        self.note(client);
        pair::run_pair((there, server), readiness, (here, client), self.timeout())
    }

    /// Returns the launch of a program of others on our libibverbs, with the device on its host's interface.
    pub fn on_our_device(&self, program: &str) -> Launch {
        let device = format!("roce0={IFNAME}");
        Launch::new(self.tools.ours("roce")).args(["run", "--dev", &device, "--", program])
    }

    /// Starts a program in a host.
    ///
    /// # Errors
    /// See [`start`](super::start).
    pub fn start(&self, host: usize, launch: &Launch) -> Result<Running, String> {
        self.note(launch);
        pair::start(self.network.host(host), launch)
    }

    /// Runs a program in a host and returns its standard output.
    ///
    /// # Errors
    /// See [`finish`](super::finish).
    pub fn output(&self, host: usize, launch: &Launch) -> Result<String, String> {
        self.finish(self.start(host, launch)?)
    }

    /// Waits for the end of a program, with the limit of a run, and returns its standard output.
    ///
    /// # Errors
    /// See [`finish`](super::finish).
    pub fn finish(&self, running: Running) -> Result<String, String> {
        pair::finish(running, self.timeout())
    }

    fn note(&self, launch: &Launch) {
        self.started.borrow_mut().push(self.tools.shorten(&launch.to_string()));
    }
}

/// A process that uses up a processor.
fn busy_loop(cpu: usize) -> Launch {
    Launch::new("sh").args(["-c", "while :; do :; done"]).on_cpu(cpu)
}

/// With a program of ours beside them, each gets a third of the processor.
const LOOPS_PER_PROCESSOR: usize = 2;
/// The host where servers run; clients run in the other.
pub(crate) const SERVER: usize = 1;
/// The host where clients run.
pub(crate) const CLIENT: usize = 0;
/// Each end has a processor of its own.
pub(crate) const CLIENT_CPU: usize = 0;
/// See [`CLIENT_CPU`].
pub(crate) const SERVER_CPU: usize = 1;
