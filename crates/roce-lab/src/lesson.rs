//! Lessons as data: a world, what is posted, what fails, the words to it, and a question.

mod units;

use std::fmt;

use serde::Deserialize;
use thiserror::Error;

pub use units::{Rate, Span};

/// One lesson, as its file says it.
///
/// ```
/// use roce_lab::Lesson;
///
/// let lessons = Lesson::all();
/// assert!(lessons.len() >= 12);
/// let lost = Lesson::find("lost-packet").unwrap();
/// assert_eq!(Lesson::find("4").unwrap().name, lost.name);
/// assert!(Lesson::find("no such lesson").is_none());
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lesson {
    /// Its place in the course, from 1.
    pub number: u32,
    /// One word to call it by.
    pub name: String,
    /// What it is about, in one line.
    pub title: String,
    /// What one knows afterwards, in one line.
    pub summary: String,
    /// Hosts and the network between them.
    #[serde(default)]
    pub world: WorldData,
    /// The connection between the first two hosts.
    #[serde(default)]
    pub connection: ConnectionData,
    /// Memory registered before anything happens.
    #[serde(default)]
    pub region: Vec<RegionData>,
    /// A ring of all hosts, instead of a connection.
    pub ring: Option<RingData>,
    /// Classes of events that are told only when everything is asked for; see
    /// [`EventKind::class`](crate::EventKind::class).
    #[serde(default)]
    pub hide: Vec<String>,
    /// What happens, in order.
    pub section: Vec<Section>,
    /// What one should be able to answer now.
    pub question: Question,
}

/// Hosts and the network between them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorldData {
    /// Names, 2 or more.
    pub hosts: Vec<String>,
    /// One way along a link.
    pub delay: Span,
    /// Bits a second.
    pub rate: Option<Rate>,
    /// Packets that may be on their way unacknowledged.
    pub window: Option<u32>,
}

/// The connection between the first two hosts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ConnectionData {
    /// Brought to RTS before the first moment; otherwise the script does it.
    pub open: bool,
    /// Bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: usize,
    /// PSN of either end's first request.
    pub first_psn: [u32; 2],
    /// 4.096 µs · 2^this.
    pub ack_timeout: u8,
    /// Times to send again after silence.
    pub retry_count: u8,
    /// Times to try again after RNR; 7 is for ever.
    pub rnr_retry: u8,
    /// Code of the RNR wait.
    pub rnr_timer: u8,
}

/// Registered memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RegionData {
    /// Whose.
    pub host: String,
    /// Its name in the script.
    pub name: String,
    /// How much.
    pub bytes: usize,
    /// Text at its start.
    #[serde(default)]
    pub text: String,
    /// A number in its first 8 bytes, in the machine's order.
    pub number: Option<u64>,
    /// A pattern that makes every byte recognisable.
    #[serde(default)]
    pub pattern: bool,
    /// What may be done to it: everything, unless it says less.
    #[serde(default = "RegionData::all_rights")]
    pub rights: Vec<Right>,
}

/// What may be done to memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Right {
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

/// A ring allreduce over all hosts: the sum, in float, one element a chunk.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RingData {
    /// Elements of the vector, at least one a rank.
    pub elements: u64,
}

/// A stretch of time: words, what the script does, how long to watch, words again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Section {
    /// Said before anything happens.
    #[serde(default)]
    pub say: String,
    /// What the script does, in order.
    #[serde(default, rename = "do")]
    pub actions: Vec<Action>,
    /// How long to watch.
    #[serde(default)]
    pub until: Until,
    /// Shown when the watching is over.
    #[serde(default)]
    pub show: Vec<Inspect>,
    /// Said at the end.
    #[serde(default)]
    pub then: String,
}

/// How long to watch: until nothing happens any more by itself, unless it says less.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Until {
    /// Until so many more packets have left.
    pub sent: Option<usize>,
    /// Until so many more packets have arrived or are lost.
    pub settled: Option<usize>,
    /// This long.
    pub time: Option<Span>,
    /// Until a host says something that contains these words.
    pub event: Option<String>,
    /// Until every rank of the ring has received and reduced so many steps.
    pub step: Option<u32>,
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(words) = &self.event {
            return write!(f, "an event with the words {words:?}");
        }
        match (self.sent, self.settled, self.step) {
            (Some(count), ..) => write!(f, "that {count} more packets leave"),
            (_, Some(count), _) => write!(f, "that {count} more packets arrive or are lost"),
            (.., Some(steps)) => write!(f, "step {steps} of the ring"),
            _ => f.write_str("rest"),
        }
    }
}

