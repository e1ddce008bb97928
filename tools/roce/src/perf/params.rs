//! What is measured, and how: the client decides, the server follows.

use std::time::Duration;

use clap::ValueEnum;
use roce_verbs::{AckTimeout, ConnectOptions};
use serde::{Deserialize, Serialize};

use super::working_set::WorkingSet;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    /// Both ends take part: a message into a posted receive
    Send,
    /// Into the server's memory, without its help
    Write,
    /// Out of the server's memory, without its help
    Read,
    /// Change eight bytes of the server's memory
    Atomic,
}

/// A quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Test {
    /// Bandwidth: many messages under way
    Bw,
    /// Latency: one message under way
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

/// The settings that both ends must share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Params {
    pub(crate) verb: Verb,
    pub(crate) test: Test,
    /// Bytes of a message, one run for each.
    pub(crate) sizes: Vec<u32>,
    /// Messages of each size on each queue pair, unless there is a duration.
    pub(crate) iterations: u64,
    /// Seconds.
    pub(crate) duration: Option<f64>,
    /// Seconds at both ends of a duration that do not count.
    pub(crate) margin: f64,
    pub(crate) tx_depth: u32,
    pub(crate) rx_depth: u32,
    pub(crate) qps: u32,
    /// Bytes; agreed on when the ends synchronize.
    pub(crate) path_mtu: Option<usize>,
    pub(crate) cq_mod: Option<u32>,
    /// Requests posted with each call.
    pub(crate) post_list: u32,
    pub(crate) outs: u8,
    pub(crate) atomic: AtomicKind,
    /// Bytes.
    pub(crate) inline: u32,
    pub(crate) qp_timeout: u8,
    /// Bytes that messages go through, one behind the other.
    pub(crate) working_set: Option<u64>,
}

impl Params {
    /// Bytes of the longest message.
    pub(crate) fn longest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// For how long a request is sent again that is not answered; `None`: for ever.
    pub(crate) fn retries(&self) -> Option<Duration> {
        let timeout = AckTimeout::new(self.qp_timeout).and_then(AckTimeout::duration)?;
        Some(timeout * (u32::from(ConnectOptions::default().retry_count) + 1))
    }

    /// Where messages of this size lie.
    pub(crate) fn working_set(&self, size: u32) -> WorkingSet {
        WorkingSet::new(size, self.working_set)
    }

    /// Bytes of each half of an end's memory, at least.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.longest()).max(self.working_set.unwrap_or(0))
    }

    /// How many requests the queues of all queue pairs hold together.
    pub(crate) fn requests(&self) -> u64 {
        let each = u64::from(self.tx_depth) + u64::from(self.rx_depth);
        each * u64::from(self.qps)
    }

    /// One completion in so many messages of this size: as perftest, which finds that few
    /// completions help small messages only. Never more than may be under way.
    pub(crate) fn moderation(&self, size: u32) -> u32 {
        let usual = if size > MAX_SIZE_OF_RARE_COMPLETIONS { 1 } else { 100 };
        self.cq_mod.unwrap_or(usual).min(self.tx_depth)
    }

    /// Why lists of this length cannot be posted; `None` if they can. The rules are perftest's,
    /// whose loop posts whole lists only.
    pub(crate) fn list_error(&self) -> Option<String> {
        let list = self.post_list;
        if list <= 1 {
            return None;
        }
        if self.test == Test::Lat {
            return Some("lists of requests go with bw: leave out -l".to_owned());
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
                "{iterations} messages are no whole number of lists of {list}: choose -n as a \
                 multiple of -l"
            ));
        }
        let each = self.cq_mod.unwrap_or(list);
        (!list.is_multiple_of(each)).then(|| {
            format!(
                "a list of {list} requests is no multiple of the completion moderation {each}: \
                 choose -l as a multiple of -Q"
            )
        })
    }

    /// Whether what a peer asks for is within reason.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=64).contains(&self.sizes.len())
            && self.room() <= MAX_BUFFER_BYTES
            && (1..=16384).contains(&self.tx_depth)
            && (1..=16384).contains(&self.rx_depth)
            && (1..=4096).contains(&self.qps)
            && self.requests() <= MAX_REQUESTS
            && self.post_list >= 1
            && (1..=128).contains(&self.outs)
    }
}

/// Bytes.
const MAX_SIZE_OF_RARE_COMPLETIONS: u32 = 8192;
/// Of one half of an end's memory: as many bytes as the longest message has.
pub(crate) const MAX_BUFFER_BYTES: u64 = 1 << 31;
/// In all queues of all queue pairs: a completion queue holds as many.
pub(crate) const MAX_REQUESTS: u64 = 1 << 22;

#[cfg(test)]
pub(crate) fn example() -> Params {
    Params {
        verb: Verb::Write,
        test: Test::Bw,
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
    }
}

#[cfg(test)]
mod tests {
    use super::example;

    #[test]
    fn a_plan_survives_the_way_to_the_other_end() {
        let params = example();
        let line = serde_json::to_string(&params).unwrap();
        assert_eq!(serde_json::from_str::<super::Params>(&line).unwrap(), params);
    }

    #[test]
    fn completions_are_never_rarer_than_the_queue_is_deep() {
        let mut params = example();
        assert_eq!((params.moderation(65536), params.moderation(64)), (1, 100));
        params.tx_depth = 4;
        assert_eq!(params.moderation(64), 4);
    }

    #[test]
    fn a_list_is_whole_in_the_queue_in_the_run_and_in_completions() {
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
    fn a_peer_cannot_make_us_allocate_without_bound() {
        let plans = [
            super::Params { sizes: vec![u32::MAX], ..example() },
            super::Params { sizes: vec![2; 65], ..example() },
            super::Params { qps: 1 << 20, ..example() },
            super::Params { rx_depth: 1 << 20, ..example() },
            super::Params { qps: 4096, tx_depth: 16384, ..example() },
            super::Params { working_set: Some(1 << 32), ..example() },
        ];
        assert!(plans.iter().all(|params| !params.is_valid()));
        assert!(example().is_valid());
    }
}
