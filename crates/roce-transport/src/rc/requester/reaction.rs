//! The reaction point of a requester.

use alloc::boxed::Box;
use core::time::Duration;

use roce_wire::PathMtu;

use super::send_window::{SendWindow, WindowLimits};
use crate::Instant;
use crate::congestion::{
    AckSample, CongestionAlgorithm, CongestionConfig, CongestionControl, Dcqcn, EcnParameters,
    EcnWindow, Swift, SwiftParameters,
};

/// What limits the requester beside losses. It exists while something does: most connections never
/// have one.
#[derive(Debug)]
pub(super) struct Reaction {
    control: Box<dyn CongestionControl>,
    algorithm: CongestionAlgorithm,
    mtu: u64,
    /// Window in bytes with which the sender began; back at it, nothing limits it.
    full_window: u64,
    /// It was below it.
    is_limited: bool,
    /// The peer has reported a mark since the last acknowledgement.
    is_marked: bool,
    /// The peer reports marks on ACKs: CNPs tell nothing more.
    has_becn: bool,
    /// Latest round trip.
    rtt: Duration,
    /// Earliest time of the next train.
    next_at: Instant,
    /// A train waits until then.
    wakes_at: Option<Instant>,
    /// First sequence number behind the present train.
    train_end: u64,
    /// The window's limits while nothing else limits it.
    limits: WindowLimits,
}

/// Trains of one window: small ones, so that the queue of a switch holds less at once.
const TRAINS_PER_WINDOW: u64 = 4;
/// Time that a train takes at the rate, if it has more than one packet.
const TRAIN_TIME: Duration = Duration::from_micros(100);
/// How late a train may be and the next one still leave in time.
const MAX_CREDIT: Duration = Duration::from_micros(500);
/// Longest wait for the next train, and its part of the ACK timeout.
const MAX_WAIT: Duration = Duration::from_millis(50);
const WAITS_PER_ACK_TIMEOUT: u32 = 4;
/// Round trip before one is measured.
const INITIAL_RTT: Duration = Duration::from_millis(1);
/// The smallest window is this part of a packet.
const MIN_WINDOW_PART: u64 = 16;

impl Reaction {
    /// The reaction point of a sender with this window, of `packets` now; `None` if it has none.
    fn new(
        config: &CongestionConfig,
        packets: u32,
        window: &SendWindow,
        mtu: PathMtu,
    ) -> Option<Box<Self>> {
        let limits = window.limits();
        let mtu = mtu.bytes() as u64;
        let full_window = u64::from(packets) * mtu;
        let control: Box<dyn CongestionControl> = match config.algorithm {
            CongestionAlgorithm::Loss => return None,
            CongestionAlgorithm::Ecn => Box::new(EcnWindow::new(EcnParameters {
                packet: mtu,
                max_window: full_window,
                min_window: mtu / MIN_WINDOW_PART,
                ..EcnParameters::default()
            })),
            CongestionAlgorithm::Dcqcn => Box::new(Dcqcn::new(config.dcqcn, config.line_rate)),
            CongestionAlgorithm::Swift => Box::new(Swift::new(SwiftParameters {
                base_target: config.swift_base_target,
                flow_scaling: config.swift_base_target,
                windows: [1.0 / MIN_WINDOW_PART as f64, f64::from(packets)],
                packet: mtu,
                ..SwiftParameters::default()
            })),
        };
        Some(Box::new(Self {
            control,
            algorithm: config.algorithm,
            mtu,
            full_window,
            is_limited: false,
            is_marked: false,
            has_becn: false,
            rtt: INITIAL_RTT,
            next_at: Instant::default(),
            wakes_at: None,
            train_end: u64::MAX,
            limits,
        }))
    }

    /// That of a new connection: only one that measures delay has one from the start.
    pub(super) fn at_start(
        config: &CongestionConfig,
        window: &SendWindow,
        mtu: PathMtu,
    ) -> Option<Box<Self>> {
        match config.algorithm {
            CongestionAlgorithm::Swift => Self::new(config, window.limits().max, window, mtu),
            _ => None,
        }
    }

    /// That of a sender which a sign of congestion reaches at `now`.
    pub(super) fn begin(
        config: &CongestionConfig,
        window: &SendWindow,
        mtu: PathMtu,
        now: Instant,
    ) -> Option<Box<Self>> {
        let mut reaction = Self::new(config, window.size(), window, mtu)?;
        // What was sent before is no credit.
        reaction.next_at = now;
        Some(reaction)
    }

