//! DCQCN's reaction point: a rate that falls with each CNP and rises in stages.

use core::time::Duration;

use super::{AckSample, CongestionControl, DcqcnParameters};
use crate::Instant;

const MBIT: f64 = 1e6;
/// Share of the largest rate that is as good as all of it.
const FULL: f64 = 0.999;

/// The reaction point of DCQCN.
///
/// The sender begins unlimited. A CNP cuts the rate by α/2, and raises α, the estimate of how
/// congested the path is, which falls while no CNP comes. Two counters raise the rate again, one by
/// time and one by bytes: the first F stages go half of the way to the rate before the cut, then this
/// target rises too, by a step if one counter has passed F and by a larger one if both have. Once
/// the rate is the largest again, nothing limits the sender, and the next CNP is a first one.
///
/// As ConnectX cards do, a call that comes late catches up; no timer is needed for a sender that is
/// not limited.
///
/// Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015. See the
/// example of the [module](super).
#[derive(Clone, Debug)]
pub struct Dcqcn {
    parameters: DcqcnParameters,
    /// Largest rate in bits per second.
    max_rate: f64,
    /// `None` while nothing limits the sender.
    limit: Option<Limit>,
    alpha: f64,
    /// Time up to which α has been computed.
    alpha_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    /// Current rate R_C in bits per second.
    rate: f64,
    /// Target rate R_T in bits per second.
    target: f64,
    /// Increases since the last cut, by time and by bytes.
    timer_stage: u32,
    byte_stage: u32,
    /// Bytes sent since the last increase by bytes.
    bytes: u64,
    /// The next increase by time.
    increase_at: Instant,
    /// Earliest time of the next cut.
    cut_from: Instant,
    /// A CNP has come before it.
    is_cut_due: bool,
}

impl Dcqcn {
    /// Creates the reaction point of a sender with a link of `line_rate` bits per second.
    /// Parameters outside of their ranges are taken as the nearest in range.
    pub fn new(parameters: DcqcnParameters, line_rate: u64) -> Self {
        let line_rate = (line_rate as f64).max(1.0);
        let max_rate = match parameters.rp_max_rate {
            0 => line_rate,
            max => line_rate.min(f64::from(max) * MBIT),
        };
        let alpha = initial_alpha(&parameters);
        Self { parameters, max_rate, limit: None, alpha, alpha_at: Instant::default() }
    }

    /// Returns α, 0 to 1, as of the last call.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Lets α fall for each period since `alpha_at` in which no CNP has come.
    fn decay_alpha(&mut self, now: Instant) {
        let period = u128::from(self.parameters.rp_dce_tcp_rtt.max(1)) * 1_000;
        let periods = now.saturating_since(self.alpha_at).as_nanos() / period;
        let weight = f64::from(self.parameters.rp_dce_tcp_g.min(1024)) / 1024.0;
        // After so many periods nothing is left, whatever the weight below 1 is.
        self.alpha *= libm::pow(weight, periods.min(1 << 20) as f64);
        let passed = u64::try_from(periods * period).unwrap_or(u64::MAX);
        self.alpha_at += Duration::from_nanos(passed);
    }

    fn raise_alpha(&mut self, now: Instant) {
        let weight = f64::from(self.parameters.rp_dce_tcp_g.min(1024)) / 1024.0;
        self.alpha = self.alpha * weight + (1.0 - weight);
        self.alpha_at = now;
    }

    fn period(&self) -> Duration {
        Duration::from_micros(self.parameters.rp_time_reset.max(1).into())
    }

    fn cut(&mut self, now: Instant) {
        let parameters = &self.parameters;
        let first = parameters.rp_rate_to_set_on_first_cnp;
        let (before, is_first) = match self.limit {
            Some(limit) => (limit.rate, false),
            None => (self.max_rate, true),
        };
        let target = match self.limit {
            Some(limit) => {
                let is_risen = limit.byte_stage > 0
                    || (parameters.rp_clamp_tgt_rate_ati && limit.timer_stage > 0);
                let is_clamped = parameters.rp_clamp_tgt_rate || is_risen;
                if is_clamped { limit.rate } else { limit.target }
            }
            None => self.max_rate,
        };
        let divisor = f64::from(1_u32 << (parameters.rp_gd.clamp(10, 20) - 10));
        let kept =
            (1.0 - self.alpha / divisor).max(f64::from(parameters.rp_min_dec_fac.min(100)) / 100.0);
        let rate = if is_first && first > 0 { f64::from(first) * MBIT } else { before * kept };
        let min_rate = f64::from(parameters.rp_min_rate.max(1)) * MBIT;
        let monitored = parameters.rp_rate_reduce_monitor_period;
        self.limit = Some(Limit {
            rate: rate.max(min_rate).min(self.max_rate),
            target,
            timer_stage: 0,
            byte_stage: 0,
            bytes: 0,
            increase_at: now + self.period(),
            cut_from: now + Duration::from_micros(monitored.into()),
            is_cut_due: false,
        });
    }

