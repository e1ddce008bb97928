//! The reaction point of a requester.

use core::time::Duration;

use roce_wire::PathMtu;

use crate::Instant;
use crate::congestion::{
    AckSample, CongestionAlgorithm, CongestionConfig, CongestionControl, Dcqcn, EcnParameters,
    EcnWindow, Swift, SwiftParameters,
};
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::rc::requester::Requester;
use crate::{Observer, WindowConfig};

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
    /// First sequence number behind the present train.
    train_end: u64,
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
    fn new(config: &CongestionConfig, window: u32, mtu: PathMtu) -> Option<Box<Self>> {
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
            train_end: u64::MAX,
        }))
    }

    /// That of a new connection: only one that measures delay has one from the start.
    pub(crate) fn at_start(
        config: &CongestionConfig,
        window: &WindowConfig,
        mtu: PathMtu,
    ) -> Option<Box<Self>> {
        let packets = window.max_packets.min(window.max_bytes / mtu.bytes() as u32).max(1);
        match config.algorithm {
            CongestionAlgorithm::Swift => Self::new(config, packets, mtu),
            _ => None,
        }
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

    /// Begins a train at sequence number `next`, of the packets that may leave at once. Returns when
    /// it may leave, if that is later.
    fn begin_train(&mut self, next: u64, now: Instant) -> Option<Instant> {
        self.control.on_timer(now);
        if self.next_at > now {
            return Some(self.next_at);
        }
        let by_window = self.control.window().map(|window| window / TRAINS_PER_WINDOW);
        let nanos = TRAIN_TIME.as_nanos() as u64;
        let by_rate = self.rate().map(|rate| rate / 8 * (nanos / 1_000) / 1_000_000);
        let bytes = by_window.into_iter().chain(by_rate).min();
        let packets = bytes.map_or(u64::MAX, |bytes| (bytes / self.mtu).max(1));
        self.train_end = next.saturating_add(packets);
        None
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

    /// Returns when the next train may leave, if that is later than now.
    #[inline]
    pub(crate) fn paced_until(&mut self, now: Instant) -> Option<Instant> {
        let next = self.next;
        self.reaction.as_mut()?.begin_train(next, now)
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
            let window = self.window.size();
            self.reaction = Reaction::new(&cx.config.congestion, window, qp.params.mtu);
        }
        self.reaction.as_deref_mut()
    }

    /// Lets the window follow.
    fn apply_reaction<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        let Some(reaction) = &mut self.reaction else { return };
        let size = self.window.size();
        if reaction.is_over() {
            self.reaction = None;
            self.window.remove_cap();
        } else if let Some(window) = reaction.control.window() {
            let packets = u32::try_from(window / reaction.mtu).unwrap_or(u32::MAX);
            self.window.set_cap(packets);
        }
        self.note_resized(size, cx);
    }
}
