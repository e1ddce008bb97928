//! What requester, responder and completer of one queue pair share.

use core::time::Duration;

use roce_wire::{Packet, PathMtu, Qpn, RnrTimer, Verified};

use crate::context::{Context, DropReason};
use crate::{
    AccessFlags, Accessor, AsyncEvent, Completion, CompletionOperation, CompletionStatus, Observer,
    PathAttributes, PathHandle, PdHandle, QpAttributes, QpInit, QpState, RecvWr, Retired,
};

/// Identity, state and parameters of a queue pair.
#[derive(Debug)]
pub(crate) struct QpContext {
    pub(crate) qpn: Qpn,
    pub(crate) init: QpInit,
    /// Protection domain of the receives: that of the shared receive queue, if it has one.
    pub(crate) receive_pd: PdHandle,
    pub(crate) state: QpState,
    /// All attributes set so far.
    pub(crate) attributes: QpAttributes,
    /// The attributes in the form in which packets use them.
    pub(crate) params: QpParams,
    /// A packet of the peer has arrived in RTR.
    is_established: bool,
}

/// Attributes in the form in which they are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpParams {
    pub(crate) path: Option<PathAttributes>,
    pub(crate) mtu: PathMtu,
    pub(crate) dest_qpn: Qpn,
    pub(crate) access: AccessFlags,
    pub(crate) max_rd_atomic: usize,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) ack_timeout: Option<Duration>,
    pub(crate) retry_count: u8,
    /// `None`: infinite.
    pub(crate) rnr_retry: Option<u8>,
    pub(crate) sqd_notify: bool,
    pub(crate) q_key: u32,
    /// Both ends report gaps.
    pub(crate) gap_reports: bool,
}

impl QpParams {
    /// Values before any attribute is set: none is used before its transition requires it.
    pub(crate) const UNSET: Self = Self {
        path: None,
        mtu: PathMtu::B256,
        dest_qpn: Qpn::MAX,
        access: AccessFlags::empty(),
        max_rd_atomic: 0,
        min_rnr_timer: RnrTimer::DEFAULT,
        ack_timeout: None,
        retry_count: 0,
        rnr_retry: Some(0),
        sqd_notify: false,
        q_key: 0,
        gap_reports: false,
    };

    /// Sets the parameters that `asked` contains.
    pub(crate) fn take(&mut self, asked: &QpAttributes) {
        if let Some(access) = asked.access {
            self.access = access;
        }
        if let Some(path) = asked.path {
            self.path = Some(path);
        }
        if let Some(mtu) = asked.path_mtu {
            self.mtu = mtu;
        }
        if let Some(qpn) = asked.dest_qpn {
            self.dest_qpn = qpn;
        }
        if let Some(max) = asked.max_rd_atomic {
            self.max_rd_atomic = usize::from(max);
        }
        if let Some(timer) = asked.min_rnr_timer {
            self.min_rnr_timer = timer;
        }
        if let Some(timeout) = asked.ack_timeout {
            self.ack_timeout = timeout.duration();
        }
        if let Some(count) = asked.retry_count {
            self.retry_count = count;
        }
        if let Some(count) = asked.rnr_retry {
            self.rnr_retry = Some(count).filter(|it| *it < RNR_RETRY_FOREVER);
        }
        if let Some(wanted) = asked.sqd_notify {
            self.sqd_notify = wanted;
        }
        if let Some(q_key) = asked.q_key {
            self.q_key = q_key;
        }
        if let Some(agreed) = asked.gap_reports {
            self.gap_reports = agreed;
        }
    }
}

/// The default partition key without its membership bit.
const DEFAULT_PARTITION: u16 = 0x7fff;

/// Returns true for the partition key of the default partition, of full or limited members.
#[inline]
pub(crate) const fn is_of_default_partition(partition_key: u16) -> bool {
    partition_key & DEFAULT_PARTITION == DEFAULT_PARTITION
}

/// The number of RNR retries that means "infinite" in verbs.
//= also rc-rnr-retries
const RNR_RETRY_FOREVER: u8 = 7;

impl QpContext {
    /// A queue pair in RESET; `receive_pd` is the protection domain of its receives.
    pub(crate) fn new(qpn: Qpn, init: QpInit, receive_pd: PdHandle) -> Self {
        Self {
            qpn,
            init,
            receive_pd,
            state: QpState::Reset,
            attributes: QpAttributes::default(),
            params: QpParams::UNSET,
            is_established: false,
        }
    }