    /// Raises the rate by one stage.
    fn increase(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        let parameters = &self.parameters;
        let stages = [limit.timer_stage, limit.byte_stage];
        let passed = stages.iter().filter(|stage| **stage > parameters.rp_threshold).count();
        limit.target += MBIT
            * match passed {
                0 => 0.0,
                1 => f64::from(parameters.rp_ai_rate),
                _ => f64::from(parameters.rp_hai_rate),
            };
        limit.target = limit.target.min(self.max_rate);
        limit.rate = f64::midpoint(limit.rate, limit.target);
        if limit.rate >= FULL * self.max_rate && !limit.is_cut_due {
            self.limit = None;
        }
    }

    /// Does all that was due until `now`, in its order.
    fn advance(&mut self, now: Instant) {
        while let Some(limit) = &mut self.limit {
            if limit.is_cut_due && limit.cut_from <= now && limit.cut_from <= limit.increase_at {
                let at = limit.cut_from;
                self.cut(at);
            } else if limit.increase_at <= now {
                limit.timer_stage = limit.timer_stage.saturating_add(1);
                let at = limit.increase_at;
                limit.increase_at =
                    at + Duration::from_micros(self.parameters.rp_time_reset.max(1).into());
                self.increase();
            } else {
                return;
            }
        }
    }
}

fn initial_alpha(parameters: &DcqcnParameters) -> f64 {
    f64::from(parameters.rp_initial_alpha_value.min(1023)) / 1023.0
}

