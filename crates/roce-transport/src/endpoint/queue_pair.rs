//! A queue pair of whatever service, as endpoint and scheduler see it.

use roce_wire::{Packet, Qpn, Service, Verified};

use crate::context::{Context, DropReason};
use crate::endpoint::peer_window::{PeerView, PeerWindow};
use crate::owed_ack::OwedAck;
use crate::rc::{RcQueuePair, TxPending};
use crate::train::TrainWriter;
use crate::{
    ApiMisuse, EndpointConfig, Instant, Memory, ModifyError, Observer, PathAttributes, PathHandle,
    PostError, QpAttributes, QpInfo, QpInit, RecvWr, SendWr,
};

/// Queue pairs by service. Each service is a module of its own; endpoint and scheduler call the
/// methods below and know no service.
#[derive(Debug)]
pub(super) enum QueuePair {
    Rc(Box<RcQueuePair>),
}

/// Calls the queue pair of the service that `$queue_pair` has.
macro_rules! dispatch {
    ($queue_pair:expr, $of_service:ident => $call:expr) => {
        match $queue_pair {
            QueuePair::Rc($of_service) => $call,
        }
    };
}

impl QueuePair {
    /// A queue pair in RESET.
    ///
    /// # Errors
    /// [`ApiMisuse::ServiceNotSupported`].
    pub(super) fn new(qpn: Qpn, init: QpInit, config: &EndpointConfig) -> Result<Self, ApiMisuse> {
        match init.service {
            Service::Rc => Ok(Self::Rc(Box::new(RcQueuePair::new(qpn, init, config)))),
            other => Err(ApiMisuse::ServiceNotSupported(other)),
        }
    }

    pub(super) fn init(&self) -> &QpInit {
        dispatch!(self, qp => qp.init())
    }

    pub(super) fn info(&self) -> QpInfo {
        dispatch!(self, qp => qp.info())
    }

    pub(super) fn modify<O: Observer>(
        &mut self,
        attributes: &QpAttributes,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ModifyError> {
        dispatch!(self, qp => qp.modify(attributes, cx))
    }

    // Inlined, or the request would be moved once more.
    #[inline]
    pub(super) fn post_send<O: Observer>(
        &mut self,
        wr: SendWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        dispatch!(self, qp => qp.post_send(wr, cx))
    }

    pub(super) fn post_recv<O: Observer>(
        &mut self,
        wr: RecvWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        dispatch!(self, qp => qp.post_recv(wr, cx))
    }

    /// Handles a packet that names this queue pair; one of another service is dropped.
    #[inline]
    pub(super) fn handle_packet<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) {
        let bth = packet.headers().bth;
        match (self, bth.opcode.info().service) {
            (Self::Rc(rc), Service::Rc) => rc.handle_packet(packet, memory, cx),
            (_, Service::Cnp) => cx.dropped(bth.psn, DropReason::Congestion),
            _ => cx.dropped(bth.psn, DropReason::WrongService),
        }
    }

    pub(super) fn handle_timeout<O: Observer>(&mut self, peer: PeerView, cx: &mut Context<'_, O>) {
        dispatch!(self, qp => qp.handle_timeout(peer, cx));
    }

    pub(super) fn handle_failure<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        dispatch!(self, qp => qp.handle_failure(cx));
    }

    /// Writes the only packet there is to send, if it is a whole message; see
    /// [`RcQueuePair::transmit_single`].
    #[inline]
    pub(super) fn transmit_single<O: Observer>(
        &mut self,
        delay_acks: bool,
        window: &mut PeerWindow,
        memory: &mut impl Memory,
        buf: &mut [u8],
        cx: &mut Context<'_, O>,
    ) -> Option<usize> {
        dispatch!(self, qp => qp.transmit_single(delay_acks, window, memory, buf, cx))
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
        dispatch!(self, qp => qp.transmit(delay_acks, window, memory, train, cx))
    }

    #[inline]
    pub(super) fn must_continue(&self) -> bool {
        dispatch!(self, qp => qp.must_continue())
    }

    #[inline]
    pub(super) fn pending_tx(&self, delay_acks: bool) -> TxPending {
        dispatch!(self, qp => qp.pending_tx(delay_acks))
    }

    #[inline]
    pub(super) fn has_requests(&self) -> bool {
        dispatch!(self, qp => qp.has_requests())
    }

    #[inline]
    pub(super) fn has_outstanding(&self) -> bool {
        dispatch!(self, qp => qp.has_outstanding())
    }

    #[inline]
    pub(super) fn has_responses(&self) -> bool {
        dispatch!(self, qp => qp.has_responses())
    }

    pub(super) fn prefer_requests(&mut self) {
        dispatch!(self, qp => qp.prefer_requests());
    }

    pub(super) fn reset_frames(&mut self) {
        dispatch!(self, qp => qp.reset_frames());
    }

    #[inline]
    pub(super) fn needs_fresh_now(&self) -> bool {
        dispatch!(self, qp => qp.needs_fresh_now())
    }

    pub(super) fn keep_timed(&mut self, time: Instant) {
        dispatch!(self, qp => qp.keep_timed(time));
    }

    pub(super) fn is_timed(&self) -> bool {
        dispatch!(self, qp => qp.is_timed())
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        dispatch!(self, qp => qp.poll_timeout())
    }

    pub(super) fn path(&self) -> Option<PathAttributes> {
        dispatch!(self, qp => qp.path())
    }

    /// Path and queue pair number of the next packet.
    #[inline]
    pub(super) fn path_and_dest(&self) -> Option<(PathHandle, Qpn)> {
        dispatch!(self, qp => qp.path_and_dest())
    }

    pub(super) fn take_owed_ack(&mut self) -> Option<OwedAck> {
        dispatch!(self, qp => qp.take_owed_ack())
    }
}
