//! What happened of the scripted faults, and what did not.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use roce_io::FaultEventOf;
use roce_verbs::{FaultEvent, FaultSentence};

use super::times;
use crate::error::{CliError, Result};

/// Most bytes of a log that are read.
const MAX_LOG: u64 = 16 << 20;
/// Most events of a rule that are shown.
const MAX_SHOWN: usize = 8;

/// The events of each rule of a script; shown, it is a line for each rule and each event.
#[derive(Debug)]
pub(crate) struct Report {
    rules: Vec<(FaultSentence, Vec<FaultEvent>)>,
}

/// Reads the log of a run.
pub(crate) fn read_log(path: &Path) -> Result<Vec<FaultEvent>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(FaultEvent::parse).collect())
}

impl Report {
    /// Sorts events by rule and time.
    pub(crate) fn new(script: &[FaultSentence], mut events: Vec<FaultEvent>) -> Self {
        events.sort_by_key(|event| event.time);
        let mut rules: Vec<_> = script.iter().map(|rule| (*rule, Vec::new())).collect();
        for event in events {
            if let Some((_, of_rule)) = rules.get_mut(event.rule) {
                of_rule.push(event);
            }
        }
        Self { rules }
    }

    /// Prints the report on standard error.
    ///
    /// # Errors
    /// Names the rules that never happened, if the command is to fail because of them.
    pub(crate) fn finish(&self, judged: impl Fn(&FaultSentence) -> bool) -> Result {
        eprint!("{self}");
        let never = |(rule, of): &&(FaultSentence, Vec<FaultEvent>)| match rule {
            FaultSentence::Links(_) => outages(of) == 0,
            _ => of.iter().all(is_hindered),
        };
        let missed: Vec<_> =
            self.rules.iter().filter(never).filter(|(rule, _)| judged(rule)).collect();
        let is_of_packets = |(rule, _): &&&(_, _)| matches!(rule, FaultSentence::Packets(_));
        let of_packets = missed.iter().filter(is_of_packets).count();
        let of_links = missed.iter().filter(|(rule, _)| is_of_links(rule)).count();
        let reason = match (missed.len(), missed.iter().any(|(_, of)| !of.is_empty())) {
            (0, _) => return Ok(()),
            (count, _) if of_links == count => "the run ended before",
            (1, false) if of_packets == 0 => "no call or completion was the one it names",
            (1, false) => "no packet was the one it names",
            (1, true) => "the packet that it names could not be changed",
            (count, false) if of_packets == count => "no packets were those they name",
            (_, false) => "no packets, calls or completions were those they name",
            (_, true) => "no packets were those they name, or they could not be changed",
        };
        let faults = match missed.len() {
            1 => "a scripted fault".to_owned(),
            count => format!("{count} scripted faults"),
        };
        Err(CliError::new(format!("{faults} never happened: {reason}")))
    }
}

fn is_hindered(event: &FaultEvent) -> bool {
    event.obstacle.is_some()
}

/// Returns how often a link went down.
fn outages(events: &[FaultEvent]) -> u64 {
    let down = events.iter().filter(|event| event.kind == FaultEventOf::LinkDown);
    down.map(|event| event.number).max().unwrap_or(0)
}

fn is_of_links(rule: &FaultSentence) -> bool {
    matches!(rule, FaultSentence::Links(_))
}

/// Returns how often a rule happened, or how often it was hindered, and whether it may have been more often.
fn counted(events: &[&FaultEvent], hindered: bool) -> Option<(u64, &'static str)> {
    // Of many events only some are written, with their number in their process.
    let mut counts = BTreeMap::new();
    let mut written = 0;
    for event in events.iter().filter(|event| is_hindered(event) == hindered) {
        written += 1;
        let count = counts.entry(event.process).or_insert(0);
        *count = event.number.max(*count);
    }
    // A program that another one has replaced (execve) has counted anew in the same process.
    let count = counts.values().sum::<u64>().max(written);
    let least = if count > written { "at least " } else { "" };
    (count > 0).then_some((count, least))
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (place, (rule, events)) in self.rules.iter().enumerate() {
            write!(f, "roce: fault {}, {rule}: ", place + 1)?;
            let (of_link, others): (Vec<_>, Vec<_>) =
                events.iter().partition(|event| event.kind != FaultEventOf::Rule);
            let happened = match is_of_links(rule) {
                true => Some((outages(events), "")).filter(|(count, _)| *count > 0),
                false => counted(&others, false),
            };
            match happened {
                Some((count, least)) => write!(f, "happened {least}{}", times(count))?,
                None => write!(f, "never happened")?,
            }
            if is_of_links(rule)
                && let Some((count, least)) = counted(&others, false)
            {
                let packets = if count == 1 { "packet" } else { "packets" };
                write!(f, ", its ends lost {least}{count} {packets}")?;
            }
            match counted(&others, true) {
                Some((count, least)) => {
                    writeln!(f, ", could not change its packet {least}{}", times(count))?;
                }
                None => writeln!(f)?,
            }
            let mut shown: Vec<_> =
                of_link.iter().take(MAX_SHOWN).chain(others.iter().take(MAX_SHOWN)).collect();
            shown.sort_by_key(|event| event.time);
            for event in &shown {
                writeln!(f, "roce:   {}", Line(event))?;
            }
            if events.len() > shown.len() {
                writeln!(f, "roce:   and later ones")?;
            }
        }
        Ok(())
    }
}

