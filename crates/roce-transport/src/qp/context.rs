//! What requester, responder and completer of one queue pair share.

use core::time::Duration;

use roce_wire::{PathMtu, Qpn, RnrTimer};

use crate::{
    AccessFlags, Accessor, Completion, CompletionOperation, CompletionStatus, PathAttributes,
    PdHandle, QpAttributes, QpInit, QpState,
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
    }
}

/// The number of RNR retries that means "infinite" in verbs.
const RNR_RETRY_FOREVER: u8 = 7;

impl QpContext {
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

    /// The completion of a request that received nothing.
    pub(crate) fn completion(
        &self,
        wr_id: u64,
        operation: CompletionOperation,
        status: CompletionStatus,
        byte_len: u64,
    ) -> Completion {
        Completion {
            wr_id,
            qpn: self.qpn,
            status,
            operation,
            byte_len: byte_len as u32, // a message has at most 2^31 bytes
            immediate: None,
            invalidated_key: None,
            solicited: false,
        }
    }
}