    /// The same queue pair in RESET.
    pub(crate) fn reset(&self) -> Self {
        Self::new(self.qpn, self.init, self.receive_pd)
    }

    pub(crate) fn set_state<O: Observer>(&mut self, to: QpState, cx: &mut Context<'_, O>) {
        let from = core::mem::replace(&mut self.state, to);
        if from != to {
            cx.out.observer.state_changed(cx.now, cx.qpn, from, to);
        }
    }

    /// The path to the peer of a connection, and the queue pair there.
    #[inline]
    pub(crate) fn path_and_dest(&self) -> Option<(PathHandle, Qpn)> {
        let params = &self.params;
        params.path.map(|path| (path.handle, params.dest_qpn))
    }

    /// Returns the queue pair as memory checks see it.
    #[inline]
    pub(crate) fn accessor(&self) -> Accessor {
        Accessor { pd: self.init.pd, qpn: self.qpn }
    }

    /// Returns the queue pair as memory checks see it where a receive is filled.
    #[inline]
    pub(crate) fn receive_accessor(&self) -> Accessor {
        Accessor { pd: self.receive_pd, qpn: self.qpn }
    }

    /// Checks that a packet is from the peer, for this queue pair, and allowed in its state.
    #[inline]
    pub(crate) fn admit(&self, packet: &Packet<'_, Verified>) -> Result<(), DropReason> {
        self.admit_from_any(packet)?;
        let Some(path) = self.params.path else { return Err(DropReason::WrongState) };
        //= rule qp-addresses: InfiniBand 9.6; rxe_recv.c: check_addr
        //# A packet for a connected queue pair from or to another address than its path has is
        //# dropped.
        if packet.source() != path.remote {
            return Err(DropReason::WrongSource);
        }
        if packet.destination() != path.local {
            return Err(DropReason::WrongDestination);
        }
        Ok(())
    }

    /// Checks that a packet is allowed in this state, and of this partition.
    #[inline]
    pub(crate) fn admit_from_any(&self, packet: &Packet<'_, Verified>) -> Result<(), DropReason> {
        //= rule qp-state-admits: InfiniBand 10.3.1; rxe_recv.c: check_type_state
        //# Requests are taken from RTR on, responses from RTS on; other packets are dropped.
        let is_taken = match packet.view().is_request() {
            true => self.state.is_receiving(),
            false => self.state.is_sending(),
        };
        if !is_taken {
            return Err(DropReason::WrongState);
        }
        //= rule qp-partition: InfiniBand 9.6; rxe_recv.c: check_keys; rxe_verbs.h: pkey_match
        //# A packet of another partition is dropped.
        if !is_of_default_partition(packet.bth().partition_key()) {
            return Err(DropReason::BadPkey);
        }
        Ok(())
    }

    /// Notes that a packet of the peer of a connection was accepted.
    //= rule qp-established: InfiniBand, clause not known
    //# The first packet of the peer in RTR raises the event that communication is established.
    #[inline]
    pub(crate) fn note_established<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        if self.state == QpState::ReadyToReceive && !self.is_established {
            self.is_established = true;
            cx.raise(AsyncEvent::CommunicationEstablished { qpn: cx.qpn });
        }
    }

    /// Completes a receive that received nothing.
    pub(crate) fn complete_receive<O: Observer>(
        &self,
        work: &RecvWr,
        status: CompletionStatus,
        cx: &mut Context<'_, O>,
    ) {
        let completion = self.completion(work.wr_id, CompletionOperation::Recv, status, 0);
        self.complete_received(completion, cx);
    }

    /// Delivers the completion of a receive, which retires that.
    #[inline]
    pub(crate) fn complete_received<O: Observer>(
        &self,
        mut completion: Completion,
        cx: &mut Context<'_, O>,
    ) {
        completion.retired = Retired::new(self.init.numbers.receive, 1);
        cx.complete(self.init.recv_cq, completion);
    }

    /// A completion, which retires no request yet: what says which is known where it is delivered, and would make the
    /// value larger on the way there.
    #[inline]
    pub(crate) fn completion(
        &self,
        wr_id: u64,
        operation: CompletionOperation,
        status: CompletionStatus,
        byte_len: u64,
    ) -> Completion {
        // A message has at most 2^31 bytes.
        Completion::new(wr_id, self.qpn, operation, status, byte_len as u32)
    }
}
