//! The options of all collectives: those of nccl-tests, and others.

use std::path::PathBuf;

use clap::Args;
use roce_ring::{Collective, DataType, ReduceOp};
use roce_verbs::PathMtu;

use super::input_data::{self, InputData};
use super::job::{Blocking, BufferModes, Job, Progression};
use super::nccl_env;
use super::options_without_effect::{self, OptionsWithoutEffect};
use super::rank_assignment::RankOptions;
use super::report::Style;
use super::report_collector::Average;
use super::trace::Form;
use crate::backend::BackendOption;
use crate::congestion::CongestionOptions;
use crate::error::{CliError, Result};
use crate::faults::Faults;
use crate::rails::MAX_RAILS;
use crate::switch::SwitchOptions;
use crate::traffic::{self, GsoMode};
use crate::{parse_number, pingpong};

/// Options of the measurement, the ranks and the output.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub(crate) struct Options {
    /// Smallest size in bytes, with suffix K, M or G
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", default_value = "32M")]
    #[arg(value_parser = parse_size)]
    min: u64,
    /// Largest size
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", default_value = "32M")]
    #[arg(value_parser = parse_size)]
    max: u64,
    /// Size increment [default: 1M]
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", value_parser = parse_size)]
    step: Option<u64>,
    /// Size factor
    #[arg(short = 'f', long = "stepfactor", value_name = "N", value_parser = parse_number::parse)]
    factor: Option<u64>,
    /// Timed operations
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 20)]
    #[arg(value_parser = parse_number::parse)]
    iterations: u64,
    /// Untimed operations before
    #[arg(short = 'w', long = "warmup_iters", alias = "warmup-iters", value_name = "N")]
    #[arg(default_value_t = 1, value_parser = parse_number::parse)]
    warmup: u64,
    /// Operations to verify after timing (0: none)
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, num_args = 0..=1)]
    #[arg(default_missing_value = "1", value_parser = parse_number::parse)]
    check: u64,
    /// sum, prod, max, min, avg or all [default: sum]
    #[arg(short = 'o', long, value_name = "OP", value_parser = one_or_all::<ReduceOp>)]
    op: Option<OneOrAll<ReduceOp>>,
    /// int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16 or all
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "float")]
    #[arg(value_parser = one_or_all::<DataType>)]
    data_type: OneOrAll<DataType>,
    /// Root of broadcast and reduce; -1: every rank in turn [default: 0]
    #[arg(short = 'r', long, value_name = "RANK", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=65535))]
    root: Option<i64>,
    /// Between timed operations: 0 nothing, 1 a barrier (timed too), 3 a barrier (not timed)
    ///
    /// Between timed operations: 0 nothing, 1 a barrier (timed too), 3 a barrier (not timed). Each
    /// operation returns when this rank's part is done, so 2 is the same as 0: the next may begin
    /// while other ranks still work on the last.
    #[arg(short = 'z', long, value_name = "N", default_value_t = 0, num_args = 0..=1)]
    #[arg(default_missing_value = "1", value_parser = clap::value_parser!(u8).range(0..=3))]
    blocking: u8,
    /// Mean time to show: 0 of rank 0, 1 mean of all ranks, 2 min, 3 max
    #[arg(short = 'a', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    average: u8,
    /// Measure out of place, in place, or both
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = BufferModes::Both)]
    placement: BufferModes,
    /// Input: a pattern, or r + 1 at rank r (prints the results)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = InputData::Pattern)]
    values: InputData,
    #[command(flatten)]
    without_effect: Box<OptionsWithoutEffect>,

    /// Print JSON, with nccl-tests' names
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Print CSV, one line for each size and placement
    #[arg(long, conflicts_with_all = ["steps", "trace"], help_heading = "Output")]
    csv: bool,
    /// Also write the JSON to a file
    #[arg(short = 'J', long = "output_file", alias = "output-file", value_name = "FILE")]
    #[arg(help_heading = "Output")]
    pub(crate) output_file: Option<PathBuf>,
    /// Show the time of each step at each rank, and the share spent waiting for the neighbour
    #[arg(long, help_heading = "Output")]
    pub(crate) steps: bool,
    /// Show the timeline of all ranks; best with -n 1 -w 0 -c 0 and one small size
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text", help_heading = "Output")]
    pub(crate) trace: Option<Form>,
    /// Write the timeline to a file as JSON lines
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace_json: Option<PathBuf>,
    /// Print the nonzero counters of rank 0's interfaces, on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) counters: bool,

    #[command(flatten)]
    pub(crate) assignment: RankOptions,
    /// Run all ranks here, in a private network; needs no root, leaves nothing behind
    #[arg(long, value_name = "RANKS", num_args = 0..=1, default_missing_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=200), help_heading = "Ranks")]
    pub(crate) local: Option<u32>,
    /// Timeout in seconds for all ranks to arrive
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Ranks")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// The rank of this process in a private network (set by --local)
    #[arg(long, hide = true, requires = "local", value_name = "R")]
    pub(crate) local_rank: Option<u32>,

    #[command(flatten)]
    pub(crate) net: NetOptions,
}

