//! Lesson files: world, script, text, question.

mod capture_data;
mod place;
mod question;
pub(crate) mod rule;
mod trial;
mod units;

use std::fmt;

use serde::Deserialize;
use thiserror::Error;

pub use capture_data::CaptureData;
pub use place::LessonFileError;
pub use question::{Question, Verdict};
pub use rule::Rule;
pub use trial::{
    ControlName, FabricData, FaultData, FlowData, ImpairmentData, PlotData, Quantity, Trial,
};
pub use units::{Rate, Span};

/// A lesson file.
///
/// ```
/// use roce_lab::Lesson;
///
/// let lessons = Lesson::all();
/// assert!(lessons.len() >= 12);
/// let lost = Lesson::find("lost-packet").unwrap();
/// assert_eq!(Lesson::find("4").unwrap().name, lost.name);
/// assert_eq!(Lesson::find("Lost-Packet").unwrap().name, lost.name);
/// assert!(Lesson::find("no such lesson").is_none());
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lesson {
    /// Number in the course, from 1; 0 for a lesson that is in none.
    #[serde(default)]
    pub number: u32,
    /// Name, one word; a lesson of the course has one.
    #[serde(default)]
    pub name: String,
    /// Title, one line.
    pub title: String,
    /// Summary, one line.
    pub summary: String,
    /// Hosts and the network between them.
    #[serde(default)]
    pub world: WorldData,
    /// The connection between the first two hosts.
    #[serde(default)]
    pub connection: ConnectionData,
    /// Memory regions registered at the start.
    #[serde(default)]
    pub region: Vec<RegionData>,
    /// Ring of all hosts, instead of a connection.
    pub ring: Option<RingData>,
    /// Capture of a real run, instead of a simulation.
    pub capture: Option<CaptureData>,
    /// Fabric of the trials: keys of [`FabricData`].
    #[serde(default)]
    pub fabric: toml::Table,
    /// Classes of events that are shown only with [`TextOptions::all_lines`](crate::TextOptions);
    /// see [`EventKind::class`](crate::EventKind::class).
    #[serde(default)]
    pub hide: Vec<String>,
    /// Sections in order.
    pub section: Vec<Section>,
    /// Question about the lesson.
    pub question: Question,
}

/// Hosts and the network between them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorldData {
    /// Names, 2 to 64.
    pub hosts: Vec<String>,
    /// Propagation delay of a link.
    pub delay: Span,
    /// Rate of a link; `None` is unlimited.
    pub rate: Option<Rate>,
    /// Send window in packets.
    pub window: Option<u32>,
    /// Packets are sent with ECT(0): switches may mark them.
    pub ect: bool,
}

/// The connection between the first two hosts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ConnectionData {
    /// Service of the queue pairs; those of `ud` are not connected.
    pub service: ServiceName,
    /// Queue pairs of each of the two hosts, 1 to 16; each is connected to one of the other host.
    pub queue_pairs: usize,
    /// The queue pairs of the second host share their receives.
    pub shared_receives: bool,
    /// Bring all queue pairs to RTS before the first section; otherwise the script does it.
    pub open: bool,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: usize,
    /// PSN of the first request of each end.
    pub first_psn: [u32; 2],
    /// ACK timeout: 4.096 µs · 2^this.
    pub ack_timeout: u8,
    /// Retries after an ACK timeout.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7 is unlimited.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub rnr_timer: u8,
}

/// Service of queue pairs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ServiceName {
    Rc,
    Uc,
    Ud,
}

/// Registered memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RegionData {
    /// Host.
    pub host: String,
    /// Name in the script.
    pub name: String,
    /// Length in bytes.
    pub bytes: usize,
    /// Initial text.
    #[serde(default)]
    pub text: String,
    /// Number in the first 8 bytes, in native byte order.
    pub number: Option<u64>,
    /// Fill the region with a test pattern.
    #[serde(default)]
    pub pattern: bool,
    /// Access rights; all by default.
    #[serde(default = "RegionData::all_rights")]
    pub rights: Vec<Right>,
}

/// Access right of a memory region.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Right {
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

/// A ring allreduce over all hosts: sum of floats.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RingData {
    /// Elements of the vector, at least one per rank.
    pub elements: u64,
}

