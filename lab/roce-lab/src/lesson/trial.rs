//! Trials in lesson files: flows of real engines over a fabric.

use serde::Deserialize;

use super::{Rate, Rule, Span};

/// A trial of a section: the lesson's fabric with some keys replaced.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Name, one word.
    pub name: String,
    /// Keys of [`FabricData`] that differ from those of the lesson.
    #[serde(default)]
    pub with: toml::Table,
}

/// Hosts, switches and links, the configuration of all engines, and what the hosts send.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FabricData {
    /// Drawing of the fabric.
    pub drawing: String,
    /// Names, 2 to 64.
    pub hosts: Vec<String>,
    /// Names.
    pub switches: Vec<String>,
    /// Links: two names, and a rate if it is not `rate`.
    pub links: Vec<String>,
    /// Routes that are not the shortest: switch, host, and the next node.
    pub routes: Vec<[String; 3]>,
    /// Rate of a link.
    pub rate: Rate,
    /// Propagation delay of a link.
    pub delay: Span,
    /// Shared buffer of a switch in bytes.
    pub buffer: u64,
    /// Part of the free buffer that one queue may hold.
    pub alpha: f64,
    /// ECN marking: no marks below so many bytes, all above, and in percent the marks at the upper one.
    pub marking: Option<[u64; 3]>,
    /// The class of data is lossless.
    pub pfc: bool,
    /// Bytes from one port above which a switch sends XOFF, below the dynamic threshold.
    pub xoff: Option<u64>,
    /// Watchdog of pauses.
    pub watchdog: Option<Span>,
    /// Class of each DSCP; others have class 0.
    pub dscp_classes: Vec<[u8; 2]>,
    /// Every packet takes a random path.
    pub spray: bool,
    /// Probability that a link loses a frame.
    pub loss: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// DSCP of all packets but CNPs.
    pub dscp: u8,
    /// DSCP of CNPs.
    pub cnp_dscp: u8,
    /// Shortest time between two CNPs of a queue pair in µs.
    pub cnp_interval: u32,
    /// Congestion control of all engines.
    pub control: ControlName,
    /// Responders keep packets behind a missing one.
    pub kept: bool,
    /// The two ends of each connection have agreed to report gaps.
    pub reports: bool,
    /// Largest send window in packets.
    pub window: u32,
    /// Smallest send window in packets, to which losses may shrink it.
    pub least_window: u32,
    /// ACK timeout: 4.096 µs · 2^this.
    pub ack_timeout: u8,
    /// Path MTU in bytes.
    pub path_mtu: usize,
    /// Flows between hosts.
    pub flows: Vec<FlowData>,
    /// Number of messages that each receiver lets its senders send at once; without it, senders send
    /// when they want.
    pub grants: Option<u32>,
    /// Bytes of a ring allreduce over all hosts, beside the flows.
    pub allreduce: Option<u64>,
    /// Frames of hosts that are lost.
    pub impair: Vec<ImpairmentData>,
    /// Faults.
    pub faults: Vec<FaultData>,
    /// Longest virtual time.
    pub limit: Span,
    /// Time between two samples.
    pub sample: Span,
}

/// A flow: messages from a host to another, over a connection of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowData {
    /// Name; by default that of the sender.
    #[serde(default)]
    pub name: String,
    /// Sender.
    pub from: String,
    /// Receiver.
    pub to: String,
    /// Bytes, rounded up to messages.
    pub bytes: u64,
    /// Bytes of a message.
    #[serde(default = "default_message")]
    pub message: u32,
    /// Time at which the flow starts.
    #[serde(default = "default_start")]
    pub start: Span,
}

/// Frames of a host that are lost, by number from 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImpairmentData {
    /// Host.
    pub from: String,
    /// What the network does to its packets; the first is 1.
    pub rules: Vec<Rule>,
}

/// A fault of the fabric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultData {
    /// Start.
    pub at: Span,
    /// End, if it has one.
    pub until: Option<Span>,
    /// Host that pauses its switch.
    pub storm: Option<String>,
    /// Link that fails: two names.
    pub cut: Option<String>,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ControlName {
    Loss,
    Ecn,
    /// With the parameters of the DCQCN paper.
    Dcqcn,
    Swift,
}

/// A plot of a section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotData {
    /// Quantity.
    pub of: Quantity,
    /// Title.
    pub title: String,
    /// Trials; by default all of the section.
    #[serde(default)]
    pub trials: Vec<String>,
    /// Flows, by default all; of queues, the two names of the link in front of which they stand.
    #[serde(default)]
    pub names: Vec<String>,
    /// End of the plotted time, by default that of the longest trial.
    pub until: Option<Span>,
}

/// A quantity over time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Rate in Gbit/s that congestion control allows a flow.
    Rate,
    /// Payload in Gbit/s that arrives for a flow.
    Throughput,
    /// Bytes of data that wait at a port.
    Queue,
}

const fn default_message() -> u32 {
    65_536
}

const fn default_start() -> Span {
    Span::from_nanos(0)
}

impl Default for FabricData {
    fn default() -> Self {
        Self {
            drawing: String::new(),
            hosts: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
            rate: Rate::from_bits_per_sec(10_000_000_000),
            delay: Span::from_nanos(1_000),
            buffer: 32_000_000,
            alpha: 1.0,
            marking: None,
            pfc: false,
            xoff: None,
            watchdog: None,
            dscp_classes: vec![[26, 3], [48, 6]],
            spray: false,
            loss: 0.0,
            seed: 1,
            dscp: 26,
            cnp_dscp: 48,
            cnp_interval: 50,
            control: ControlName::Loss,
            kept: true,
            reports: false,
            window: 1024,
            least_window: 4,
            ack_timeout: 8,
            path_mtu: 1024,
            flows: Vec::new(),
            grants: None,
            allreduce: None,
            impair: Vec::new(),
            faults: Vec::new(),
            limit: Span::from_nanos(100_000_000),
            sample: Span::from_nanos(2_000),
        }
    }
}
