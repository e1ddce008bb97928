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
    /// packet of 1 KiB. In `dcqcn-scaled` the times are some 20 times those of the paper, and steps of
    /// the rate as small as they can be; in `swift-scaled` the target is 90 packets at 200 Mbit/s.
    pub const ALL: [Self; 6] = [
        Self { name: "loss", spec: "loss" },
        Self { name: "ecn", spec: "ecn" },
        Self { name: "dcqcn", spec: "dcqcn" },
        Self {
            name: "dcqcn-scaled",
            spec: "dcqcn,paper,rp_ai_rate=1,rp_hai_rate=1,rp_time_reset=1500,rp_dce_tcp_rtt=1100,\
                   rp_byte_reset=0,np_min_time_between_cnps=1000",
        },
        Self { name: "swift", spec: "swift" },
        Self { name: "swift-scaled", spec: "swift,swift_base_target=4000" },
    ];

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
