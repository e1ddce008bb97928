//! Attributes of queue pairs, as C programs set and see them.

use std::ffi::c_int;
use std::sync::PoisonError;

use libc::EINVAL;
use roce_abi::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN, IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    ibv_ah_attr, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
};
use roce_verbs::{
    AccessFlags, AckTimeout, PathMtu, Psn, QpAttributes, QpInfo, QpState, Qpn, RnrTimer, Service,
};

use crate::cancellation::Uncancellable;
use crate::queue_pair::QueuePair;
use crate::{address_vector, errno};

/// Attributes that a mask may name. Other paths than the primary one do not exist.
const KNOWN: c_int = IBV_QP_STATE
    | IBV_QP_CUR_STATE
    | IBV_QP_EN_SQD_ASYNC_NOTIFY
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_PATH_MIG_STATE
    | IBV_QP_DEST_QPN;

/// `ibv_modify_qp`
pub(crate) extern "C" fn modify(qp: &QueuePair, attributes: &ibv_qp_attr, mask: c_int) -> c_int {
    let _uncancellable = Uncancellable::begin();
    errno::code_of(apply(qp, attributes, mask))
}

/// Changes a queue pair.
///
/// # Errors
/// An `errno` value; nothing has changed then.
fn apply(qp: &QueuePair, asked: &ibv_qp_attr, mask: c_int) -> Result<(), c_int> {
    let mut attributes = translate(asked, mask)?;
    if mask & IBV_QP_PATH_MIG_STATE != 0
        && (qp.qp.service() == Service::Ud || asked.path_mig_state != 0)
    {
        return Err(EINVAL);
    }
    // The path lives until the queue pair has it.
    let path = match mask & IBV_QP_AV {
        0 => None,
        _ => {
            let vector = address_vector::of(&asked.ah_attr)?;
            let resolved = qp.context.device.resolve(&vector);
            Some(resolved.map_err(|error| errno::of(&error))?)
        }
    };
    attributes.path = path.as_ref().map(|path| path.attributes());
    qp.qp.modify(&attributes).map_err(|error| errno::of(&error))?;
    if path.is_some() {
        *qp.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked.ah_attr);
    }
    if mask & IBV_QP_STATE != 0 {
        // SAFETY: a field that this library alone changes.
        unsafe { (*qp.base()).state = asked.qp_state };
    }
    Ok(())
}

/// Translates all attributes but the path.
fn translate(asked: &ibv_qp_attr, mask: c_int) -> Result<QpAttributes, c_int> {
    if mask & !KNOWN != 0 {
        return Err(EINVAL);
    }
    let has = |attribute: c_int| mask & attribute != 0;
    let known = |is_set: bool, value| if is_set { Some(value) } else { None };
    Ok(QpAttributes {
        state: known(has(IBV_QP_STATE), asked.qp_state).map(state_of).transpose()?,
        current_state: known(has(IBV_QP_CUR_STATE), asked.cur_qp_state)
            .map(state_of)
            .transpose()?,
        access: has(IBV_QP_ACCESS_FLAGS)
            .then(|| AccessFlags::from_bits_truncate(asked.qp_access_flags)),
        pkey_index: has(IBV_QP_PKEY_INDEX).then_some(asked.pkey_index),
        port: has(IBV_QP_PORT).then_some(asked.port_num),
        path: None,
        path_mtu: checked(has(IBV_QP_PATH_MTU), || {
            u8::try_from(asked.path_mtu).ok().and_then(PathMtu::from_code)
        })?,
        dest_qpn: checked(has(IBV_QP_DEST_QPN), || Qpn::new(asked.dest_qp_num))?,
        // As the kernel does, the upper byte is left out.
        rq_psn: has(IBV_QP_RQ_PSN).then(|| Psn::wrapping(asked.rq_psn)),
        sq_psn: has(IBV_QP_SQ_PSN).then(|| Psn::wrapping(asked.sq_psn)),
        max_rd_atomic: has(IBV_QP_MAX_QP_RD_ATOMIC).then_some(asked.max_rd_atomic),
        max_dest_rd_atomic: has(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(asked.max_dest_rd_atomic),
        min_rnr_timer: checked(has(IBV_QP_MIN_RNR_TIMER), || RnrTimer::new(asked.min_rnr_timer))?,
        ack_timeout: checked(has(IBV_QP_TIMEOUT), || AckTimeout::new(asked.timeout))?,
        retry_count: has(IBV_QP_RETRY_CNT).then_some(asked.retry_cnt),
        rnr_retry: has(IBV_QP_RNR_RETRY).then_some(asked.rnr_retry),
        sqd_notify: has(IBV_QP_EN_SQD_ASYNC_NOTIFY).then_some(asked.en_sqd_async_notify != 0),
        q_key: has(IBV_QP_QKEY).then_some(asked.qkey),
        gap_reports: None,
    })
}

/// Returns the value of an attribute that is set.
fn checked<T>(is_set: bool, value: impl FnOnce() -> Option<T>) -> Result<Option<T>, c_int> {
    if is_set { value().ok_or(EINVAL).map(Some) } else { Ok(None) }
}

fn state_of(code: c_int) -> Result<QpState, c_int> {
    QpState::ALL.into_iter().find(|state| c_int::from(state.code()) == code).ok_or(EINVAL)
}

/// `ibv_query_qp`
pub(crate) extern "C" fn query(
    qp: &QueuePair,
    attributes: &mut ibv_qp_attr,
    _mask: c_int,
    init: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    let info = match qp.qp.query() {
        Ok(info) => info,
        Err(error) => return errno::failed(errno::of(&error)),
    };
    let address = *qp.address.lock().unwrap_or_else(PoisonError::into_inner);
    *attributes = describe(&info, address, qp.cap);
    // SAFETY: fields of the structure; only this library changes `state`.
    let base = unsafe {
        (*qp.base()).state = attributes.qp_state;
        &*qp.base()
    };
    if let Some(init) = init {
        *init = ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: qp.cap,
            qp_type: base.qp_type,
            sq_sig_all: c_int::from(qp.signal_all),
        };
    }
    0
}