/// A section: text, actions, simulation, inspections, text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Section {
    /// Text before the actions.
    #[serde(default)]
    pub say: String,
    /// Actions in order.
    #[serde(default, rename = "do")]
    pub actions: Vec<Action>,
    /// End of the section.
    #[serde(default)]
    pub until: Until,
    /// Keys of the lesson's fabric that differ in this section.
    #[serde(default)]
    pub fabric: toml::Table,
    /// Trials on the fabric, beside the actions.
    #[serde(default)]
    pub trial: Vec<Trial>,
    /// Plots of the trials.
    #[serde(default)]
    pub plot: Vec<PlotData>,
    /// Inspections at the end of the section.
    #[serde(default)]
    pub show: Vec<Inspect>,
    /// Statements about the lesson's trials so far, which must be true: `trial.figure < value`.
    #[serde(default)]
    pub check: Vec<String>,
    /// Text at the end.
    #[serde(default)]
    pub then: String,
}

/// Condition for the end of a section; by default no packet in flight and no request outstanding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Until {
    /// Number of further packets that are sent.
    pub sent: Option<usize>,
    /// Number of further packets that have arrived or are lost.
    pub settled: Option<usize>,
    /// Duration.
    pub time: Option<Span>,
    /// Part of an event's text.
    pub event: Option<String>,
    /// Number of ring steps that every rank has received and reduced.
    pub step: Option<u32>,
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(words) = &self.event {
            return write!(f, "an event with the words {words:?}");
        }
        match (self.sent, self.settled, self.step) {
            (Some(count), ..) => write!(f, "the transmission of {count} further packets"),
            (_, Some(count), _) => write!(f, "the arrival or loss of {count} further packets"),
            (.., Some(steps)) => write!(f, "step {steps} of the ring"),
            _ => f.write_str("rest"),
        }
    }
}

/// An action of the script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "kebab-case")]
#[allow(missing_docs)]
pub enum Action {
    /// Moves a queue pair to the next state.
    Modify { host: String, to: StateName },
    /// Posts receives.
    Receive {
        host: String,
        region: String,
        bytes: u32,
        #[serde(default = "one")]
        count: u32,
    },
    /// Arms the limit event of the shared receive queue.
    ArmLimit { limit: u32 },
    /// Posts SENDs.
    Send {
        from: String,
        region: String,
        bytes: u32,
        immediate: Option<u32>,
        #[serde(default = "one")]
        count: u32,
        /// Queue pair of the host, from 1.
        #[serde(default = "first")]
        pair: usize,
        /// Q_Key of a datagram, if it is not that of the receiver.
        q_key: Option<u32>,
    },
    /// Posts a WRITE; `key` replaces the region's key.
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
    /// The network does this to packets of a host; the next one sent is 1.
    Fault { from: String, rules: Vec<Rule> },
    /// The network loses all frames of a host from now on.
    Unplug { host: String },
    /// Ends [`Unplug`](Self::Unplug).
    Plug { host: String },
    /// Deregisters a region.
    Deregister { region: String },
    /// Starts the allreduce on every rank.
    StartRing {},
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum StateName {
    Init,
    Rtr,
    Rts,
}

/// An inspection at the end of a section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Inspect {
    /// Layers of a packet; the first packet of the lesson is 1.
    Layers(usize),
    /// First bytes of a region as text.
    Text { region: String, bytes: usize },
    /// First 8 bytes of a region as a number.
    Number { region: String },
    /// State and attributes of a queue pair.
    QueuePair { host: String },
    /// State of the shared receive queue.
    SharedReceives {},
    /// Counters of a host's engine.
    Counters { host: String, names: Vec<String> },
    /// Chunks of all ranks.
    Chunks {},
    /// Figures of the section's trials, a row each.
    Figures(Vec<String>),
    /// Limits of a flow's rate, one line for each change, at most so many.
    Rates { trial: String, flow: String, count: usize },
    /// Longest pauses of one PFC frame at usual rates.
    LongestPauses {},
    /// ACK timeouts by their exponent, and the time until the retries of the connection are used up.
    AckTimeouts(Vec<u8>),
    /// Drawing of the fabric.
    Drawing {},
}

