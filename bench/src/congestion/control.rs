//! Congestion controls under test.

use roce_verbs::CongestionConfig;

/// A congestion control with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// For options and tables.
    pub name: &'static str,
    /// As `--cc` takes it.
    pub spec: &'static str,
}

impl Control {
    /// All that are measured by default.
    ///
    /// The defaults of ConnectX cards are for links of 10 Gbit/s and more: 200 Mbit/s are 44 µs for a
    /// packet of 1 KiB. `dcqcn-scaled` is [`SCALED_DCQCN`](Self::SCALED_DCQCN); in `swift-scaled` the
    /// target is 90 packets at 200 Mbit/s.
    pub const ALL: [Self; 6] = [
        Self { name: "loss", spec: "loss" },
        Self { name: "ecn", spec: "ecn" },
        Self { name: "dcqcn", spec: "dcqcn" },
        Self { name: "dcqcn-scaled", spec: Self::SCALED_DCQCN },
        Self { name: "swift", spec: "swift" },
        Self { name: "swift-scaled", spec: "swift,swift_base_target=4000" },
    ];

    /// DCQCN for links of 200 to 500 Mbit/s and 4 to 32 senders: the times of the paper (SIGCOMM 2015),
    /// which are for 40 Gbit/s, in packets of 1 KiB. A packet takes 200 times as long at 200 Mbit/s, so
    /// 55 µs become 11 ms, and the 50 µs between two CNPs 10 ms. α keeps the paper's weight, and the
    /// byte counter its 10 MB, which slow senders never reach between two cuts.
    ///
    /// In DCQCN's fixed point N senders have C/N each, and a packet is marked with about the probability
    ///
    /// ```text
    /// p = ∛( R_AI·N² / (τ′·C²) · (1/B + N/(T·C))² )    rates in packets/s, T = rp_time_reset,
    ///                                                  τ′ = rp_dce_tcp_rtt, B = rp_byte_reset
    /// ```
    ///
    /// The switch reaches p only up to its largest probability, here 20 %. The step R_AI is 0.1 % of the
    /// link in the paper, but cannot be less than 1 Mbit/s: 0.5 % of 200 Mbit/s. With it, and C of 22 600
    /// packets/s:
    ///
    /// | T, τ′ | N = 4 | 8 | 16 | 32 |
    /// |---|--:|--:|--:|--:|
    /// | 1.5, 1.1 ms | 3.6 % | 9.2 % | 23 % | 58 % |
    /// | 11, 11 ms | 0.5 % | 1.1 % | 2.8 % | 7.2 % |
    ///
    /// With the shorter times 16 senders or more have no fixed point: their increases, N·R_AI in each T,
    /// outrun the cuts of all marks that the switch makes.
    ///
    /// The time between CNPs has to grow with T. A sender sees what a cut does once the queue before it
    /// has drained, and 128 to 350 KiB take 5 to 14 ms at 200 Mbit/s. With a CNP in each millisecond it
    /// is cut 5 to 14 times for one queue, by half each, since α does not fall between two of them; then
    /// it takes five T to come back near its target, and the link is idle. Simulated goodput with 4, 8
    /// and 32 senders, in percent of the link's:
    ///
    /// | T, τ′ | between CNPs | 4 | 8 | 32 | median queue in KB |
    /// |---|--:|--:|--:|--:|---|
    /// | 1.5, 1.1 ms | 1 ms | 97 | 85 | 81 | 21, 8, 79 |
    /// | 11, 1.1 ms | 1 ms | 98 | 95 | 74 | 6, 2, 1 |
    /// | 1.5, 1.1 ms | 10 ms | 100 | 100 | 100 | 107, 145, 344: the buffer is full |
    /// | 11, 11 ms | 10 ms | 98 | 99 | 99 | 12, 17, 34 |
    ///
    /// The same parameters have 97 to 99 % of 500 Mbit/s.
    pub const SCALED_DCQCN: &str = "dcqcn,paper,rp_ai_rate=1,rp_hai_rate=1,rp_time_reset=11000,\
                                    rp_dce_tcp_rtt=11000,np_min_time_between_cnps=10000";

    /// Returns the control of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name == name)
    }

    /// Returns its parameters.
    pub(super) fn config(self) -> CongestionConfig {
        self.spec.parse().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spec_is_one_and_names_are_different() {
        for (place, control) in Control::ALL.iter().enumerate() {
            assert!(control.spec.parse::<CongestionConfig>().is_ok(), "{control:?}");
            let same = Control::ALL.iter().position(|other| other.name == control.name);
            assert_eq!(same, Some(place));
        }
    }
}
