//! A queue pair of whatever service, as endpoint and scheduler see it.

use alloc::boxed::Box;

use roce_wire::{Packet, Qpn, Service, Verified};

use crate::context::{Context, DropReason};
use crate::peer_window::{PeerView, PeerWindow};
use crate::qp::context::QpContext;
use crate::qp::shared_receive_queue::SrqTable;
use crate::rc::RcQueuePair;
use crate::train::TrainWriter;
use crate::tx_demand::TxDemand;
use crate::unreliable::uc::UcQueuePair;
use crate::unreliable::ud::UdQueuePair;
use crate::{
    ApiMisuse, Destination, EndpointConfig, InlineData, Instant, Memory, ModifyError, Observer,
    PathHandle, PostError, QpAttributes, QpInfo, QpInit, QpState, RecvWr, SendWr,
};

/// Queue pairs by service. Each service is a module of its own. Endpoint and scheduler call the
/// methods below for what all services have, and match [`rc`](Self::rc) for what only
/// acknowledgements make necessary.
#[derive(Debug)]
pub(super) enum QueuePair {
    Rc(Box<RcQueuePair>),
    Uc(Box<UcQueuePair>),
    Ud(Box<UdQueuePair>),
}

/// Calls the queue pair of the service that `$queue_pair` has; `$unreliable` is what UC and UD queue
/// pairs share.
macro_rules! dispatch {
    ($queue_pair:expr, $rc:ident => $of_rc:expr, $unreliable:ident => $of_unreliable:expr) => {
        match $queue_pair {
            QueuePair::Rc($rc) => $of_rc,
            QueuePair::Uc(uc) => {
                let $unreliable = &uc.base;
                $of_unreliable
            }
            QueuePair::Ud(ud) => {
                let $unreliable = &ud.base;
                $of_unreliable
            }
        }
    };
}

impl QueuePair {
    /// A queue pair in RESET.
    ///
    /// # Errors
    /// [`ApiMisuse::ServiceNotSupported`].
    pub(super) fn new(qp: QpContext, config: &EndpointConfig) -> Result<Self, ApiMisuse> {
        match qp.init.service {
            Service::Rc => Ok(Self::Rc(Box::new(RcQueuePair::new(qp, config)))),
            Service::Uc => Ok(Self::Uc(Box::new(UcQueuePair::new(qp)))),
            Service::Ud => Ok(Self::Ud(Box::new(UdQueuePair::new(qp)))),
            other => Err(ApiMisuse::ServiceNotSupported(other)),
        }
    }

    /// The queue pair, if it is reliable.
    #[inline]
    pub(super) fn rc(&self) -> Option<&RcQueuePair> {
        match self {
            Self::Rc(rc) => Some(rc),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// The queue pair, if it is reliable.
    #[inline]
    pub(super) fn rc_mut(&mut self) -> Option<&mut RcQueuePair> {
        match self {
            Self::Rc(rc) => Some(rc),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// Returns true if a message that is not whole holds a receive.
    pub(super) fn holds_receive(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.holds_receive(),
            Self::Uc(uc) => uc.holds_receive(),
            Self::Ud(_) => false,
        }
    }

    fn context(&self) -> &QpContext {
        dispatch!(self, rc => rc.context(), other => other.context())
    }

    pub(super) fn init(&self) -> &QpInit {
        &self.context().init
    }

    pub(super) fn info(&self) -> QpInfo {
        match self {
            Self::Rc(rc) => rc.info(),
            Self::Uc(uc) => uc.info(),
            Self::Ud(ud) => ud.base.info(),
        }
    }

    pub(super) fn modify<O: Observer>(
        &mut self,
        attributes: &QpAttributes,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ModifyError> {
        match self {
            Self::Rc(rc) => rc.modify(attributes, cx),
            Self::Uc(uc) => uc.modify(attributes, cx),
            Self::Ud(ud) => ud.modify(attributes, cx),
        }
    }

    // Inlined, or the request would be moved once more.
    #[inline]
    pub(super) fn post_send<O: Observer>(
        &mut self,
        wr: SendWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.post_send(wr, cx),
            Self::Uc(uc) => uc.post_send(wr, cx),
            Self::Ud(_) => Err(PostError::NoDestination),
        }
    }

    #[inline]
    pub(super) fn post_send_to<O: Observer>(
        &mut self,
        wr: SendWr,
        to: Destination,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        match self {
            Self::Ud(ud) => ud.post_send(wr, to, cx),
            _ => Err(PostError::UnexpectedDestination(self.init().service)),
        }
    }

    /// Fails if the request could not be posted behind `ahead` others.
    pub(super) fn check_send(
        &self,
        wr: &SendWr,
        to: Option<&Destination>,
        ahead: usize,
    ) -> Result<(), PostError> {
        match (self, to) {
            (Self::Ud(ud), Some(to)) => ud.check_send(wr, to, ahead),
            (Self::Ud(_), None) => Err(PostError::NoDestination),
            (_, Some(_)) => Err(PostError::UnexpectedDestination(self.init().service)),
            (Self::Rc(rc), None) => rc.check_send(wr, ahead),
            (Self::Uc(uc), None) => uc.base.check_send(wr, ahead),
        }
    }

    pub(super) fn take_inline_buffer(&mut self) -> InlineData {
        match self {
            Self::Rc(rc) => rc.take_inline_buffer(),
            Self::Uc(uc) => uc.base.take_inline_buffer(),
            Self::Ud(ud) => ud.base.take_inline_buffer(),
        }
    }

    pub(super) fn post_recv<O: Observer>(
        &mut self,
        wr: RecvWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.post_recv(wr, cx),
            Self::Uc(uc) => uc.post_recv(wr, cx),
            Self::Ud(ud) => ud.base.post_recv(wr, 0, cx),
        }
    }

    /// Handles a packet that names this queue pair; one of another service is dropped.
    #[inline]
    pub(super) fn handle_packet<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        srqs: &mut SrqTable,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) {
        if let (Self::Rc(rc), Service::Rc) = (&mut *self, packet.opcode().service()) {
            return rc.handle_packet(packet, srqs, memory, cx);
        }
        self.handle_other_packet(packet, srqs, memory, cx);
    }

    // Apart, since RC's packets cost 3 % more instructions among these.
    #[inline(never)]
    fn handle_other_packet<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        srqs: &mut SrqTable,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) {
        let psn = packet.bth().psn();
        match (self, packet.opcode().service()) {
            (Self::Uc(uc), Service::Uc) => uc.handle_packet(packet, srqs, memory, cx),
            (Self::Ud(ud), Service::Ud) => ud.handle_packet(packet, srqs, memory, cx),
            (Self::Rc(rc), Service::Cnp) => rc.handle_cnp(packet, cx),
            (Self::Rc(rc), Service::Extension) => rc.handle_gap_report(packet, cx),
            (_, Service::Cnp) => cx.dropped(psn, DropReason::CnpIgnored),
            _ => cx.dropped(psn, DropReason::WrongService),
        }
    }