/// A line about an event.
struct Line<'a>(&'a FaultEvent);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let FaultEvent { time, process, rank, subject, obstacle, .. } = self.0;
        write!(f, "{} ", TimeOfDay(*time))?;
        if let Some(rank) = rank {
            write!(f, "rank {rank}, ")?;
        }
        if rank.is_some() {
            write!(f, "process {process}: ")?;
        }
        f.write_str(subject)?;
        obstacle.iter().try_for_each(|obstacle| write!(f, ", {obstacle}"))
    }
}

/// Time of day in UTC, as captures show it.
struct TimeOfDay(Duration);

impl Display for TimeOfDay {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.as_secs() % 86_400, self.0.subsec_micros());
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{micros:06}", seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rule: usize, number: u64, rank: Option<u32>) -> FaultEvent {
        let time = Duration::from_nanos(86_400_000_000_000 + 3_661_000_002_000);
        let subject = "RC SEND Only with PSN 3, sent by queue pair 2".to_owned();
        let kind = FaultEventOf::Rule;
        FaultEvent { rule, number, time, process: 7, rank, kind, subject, obstacle: None }
    }

    #[test]
    fn a_report_names_each_rule_its_packets_and_their_times() {
        let script = ["drop request 3", "drop every ack", "drop nak 1"];
        let script = script.map(|rule| FaultSentence::parse(rule).unwrap());
        let many = (1..=16).chain([32]).map(|number| event(1, number, None));
        let events = many.chain([event(0, 1, Some(2)), event(9, 1, None)]).collect();
        let report = Report::new(&script, events);
        let shown = report.to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "roce: fault 1, drop request 3: happened once");
        assert_eq!(
            lines[1],
            "roce:   01:01:01.000002 rank 2, process 7: RC SEND Only with PSN 3, sent by queue pair 2"
        );
        assert_eq!(lines[2], "roce: fault 2, drop every ack: happened at least 32 times");
        assert_eq!(lines[11], "roce:   and later ones");
        assert_eq!(lines[12..], ["roce: fault 3, drop nak 1: never happened"]);
        assert!(report.finish(|_| true).is_err());
        assert!(report.finish(|rule| *rule != script[2]).is_ok());
    }

    #[test]
    fn a_link_is_told_by_its_outages_and_the_packets_that_its_ends_lost() {
        let script = ["rail 1 flap every 2s for 50ms", "rail 0 down from 9s"];
        let script = script.map(|rule| FaultSentence::parse(rule).unwrap());
        let of_link = |kind, number, subject: &str| FaultEvent {
            kind,
            subject: subject.to_owned(),
            ..event(0, number, None)
        };
        let events = vec![
            of_link(FaultEventOf::LinkDown, 1, "rail 1 is down"),
            event(0, 1, Some(2)),
            of_link(FaultEventOf::Carrier, 1, "sees the carrier of rail 1 lost"),
            of_link(FaultEventOf::LinkUp, 1, "rail 1 is up"),
            of_link(FaultEventOf::LinkDown, 2, "rail 1 is down"),
        ];
        let report = Report::new(&script, events);
        let shown = report.to_string();
        let told = "roce: fault 1, rail 1 flap every 2s for 50ms: happened twice, its ends lost 1 packet\n";
        assert!(shown.starts_with(told), "{shown}");
        assert!(shown.ends_with("roce: fault 2, rail 0 down from 9s: never happened\n"), "{shown}");
        assert!(report.finish(|_| true).is_err());
    }

    #[test]
    fn a_packet_that_could_not_be_changed_is_told_with_the_reason() {
        let script = [FaultSentence::parse("mark requests 1 to 2").unwrap()];
        let hindered = |number| {
            let obstacle = Some("not marked: its sender has set no ECT".to_owned());
            FaultEvent { obstacle, ..event(0, number, None) }
        };
        let report = Report::new(&script, vec![hindered(1), hindered(2)]);
        let shown = report.to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "roce: fault 1, mark request 1 to 2: never happened, could not change its packet twice"
        );
        assert!(lines[1].ends_with("pair 2, not marked: its sender has set no ECT"), "{shown}");
        let Err(CliError::Message(error)) = report.finish(|_| true) else { panic!("it fails") };
        assert!(error.ends_with("the packet that it names could not be changed"), "{error}");
        let shown = Report::new(&script, vec![hindered(1), event(0, 1, None)]).to_string();
        assert!(shown.contains(": happened once, could not change its packet once"), "{shown}");
    }
}
