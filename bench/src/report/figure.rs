//! What is measured: quantities, their units, and which way is better.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A quantity that a run gives.
///
/// ```
/// use roce_bench::report::Figure;
/// assert_eq!(Figure::Gbits.with_unit(41.5), "41.5 Gbit/s");
/// assert_eq!(Figure::PerSecond.with_unit(4_321_000.0), "4.32 M/s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Payload carried, 10^9 bits a second.
    Gbits,
    /// Shortest time, microseconds, as all times.
    MicrosMin,
    /// Median time of one run.
    MicrosMedian,
    /// 99 of 100 were not slower.
    Micros99,
    /// 999 of 1000 were not slower.
    Micros999,
    /// Mean time of one operation.
    MicrosMean,
    /// Messages a second.
    PerSecond,
    /// Connections a second.
    Connections,
    /// Bus bandwidth as nccl-tests define it, 10^9 bytes a second.
    BusGbytes,
    /// The least that one of many got, in means of all: 1 is fair.
    MinShare,
    /// The most that one of many got, in means of all.
    MaxShare,
    /// Resident memory of one object.
    Bytes,
    /// Share of one processor, percent.
    Percent,
    /// Frames or packets that were sent and did not arrive.
    Lost,
    /// Messages that were sent and did not arrive, percent.
    LostPercent,
}

/// The figures of one run.
pub type Figures = BTreeMap<Figure, f64>;

impl Figure {
    /// The unit; empty for a bare number.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Gbits => "Gbit/s",
            Self::MicrosMin
            | Self::MicrosMedian
            | Self::Micros99
            | Self::Micros999
            | Self::MicrosMean => "µs",
            Self::PerSecond | Self::Connections => "/s",
            Self::BusGbytes => "GB/s",
            Self::MinShare | Self::MaxShare | Self::Lost => "",
            Self::Bytes => "bytes",
            Self::Percent | Self::LostPercent => "%",
        }
    }

    /// Returns true if more is better.
    pub fn is_better_when_larger(self) -> bool {
        matches!(
            self,
            Self::Gbits | Self::PerSecond | Self::Connections | Self::BusGbytes | Self::MinShare
        )
    }

    /// A value as people read it, without its unit.
    pub fn bare(self, value: f64) -> String {
        match self {
            Self::PerSecond | Self::Connections => in_thousands(value).trim_end().to_owned(),
            Self::Bytes | Self::Lost => format!("{value:.0}"),
            _ => three_digits(value),
        }
    }

    /// A value with its unit.
    pub fn with_unit(self, value: f64) -> String {
        match self {
            Self::PerSecond | Self::Connections => {
                let text = in_thousands(value);
                if text.ends_with(['k', 'M']) { text + "/s" } else { text + " /s" }
            }
            _ if self.unit().is_empty() => self.bare(value),
            _ => format!("{} {}", self.bare(value), self.unit()),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gbits => "payload",
            Self::MicrosMin => "least time",
            Self::MicrosMedian => "median time",
            Self::Micros99 => "99 % time",
            Self::Micros999 => "99.9 % time",
            Self::MicrosMean => "mean time",
            Self::PerSecond => "messages",
            Self::Connections => "connections",
            Self::BusGbytes => "busbw",
            Self::MinShare => "least share",
            Self::MaxShare => "largest share",
            Self::Bytes => "resident memory",
            Self::Percent => "processor",
            Self::Lost | Self::LostPercent => "lost",
        })
    }
}

fn in_thousands(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{} M", three_digits(value / 1e6)),
        large if large >= 1e3 => format!("{} k", three_digits(value / 1e3)),
        _ => three_digits(value),
    }
}

/// Three digits that mean something: more would be read as if they did.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        large if large >= 99.95 => format!("{value:.0}"),
        large if large >= 9.995 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        small if small < 0.0995 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, three_digits};

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let all = [0.0, 0.0123, 0.5, 1.0, 9.994, 9.996, 42.42, 99.96, 1234.5];
        let read = ["0", "0.012", "0.50", "1.00", "9.99", "10.0", "42.4", "100", "1234"];
        assert_eq!(all.map(three_digits), read);
    }

    #[test]
    fn rates_are_read_in_thousands_and_millions() {
        let rate = |value| Figure::PerSecond.with_unit(value);
        assert_eq!([rate(12.0), rate(8_500.0), rate(4.2e6)], ["12.0 /s", "8.50 k/s", "4.20 M/s"]);
        assert_eq!(Figure::PerSecond.bare(4.2e6), "4.20 M");
    }

    #[test]
    fn a_figure_keeps_its_name_in_json() {
        let text = serde_json::to_string(&Figure::Micros999).unwrap();
        assert_eq!(text, "\"micros999\"");
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), Figure::Micros999);
    }
}
