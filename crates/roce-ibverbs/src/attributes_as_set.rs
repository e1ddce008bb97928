//! Attributes of a queue pair that a query returns as the program set them.

use std::ffi::c_int;

use roce_abi::{
    IBV_QP_AV, IBV_QP_MIN_RNR_TIMER, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, ibv_ah_attr, ibv_qp_attr,
};

/// What the program has set and the engine does not keep: `ibv_query_qp` returns it as it was set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttributesAsSet {
    pub(crate) address: Option<ibv_ah_attr>,
    pub(crate) min_rnr_timer: Option<u8>,
    pub(crate) retry_cnt: Option<u8>,
    pub(crate) rnr_retry: Option<u8>,
}

impl AttributesAsSet {
    /// Notes the attributes that a call has set.
    pub(crate) fn note(&mut self, asked: &ibv_qp_attr, mask: c_int) {
        let set = |attribute: c_int, value, before| match mask & attribute {
            0 => before,
            _ => Some(value),
        };
        if mask & IBV_QP_AV != 0 {
            self.address = Some(asked.ah_attr);
        }
        self.min_rnr_timer = set(IBV_QP_MIN_RNR_TIMER, asked.min_rnr_timer, self.min_rnr_timer);
        self.retry_cnt = set(IBV_QP_RETRY_CNT, asked.retry_cnt, self.retry_cnt);
        self.rnr_retry = set(IBV_QP_RNR_RETRY, asked.rnr_retry, self.rnr_retry);
    }
}
