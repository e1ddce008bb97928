//! What a run had to show (`--require`), and whether it did.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use roce_faults::{LinkRule, Requirement};
use roce_io::{Activity, ActivityKind, FaultEventOf, monotonic};
use roce_verbs::{FaultEvent, FaultSentence};

use super::exit_code::NOT_SHOWN;
use super::fault_log;
use crate::error::{CliError, Result};
use crate::faults;
use crate::run::line::options::Options;

/// Returns the file in the folder of a run to which its processes append what they do.
pub(in crate::run) fn path(folder: &Path) -> PathBuf {
    folder.join("activity")
}

/// Prints a line for each requirement of the run of a folder, whose ranks have ended.
///
/// # Errors
/// The run has not shown one of them.
pub(in crate::run) fn report(
    options: &Options,
    ranks: u32,
    began: Duration,
    folder: &Path,
) -> Result {
    if options.require.is_empty() {
        return Ok(());
    }
    let seen = Seen::read(options, ranks, began, folder)?;
    let mut is_shown = true;
    for requirement in &options.require {
        match seen.fault_of(requirement) {
            None => eprintln!("roce: required: {requirement}: shown"),
            Some(fault) => {
                is_shown = false;
                eprintln!("roce: required: {requirement}: not shown: {fault}");
            }
        }
    }
    if is_shown { Ok(()) } else { Err(CliError::Reported(NOT_SHOWN)) }
}

/// What happened in a run; times count from its beginning.
struct Seen {
    ranks: u32,
    /// When each rank did something, ascending.
    activity: BTreeMap<(u32, ActivityKind), Vec<Duration>>,
    /// When links went down, and the rank whose link it was, or none for those of all ranks.
    outages: Vec<(Duration, LinkRule)>,
    /// The end of the run.
    end: Duration,
}

impl Seen {
    fn read(options: &Options, ranks: u32, began: Duration, folder: &Path) -> Result<Self> {
        let file = File::open(path(folder))?;
        if file.metadata()?.len() > MAX_ACTIVITY {
            let most = MAX_ACTIVITY >> 20;
            let why =
                format!("the run was too long to be judged: more than {most} MiB of activity");
            return Err(CliError::new(why));
        }
        let mut activity: BTreeMap<_, Vec<_>> = BTreeMap::new();
        // A program may write what it likes, also a line without an end.
        for line in BufReader::new(file.take(MAX_ACTIVITY)).split(b'\n') {
            let line = line?;
            let Some(Activity { rank, kind, time }) =
                str::from_utf8(&line).ok().and_then(Activity::parse)
            else {
                continue;
            };
            activity.entry((rank, kind)).or_default().push(time);
        }
        activity.values_mut().for_each(|times| times.sort_unstable());
        let end = monotonic().saturating_sub(began);
        // The log has the time of day.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began_at = now.saturating_sub(end);
        let script = options.faults.script();
        let outage = |event: FaultEvent| match script.get(event.rule) {
            Some(FaultSentence::Links(rule)) if event.kind == FaultEventOf::LinkDown => {
                Some((event.time.saturating_sub(began_at), *rule))
            }
            _ => None,
        };
        let events = faults::read_log(&fault_log::path(folder))?;
        let outages = events.into_iter().filter_map(outage).collect();
        Ok(Self { ranks, activity, outages, end })
    }

    fn times(&self, rank: u32, kind: ActivityKind) -> &[Duration] {
        self.activity.get(&(rank, kind)).map_or(&[], Vec::as_slice)
    }

    /// Says what is against a requirement.
    fn fault_of(&self, requirement: &Requirement) -> Option<String> {
        match *requirement {
            Requirement::Resume { within } => self.fault_of_resuming(within),
            Requirement::NoStandstill { above } => self.fault_of_standstills(above),
            Requirement::NoPacket { rail, rank, after } => {
                let is_meant = |of: &u32| rank.is_none_or(|rank| rank == *of);
                (0..self.ranks).filter(is_meant).find_map(|of| {
                    let mut times = [ActivityKind::Sent(rail), ActivityKind::Lost(rail)]
                        .into_iter()
                        .flat_map(|kind| self.times(of, kind))
                        .filter(|time| **time > after);
                    let first = times.next()?;
                    Some(format!("rank {of} sent one at {}", Seconds(*first)))
                })
            }
            Requirement::Packets { rail, rank, after } => {
                let is_meant = |of: &u32| rank.is_none_or(|rank| rank == *of);
                (0..self.ranks).filter(is_meant).find_map(|of| {
                    let last = self.times(of, ActivityKind::Sent(rail)).last();
                    match last {
                        Some(last) if *last > after => None,
                        Some(last) => {
                            Some(format!("the last of rank {of} was at {}", Seconds(*last)))
                        }
                        None => Some(format!("rank {of} sent none there")),
                    }
                })
            }
        }
    }

