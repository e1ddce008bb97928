//! The congestion control of a flow.

use std::time::Duration;

use roce_transport::Instant;
use roce_transport::congestion::{
    AckSample, CongestionControl, Dcqcn, DcqcnParameters, EcnParameters, EcnWindow, Swift,
    SwiftParameters,
};

use super::{PatchedTimely, TimelyParams};
use roce_fabric::Time;

/// Congestion control of all flows.
#[derive(Clone, Debug, PartialEq)]
pub enum CongestionModel {
    /// Line rate.
    None,
    /// The reaction point of DCQCN.
    Dcqcn(DcqcnParameters),
    /// A window that reacts to the share of marked packets.
    Ecn(EcnParameters),
    /// A window that keeps the delay at a target.
    Swift(SwiftParameters),
    /// Patched TIMELY.
    Timely(TimelyParams),
}

/// Congestion control of one flow.
#[derive(Debug)]
pub(super) struct RateControl {
    kind: Kind,
    line_rate: f64,
    /// Latest round trip time.
    rtt: Option<Duration>,
}

#[derive(Debug)]
enum Kind {
    Fixed { rate: f64 },
    Transport(Box<dyn CongestionControl>),
    Timely(PatchedTimely),
}

impl RateControl {
    /// Creates the control of a flow that starts with this share of the line rate, if the model can
    /// start with another than all of it.
    pub(super) fn new(model: &CongestionModel, line_rate: u64, first_rate: f64) -> Self {
        let rate = line_rate as f64;
        let kind = match model {
            CongestionModel::None => Kind::Fixed { rate: rate * first_rate },
            CongestionModel::Dcqcn(parameters) => {
                Kind::Transport(Box::new(Dcqcn::new(*parameters, line_rate)))
            }
            CongestionModel::Ecn(parameters) => {
                Kind::Transport(Box::new(EcnWindow::new(*parameters)))
            }
            CongestionModel::Swift(parameters) => {
                Kind::Transport(Box::new(Swift::new(*parameters)))
            }
            CongestionModel::Timely(params) => {
                Kind::Timely(PatchedTimely::new(*params, rate, rate * first_rate))
            }
        };
        Self { kind, line_rate: rate, rtt: None }
    }

    /// Returns the rate in bits per second. A window below a packet of `packet` bytes is the rate of
    /// that share of a packet per round trip.
    pub(super) fn rate(&self, packet: u32) -> f64 {
        match &self.kind {
            Kind::Fixed { rate } => *rate,
            Kind::Timely(timely) => timely.rate(),
            Kind::Transport(control) => {
                let rate = control.rate().map_or(self.line_rate, |rate| rate as f64);
                match (control.window(), self.rtt) {
                    (Some(window), Some(rtt)) if window < u64::from(packet) => {
                        rate.min(window as f64 * 8.0 / rtt.as_secs_f64().max(1e-9))
                    }
                    _ => rate,
                }
            }
        }
    }

    /// Returns the window in bytes.
    pub(super) fn window(&self) -> Option<u64> {
        match &self.kind {
            Kind::Transport(control) => control.window(),
            _ => None,
        }
    }

    /// Lets the control catch up.
    pub(super) fn advance(&mut self, now: Time) {
        if let Kind::Transport(control) = &mut self.kind {
            control.on_timer(instant(now));
        }
    }

    /// Returns when the rate changes by itself.
    pub(super) fn next_change(&self) -> Option<Time> {
        let Kind::Transport(control) = &self.kind else { return None };
        let next = control.next_timer()?;
        let span = next.saturating_since(Instant::default());
        Some(Time::START + span)
    }

    pub(super) fn on_sent(&mut self, now: Time, bytes: u32) {
        if let Kind::Transport(control) = &mut self.kind {
            control.on_sent(instant(now), bytes.into());
        }
    }

    pub(super) fn on_cnp(&mut self, now: Time) {
        if let Kind::Transport(control) = &mut self.kind {
            control.on_cnp(instant(now));
        }
    }

    pub(super) fn on_loss(&mut self, now: Time) {
        if let Kind::Transport(control) = &mut self.kind {
            control.on_loss(instant(now));
        }
    }

    /// Handles an ACK of so many bytes. Without a queue the round trip takes `base_rtt`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        bytes: u64,
        rtt: Duration,
        base_rtt: Duration,
        is_marked: bool,
    ) {
        self.rtt = Some(rtt);
        match &mut self.kind {
            Kind::Fixed { .. } => {}
            Kind::Timely(timely) => timely.on_sample(rtt.saturating_sub(base_rtt)),
            Kind::Transport(control) => {
                control.on_ack(instant(now), AckSample { bytes, rtt: Some(rtt), is_marked });
            }
        }
    }
}

const fn instant(time: Time) -> Instant {
    Instant::from_nanos(time.as_nanos())
}
