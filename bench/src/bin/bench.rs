//! Measures this stack beside other programs and writes a table, JSON and plots; see `bench/README.md`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use clap::Parser;
use roce_bench::report::{self, About, Commit, Machine, Report};
use roce_bench::suite::{self, Benchmark, RunConfig, Tools};

/// Measure this stack beside other programs, in private networks
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    /// Fewer rounds, shorter runs, fewer points: two minutes in all
    #[arg(long)]
    quick: bool,
    /// Runs of each candidate [default: 5, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of a run [default: 1, quick: 0.3]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Only this benchmark, or those whose names begin with this; may be repeated
    #[arg(long, value_name = "ROW", num_args = 1..)]
    only: Vec<String>,
    /// Print the names of the benchmarks and end
    #[arg(long)]
    list: bool,
    /// Request the real-time class for this stack
    #[arg(long)]
    realtime: bool,
    /// Folder of the results [default: bench/results/ and the date, with -beside-older]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Measure nothing: make table and plots again from the results in the output folder
    #[arg(long, requires = "output", conflicts_with_all = ["only", "list"])]
    render: bool,
    /// Put a summary into README.md as well, between its markers
    #[arg(long)]
    readme: bool,
    /// Folder of our programs [default: beside this one]
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Compare our programs with those of this folder, an older build, and with nothing else
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["render", "readme"])]
    beside_older: Option<PathBuf>,
    /// What to type to repeat this, for the record
    #[arg(long, hide = true)]
    command: Option<String>,
}

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome {
    let config = arguments.config();
    let mut all = suite::benchmarks(&config);
    if arguments.list {
        all.iter().for_each(|benchmark| println!("{:20} {}", benchmark.name, benchmark.title));
        return Ok(());
    }
    if let Some(older) = &arguments.beside_older {
        if !older.join("roce").is_file() {
            let why = "has no program roce: build there as `cargo xtask bench` does";
            return Err(format!("{} {why}", older.display()).into());
        }
        let older = Rc::new(Tools::find(older));
        all = all.into_iter().filter_map(|benchmark| benchmark.beside_older(&older)).collect();
    }
    let folder = arguments.output();
    let results = folder.join("results.json");
    let report = if arguments.render {
        report::read_json(&results)?
    } else {
        // Before a thread exists: the kernel moves only a process that has one.
        roce_netns::enter_user_namespace_if_needed()?;
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // Rows of an earlier run stay; the table says of which run each one is.
        let earlier = if results.is_file() { Some(report::read_json(&results)?) } else { None };
        let order: Vec<&str> = all.iter().map(|benchmark| benchmark.name).collect();
        measure(arguments, config, &all, &|report| {
            let mut report = report.clone();
            if let Some(earlier) = &earlier {
                report.complete_from(earlier.clone(), &order);
            }
            report.set_cache_states();
            // After every benchmark: a long run that is ended keeps what it has.
            report::write_json(&report, &results).map(|()| report)
        })?
    };
    write(&report, &folder)?;
    let table = report::table(&report);
    println!("\n{table}\nin {}", folder.display());
    if arguments.readme {
        let readme = root().join("README.md");
        let page = fs::read_to_string(&readme)?;
        let table = folder.join("table.md");
        let table = table.strip_prefix(root()).unwrap_or(&table).display().to_string();
        let page = report::put_between_markers(&page, "bench", &report::summary(&report, &table))
            .ok_or("README.md has no <!-- bench --> with a <!-- /bench --> behind it")?;
        fs::write(&readme, page)?;
    }
    Ok(())
}

/// Runs the selected benchmarks. `keep` gets the report after each and returns it together with the
/// results of earlier runs.
fn measure(
    arguments: &Arguments,
    config: RunConfig,
    all: &[Benchmark],
    keep: &dyn Fn(&Report) -> io::Result<Report>,
) -> Outcome<Report> {
    // A whole name selects that benchmark alone, the beginning of names all that begin with it.
    let exists = |name: &str| all.iter().any(|benchmark| benchmark.name == name);
    let means = |only: &String, benchmark: &Benchmark| {
        benchmark.name == only || !exists(only) && benchmark.name.starts_with(only.as_str())
    };
    let wanted = |benchmark: &&Benchmark| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| means(only, benchmark))
    };
    let benchmarks: Vec<&Benchmark> = all.iter().filter(wanted).collect();
    if benchmarks.is_empty() {
        return Err("no benchmark has a name that begins so: --list shows them".into());
    }
    let programs = match &arguments.programs {
        Some(folder) => folder.clone(),
        None => std::env::current_exe()?.parent().unwrap_or(Path::new(".")).to_owned(),
    };
    let tools = Tools::find(&programs);
    let commit = Commit::of(&root());
    let about = About {
        date: report::date_and_time(),
        command: arguments.command.clone().unwrap_or_else(command_line),
        commit: commit.clone(),
        machine: Machine::this(),
        rounds: config.rounds,
        seconds: config.seconds,
        quick: config.quick,
        realtime: config.realtime,
        cache_threshold: None,
    };
    let mut report = Report {
        about,
        external_programs: tools.external_programs().to_vec(),
        benchmarks: Vec::new(),
    };
    let mut kept = report.clone();
    let mut spare = suite::SPARE_TIME;
    for benchmark in benchmarks {
        eprintln!("{}: {}; {}", benchmark.name, benchmark.title, benchmark.topology.in_words());
        let began = Instant::now();
        let is_beside_older = arguments.beside_older.is_some();
        let rounds = if is_beside_older { config.rounds } else { benchmark.rounds(config.rounds) };
        let config = RunConfig { rounds, ..config };
        let mut result = suite::run_benchmark(benchmark, &tools, config, &mut spare, &mut |line| {
            eprintln!("  {line}")
        });
        if is_beside_older {
            suite::compare_with_older(&mut result);
        }
        let date = report::date_and_time();
        let day = date.get(..10).unwrap_or(&date);
        result.measured = format!("{day}, commit {}", commit.short());
        eprintln!("  {} took {:.1} s", benchmark.name, began.elapsed().as_secs_f32());
        report.benchmarks.push(result);
        kept = keep(&report)?;
    }
    Ok(kept)
}

/// Writes JSON, table and plots.
fn write(report: &Report, folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    report::write_json(report, &folder.join("results.json"))?;
    fs::write(folder.join("table.md"), report::table(report))?;
    for (name, chart) in report::charts(report) {
        // A benchmark that was measured at one point only has no plot, and its figures are in the table.
        match report::to_svg(&chart) {
            Ok(svg) => fs::write(folder.join(format!("{name}.svg")), svg)?,
            Err(why) => eprintln!("no plot: {name}: {why}"),
        }
    }
    Ok(())
}

impl Arguments {
    fn config(&self) -> RunConfig {
        let (rounds, seconds) = if self.quick { (1, 0.3) } else { (5, 1.0) };
        RunConfig {
            rounds: self.rounds.unwrap_or(rounds),
            seconds: self.seconds.unwrap_or(seconds),
            quick: self.quick,
            realtime: self.realtime,
        }
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let date = report::date_and_time();
            let day = date.get(..10).unwrap_or(&date);
            let name = match self.beside_older {
                Some(_) => format!("{day}-beside-older"),
                None => day.to_owned(),
            };
            root().join("bench/results").join(name)
        })
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "that is no number".to_owned())?;
    if (0.05..=60.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("choose 0.05 to 60 seconds".to_owned())
    }
}

fn command_line() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// The checkout that this was built from, or where it is run when that is gone.
fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
    built.filter(|folder| folder.is_dir()).unwrap_or_else(|| PathBuf::from("."))
}