    fn fault_of_resuming(&self, within: Duration) -> Option<String> {
        if self.outages.is_empty() {
            return Some("no link went down".to_owned());
        }
        self.outages.iter().find_map(|(at, rule)| {
            let is_concerned = |rank: &u32| rule.rank.is_none_or(|of| of == *rank);
            (0..self.ranks).filter(is_concerned).find_map(|rank| {
                let times = self.times(rank, ActivityKind::Completed);
                if times.first().is_none_or(|first| first > at) {
                    let at = Seconds(*at);
                    return Some(format!(
                        "rank {rank} had completed nothing before the fault at {at}"
                    ));
                }
                let next = times.iter().find(|time| *time > at);
                // What ends before has no time to show it.
                let is_shown = match next {
                    Some(next) => *next - *at <= within,
                    None => self.end.saturating_sub(*at) <= within,
                };
                let fault = match next {
                    Some(next) => format!("completed nothing before {}", Seconds(*next)),
                    None => "completed nothing more".to_owned(),
                };
                (!is_shown)
                    .then(|| format!("after the fault at {} rank {rank} {fault}", Seconds(*at)))
            })
        })
    }

    fn fault_of_standstills(&self, above: Duration) -> Option<String> {
        (0..self.ranks).find_map(|rank| {
            let times = self.times(rank, ActivityKind::Completed);
            if times.is_empty() {
                return Some(format!("rank {rank} completed nothing"));
            }
            let longest = times.windows(2).max_by_key(|two| two[1] - two[0])?;
            let (from, to) = (longest[0], longest[1]);
            let told = || {
                let took = Seconds(to - from);
                format!("rank {rank} completed nothing for {took} from {}", Seconds(from))
            };
            (to - from > above).then(told)
        })
    }
}

/// A time in seconds.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s", self.0.as_secs_f64())
    }
}

/// Most bytes of activity that are read: some four hours of two ranks with two rails that never rest. A time of it takes
/// as much memory as its line.
const MAX_ACTIVITY: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// A run of two ranks and 10 seconds: link 1 goes down at 2 s; rank 0 completes until then, and again from 3 s to
    /// the end; rank 1 goes on over rail 0.
    fn seen() -> Seen {
        let every = |from: u64, to: u64| (from..to).step_by(10).map(ms).collect::<Vec<_>>();
        let rail_1 = [every(0, 2000), every(3000, 10_000)].concat();
        Seen {
            ranks: 2,
            activity: [
                ((0, ActivityKind::Completed), rail_1.clone()),
                ((0, ActivityKind::Sent(1)), rail_1),
                ((0, ActivityKind::Lost(1)), every(2000, 2500)),
                ((1, ActivityKind::Completed), every(0, 10_000)),
                ((1, ActivityKind::Sent(0)), every(0, 10_000)),
                ((1, ActivityKind::Sent(1)), every(0, 2000)),
            ]
            .into(),
            outages: vec![(ms(2000), LinkRule::parse("rail 1 down from 2s to 4s").unwrap())],
            end: ms(10_000),
        }
    }

    #[test]
    fn a_requirement_is_shown_or_the_first_rank_that_is_against_it_is_told() {
        for (text, fault) in [
            ("completions resume within 1s after each fault", None),
            (
                "completions resume within 900ms after each fault",
                Some("after the fault at 2.00 s rank 0 completed nothing before 3.00 s"),
            ),
            ("no standstill above 1010ms", None),
            ("no standstill above 1s", Some("rank 0 completed nothing for 1.01 s from 1.99 s")),
            ("no packet on rail 1 of rank 1 after 2s", None),
            ("no packet on rail 1 after 2s", Some("rank 0 sent one at 3.00 s")),
            ("packets on rail 1 of rank 0 after 9s", None),
            ("packets on rail 1 after 9s", Some("the last of rank 1 was at 1.99 s")),
            ("packets on rail 0 after 9s", Some("rank 0 sent none there")),
        ] {
            let requirement = Requirement::parse(text).unwrap();
            assert_eq!(seen().fault_of(&requirement).as_deref(), fault, "{text}");
        }
    }

    #[test]
    fn a_rank_that_began_after_the_fault_shows_no_recovery() {
        let outages = vec![(ms(0), LinkRule::parse("rail 1 of rank 1 down").unwrap())];
        let activity = [((1, ActivityKind::Completed), vec![ms(5), ms(9)])].into();
        let seen = Seen { outages, activity, ..seen() };
        let requirement = Requirement::parse("completions resume within 1s after each fault");
        let fault = "rank 1 had completed nothing before the fault at 0.00 s";
        assert_eq!(seen.fault_of(&requirement.unwrap()).as_deref(), Some(fault));
    }

    #[test]
    fn a_run_without_outages_shows_no_recovery() {
        let seen = Seen { outages: Vec::new(), ..seen() };
        let requirement = Requirement::parse("completions resume within 1s after each fault");
        assert_eq!(seen.fault_of(&requirement.unwrap()).as_deref(), Some("no link went down"));
    }
}