/// Error of a lesson file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LessonError {
    /// The file is not a lesson.
    #[error("not a lesson: {0}")]
    Syntax(#[from] toml::de::Error),
    /// The script uses an unknown name.
    #[error("section {section}: unknown {what} {name:?}; use one of the lesson's own")]
    Unknown {
        /// Section, from 1; 0 is before the first.
        section: usize,
        /// Kind of the name: host, region, counter, …
        what: &'static str,
        /// Name.
        name: String,
    },
    /// A value is out of range.
    #[error("{what} cannot be {value}; `roce lab --new` prints the range of every key")]
    OutOfRange {
        /// Value that is out of range.
        what: &'static str,
        /// Given value.
        value: String,
    },
    /// The condition of `until` is never met.
    #[error("section {section}: {what} never happens; change `until`")]
    NeverHappens {
        /// Section, from 1.
        section: usize,
        /// Condition.
        what: String,
    },
    /// A statement is false.
    #[error("section {section}: {statement:?} is false: {why}")]
    False {
        /// Section, from 1.
        section: usize,
        /// Statement.
        statement: String,
        /// Values of both sides.
        why: String,
    },
    /// The engine refuses an action.
    #[error("section {section}: {why}")]
    Refused {
        /// Section, from 1.
        section: usize,
        /// Error of the engine.
        why: String,
    },
}

impl Lesson {
    /// Parses a lesson file.
    ///
    /// # Errors
    /// [`LessonError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, LessonError> {
        Ok(toml::from_str(text)?)
    }

    /// Returns the title, with the number if the lesson has one.
    pub fn full_title(&self) -> String {
        match self.number {
            0 => self.title.clone(),
            number => format!("Lesson {number}: {}", self.title),
        }
    }

    /// Returns all lessons in order.
    pub fn all() -> Vec<Self> {
        let parsed = FILES.iter().map(|text| Self::parse(text));
        parsed.collect::<Result<_, _>>().expect("the tests read every lesson")
    }

    /// Returns the lesson with this name, in letters of either case, or this number.
    pub fn find(name: &str) -> Option<Self> {
        let is_it = |it: &Self| it.name.eq_ignore_ascii_case(name) || it.number.to_string() == name;
        Self::all().into_iter().find(is_it)
    }
}

impl Default for WorldData {
    fn default() -> Self {
        Self {
            hosts: vec!["alice".to_owned(), "bob".to_owned()],
            delay: Span::from_nanos(2_000),
            rate: None,
            window: None,
            ect: false,
        }
    }
}

impl Default for ConnectionData {
    fn default() -> Self {
        Self {
            service: ServiceName::Rc,
            queue_pairs: 1,
            shared_receives: false,
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

const fn first() -> usize {
    1
}

/// A lesson with comments that explain every key: what to begin one's own with.
///
/// ```
/// let lesson = roce_lab::Lesson::parse(roce_lab::LESSON_TEMPLATE).unwrap();
/// assert!(roce_lab::LessonRun::simulate(&lesson).is_ok());
/// ```
pub const LESSON_TEMPLATE: &str = include_str!("../lessons/template.toml");

/// Files of the lessons in order.
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
    include_str!("../lessons/13-datagrams.toml"),
    include_str!("../lessons/14-shared-receives.toml"),
    include_str!("../lessons/15-congestion-marks.toml"),
    include_str!("../lessons/16-rate-control.toml"),
    include_str!("../lessons/17-pauses.toml"),
    include_str!("../lessons/18-incast.toml"),
    include_str!("../lessons/19-loss-and-order.toml"),
    include_str!("../lessons/20-collective-loss.toml"),
    include_str!("../lessons/21-traffic-classes.toml"),
    include_str!("../lessons/22-connection-manager.toml"),
    include_str!("../lessons/23-multicast.toml"),
    include_str!("../lessons/24-memory-windows.toml"),
    include_str!("../lessons/25-registration.toml"),
    include_str!("../lessons/26-completion-events.toml"),
    include_str!("../lessons/27-gids-and-routes.toml"),
    include_str!("../lessons/28-nccl-transports.toml"),
    include_str!("../lessons/29-rings-trees-channels.toml"),
];
