//! Events of scripted faults, as lines of a log.

use std::{fmt, time::Duration};

/// A packet, a call or a completion that met a rule of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultEvent {
    /// Place of the rule, from 0: in [`FaultConfig::script`](super::FaultConfig::script), or in
    /// [`FaultConfig::verbs`](super::FaultConfig::verbs), whose rules are counted behind those.
    pub rule: usize,
    /// Number of the event among those of the rule in its process, from 1; events with an
    /// [obstacle](Self::obstacle) are counted apart. What a process has only seen has 0.
    pub number: u64,
    /// Time since 1970.
    pub time: Duration,
    /// Process in which it happened.
    pub process: u32,
    /// Its rank, where there are ranks.
    pub rank: Option<u32>,
    /// The packet, call or completion, in words.
    pub subject: String,
    /// Why the fault has left it as it was, if it has.
    pub obstacle: Option<String>,
}

impl fmt::Display for FaultEvent {
    /// Writes the line of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, number, time, process, rank, subject, obstacle } = self;
        let rank = rank.map_or("-".to_owned(), |rank| rank.to_string());
        write!(f, "{rule}\t{number}\t{}\t{process}\t{rank}\t{subject}", time.as_nanos())?;
        obstacle.iter().try_for_each(|obstacle| write!(f, "\t{obstacle}"))
    }
}

/// Stands behind the name of a link that went down.
const DOWN: &str = " is down";

/// Stands before a packet at which a link goes down that it is not on.
const MEETS: &str = "meets ";

impl FaultEvent {
    /// Returns true if it is about a link, which went down or came back, or was seen to, and not about a packet.
    pub fn is_of_link(&self) -> bool {
        self.number == 0 || self.subject.starts_with("rail ")
    }

    /// Returns true if a link went down.
    pub fn begins_outage(&self) -> bool {
        self.is_of_link() && self.number > 0 && self.subject.ends_with(DOWN)
    }

    /// Returns true if it is a packet that a link has lost, or at which another link goes down.
    pub fn is_met(&self) -> bool {
        !self.is_of_link() || self.subject.starts_with(MEETS)
    }

    /// Returns the subject of an event about a packet at which another link goes down.
    pub(super) fn met(packet: &str) -> String {
        format!("{MEETS}{packet}")
    }

    /// Reads the line of a log; `None` if it is none.
    ///
    /// ```
    /// let line = "0\t1\t1500000000\t77\t-\tRC SEND Only with PSN 3, sent by queue pair 2";
    /// let event = roce_io::FaultEvent::parse(line).unwrap();
    /// assert_eq!((event.rule, event.rank), (0, None));
    /// assert_eq!(event.to_string(), line);
    /// ```
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(7, '\t');
        let rule = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        let time = Duration::from_nanos(parts.next()?.parse().ok()?);
        let process = parts.next()?.parse().ok()?;
        let rank = match parts.next()? {
            "-" => None,
            rank => Some(rank.parse().ok()?),
        };
        let subject = parts.next()?.to_owned();
        let obstacle = parts.next().map(str::to_owned);
        // A program may write what it likes, and this goes to a terminal.
        let mut texts = std::iter::once(&subject).chain(&obstacle);
        let is_plain = texts.all(|text| !text.chars().any(char::is_control));
        is_plain.then_some(Self { rule, number, time, process, rank, subject, obstacle })
    }
}