/// Returns the attributes of a queue pair as `ibv_query_qp` reports them.
fn describe(info: &QpInfo, address: Option<ibv_ah_attr>, cap: ibv_qp_cap) -> ibv_qp_attr {
    let set = &info.attributes;
    let state = c_int::from(info.state.code());
    ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: set.path_mtu.map_or(0, |mtu| c_int::from(mtu.code())),
        path_mig_state: 0,
        qkey: set.q_key.unwrap_or(0),
        rq_psn: set.rq_psn.map_or(0, Psn::get),
        sq_psn: set.sq_psn.map_or(0, Psn::get),
        dest_qp_num: set.dest_qpn.map_or(0, Qpn::get),
        qp_access_flags: set.access.map_or(0, |access| access.bits()),
        cap,
        ah_attr: address.unwrap_or_default(),
        alt_ah_attr: ibv_ah_attr::default(),
        pkey_index: set.pkey_index.unwrap_or(0),
        alt_pkey_index: 0,
        en_sqd_async_notify: u8::from(set.sqd_notify.unwrap_or(false)),
        sq_draining: u8::from(info.is_draining),
        max_rd_atomic: set.max_rd_atomic.unwrap_or(0),
        max_dest_rd_atomic: set.max_dest_rd_atomic.unwrap_or(0),
        min_rnr_timer: set.min_rnr_timer.map_or(0, RnrTimer::code),
        port_num: set.port.unwrap_or(0),
        timeout: set.ack_timeout.map_or(0, AckTimeout::exponent),
        retry_cnt: set.retry_count.unwrap_or(0),
        rnr_retry: set.rnr_retry.unwrap_or(0),
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_the_mask_does_not_name_are_not_set() {
        assert_eq!(translate(&ibv_qp_attr::default(), 0), Ok(QpAttributes::default()));
    }

    #[test]
    fn values_without_a_meaning_and_unknown_attributes_are_refused() {
        let asked = ibv_qp_attr {
            qp_state: 99,
            path_mtu: 6,
            dest_qp_num: 1 << 24,
            min_rnr_timer: 32,
            timeout: 32,
            ..ibv_qp_attr::default()
        };
        for attribute in [
            IBV_QP_STATE,
            IBV_QP_PATH_MTU,
            IBV_QP_DEST_QPN,
            IBV_QP_MIN_RNR_TIMER,
            IBV_QP_TIMEOUT,
            roce_abi::IBV_QP_ALT_PATH,
            roce_abi::IBV_QP_CAP,
        ] {
            assert_eq!(translate(&asked, attribute), Err(EINVAL), "{attribute:#x}");
        }
    }
}