impl CongestionControl for Dcqcn {
    fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.advance(now);
        let step = u64::from(self.parameters.rp_byte_reset);
        if step == 0 {
            return;
        }
        if let Some(limit) = &mut self.limit {
            limit.bytes = limit.bytes.saturating_add(bytes);
        }
        while let Some(limit) = self.limit.as_mut().filter(|limit| limit.bytes >= step) {
            limit.bytes -= step;
            limit.byte_stage = limit.byte_stage.saturating_add(1);
            self.increase();
        }
    }

    fn on_ack(&mut self, now: Instant, _sample: AckSample) {
        self.advance(now);
    }

    fn on_cnp(&mut self, now: Instant) {
        self.advance(now);
        if self.limit.is_some() {
            self.decay_alpha(now);
        } else {
            self.alpha = initial_alpha(&self.parameters);
        }
        match &mut self.limit {
            Some(limit) if now < limit.cut_from => limit.is_cut_due = true,
            _ => self.cut(now),
        }
        self.raise_alpha(now);
    }

    fn on_loss(&mut self, now: Instant) {
        self.advance(now);
    }

    fn on_timer(&mut self, now: Instant) {
        self.advance(now);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.limit.map(|limit| match limit.is_cut_due {
            true => limit.increase_at.min(limit.cut_from),
            false => limit.increase_at,
        })
    }

    fn rate(&self) -> Option<u64> {
        self.limit.map(|limit| limit.rate as u64)
    }

    fn window(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn paper() -> Dcqcn {
        Dcqcn::new(DcqcnParameters::PAPER, 40 * GBIT)
    }

    fn gbit(control: &Dcqcn) -> f64 {
        control.rate().unwrap() as f64 / 1e9
    }

    #[test]
    fn the_first_cnp_halves_the_line_rate() {
        for parameters in [DcqcnParameters::PAPER, DcqcnParameters::CONNECTX] {
            let mut control = Dcqcn::new(parameters, 100 * GBIT);
            assert_eq!((control.rate(), control.next_timer()), (None, None));
            control.on_cnp(at(7));
            assert_eq!(control.rate(), Some(50 * GBIT));
        }
    }

    #[test]
    fn five_stages_recover_half_of_the_way_each_and_then_the_target_rises() {
        let mut control = paper();
        control.on_cnp(at(0));
        control.on_cnp(at(1));
        // The second cut: α is 1 still, so from 20 to 10, with 20 as the target.
        assert_eq!(gbit(&control), 10.0);
        let mut expected = 10.0;
        for stage in 1..=5 {
            control.on_timer(at(1 + 55 * stage));
            expected = (expected + 20.0) / 2.0;
            assert!((gbit(&control) - expected).abs() < 1e-6, "stage {stage}");
        }
        control.on_timer(at(1 + 55 * 6));
        let expected = (expected + 20.04) / 2.0;
        assert!((gbit(&control) - expected).abs() < 1e-6, "additive increase");
    }

    #[test]
    fn bytes_raise_the_rate_as_time_does_and_both_past_the_threshold_raise_it_faster() {
        let parameters = DcqcnParameters { rp_hai_rate: 400, ..DcqcnParameters::PAPER };
        let mut control = Dcqcn::new(parameters, 40 * GBIT);
        control.on_cnp(at(0));
        control.on_cnp(at(0));
        for _ in 0..6 {
            control.on_sent(at(0), 10_000_000);
        }
        let by_bytes = 20.04 - (20.04 - (20.0 - 10.0 / 32.0)) / 2.0;
        assert!((gbit(&control) - by_bytes).abs() < 1e-6);
        let mut target = 20.04;
        let mut rate = by_bytes;
        for stage in 1..=6 {
            control.on_timer(at(55 * stage));
            target += if stage <= 5 { 0.04 } else { 0.4 };
            rate = (rate + target) / 2.0;
            assert!((gbit(&control) - rate).abs() < 1e-6, "stage {stage}");
        }
    }

    #[test]
    fn alpha_falls_by_its_weight_for_each_period_without_a_cnp() {
        let mut control = paper();
        control.on_cnp(at(0));
        assert_eq!(control.alpha(), 1.0);
        control.on_cnp(at(55 * 4));
        let fallen = (1020.0_f64 / 1024.0).powi(4);
        let expected = fallen * 1020.0 / 1024.0 + 4.0 / 1024.0;
        assert!((control.alpha() - expected).abs() < 1e-12);
    }

    #[test]
    fn an_unlimited_sender_needs_no_timer_and_a_limited_one_becomes_unlimited_again() {
        let mut control = paper();
        control.on_cnp(at(0));
        let mut steps = 0;
        while let Some(next) = control.next_timer() {
            control.on_timer(next);
            steps += 1;
            assert!(steps < 100_000, "it never recovers");
        }
        assert_eq!(control.rate(), None);
    }

    #[test]
    fn a_late_call_gives_the_same_rate_as_calls_on_time() {
        let mut on_time = paper();
        let mut late = paper();
        for control in [&mut on_time, &mut late] {
            control.on_cnp(at(0));
            control.on_cnp(at(10));
        }
        for micros in 10..2_000 {
            on_time.on_timer(at(micros));
        }
        late.on_timer(at(1_999));
        assert_eq!(on_time.rate(), late.rate());
    }

    #[test]
    fn cnps_within_the_monitor_period_cut_once() {
        let mut control = Dcqcn::new(DcqcnParameters::CONNECTX, 100 * GBIT);
        for nanos in 0..4_000 {
            control.on_cnp(Instant::from_nanos(nanos));
        }
        assert_eq!(control.rate(), Some(50 * GBIT));
        assert_eq!(control.next_timer(), Some(at(4)));
        control.on_timer(at(4));
        assert!(control.rate() < Some(26 * GBIT), "the CNPs since the first cut it once more");
    }

    #[test]
    fn the_rate_stays_between_its_bounds_whatever_comes() {
        let parameters = DcqcnParameters { rp_max_rate: 10_000, ..DcqcnParameters::PAPER };
        let mut control = Dcqcn::new(parameters, 40 * GBIT);
        for micros in 0..10_000 {
            control.on_cnp(at(micros));
            let rate = control.rate().unwrap();
            assert!((1_000_000..=10 * GBIT).contains(&rate), "{rate}");
        }
        assert_eq!(control.rate(), Some(1_000_000));
    }
}