/// Something that the script does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Action {
    /// Brings one end of the connection one state further.
    Modify { host: String, to: StateName },
    /// Posts receives.
    Receive {
        host: String,
        region: String,
        bytes: u32,
        #[serde(default = "one")]
        count: u32,
    },
    /// Posts SENDs.
    Send {
        from: String,
        region: String,
        bytes: u32,
        immediate: Option<u32>,
        #[serde(default = "one")]
        count: u32,
    },
    /// Posts a WRITE; `key` is used instead of the right one.
    Write {
        from: String,
        region: String,
        bytes: u32,
        to: String,
        #[serde(default)]
        offset: u64,
        key: Option<u32>,
        immediate: Option<u32>,
    },
    /// Posts a READ.
    Read { from: String, into: String, bytes: u32, of: String },
    /// Posts a compare-and-swap of the first word of a region.
    CompareSwap { from: String, into: String, of: String, compare: u64, swap: u64 },
    /// Posts a fetch-and-add to the first word of a region.
    FetchAdd { from: String, into: String, of: String, add: u64 },
    /// Of the frames that a host sends from now on, these are lost; the first is 1.
    Lose { from: String, frames: Vec<usize> },
    /// One frame arrives with a bit flipped.
    Damage { from: String, frame: usize, bit: usize },
    /// One frame arrives late.
    Delay { from: String, frame: usize, by: Span },
    /// One frame arrives twice.
    Copy { from: String, frame: usize, lag: Span },
    /// All that a host sends from now on is lost.
    Unplug { host: String },
    /// It is not lost any more.
    Plug { host: String },
    /// Ends a registration.
    Deregister { region: String },
    /// Starts the allreduce on every rank.
    StartRing {},
}

/// A state to bring a queue pair to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum StateName {
    Init,
    Rtr,
    Rts,
}

/// Something shown at the end of a moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Inspect {
    /// A packet's layers; the first packet of the lesson is 1.
    Layers(usize),
    /// The first bytes of a region as text.
    Text { region: String, bytes: usize },
    /// The first word of a region as a number.
    Number { region: String },
    /// What a queue pair knows of itself.
    QueuePair { host: String },
    /// Counters of a host's engine, by name.
    Counters { host: String, names: Vec<String> },
    /// What every rank has in every chunk.
    Chunks {},
}

/// A question and its answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What is asked.
    pub ask: String,
    /// What is right, and why.
    pub answer: String,
}

/// Why a lesson cannot be given: its file is wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LessonError {
    /// The file is not a lesson.
    #[error("not a lesson: {0}")]
    Syntax(#[from] toml::de::Error),
    /// The script names something that is not there.
    #[error("section {section}: there is no {what} called {name:?}; name one of the lesson's own")]
    Unknown {
        /// Which moment, from 1; 0 is before the first.
        section: usize,
        /// Host, region, counter, …
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A value is out of its range.
    #[error("{what} cannot be {value}; its range is in crates/roce-lab/lessons/README.md")]
    OutOfRange {
        /// Which.
        what: &'static str,
        /// What it says.
        value: String,
    },
    /// What the script waits for does not happen.
    #[error("section {section}: {what} never happens; wait for something else")]
    NeverHappens {
        /// Which moment, from 1.
        section: usize,
        /// What was waited for.
        what: String,
    },
    /// The engine refuses what the script does.
    #[error("section {section}: {why}")]
    Refused {
        /// Which moment, from 1.
        section: usize,
        /// What the engine says.
        why: String,
    },
}

impl Lesson {
    /// Reads a lesson from the text of its file.
    ///
    /// # Errors
    /// [`LessonError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, LessonError> {
        Ok(toml::from_str(text)?)
    }

    /// The course, in order.
    pub fn all() -> Vec<Self> {
        let parsed = FILES.iter().map(|text| Self::parse(text));
        parsed.collect::<Result<_, _>>().expect("the tests read every lesson")
    }

    /// The lesson of this name or number.
    pub fn find(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|it| it.name == name || it.number.to_string() == name)
    }
}

impl Default for WorldData {
    fn default() -> Self {
        Self {
            hosts: vec!["alice".to_owned(), "bob".to_owned()],
            delay: Span::from_nanos(2_000),
            rate: None,
            window: None,
        }
    }
}

impl Default for ConnectionData {
    fn default() -> Self {
        Self {
            open: true,
            path_mtu: 1024,
            first_psn: [100, 500],
            ack_timeout: 5,
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: 1,
        }
    }
}

impl RegionData {
    fn all_rights() -> Vec<Right> {
        vec![Right::LocalWrite, Right::RemoteRead, Right::RemoteWrite, Right::RemoteAtomic]
    }
}

const fn one() -> u32 {
    1
}

/// The files of the course.
const FILES: &[&str] = &[
    include_str!("../lessons/01-one-packet.toml"),
    include_str!("../lessons/02-queue-pairs.toml"),
    include_str!("../lessons/03-acknowledgements.toml"),
    include_str!("../lessons/04-lost-packet.toml"),
    include_str!("../lessons/05-lost-ack.toml"),
    include_str!("../lessons/06-timeouts.toml"),
    include_str!("../lessons/07-not-ready.toml"),
    include_str!("../lessons/08-read.toml"),
    include_str!("../lessons/09-atomics.toml"),
    include_str!("../lessons/10-keys.toml"),
    include_str!("../lessons/11-one-write.toml"),
    include_str!("../lessons/12-ring.toml"),
];
