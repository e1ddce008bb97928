//! The parameters of a test, which the client sends to the server.

use std::time::Duration;

use clap::ValueEnum;
use roce_verbs::{AckTimeout, ConnectOptions, GRH_LEN, Service};
use serde::{Deserialize, Serialize};

use super::working_set::WorkingSet;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    /// Message into a posted receive of the server
    Send,
    /// Write to the server's memory
    Write,
    /// Read from the server's memory
    Read,
    /// Change eight bytes of the server's memory
    Atomic,
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Test {
    /// Bandwidth: many outstanding messages
    Bw,
    /// Latency: one outstanding message
    Lat,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum AtomicKind {
    /// Compare and swap
    #[value(name = "CMP_AND_SWAP")]
    CompareAndSwap,
    /// Fetch and add
    FetchAndAdd,
}

/// The service of the queue pairs, by perftest's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[value(rename_all = "UPPER")]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Connection {
    /// Reliable connection
    #[default]
    Rc,
    /// Unreliable connection (send and write)
    Uc,
    /// Datagrams (send)
    Ud,
}

impl Connection {
    /// Returns the service of the queue pairs.
    pub(crate) const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud => Service::Ud,
        }
    }

    /// Returns perftest's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }

    /// Returns true if messages may be lost.
    pub(crate) const fn is_unreliable(self) -> bool {
        !matches!(self, Self::Rc)
    }

    /// Returns the bytes in front of each received message.
    pub(crate) const fn header_len(self) -> u32 {
        if matches!(self, Self::Ud) { GRH_LEN as u32 } else { 0 }
    }

    /// Returns true if this service has the operation.
    pub(crate) const fn has(self, verb: Verb) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => matches!(verb, Verb::Send | Verb::Write),
            Self::Ud => matches!(verb, Verb::Send),
        }
    }
}

/// The parameters that both ends share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Params {
    pub(crate) verb: Verb,
    pub(crate) test: Test,
    pub(crate) connection: Connection,
    /// Static rate of a service without acknowledgements, in Gbit/s.
    pub(crate) rate: Option<f64>,
    /// Bytes of a message, with one run for each size.
    pub(crate) sizes: Vec<u32>,
    /// Messages of each size on each queue pair, without a duration.
    pub(crate) iterations: u64,
    /// Duration in seconds.
    pub(crate) duration: Option<f64>,
    /// Seconds at both ends of a duration that are not measured.
    pub(crate) margin: f64,
    pub(crate) tx_depth: u32,
    pub(crate) rx_depth: u32,
    pub(crate) qps: u32,
    /// Bytes; the smaller value of the two ends.
    pub(crate) path_mtu: Option<usize>,
    pub(crate) cq_mod: Option<u32>,
    /// Requests posted with each call.
    pub(crate) post_list: u32,
    pub(crate) outs: u8,
    pub(crate) atomic: AtomicKind,
    /// Largest inline message in bytes.
    pub(crate) inline: u32,
    pub(crate) qp_timeout: u8,
    /// Bytes of the buffer that consecutive messages cycle through.
    pub(crate) working_set: Option<u64>,
    /// Traffic class of every packet.
    #[serde(default)]
    pub(crate) traffic_class: u8,
}

impl Params {
    /// Returns the bytes of the longest message.
    pub(crate) fn longest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Returns the time for which a request without a response is retried; `None`: forever.
    pub(crate) fn retries(&self) -> Option<Duration> {
        let timeout = AckTimeout::new(self.qp_timeout).and_then(AckTimeout::duration)?;
        Some(timeout * (u32::from(ConnectOptions::default().retry_count) + 1))
    }

    /// Returns the positions of messages of this size.
    pub(crate) fn working_set(&self, size: u32) -> WorkingSet {
        WorkingSet::new(size, self.connection.header_len(), self.working_set)
    }

    /// Returns the minimum bytes of each half of an end's memory.
    pub(crate) fn room(&self) -> u64 {
        let longest = u64::from(self.connection.header_len()) + u64::from(self.longest());
        longest.max(self.working_set.unwrap_or(0))
    }

    /// Returns the static rate in bytes per second.
    pub(crate) fn max_rate(&self) -> Option<u64> {
        self.rate.map(|gbits| ((gbits * 1e9 / 8.0) as u64).max(1))
    }

    /// Returns the messages to each queue pair, if the receiver knows their number.
    pub(crate) fn known_messages(&self) -> Option<u64> {
        let is_known = self.duration.is_none() && !self.connection.is_unreliable();
        is_known.then_some(self.iterations)
    }

    /// Returns true if received data can be compared with sent data. A message behind a lost one, or
    /// overtaken by another, is in another position than it was sent from.
    pub(crate) fn is_comparable(&self, size: u32, lost: u64) -> bool {
        let in_order = self.connection != Connection::Ud || self.working_set(size).places() == 1;
        lost == 0 && in_order && self.test == Test::Bw && self.verb != Verb::Atomic
    }

    /// Returns the total depth of all queues.
    pub(crate) fn requests(&self) -> u64 {
        let each = u64::from(self.tx_depth) + u64::from(self.rx_depth);
        each * u64::from(self.qps)
    }

    /// Returns the messages per completion for this size, as perftest: fewer completions help small
    /// messages only. At most the depth of the queue.
    pub(crate) fn moderation(&self, size: u32) -> u32 {
        let usual = if size > MAX_SIZE_OF_RARE_COMPLETIONS { 1 } else { 100 };
        self.cq_mod.unwrap_or(usual).min(self.tx_depth)
    }

