//! The options of all collectives: nccl-tests' letters, and ours.

use std::path::PathBuf;

use clap::Args;
use roce_ring::{Collective, DataType, ReduceOp};
use roce_verbs::PathMtu;

use super::input_data::{self, InputData};
use super::job::{Blocking, BufferModes, Job, Progression};
use super::rank_assignment::RankOptions;
use super::report::Style;
use super::report_collector::Average;
use super::trace::Form;
use super::{EXAMPLES, nccl_env};
use crate::error::{CliError, Result};
use crate::traffic::{self, Faults, GsoMode};
use crate::{parse_number, pingpong};

/// What is measured, how, by whom, and how it is shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", nccl_env::help()))]
pub(crate) struct Options {
    /// Smallest size in bytes; K, M and G are understood
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", default_value = "32M")]
    #[arg(value_parser = parse_size)]
    min: u64,
    /// Largest size
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", default_value = "32M")]
    #[arg(value_parser = parse_size)]
    max: u64,
    /// From one size to the next: this much more [default: 1M]
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", value_parser = parse_size)]
    step: Option<u64>,
    /// From one size to the next: so many times as much
    #[arg(short = 'f', long = "stepfactor", value_name = "N", value_parser = parse_number::parse)]
    factor: Option<u64>,
    /// Operations that are timed, all together
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 20)]
    #[arg(value_parser = parse_number::parse)]
    iterations: u64,
    /// Operations before, which are not
    #[arg(short = 'w', long = "warmup_iters", alias = "warmup-iters", value_name = "N")]
    #[arg(default_value_t = 1, value_parser = parse_number::parse)]
    warmup: u64,
    /// Operations behind whose results are checked, every element; 0: none
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
    /// Root of broadcast and reduce, -1 for every rank in turn [default: 0]
    #[arg(short = 'r', long, value_name = "RANK", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=65535))]
    root: Option<i64>,
    /// Between timed operations: 0 nothing, 1 a barrier (timed too), 3 a barrier (not timed)
    ///
    /// Between timed operations: 0 nothing, 1 a barrier (timed too), 3 a barrier (not timed).
    /// Every operation returns when this rank's part of it is done, so 2 is the same as 0: the
    /// next one may begin while other ranks still work on the last.
    #[arg(short = 'z', long, value_name = "N", default_value_t = 0, num_args = 0..=1)]
    #[arg(default_missing_value = "1", value_parser = clap::value_parser!(u8).range(0..=3))]
    blocking: u8,
    /// Which rank's mean time is shown: 0 rank 0's, 1 the mean, 2 the least, 3 the largest
    #[arg(short = 'a', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    average: u8,
    /// Measure out of place, in place, or both
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = BufferModes::Both)]
    placement: BufferModes,
    /// What ranks contribute: a pattern, or rank r the number r + 1 (what they end with is shown)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = InputData::Pattern)]
    values: InputData,
    /// Accepted for habit's sake: a process is a rank here
    #[arg(short = 'g', long = "ngpus", hide = true, value_parser = ["1"])]
    _gpus: Option<String>,
    /// As that
    #[arg(short = 't', long = "nthreads", hide = true, value_parser = ["1"])]
    _threads: Option<String>,

    /// Print JSON, with nccl-tests' names
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Print CSV: a line for each size and placement
    #[arg(long, conflicts_with_all = ["steps", "trace"], help_heading = "Output")]
    csv: bool,
    /// Write that JSON to a file besides
    #[arg(short = 'J', long = "output_file", alias = "output-file", value_name = "FILE")]
    #[arg(help_heading = "Output")]
    pub(crate) output_file: Option<PathBuf>,
    /// Show how long each step took at each rank, and its share of waiting for the neighbour
    #[arg(long, help_heading = "Output")]
    pub(crate) steps: bool,
    /// Show what happened at all ranks, and when; best with -n 1 -w 0 -c 0 and one small size
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text", help_heading = "Output")]
    pub(crate) trace: Option<Form>,
    /// Write that to a file as JSON lines
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace_json: Option<PathBuf>,
    /// Print the counters of rank 0's interfaces that are not zero, on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) counters: bool,

    #[command(flatten)]
    pub(crate) assignment: RankOptions,
    /// Run all ranks here, in a private network made for it; needs no root, leaves nothing
    #[arg(long, value_name = "RANKS", num_args = 0..=1, default_missing_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=200), help_heading = "Ranks")]
    pub(crate) local: Option<u32>,
    /// Seconds that ranks may take to arrive
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Ranks")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Which rank of a private network this process is (set by --local)
    #[arg(long, hide = true, requires = "local", value_name = "R")]
    pub(crate) local_rank: Option<u32>,

    #[command(flatten)]
    pub(crate) net: NetOptions,
}