/// Options of the data path.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetOptions {
    /// Path MTU in bytes [default: the largest of both neighbours]
    #[arg(long, value_name = "BYTES", value_parser = pingpong::path_mtu)]
    pub(crate) mtu: Option<PathMtu>,
    /// Staging slots of each queue pair; the same on all ranks, as are the next two
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse_number::parse_u32)]
    pub(crate) slots: u32,
    /// Bytes of a slot: the largest message
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = parse_number::parse_u32)]
    pub(crate) slot_bytes: u32,
    /// Largest vector sent whole, not in chunks [default: 64K for up to 4 ranks, else 32K]
    #[arg(long, value_name = "SIZE", value_parser = parse_number::parse_u32)]
    pub(crate) small_message_max: Option<u32>,
    /// MTU of the private network's links in bytes; path MTU 4096 needs at least 4176
    #[arg(long, value_name = "BYTES", default_value_t = 4200, requires = "local")]
    #[arg(value_parser = traffic::link_mtu)]
    pub(crate) link_mtu: u32,
    #[command(flatten)]
    pub(crate) switch: SwitchOptions,
    /// Interfaces of each rank in the private network, each in a subnet of its own
    #[arg(long, value_name = "N", default_value_t = 1, requires = "local")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=MAX_RAILS))]
    pub(crate) rails: u8,
    /// Write rank 0's packets to a pcapng file, as they are on the wire
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Segmentation offload (UDP GSO): send several packets in one frame
    #[arg(long, value_enum, default_value_t = GsoMode::Auto, value_name = "WHEN")]
    pub(crate) gso: GsoMode,
    #[command(flatten)]
    pub(crate) backend: BackendOption,
    #[command(flatten)]
    pub(crate) congestion: CongestionOptions,
    #[command(flatten)]
    pub(crate) faults: Faults,
}

/// One value or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneOrAll<T> {
    One(T),
    All,
}

impl<T> OneOrAll<T> {
    fn one(self) -> Option<T> {
        match self {
            Self::One(one) => Some(one),
            Self::All => None,
        }
    }
}

fn one_or_all<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
) -> Result<OneOrAll<T>, String> {
    match text {
        "all" => Ok(OneOrAll::All),
        _ => text.parse::<T>().map(OneOrAll::One).map_err(|error| error.to_string()),
    }
}

/// Parses a size as nccl-tests does, also with a fraction.
fn parse_size(text: &str) -> Result<u64, String> {
    parse_number::parse(text).or_else(|error| {
        let (digits, unit) = match text.trim().split_at_checked(text.trim().len().wrapping_sub(1)) {
            Some((digits, unit @ ("k" | "K" | "m" | "M" | "g" | "G"))) => (digits, unit),
            _ => return Err(error),
        };
        let unit = parse_number::parse(&format!("1{unit}"))?;
        let size = digits.parse::<f64>().ok().map(|number| number * unit as f64);
        match size {
            Some(size) if digits.contains('.') && (0.0..=1e15).contains(&size) => Ok(size as u64),
            _ => Err(error),
        }
    })
}

impl Options {
    /// Returns the requested job.
    ///
    /// # Errors
    /// Contradictory options.
    pub(crate) fn job(&self, collective: Collective) -> Result<Job> {
        if self.min > self.max {
            let (min, max) = (self.min, self.max);
            let why = format!("the smallest size {min} (-b) exceeds the largest {max} (-e)");
            return Err(CliError::new(why));
        }
        let progression = match (self.factor, self.step) {
            (Some(0), _) => {
                return Err(CliError::new("-f must be 1 or more; 2 doubles the size"));
            }
            (Some(2..), Some(_)) => {
                return Err(CliError::new("give either -f or -i, not both"));
            }
            (Some(factor @ 2..), None) => Progression::Factor(factor),
            // As in nccl-tests, a factor of 1 is none.
            (Some(1) | None, step) => Progression::Step(step.unwrap_or(1 << 20).max(1)),
        };
        let name = collective.name();
        if self.op.is_some() && !collective.reduces() {
            return Err(CliError::new(format!("{name} does not reduce: leave out -o")));
        }
        if self.root.is_some() && !collective.has_root() {
            return Err(CliError::new(format!("{name} has no root: leave out -r")));
        }
        if self.iterations == 0 && self.check == 0 {
            return Err(CliError::new("nothing to do: -n and -c are both 0"));
        }
        let job = Job {
            collective,
            data_type: self.data_type.one(),
            op: self.op.unwrap_or(OneOrAll::One(ReduceOp::Sum)).one(),
            root: match self.root {
                Some(-1) => None,
                root => Some(root.and_then(|root| u32::try_from(root).ok()).unwrap_or(0)),
            },
            min: self.min,
            max: self.max,
            progression,
            iterations: self.iterations,
            warmup: self.warmup,
            check: self.check,
            placements: self.placement,
            blocking: match self.blocking {
                1 => Blocking::Barrier,
                3 => Blocking::UntimedBarrier,
                _ => Blocking::No,
            },
            values: self.values,
        };
        Ok(job)
    }