    /// Returns the instant at which a train may leave that waits.
    pub(super) const fn wakes_at(&self) -> Option<Instant> {
        self.wakes_at
    }

    /// The queue pair is scheduled after each timer.
    pub(super) fn on_timer(&mut self, now: Instant) {
        self.wakes_at.take_if(|at| *at <= now);
    }

    /// First sequence number behind the present train.
    pub(super) const fn train_end(&self) -> u64 {
        self.train_end
    }

    /// Returns the largest rate in bits per second, if there is one.
    pub(super) fn rate(&self) -> Option<u64> {
        let by_window = self.control.window().filter(|window| *window < self.mtu).map(|window| {
            let nanos = self.rtt.as_nanos().max(1);
            u64::try_from(u128::from(window) * 8_000_000_000 / nanos).unwrap_or(u64::MAX)
        });
        by_window.into_iter().chain(self.control.rate()).min().map(|rate| rate.max(1))
    }

    /// Begins a train at sequence number `next`, of the packets that may leave at once. Returns
    /// true if it has to wait.
    pub(super) fn begin_train(&mut self, next: u64, now: Instant) -> bool {
        self.control.on_timer(now);
        self.wakes_at = Some(self.next_at).filter(|at| *at > now);
        if self.wakes_at.is_some() {
            return true;
        }
        let by_window = self.control.window().map(|window| window / TRAINS_PER_WINDOW);
        let nanos = TRAIN_TIME.as_nanos() as u64;
        let by_rate = self.rate().map(|rate| rate / 8 * (nanos / 1_000) / 1_000_000);
        let bytes = by_window.into_iter().chain(by_rate).min();
        let packets = bytes.map_or(u64::MAX, |bytes| (bytes / self.mtu).max(1));
        self.train_end = next.saturating_add(packets);
        false
    }

    /// So many packets, or responses requested, have left.
    pub(super) fn on_sent(&mut self, packets: u64, ack_timeout: Option<Duration>, now: Instant) {
        let ack_timeout = ack_timeout.unwrap_or(Duration::MAX);
        let longest_wait = MAX_WAIT.min(ack_timeout / WAITS_PER_ACK_TIMEOUT);
        let bytes = packets * self.mtu;
        self.control.on_sent(now, bytes);
        let Some(rate) = self.rate() else { return };
        let credit_from = now.as_nanos().saturating_sub(MAX_CREDIT.as_nanos() as u64);
        let from = self.next_at.max(Instant::from_nanos(credit_from));
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(rate);
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.next_at = (from + wait.min(longest_wait)).min(now + longest_wait);
    }

    /// A CNP arrived.
    pub(super) fn on_cnp(&mut self, now: Instant) {
        let tells_nothing = self.algorithm == CongestionAlgorithm::Ecn && self.has_becn;
        if !tells_nothing {
            self.control.on_cnp(now);
        }
    }

    /// The next acknowledgement is to marked packets.
    pub(super) fn on_becn(&mut self) {
        self.is_marked = true;
        self.has_becn = true;
    }

    /// `packets` arrived, the latest after the round trip `rtt`, if one was measured; or some were lost.
    pub(super) fn on_acknowledged(
        &mut self,
        packets: u64,
        rtt: Option<Duration>,
        was_lost: bool,
        now: Instant,
    ) {
        let is_marked = core::mem::take(&mut self.is_marked);
        self.rtt = rtt.unwrap_or(self.rtt);
        let bytes = packets * self.mtu;
        self.control.on_ack(now, AckSample { bytes, rtt, is_marked });
        if was_lost {
            self.control.on_loss(now);
        }
    }

    /// Lets the window follow. Returns true once nothing limits the sender any more.
    pub(super) fn apply(&mut self, window: &mut SendWindow) -> bool {
        if self.is_over() {
            window.remove_cap(self.limits);
            return true;
        }
        if let Some(bytes) = self.control.window() {
            let packets = u32::try_from(bytes / self.mtu).unwrap_or(u32::MAX);
            window.set_cap(packets, self.limits);
        }
        false
    }

    /// Returns true once nothing limits the sender any more.
    fn is_over(&mut self) -> bool {
        match self.algorithm {
            CongestionAlgorithm::Ecn => {
                let is_full = self.control.window().is_none_or(|window| window >= self.full_window);
                self.is_limited |= !is_full;
                self.is_limited && is_full
            }
            CongestionAlgorithm::Dcqcn => self.control.rate().is_none(),
            CongestionAlgorithm::Swift | CongestionAlgorithm::Loss => false,
        }
    }
}
