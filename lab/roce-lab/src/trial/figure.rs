//! Figures of a trial.

use std::collections::BTreeMap;
use std::fmt;

use super::TrialSample;
use roce_simnet::World;

/// A figure of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Value in the unit; infinite if it never came to that.
    pub value: f64,
    /// Unit.
    pub unit: Unit,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unit {
    Nanos,
    BitsPerSec,
    Bytes,
    Count,
    /// A number without a unit.
    Number,
}

impl Figure {
    pub(super) const fn new(value: f64, unit: Unit) -> Self {
        Self { value, unit }
    }
}

impl fmt::Display for Figure {
    /// With three or four digits and a unit of fitting size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, unit } = *self;
        if !value.is_finite() {
            return f.write_str(if unit == Unit::BitsPerSec { "no limit" } else { "never" });
        }
        let units: &[(f64, &str)] = match unit {
            Unit::Nanos => &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")],
            Unit::BitsPerSec => &[(1e9, " Gbit/s"), (1e6, " Mbit/s"), (1.0, " bit/s")],
            Unit::Bytes => &[(1e6, " MB"), (1e3, " KB"), (1.0, " bytes")],
            Unit::Count => return write!(f, "{value:.0}"),
            Unit::Number => return write!(f, "{value:.2}"),
        };
        let fits = |it: &&(f64, &str)| value >= it.0;
        let (size, name) = units.iter().find(fits).or(units.last()).copied().unwrap_or((1.0, ""));
        let value = value / size;
        match value {
            _ if size == 1.0 => write!(f, "{value:.0}{name}"),
            100.0.. => write!(f, "{value:.0}{name}"),
            10.0.. => write!(f, "{value:.1}{name}"),
            _ => write!(f, "{value:.2}{name}"),
        }
    }
}

/// Returns the figures of the fabric and of all engines.
pub(super) fn of_world(world: &mut World, samples: &[TrialSample]) -> BTreeMap<String, Figure> {
    let mut figures = BTreeMap::new();
    let mut add = |name: &str, value: u64, unit| {
        figures.insert(name.to_owned(), Figure::new(value as f64, unit));
    };
    let sum = |counter: fn(&roce_transport::Counters) -> u64| -> u64 {
        world.hosts.iter().map(|host| counter(host.counters())).sum()
    };
    add("packets", sum(|it| it.sent_pkts), Unit::Count);
    add("resent", sum(|it| it.resent_pkts), Unit::Count);
    add("cnps", sum(|it| it.np_cnp_sent), Unit::Count);
    add("cuts", sum(|it| it.rp_cnp_handled), Unit::Count);
    add("naks", sum(|it| it.send_seq_err), Unit::Count);
    add("kept", sum(|it| it.reorder_kept), Unit::Count);
    add("timeouts", sum(|it| it.ack_timeout), Unit::Count);
    add("probes", sum(|it| it.tail_probe + it.probe_timeout), Unit::Count);
    let longest = |sample: &TrialSample| sample.queues.iter().copied().max().unwrap_or(0);
    let mut lengths: Vec<_> = samples.iter().map(longest).collect();
    lengths.sort_unstable();
    add("queue", lengths.last().copied().unwrap_or(0), Unit::Bytes);
    add("median-queue", lengths.get(lengths.len() / 2).copied().unwrap_or(0), Unit::Bytes);
    let lost = world.hosts.iter().map(|host| host.lost_frames()).sum::<u64>();
    if let Some(fabric) = world.fabric_mut() {
        let counters = fabric.switch_counters();
        add("dropped", counters.dropped_frames + counters.discarded_frames, Unit::Count);
        add("marked", counters.marked_frames, Unit::Count);
        add("pauses", counters.xoff_sent, Unit::Count);
        add("watchdog", counters.watchdog_expiries, Unit::Count);
        add("lost", fabric.counters().lost_frames + lost, Unit::Count);
    }
    figures
}