    /// Checks a job for a number of ranks.
    ///
    /// # Errors
    /// The reason why it is impossible.
    pub(crate) fn check_ranks(job: &Job, ranks: u32) -> Result {
        if let Some(root) = job.root.filter(|root| *root >= ranks) {
            let why = format!("root {root} (-r) is not a rank: there are {ranks} ranks");
            return Err(CliError::new(why));
        }
        if job.values == InputData::Rank && job.collective.reduces() {
            let (Some(data_type), Some(op)) = (job.data_type, job.op) else {
                return Err(CliError::new("--values rank needs one type and one operator"));
            };
            let most = input_data::max_ranks(data_type, op);
            if ranks > most {
                return Err(CliError::new(format!(
                    "--values rank: {data_type} cannot represent {op} over {ranks} ranks exactly (at most \
                     {most} ranks); use another type (-d)"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn average(&self) -> Average {
        match self.average {
            0 => Average::Rank0,
            2 => Average::Min,
            3 => Average::Max,
            _ => Average::Mean,
        }
    }

    pub(crate) fn style(&self) -> Style {
        match (self.json, self.csv) {
            (true, _) => Style::Json,
            (_, true) => Style::Csv,
            _ => Style::Table,
        }
    }

    /// Returns a line for each given option that has no effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.without_effect.warnings()
    }

    /// Returns true if events are recorded.
    pub(crate) fn wants_trace(&self) -> bool {
        self.trace.is_some() || self.trace_json.is_some()
    }
}

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{}\n\n{}", options_without_effect::HELP, nccl_env::help())
}

const EXAMPLES: &str = "\
All ranks on this host, in a temporary private network:
  roce allreduce --local 3 -b 8 -e 64M -f 2
  roce allreduce --local 3 -b 4 -e 4 --values rank --steps

One rank on each host, started by hand or by a launcher (mpirun, srun, torchrun):
  roce allreduce --rank 0 --size 2 --root-address 10.0.0.1:29500 -b 8 -e 64M -f 2
  roce allreduce --rank 1 --size 2 --root-address 10.0.0.1:29500 -b 8 -e 64M -f 2
  mpirun -n 3 --host a,b,c roce allreduce --root-address a:29500 -b 8 -e 64M -f 2

Bandwidths are in 10^9 bytes per second: algbw is size / time, busbw the traffic of a link.
The measurement options must be the same on all ranks; a difference is reported.
NCCL_IB_HCA and other variables choose interfaces and more: see --help.";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::job::example;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn job(line: &str) -> Result<Job> {
        let words = std::iter::once("roce").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| CliError::new(error.to_string()))?;
        line.options.job(Collective::AllReduce)
    }

    #[test]
    fn the_options_of_nccl_tests_have_the_same_meaning() {
        let job = |line| job(line).unwrap();
        let told = job("-b 8 -e 64 -f 2 -n 20 -w 1 -c 1 -o sum -d float -z 0 -g 1 -t 1 -a 1");
        assert_eq!(told, example());
        let usual = job("");
        assert_eq!((usual.min, usual.max), (32 << 20, 32 << 20));
        assert_eq!(usual.progression, Progression::Step(1 << 20));
        assert_eq!((usual.iterations, usual.warmup, usual.check), (20, 1, 1));
        assert_eq!(job("-f 1 -i 4K").progression, Progression::Step(4096));
        assert_eq!(job("-b 1.5K").min, 1536);
        assert_eq!((job("-c").check, job("-c 0").check, job("-c 7").check), (1, 0, 7));
        assert_eq!(job("-z").blocking, Blocking::Barrier);
        assert_eq!(job("-z 2").blocking, Blocking::No);
        assert_eq!((job("-o all").op, job("-d all").data_type), (None, None));
        assert_eq!(job("-d bfloat16 -o avg").op, Some(ReduceOp::Avg));
    }

    #[test]
    fn contradictory_options_are_refused_in_one_sentence() {
        let lines = ["-b 9 -e 8", "-f 0", "-r 1", "-n 0 -c 0", "-f 2 -i 8"];
        for line in lines {
            match job(line) {
                Err(CliError::Message(text)) => assert_eq!(text.lines().count(), 1, "{text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        let lines = [
            "-b 4x",
            "-b -1",
            "-b 1.5",
            "-d f8",
            "-o xor",
            "-z 4",
            "--json --csv",
            "--local 0",
            "--local 3 --rank 1 --size 3",
            "--rank 1",
            "--rails 2",
            "--csv --steps",
            "--mtu 1500",
            "--trace xml",
        ];
        for line in lines {
            assert!(job(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_the_ranks_cannot_do_is_refused_before_they_meet() {
        let ranks = |job: &Job, ranks| Options::check_ranks(job, ranks).is_ok();
        let job = Job { collective: Collective::Reduce, root: Some(3), ..example() };
        assert!(!ranks(&job, 3) && ranks(&job, 4));
        let job = Job { values: InputData::Rank, data_type: Some(DataType::I8), ..example() };
        assert!(ranks(&job, 15) && !ranks(&job, 16));
    }
}
