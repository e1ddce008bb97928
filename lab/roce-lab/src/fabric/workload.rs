//! Flows of the usual workloads.

use std::time::Duration;

use roce_fabric::SplitMix64;
use roce_transport::Instant;

/// A flow to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Index of the sending host.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// Bytes of payload.
    pub bytes: u64,
    /// Time at which the first message is posted.
    pub start: Instant,
}

impl FlowSpec {
    /// Creates a flow that starts at time 0.
    pub(super) fn new(from: usize, to: usize, bytes: u64) -> Self {
        Self { from, to, bytes, start: Instant::default() }
    }
}

/// Returns flows from hosts 1 to `senders` to host 0, of so many bytes each.
pub(super) fn incast(senders: usize, bytes: u64) -> Vec<FlowSpec> {
    (1..=senders).map(|from| FlowSpec::new(from, 0, bytes)).collect()
}

/// Returns a flow from each host to another, so that each host receives one.
pub(super) fn permutation(hosts: usize, bytes: u64, seed: u64) -> Vec<FlowSpec> {
    let mut order: Vec<usize> = (0..hosts).collect();
    let mut rng = SplitMix64::new(seed);
    // A shuffle that leaves nothing in its place: one cycle through all hosts.
    for i in (1..hosts).rev() {
        order.swap(i, rng.below(i as u64) as usize);
    }
    order
        .into_iter()
        .enumerate()
        .filter(|(from, to)| from != to)
        .map(|(from, to)| FlowSpec::new(from, to, bytes))
        .collect()
}

/// Returns a flow from each host to each other host.
pub(super) fn all_to_all(hosts: usize, bytes: u64) -> Vec<FlowSpec> {
    let pairs = (0..hosts).flat_map(|from| (1..hosts).map(move |by| (from, (from + by) % hosts)));
    pairs.map(|(from, to)| FlowSpec::new(from, to, bytes)).collect()
}

/// A distribution of flow sizes, piecewise linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSizes {
    /// A cluster that answers web searches (the DCTCP paper): half of the flows below 80 KB, most
    /// bytes in flows above 1 MB.
    WebSearch,
    /// A Hadoop cluster (Facebook, 2015): half of the flows below 1 KB.
    Hadoop,
}

impl FlowSizes {
    /// Points (bytes, percentage of flows that are not larger).
    const fn points(self) -> &'static [(f64, f64)] {
        match self {
            Self::WebSearch => &[
                (0.0, 0.0),
                (1e4, 15.0),
                (2e4, 20.0),
                (3e4, 30.0),
                (5e4, 40.0),
                (8e4, 53.0),
                (2e5, 60.0),
                (1e6, 70.0),
                (2e6, 80.0),
                (5e6, 90.0),
                (1e7, 97.0),
                (3e7, 100.0),
            ],
            Self::Hadoop => &[
                (0.0, 0.0),
                (100.0, 1.0),
                (200.0, 2.0),
                (300.0, 5.0),
                (350.0, 15.0),
                (400.0, 20.0),
                (500.0, 30.0),
                (600.0, 40.0),
                (700.0, 50.0),
                (1e3, 60.0),
                (2e3, 67.0),
                (7e3, 70.0),
                (3e4, 72.0),
                (5e4, 82.0),
                (8e4, 87.0),
                (1.2e5, 90.0),
                (3e5, 95.0),
                (1e6, 97.5),
                (2e6, 99.0),
                (1e7, 100.0),
            ],
        }
    }

    /// Returns the mean size in bytes.
    fn mean(self) -> f64 {
        let piece = |ends: &[(f64, f64)]| (ends[0].0 + ends[1].0) / 2.0 * (ends[1].1 - ends[0].1);
        self.points().windows(2).map(piece).sum::<f64>() / 100.0
    }

    /// Returns a random size, at least 1 byte.
    fn draw(self, rng: &mut SplitMix64) -> u64 {
        let share = rng.fraction() * 100.0;
        let points = self.points();
        let after = points.iter().position(|point| point.1 > share).unwrap_or(points.len() - 1);
        let (low, high) = (points[after - 1], points[after]);
        let size = low.0 + (high.0 - low.0) * (share - low.1) / (high.1 - low.1);
        (size as u64).max(1)
    }
}

/// Returns flows of random sizes between random hosts, which start at random (a Poisson process)
/// until `until`, and load each host's link of `bits_per_sec` to this share on average. There are at
/// most `limit` flows.
pub(super) fn poisson(
    hosts: usize,
    sizes: FlowSizes,
    load: f64,
    bits_per_sec: u64,
    until: Duration,
    seed: u64,
    limit: usize,
) -> Vec<FlowSpec> {
    let mut rng = SplitMix64::new(seed);
    let per_second = hosts as f64 * load * bits_per_sec as f64 / 8.0 / sizes.mean();
    let mut flows = Vec::new();
    let mut at = 0.0;
    if hosts < 2 || per_second <= 0.0 {
        return flows;
    }
    loop {
        at -= (1.0 - rng.fraction()).ln() / per_second;
        if at >= until.as_secs_f64() || flows.len() == limit {
            return flows;
        }
        let from = rng.below(hosts as u64) as usize;
        let to = (from + 1 + rng.below(hosts as u64 - 1) as usize) % hosts;
        let start = Instant::default() + Duration::from_secs_f64(at);
        flows.push(FlowSpec { start, ..FlowSpec::new(from, to, sizes.draw(&mut rng)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_sizes_have_the_mean_of_their_distribution() {
        for sizes in [FlowSizes::WebSearch, FlowSizes::Hadoop] {
            let mut rng = SplitMix64::new(3);
            let sum: u64 = (0..200_000).map(|_| sizes.draw(&mut rng)).sum();
            let mean = sum as f64 / 200_000.0;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.05, "{sizes:?}: {mean}");
        }
    }

    #[test]
    fn in_a_permutation_each_host_sends_one_flow_and_receives_one() {
        for seed in 0..20 {
            let flows = permutation(9, 1, seed);
            let mut to: Vec<_> = flows.iter().map(|flow| flow.to).collect();
            to.sort_unstable();
            assert_eq!(to, (0..9).collect::<Vec<_>>(), "seed {seed}");
            assert!(flows.iter().all(|flow| flow.from != flow.to), "seed {seed}");
        }
    }

    #[test]
    fn random_flows_load_the_links_as_asked() {
        let (rate, until) = (10_000_000_000, Duration::from_millis(50));
        let flows = poisson(40, FlowSizes::Hadoop, 0.5, rate, until, 7, usize::MAX);
        let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
        let load = bytes as f64 * 8.0 / (40.0 * rate as f64 * until.as_secs_f64());
        assert!((load - 0.5).abs() < 0.1, "{load}");
    }
}
