//! The reaction point of a requester.

use core::time::Duration;

use roce_wire::PathMtu;

use crate::Instant;
use crate::Observer;
use crate::congestion::{
    AckSample, CongestionAlgorithm, CongestionConfig, CongestionControl, Dcqcn, EcnParameters,
    EcnWindow, Swift, SwiftParameters,
};
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::rc::requester::Requester;
use crate::rc::requester::send_window::{SendWindow, WindowLimits};

/// What limits the requester beside losses. It exists while something does: most connections never
/// have one.
#[derive(Debug)]
pub(crate) struct Reaction {
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
    /// The reaction point of a sender whose window is `window` packets; `None` if it has none.
    fn new(
        config: &CongestionConfig,
        window: u32,
        limits: WindowLimits,
        mtu: PathMtu,
    ) -> Option<Box<Self>> {
        let mtu = mtu.bytes() as u64;
        let full_window = u64::from(window) * mtu;
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
                windows: [1.0 / MIN_WINDOW_PART as f64, f64::from(window)],
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
    pub(crate) fn at_start(
        config: &CongestionConfig,
        window: &SendWindow,
        mtu: PathMtu,
    ) -> Option<Box<Self>> {
        let limits = window.limits();
        match config.algorithm {
            CongestionAlgorithm::Swift => Self::new(config, limits.max, limits, mtu),
            _ => None,
        }
    }

    /// Returns the instant at which a train may leave that waits.
    pub(crate) const fn wakes_at(&self) -> Option<Instant> {
        self.wakes_at
    }

    /// The queue pair is scheduled after each timer.
    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.wakes_at.take_if(|at| *at <= now);
    }

    /// First sequence number behind the present train.
    pub(crate) const fn train_end(&self) -> u64 {
        self.train_end
    }

    /// Returns the largest rate in bits per second, if there is one.
    fn rate(&self) -> Option<u64> {
        let by_window = self.control.window().filter(|window| *window < self.mtu).map(|window| {
            let nanos = self.rtt.as_nanos().max(1);
            u64::try_from(u128::from(window) * 8_000_000_000 / nanos).unwrap_or(u64::MAX)
        });
        by_window.into_iter().chain(self.control.rate()).min().map(|rate| rate.max(1))
    }

    /// Begins a train at sequence number `next`, of the packets that may leave at once. Returns
    /// true if it has to wait.
    fn begin_train(&mut self, next: u64, now: Instant) -> bool {
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
    fn on_sent(&mut self, packets: u64, longest_wait: Duration, now: Instant) {
        let bytes = packets * self.mtu;
        self.control.on_sent(now, bytes);
        let Some(rate) = self.rate() else { return };
        let credit_from = now.as_nanos().saturating_sub(MAX_CREDIT.as_nanos() as u64);
        let from = self.next_at.max(Instant::from_nanos(credit_from));
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(rate);
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.next_at = (from + wait.min(longest_wait)).min(now + longest_wait);
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

impl Requester {
    /// Returns the rate in bits per second that limits the sender, if one does.
    pub(crate) fn rate_limit(&self) -> Option<u64> {
        self.reaction.as_ref().and_then(|reaction| reaction.rate())
    }

    /// Returns the first sequence number behind the present train.
    #[inline]
    pub(crate) fn train_end(&self) -> u64 {
        self.reaction.as_ref().map_or(u64::MAX, |reaction| reaction.train_end())
    }

    /// A congestion notification packet arrived, or would be sent for a response of the peer.
    pub(crate) fn on_cnp<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        let Some(reaction) = self.reaction(qp, cx) else { return };
        let tells_nothing = reaction.algorithm == CongestionAlgorithm::Ecn && reaction.has_becn;
        if !tells_nothing {
            reaction.control.on_cnp(cx.time);
        }
        self.apply_reaction(cx);
    }

    /// The next acknowledgement is to marked packets.
    #[cold]
    pub(crate) fn on_becn<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        if cx.config.congestion.algorithm == CongestionAlgorithm::Ecn
            && let Some(reaction) = self.reaction(qp, cx)
        {
            reaction.is_marked = true;
            reaction.has_becn = true;
        }
    }

    /// So many packets were acknowledged for the first time, in front of `to`; or some were lost.
    #[cold]
    pub(crate) fn react<O: Observer>(&mut self, to: u64, was_lost: bool, cx: &mut Context<'_, O>) {
        let rtt = self.recovery.sampled_rtt(to, cx.time);
        let Some(reaction) = &mut self.reaction else { return };
        let is_marked = core::mem::take(&mut reaction.is_marked);
        reaction.rtt = rtt.unwrap_or(reaction.rtt);
        let bytes = to.saturating_sub(self.unacked) * reaction.mtu;
        reaction.control.on_ack(cx.time, AckSample { bytes, rtt, is_marked });
        if was_lost {
            reaction.control.on_loss(cx.time);
        }
        self.apply_reaction(cx);
    }

    /// Returns true if the next train has to wait.
    #[inline]
    pub(crate) fn is_paced(&mut self, now: Instant) -> bool {
        let next = self.next;
        self.reaction.as_mut().is_some_and(|reaction| reaction.begin_train(next, now))
    }

    /// Packets from `start` on have left.
    #[inline]
    pub(crate) fn note_paced(&mut self, start: u64, qp: &QpContext, now: Instant) {
        let packets = self.next.saturating_sub(start);
        if let Some(reaction) = self.reaction.as_mut().filter(|_| packets > 0) {
            let ack_timeout = qp.params.ack_timeout.unwrap_or(Duration::MAX);
            let longest_wait = MAX_WAIT.min(ack_timeout / WAITS_PER_ACK_TIMEOUT);
            reaction.on_sent(packets, longest_wait, now);
        }
    }

    fn reaction<O: Observer>(
        &mut self,
        qp: &QpContext,
        cx: &Context<'_, O>,
    ) -> Option<&mut Reaction> {
        if self.reaction.is_none() {
            let (size, limits) = (self.window.size(), self.window.limits());
            let mut reaction = Reaction::new(&cx.config.congestion, size, limits, qp.params.mtu);
            // What was sent before is no credit.
            if let Some(reaction) = &mut reaction {
                reaction.next_at = cx.time;
            }
            self.reaction = reaction;
        }
        self.reaction.as_deref_mut()
    }

    /// Lets the window follow.
    fn apply_reaction<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        let Some(reaction) = &mut self.reaction else { return };
        let size = self.window.size();
        if reaction.is_over() {
            self.window.remove_cap(reaction.limits);
            self.reaction = None;
        } else if let Some(window) = reaction.control.window() {
            let packets = u32::try_from(window / reaction.mtu).unwrap_or(u32::MAX);
            self.window.set_cap(packets, reaction.limits);
        }
        self.note_resized(size, cx);
    }
}
