//! Shows where the cycles go, ours beside raw programs; see `bench/README.md`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use roce_bench::profile::{self, Recorded, Workload, flame};
use roce_bench::report::{self, Commit, Machine};
use roce_bench::suite::{Network, RunConfig, Tools};

/// Show where the cycles go: ours beside raw programs, each end under perf
#[derive(Debug, Parser)]
#[command(name = "profile")]
struct Arguments {
    /// Which workloads [default: all of them]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Print the names of the workloads and end
    #[arg(long)]
    list: bool,
    /// How long a run takes
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Runs of each candidate; the best one is shown
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Where profile/ goes [default: bench/results/ and the date]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("profile: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome {
    let all = profile::workloads();
    if arguments.list {
        all.iter().for_each(|it| println!("{:16} {}", it.name, it.title));
        return Ok(());
    }
    let named = |it: &&Workload| {
        arguments.workloads.is_empty() || arguments.workloads.iter().any(|name| name == it.name)
    };
    let chosen: Vec<&Workload> = all.iter().filter(named).collect();
    if chosen.is_empty() {
        return Err("no workload has that name: --list shows them".into());
    }
    // Before a thread exists: the kernel moves only a process that has one.
    roce_netns::enter_user_namespace_if_needed()?;
    let folder = arguments.folder();
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let programs = std::env::current_exe()?.parent().unwrap_or(Path::new(".")).to_owned();
    let tools = Tools::find(&programs);
    let (rounds, seconds) = (arguments.rounds, arguments.seconds);
    let config = RunConfig { rounds, seconds, quick: false, realtime: false };
    let mut page = format!("{}\n", heading(rounds));
    let mut hidden = false;
    for workload in chosen {
        let recorded = run_workload(workload, &tools, config, &folder)?;
        hidden |=
            recorded.iter().flat_map(|one| &one.ends).any(|end| end.profile.lacks_kernel_names());
        let graph = |one: &str, end: &str| format!("{}.svg", file(workload, one, end));
        page += &profile::page(workload, &recorded, &graph);
    }
    if hidden {
        page += HIDDEN;
        eprintln!("{HIDDEN}");
    }
    let path = folder.join("profile.md");
    fs::write(&path, page)?;
    println!("{}", path.display());
    Ok(())
}

/// Runs all candidates of a workload and draws their graphs.
fn run_workload(
    workload: &Workload,
    tools: &Tools,
    config: RunConfig,
    folder: &Path,
) -> Outcome<Vec<Recorded>> {
    let network = Network::make(workload.topology)?;
    let config = RunConfig { seconds: config.seconds * workload.longer, ..config };
    let recordings = std::env::temp_dir().join(format!("profile-{}", std::process::id()));
    fs::create_dir_all(&recordings)?;
    let mut all = Vec::new();
    for candidate in &workload.candidates {
        eprintln!("{}: {}", workload.name, candidate.title);
        match profile::record(candidate, &network, tools, config, &recordings) {
            Ok(recorded) => all.push(recorded),
            // The others are worth having.
            Err(why) => eprintln!("{}: {}: {why}", workload.name, candidate.title),
        }
    }
    fs::remove_dir_all(&recordings)?;
    if all.is_empty() {
        return Err(format!("{}: no program could be recorded; {PARANOID}", workload.name).into());
    }
    for one in &all {
        for end in &one.ends {
            let title = format!("{}: {}, {}", workload.title, one.title, end.name);
            let name = format!("{}.svg", file(workload, &one.name, &end.name));
            fs::write(folder.join(name), flame::svg(&title, &end.profile))?;
        }
    }
    Ok(all)
}

fn file(workload: &Workload, one: &str, end: &str) -> String {
    format!("{}-{one}-{end}", workload.name).replace(' ', "-")
}

fn heading(rounds: u32) -> String {
    let machine = Machine::this();
    let commit = Commit::of(&root());
    format!(
        "# Where the cycles go\n\n\
         Recorded {}, commit {}, on {} cores of {}, {}; the best of {rounds} runs each.\n\
         To repeat it: `cargo xtask profile`. How to read it: [README](../../../README.md).\n",
        report::date_and_time(),
        commit.short(),
        machine.cores,
        machine.processor,
        machine.kernel,
    )
}

impl Arguments {
    fn folder(&self) -> PathBuf {
        let results = self.output.clone().unwrap_or_else(|| {
            let date = report::date_and_time();
            root().join("bench/results").join(date.get(..10).unwrap_or(&date))
        });
        results.join("profile")
    }
}

/// The checkout that this was built from, or where it is run when that is gone.
fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
    built.filter(|folder| folder.is_dir()).unwrap_or_else(|| PathBuf::from("."))
}

const HIDDEN: &str = "The kernel hid the names of its functions: as root, \
    `sysctl kernel.kptr_restrict=0`, and again.\n";
const PARANOID: &str = "perf comes with the package linux-perf; where the kernel refuses it, be \
    root, or let root do `sysctl kernel.perf_event_paranoid=1`";