    /// Fires timers. The interface last took frames that its own have to wait for at `taken_at`.
    pub(super) fn handle_timeout<O: Observer>(
        &mut self,
        peer: PeerView,
        taken_at: Instant,
        cx: &mut Context<'_, O>,
    ) {
        match self {
            Self::Rc(rc) => rc.handle_timeout(peer, cx),
            Self::Uc(uc) => uc.base.handle_timeout(taken_at, cx),
            Self::Ud(ud) => ud.handle_timeout(taken_at, cx),
        }
    }

    pub(super) fn handle_failure<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        if matches!(self.context().state, QpState::Reset | QpState::Error) {
            return;
        }
        match self {
            Self::Rc(rc) => rc.fail(None, cx),
            Self::Uc(uc) => uc.handle_failure(cx),
            Self::Ud(ud) => ud.handle_failure(cx),
        }
    }

    /// As after a local error of a request of the send queue: UC and UD go on receiving.
    pub(super) fn handle_send_failure<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        match self {
            Self::Uc(uc) if uc.base.context().state.is_sending() => uc.base.fail_send(None, cx),
            Self::Ud(ud) if ud.base.context().state.is_sending() => ud.handle_send_failure(cx),
            _ => self.handle_failure(cx),
        }
    }

    /// Writes one train; see [`RcQueuePair::transmit`].
    #[inline]
    pub(super) fn transmit<O: Observer>(
        &mut self,
        delay_acks: bool,
        window: Option<&mut PeerWindow>,
        memory: &mut impl Memory,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> bool {
        match self {
            Self::Rc(rc) => return rc.transmit(delay_acks, window, memory, train, cx),
            Self::Uc(uc) => uc.transmit(memory, train, cx),
            Self::Ud(ud) => ud.transmit(memory, train, cx),
        }
        false
    }

    /// Returns what is left to send.
    #[inline]
    pub(super) fn demand(&self) -> TxDemand {
        dispatch!(self, rc => rc.demand(), other => other.demand())
    }

    #[inline]
    pub(super) fn has_outstanding(&self) -> bool {
        dispatch!(self, rc => rc.has_outstanding(), other => other.has_outstanding())
    }

    pub(super) fn keep_timed(&mut self, time: Instant) {
        match self {
            Self::Rc(rc) => rc.keep_timed(time),
            Self::Uc(uc) => uc.base.keep_timed(time),
            Self::Ud(ud) => ud.base.keep_timed(time),
        }
    }

    pub(super) fn is_timed(&self) -> bool {
        dispatch!(self, rc => rc.is_timed(), other => other.is_timed())
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        dispatch!(self, rc => rc.poll_timeout(), other => other.poll_timeout())
    }

    /// Path and queue pair number of the next packet.
    #[inline]
    pub(super) fn path_and_dest(&self) -> Option<(PathHandle, Qpn)> {
        match self {
            Self::Ud(ud) => ud.path_and_dest(),
            _ => self.context().path_and_dest(),
        }
    }
}
