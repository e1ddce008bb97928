//! A cell of the table of DCQCN's fixed points.

use std::time::Duration;

use roce_fabric::{CLASSES, EcnMarking, FabricConfig, MarkingPoint, SwitchConfig};
use roce_transport::congestion::DcqcnParameters;

use crate::model::{self, CnpTiming, QueueStats};

const GBIT: u64 = 1_000_000_000;
const DELAY: Duration = Duration::from_micros(1);

/// Flows with DCQCN into one link, from line rate on.
pub(crate) struct DcqcnCell {
    pub(crate) flows: usize,
    pub(crate) gbit: u64,
    pub(crate) marking: EcnMarking,
    pub(crate) parameters: DcqcnParameters,
    /// Delay of a link; four of them and the packets' times are the feedback delay.
    pub(crate) delay: Duration,
    pub(crate) cnp_timing: CnpTiming,
    pub(crate) limit: Duration,
}

impl DcqcnCell {
    /// The paper's parameters on 4 µs of feedback delay.
    pub(crate) fn paper(flows: usize, gbit: u64, pmax: f64) -> Self {
        Self {
            flows,
            gbit,
            marking: EcnMarking { pmax, ..EcnMarking::PAPER },
            parameters: DcqcnParameters::PAPER,
            delay: DELAY,
            cnp_timing: CnpTiming::Slots,
            limit: Duration::from_millis(100),
        }
    }

    /// The paper's parameters where the published analysis asks whether the queue is stable: marking
    /// goes on beyond Kmax with the slope of Pmax 1 %.
    pub(crate) fn without_kmax(flows: usize) -> Self {
        let marking = beyond(EcnMarking::PAPER);
        let limit = Duration::from_millis(400);
        Self { marking, limit, ..Self::paper(flows, 40, 0.01) }
    }

    /// As [`without_kmax`](Self::without_kmax), with the remedy of that analysis: a smaller step and
    /// a flatter slope.
    pub(crate) fn slow_without_kmax(flows: usize) -> Self {
        let slow = DcqcnParameters { rp_ai_rate: 10, rp_hai_rate: 10, ..DcqcnParameters::PAPER };
        let marking = beyond(EcnMarking { kmax: 1_000_000, ..EcnMarking::PAPER });
        Self { parameters: slow, marking, ..Self::without_kmax(flows) }
    }

    /// The same with this delay of a link in nanoseconds.
    pub(crate) fn delayed(self, nanos: u64) -> Self {
        Self { delay: Duration::from_nanos(nanos), ..self }
    }

    /// Returns the mean rates as shares of C/N, and the queue in the second half of the run.
    pub(crate) fn run(&self) -> (Vec<f64>, QueueStats) {
        let switch = SwitchConfig {
            marking: [Some(self.marking); CLASSES],
            marking_point: MarkingPoint::Dequeue,
            alpha: 8.0,
            ..SwitchConfig::default()
        };
        let config = FabricConfig { switch, ..FabricConfig::default() };
        let (rate, parameters) = (self.gbit * GBIT, self.parameters);
        let (rates, queue) = model::run(
            self.flows,
            rate,
            self.delay,
            config,
            parameters,
            self.cnp_timing,
            self.limit,
        );
        let fair = (self.gbit * GBIT) as f64 / self.flows as f64;
        (rates.into_iter().map(|rate| rate / fair).collect(), queue)
    }
}

/// The slope of `marking`, up to 20 times its probability.
fn beyond(marking: EcnMarking) -> EcnMarking {
    let kmax = marking.kmin + 20 * (marking.kmax - marking.kmin);
    EcnMarking { kmax, pmax: 20.0 * marking.pmax, ..marking }
}

/// What a queue may differ from the fluid model's, in KB: a tenth, or two packets.
pub(crate) fn queue_tolerance(expected: f64) -> f64 {
    (expected * 0.1).max(2.0)
}

/// Queues in KB that the fluid model gives for the paper's parameters: rate, Pmax, flows, queue.
pub(crate) const DCQCN_QUEUES: [(u64, f64, usize, f64); 19] = [
    (40, 0.01, 2, 20.2),
    (40, 0.01, 4, 41.8),
    (40, 0.01, 8, 93.8),
    (40, 0.01, 10, 122.6),
    (40, 0.1, 2, 6.5),
    (40, 0.1, 4, 8.7),
    (40, 0.1, 8, 13.9),
    (40, 0.1, 10, 16.8),
    (40, 0.1, 16, 26.2),
    (40, 0.1, 20, 33.0),
    (40, 0.1, 32, 55.0),
    (40, 0.1, 64, 120.2),
    (100, 0.01, 2, 9.7),
    (100, 0.01, 4, 16.4),
    (100, 0.01, 8, 32.7),
    (100, 0.01, 10, 41.8),
    (100, 0.01, 16, 71.9),
    (100, 0.01, 20, 93.8),
    (100, 0.01, 32, 165.4),
];
