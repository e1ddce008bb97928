//! What a call of a queue pair has access to.

use alloc::collections::VecDeque;
use core::time::Duration;

use roce_wire::{Psn, Qpn};

use crate::congestion::{CongestionConfig, NotificationPoint};
use crate::frames_in_flight::FrameFeedback;
use crate::owed_ack::OwedAcks;
use crate::owed_cnp::{OwedCnp, OwedCnps};
use crate::reorder_budget::ReorderBudget;
use crate::{
    AsyncEvent, Completion, Counters, CqHandle, EndpointConfig, Instant, Observer, PathHandle,
};

/// Everything that leaves an endpoint apart from packets.
#[derive(Debug)]
pub(crate) struct Outputs<O> {
    pub(crate) completions: VecDeque<(CqHandle, Completion)>,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) counters: Counters,
    /// ACKs of queue pairs that were reset or destroyed.
    pub(crate) owed_acks: OwedAcks,
    pub(crate) reorder_budget: ReorderBudget,
    pub(crate) owed_cnps: OwedCnps,
    /// ACKs scheduled since the endpoint was made.
    pub(crate) acks_scheduled: u64,
    pub(crate) observer: O,
}

/// A call of a queue pair: its time, and where its results go.
#[derive(Debug)]
pub(crate) struct Context<'a, O> {
    /// By the driver's clock, for observers.
    pub(crate) now: Instant,
    /// The driver's running time, which timers count.
    pub(crate) time: Instant,
    pub(crate) qpn: Qpn,
    /// No other queue pair waits for its turn to send.
    pub(crate) is_alone: bool,
    /// What the call says of frames in flight to the peer.
    pub(crate) feedback: FrameFeedback,
    pub(crate) config: &'a EndpointConfig,
    pub(crate) out: &'a mut Outputs<O>,
}

impl<O> Outputs<O> {
    pub(crate) fn new(observer: O, config: &EndpointConfig) -> Self {
        Self {
            completions: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            owed_acks: OwedAcks::default(),
            reorder_budget: ReorderBudget::new(config.max_reorder_bytes),
            owed_cnps: OwedCnps::default(),
            acks_scheduled: 0,
            observer,
        }
    }
}

impl<'a, O: Observer> Context<'a, O> {
    #[inline]
    pub(crate) fn new(
        now: Instant,
        time: Instant,
        qpn: Qpn,
        config: &'a EndpointConfig,
        out: &'a mut Outputs<O>,
    ) -> Self {
        Self { now, time, qpn, is_alone: false, feedback: FrameFeedback::default(), config, out }
    }

    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.out.counters
    }

    pub(crate) fn complete(&mut self, cq: CqHandle, completion: Completion) {
        self.out.observer.completed(self.now, &completion);
        self.out.completions.push_back((cq, completion));
    }

    pub(crate) fn raise(&mut self, event: AsyncEvent) {
        self.out.events.push_back(event);
    }

    /// Notes a marked packet of the peer of a connection, on this path. Returns true if the notification
    /// point finds a CNP due; it is sent if the point is on.
    pub(crate) fn on_marked(
        &mut self,
        point: &mut NotificationPoint,
        path_and_dest: Option<(PathHandle, Qpn)>,
    ) -> bool {
        let CongestionConfig { np_enable, np_min_time_between_cnps, .. } = self.config.congestion;
        self.counters().np_ecn_marked_roce_packets += 1;
        let interval = Duration::from_micros(np_min_time_between_cnps.into());
        let is_due = point.on_marked(self.time, interval);
        if let Some((path, dest_qpn)) = path_and_dest.filter(|_| is_due && np_enable) {
            self.out.owed_cnps.push(OwedCnp { qpn: self.qpn, dest_qpn, path });
        }
        is_due
    }

    /// Counts a dropped packet and reports it to the observer.
    pub(crate) fn dropped(&mut self, psn: Psn, why: DropReason) {
        *why.counter(&mut self.out.counters) += 1;
        self.out.observer.packet_dropped(self.now, self.qpn, psn, why.name());
    }
}

/// One line for each reason: variant and counter.
macro_rules! drop_reasons {
    ($( $variant:ident $counter:ident, )*) => {
        /// Why a packet goes no further; each has a counter of its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum DropReason { $( $variant, )* }

        impl DropReason {
            pub(crate) fn counter(self, counters: &mut Counters) -> &mut u64 {
                match self { $( Self::$variant => &mut counters.$counter, )* }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self { $( Self::$variant => stringify!($counter), )* }
            }
        }
    };
}

drop_reasons! {
    UnknownQp unknown_qp,
    WrongService wrong_service,
    WrongState wrong_state,
    BadPkey bad_pkey,
    BadQkey bad_qkey,
    OutOfBuffer out_of_buffer,
    ManagementLength management_length,
    ManagementFull management_full,
    WrongSource wrong_source,
    WrongDestination wrong_destination,
    CnpIgnored rp_cnp_ignored,
    OutOfSequence out_of_seq_request,
    ReorderDuplicate reorder_duplicate,
    ReorderDiffers reorder_differs,
    ReorderTooFar reorder_too_far,
    GapReportIgnored gap_report_ignored,
    UnknownDuplicate unknown_duplicate,
    ResponseNeverRequested response_never_requested,
    DuplicateResponse duplicate_response,
    UnexpectedResponse unexpected_response,
    ReservedSyndrome reserved_syndrome,
    ImpliedNak implied_nak,
}
