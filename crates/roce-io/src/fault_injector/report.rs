//! Events of scripted faults, as lines of a log.

use std::{fmt, time::Duration};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEventOf {
    /// A packet, a call or a completion met the rule.
    Rule,
    /// A packet came by at which a link goes down that it is not on.
    Outage,
    /// A link went down.
    LinkDown,
    /// A link came back.
    LinkUp,
    /// A process saw the carrier of a link change.
    Carrier,
}

/// Words of a log.
const KINDS: [(FaultEventOf, &str); 5] = [
    (FaultEventOf::Rule, "rule"),
    (FaultEventOf::Outage, "outage"),
    (FaultEventOf::LinkDown, "link-down"),
    (FaultEventOf::LinkUp, "link-up"),
    (FaultEventOf::Carrier, "carrier"),
];

/// Something that met a rule of the script, or follows from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultEvent {
    /// Place of the rule, from 0: in [`FaultConfig::script`](super::FaultConfig::script), or in
    /// [`FaultConfig::verbs`](super::FaultConfig::verbs), whose rules are counted behind those.
    pub rule: usize,
    /// Number of the event among those of the rule in its process, from 1; events with an
    /// [obstacle](Self::obstacle) are counted apart, as is each [kind](Self::kind).
    pub number: u64,
    /// Time since 1970.
    pub time: Duration,
    /// Process in which it happened.
    pub process: u32,
    /// Its rank, where there are ranks.
    pub rank: Option<u32>,
    /// What it is about.
    pub kind: FaultEventOf,
    /// The packet, call, completion or link, in words.
    pub subject: String,
    /// Why the fault has left it as it was, if it has.
    pub obstacle: Option<String>,
}

impl fmt::Display for FaultEvent {
    /// Writes the line of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, number, time, process, rank, kind, subject, obstacle } = self;
        let rank = rank.map_or("-".to_owned(), |rank| rank.to_string());
        let time = time.as_nanos();
        let kind = KINDS.iter().find(|(known, _)| known == kind).map_or("", |(_, word)| word);
        write!(f, "{rule}\t{number}\t{time}\t{process}\t{rank}\t{kind}\t{subject}")?;
        obstacle.iter().try_for_each(|obstacle| write!(f, "\t{obstacle}"))
    }
}

impl FaultEvent {
    /// Reads the line of a log; `None` if it is none.
    ///
    /// ```
    /// let line = "0\t1\t1500000000\t77\t-\trule\tRC SEND Only with PSN 3, sent by queue pair 2";
    /// let event = roce_io::FaultEvent::parse(line).unwrap();
    /// assert_eq!((event.rule, event.rank), (0, None));
    /// assert_eq!(event.to_string(), line);
    /// ```
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(8, '\t');
        let rule = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        let time = Duration::from_nanos(parts.next()?.parse().ok()?);
        let process = parts.next()?.parse().ok()?;
        let rank = match parts.next()? {
            "-" => None,
            rank => Some(rank.parse().ok()?),
        };
        let word = parts.next()?;
        let (kind, _) = *KINDS.iter().find(|(_, known)| *known == word)?;
        let subject = parts.next()?.to_owned();
        let obstacle = parts.next().map(str::to_owned);
        // A program may write what it likes, and this goes to a terminal.
        let mut texts = std::iter::once(&subject).chain(&obstacle);
        let is_plain = texts.all(|text| !text.chars().any(char::is_control));
        is_plain.then_some(Self { rule, number, time, process, rank, kind, subject, obstacle })
    }
}