/// How data travels.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetOptions {
    /// Path MTU in bytes [default: the largest that both neighbours carry]
    #[arg(long, value_name = "BYTES", value_parser = pingpong::path_mtu)]
    pub(crate) mtu: Option<PathMtu>,
    /// Staging slots of each queue pair; the same on all ranks, as the next two
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse_number::parse_u32)]
    pub(crate) slots: u32,
    /// Bytes of a slot, so of a message at the most
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = parse_number::parse_u32)]
    pub(crate) slot_bytes: u32,
    /// Up to here whole vectors travel, without chunks [default: 64K for up to 4 ranks, else 32K]
    #[arg(long, value_name = "SIZE", value_parser = parse_number::parse_u32)]
    pub(crate) small_message_max: Option<u32>,
    /// MTU of the private network's links in bytes; 4176 is the least for path MTU 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4200, requires = "local")]
    #[arg(value_parser = traffic::link_mtu)]
    pub(crate) link_mtu: u32,
    /// Interfaces of each rank in the private network, each in a subnet of its own
    #[arg(long, value_name = "N", default_value_t = 1, requires = "local")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) rails: u8,
    /// Write rank 0's packets to a pcapng file, as they are on the wire
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Use UDP segmentation offload; auto: where that is known to be cheap
    #[arg(long, value_enum, default_value_t = GsoMode::Auto, value_name = "WHEN")]
    pub(crate) gso: GsoMode,
    #[command(flatten)]
    pub(crate) faults: Faults,
}

/// A choice of which `all` is one.
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

/// A size as nccl-tests takes it: with a fraction too.
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
    /// The work that is asked for.
    ///
    /// # Errors
    /// For what makes no sense together.
    pub(crate) fn job(&self, collective: Collective) -> Result<Job> {
        if self.min > self.max {
            let (min, max) = (self.min, self.max);
            let why = format!("the smallest size, {min} (-b), is above the largest, {max} (-e)");
            return Err(CliError::new(why));
        }
        let progression = match (self.factor, self.step) {
            (Some(0), _) => {
                return Err(CliError::new("a factor of 0 (-f) makes no sizes; 2 doubles them"));
            }
            (Some(2..), Some(_)) => {
                return Err(CliError::new(
                    "sizes grow by a factor (-f) or by steps (-i), not by both",
                ));
            }
            (Some(factor @ 2..), None) => Progression::Factor(factor),
            // As nccl-tests: a factor of 1 is none.
            (Some(1) | None, step) => Progression::Step(step.unwrap_or(1 << 20).max(1)),
        };
        let name = collective.name();
        if self.op.is_some() && !collective.reduces() {
            return Err(CliError::new(format!("{name} combines no values: leave out -o")));
        }
        if self.root.is_some() && !collective.has_root() {
            return Err(CliError::new(format!("{name} has no root: leave out -r")));
        }
        if self.iterations == 0 && self.check == 0 {
            return Err(CliError::new("nothing to do: neither timed (-n) nor checked (-c)"));
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

    /// Whether so many ranks can do that.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn check_ranks(job: &Job, ranks: u32) -> Result {
        if let Some(root) = job.root.filter(|root| *root >= ranks) {
            let why = format!("rank {root} cannot be the root (-r): there are {ranks} ranks");
            return Err(CliError::new(why));
        }
        if job.values == InputData::Rank && job.collective.reduces() {
            let (Some(data_type), Some(op)) = (job.data_type, job.op) else {
                return Err(CliError::new("--values rank goes with one type and one operator"));
            };
            let most = input_data::max_ranks(data_type, op);
            if ranks > most {
                return Err(CliError::new(format!(
                    "--values rank: {op} over {ranks} ranks leaves what {data_type} holds exactly \
                     (at most {most} ranks); take another type (-d)"
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

    /// Whether events are to be kept.
    pub(crate) fn wants_trace(&self) -> bool {
        self.trace.is_some() || self.trace_json.is_some()
    }
}

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
    fn the_letters_of_nccl_tests_mean_what_they_mean_there() {
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
    fn what_makes_no_sense_is_refused_in_one_sentence() {
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
            "-g 2",
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
