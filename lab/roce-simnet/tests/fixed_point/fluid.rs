//! DCQCN's fluid model (Zhu et al., CoNEXT 2016), solved in small steps.

use crate::cell::DcqcnCell;

/// Which packets have a share p of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// Those that senders send, as the published model has it: marks then follow a change of the
    /// rate at once.
    Sent,
    /// Those that leave the queue, as a switch marks them: never more than the link takes.
    Leaving,
}

/// Rates in packets per microsecond, the queue in packets.
#[derive(Clone, Copy)]
struct State {
    queue: f64,
    alpha: f64,
    target: f64,
    rate: f64,
}

/// A step in microseconds.
const STEP: f64 = 0.5;
/// Bytes of a packet.
const PACKET: f64 = 1000.0;
/// Time between two CNPs of a flow in microseconds.
const CNP_INTERVAL: f64 = 50.0;

/// Returns mean and deviation of the queue in bytes, over the second half of `cell.limit`. All flows
/// begin at line rate; a mark reaches its sender, and what that sends then the queue, `feedback`
/// microseconds after it was made.
pub(crate) fn solve(cell: &DcqcnCell, feedback: f64, marked: Marked) -> (f64, f64) {
    let link = cell.gbit as f64 * 1e3 / 8.0 / PACKET;
    let flows = cell.flows as f64;
    let steps = (cell.limit.as_micros() as f64 / STEP) as usize;
    let delay = (feedback / STEP) as usize;
    let mut states = vec![State { queue: 0.0, alpha: 1.0, target: link, rate: link }];
    for step in 0..steps {
        let past = states[step.saturating_sub(delay)];
        let mut next = states[step];
        let packets = match marked {
            Marked::Leaving if past.queue > 0.0 => link / flows,
            _ => past.rate,
        };
        // Beyond these limits the terms of the model are 0 divided by 0.
        let share = cell.marking.probability((past.queue * PACKET) as u64).clamp(1e-9, 0.999);
        next.follow(cell, share, packets);
        next.queue = (next.queue + (flows * next.rate - link) * STEP).max(0.0);
        next.rate = next.rate.clamp(link * 1e-4, link);
        next.target = next.target.clamp(link * 1e-4, link);
        states.push(next);
    }
    let late: Vec<f64> = states[steps / 2..].iter().map(|it| it.queue * PACKET).collect();
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    let squares: f64 = late.iter().map(|it| (it - mean).powi(2)).sum();
    (mean, (squares / late.len() as f64).sqrt())
}

impl State {
    /// Goes on by a step in which a flow has `packets` per microsecond, of which `share` are marked.
    fn follow(&mut self, cell: &DcqcnCell, share: f64, packets: f64) {
        let parameters = &cell.parameters;
        let micros = f64::from(parameters.rp_time_reset);
        let bytes = f64::from(parameters.rp_byte_reset) / PACKET;
        let stages = f64::from(parameters.rp_threshold);
        let weight = 1.0 - f64::from(parameters.rp_dce_tcp_g) / 1024.0;
        let alpha_period = f64::from(parameters.rp_dce_tcp_rtt);
        let additive = f64::from(parameters.rp_ai_rate) / 8.0 / PACKET;
        // Logarithm of the probability that a packet has no mark.
        let unmarked = (-share).ln_1p();
        let any_of = |count: f64| -(unmarked * count).exp_m1();
        // Increases per packet by a counter that `count` packets without a mark advance, and the
        // share of them that are behind the stages of fast recovery.
        let increases = |count: f64| share / (-unmarked * count).exp_m1();
        let behind = |count: f64| (unmarked * stages * count).exp();
        let (by_bytes, by_time) = (increases(bytes), increases(micros * packets));
        let raised = behind(bytes) * by_bytes + behind(micros * packets) * by_time;
        let cuts = any_of(CNP_INTERVAL * packets) / CNP_INTERVAL;
        let below = self.target - self.rate;
        let cut = self.rate * self.alpha / 2.0 * cuts;
        self.rate += STEP * (below / 2.0 * packets * (by_bytes + by_time) - cut);
        self.target += STEP * (additive * packets * raised - below * cuts);
        self.alpha += STEP * weight / alpha_period * (any_of(alpha_period * packets) - self.alpha);
    }
}