    /// Returns why lists of this length are invalid, if they are. The rules are perftest's, which
    /// posts whole lists only.
    pub(crate) fn list_error(&self) -> Option<String> {
        let list = self.post_list;
        if list <= 1 {
            return None;
        }
        if self.test == Test::Lat {
            return Some("-l needs bw: leave it out".to_owned());
        }
        if list > self.tx_depth {
            let depth = self.tx_depth;
            return Some(format!(
                "a list of {list} requests does not fit into a queue of {depth}: lower -l or \
                 raise -t"
            ));
        }
        if self.duration.is_none() && !self.iterations.is_multiple_of(u64::from(list)) {
            let iterations = self.iterations;
            return Some(format!(
                "{iterations} messages are not a multiple of the list of {list}: choose -n as a \
                 multiple of -l"
            ));
        }
        let each = self.cq_mod.unwrap_or(list);
        (!list.is_multiple_of(each)).then(|| {
            format!(
                "a list of {list} requests is not a multiple of the completion moderation {each}: \
                 choose -l as a multiple of -Q"
            )
        })
    }

    /// Returns true if a peer's parameters are within the limits.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=64).contains(&self.sizes.len())
            && self.room() <= MAX_BUFFER_BYTES
            && (1..=16384).contains(&self.tx_depth)
            && (1..=16384).contains(&self.rx_depth)
            && (1..=4096).contains(&self.qps)
            && self.requests() <= MAX_REQUESTS
            && self.post_list >= 1
            && (1..=128).contains(&self.outs)
            && self.connection.has(self.verb)
            && self.rate.is_none_or(|rate| (MIN_RATE..=MAX_RATE).contains(&rate))
    }
}

/// The smallest static rate in Gbit/s.
pub(crate) const MIN_RATE: f64 = 1e-6;
/// The largest static rate in Gbit/s.
pub(crate) const MAX_RATE: f64 = 1e4;
/// The largest message in bytes with few completions.
const MAX_SIZE_OF_RARE_COMPLETIONS: u32 = 8192;
/// The most bytes of one half of an end's memory: those of the longest message.
pub(crate) const MAX_BUFFER_BYTES: u64 = 1 << 31;
/// The most requests in all queues: the limit of a completion queue.
pub(crate) const MAX_REQUESTS: u64 = 1 << 22;

#[cfg(test)]
pub(crate) fn example() -> Params {
    Params {
        verb: Verb::Write,
        test: Test::Bw,
        connection: Connection::Rc,
        rate: None,
        sizes: vec![65536],
        iterations: 5000,
        duration: None,
        margin: 0.0,
        tx_depth: 128,
        rx_depth: 512,
        qps: 1,
        path_mtu: Some(4096),
        cq_mod: None,
        post_list: 1,
        outs: 16,
        atomic: AtomicKind::FetchAndAdd,
        inline: 0,
        qp_timeout: 14,
        working_set: None,
        traffic_class: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::example;

    #[test]
    fn parameters_arrive_unchanged_at_the_peer() {
        let params = example();
        let line = serde_json::to_string(&params).unwrap();
        assert_eq!(serde_json::from_str::<super::Params>(&line).unwrap(), params);
    }

    #[test]
    fn a_full_queue_always_has_a_completion() {
        let mut params = example();
        assert_eq!((params.moderation(65536), params.moderation(64)), (1, 100));
        params.tx_depth = 4;
        assert_eq!(params.moderation(64), 4);
    }

    #[test]
    fn a_list_must_fit_the_queue_the_run_and_the_completions() {
        let params = |post_list, tx_depth, iterations, cq_mod| {
            let params = example();
            super::Params { post_list, tx_depth, iterations, cq_mod, ..params }
        };
        for taken in
            [params(1, 1, 7, Some(5)), params(64, 64, 128, None), params(64, 128, 640, Some(32))]
        {
            assert_eq!(taken.list_error(), None);
        }
        let over_time = super::Params { duration: Some(1.0), ..params(64, 128, 5000, None) };
        assert_eq!(over_time.list_error(), None);
        let names_option = |params: super::Params, option| {
            let why = params.list_error().unwrap();
            assert!(why.contains(option), "{why}");
        };
        names_option(params(64, 63, 128, None), "-t");
        names_option(params(64, 128, 5000, None), "-n");
        names_option(params(64, 128, 640, Some(48)), "-Q");
        names_option(super::Params { test: super::Test::Lat, ..params(2, 128, 128, None) }, "bw");
    }

    #[test]
    fn a_peer_cannot_request_unbounded_memory_or_what_a_service_lacks() {
        let plans = [
            super::Params { sizes: vec![u32::MAX], ..example() },
            super::Params { sizes: vec![2; 65], ..example() },
            super::Params { qps: 1 << 20, ..example() },
            super::Params { rx_depth: 1 << 20, ..example() },
            super::Params { qps: 4096, tx_depth: 16384, ..example() },
            super::Params { working_set: Some(1 << 32), ..example() },
            super::Params { connection: super::Connection::Ud, ..example() },
            super::Params { rate: Some(f64::NAN), ..example() },
        ];
        assert!(plans.iter().all(|params| !params.is_valid()));
        assert!(example().is_valid());
    }
}
