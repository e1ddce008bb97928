//! Attributes of queue pairs, as C programs set and see them.

use std::ffi::c_int;
use std::sync::PoisonError;

use libc::{EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN, IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN,
    IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_ah_attr, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
};
use roce_verbs::{
    AccessFlags, AckTimeout, PathMtu, Psn, QpAttributes, QpInfo, QpState, Qpn, RnrTimer, Service,
};

use crate::attributes_as_set::AttributesAsSet;
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

/// Attributes of the specification; the kernel refuses others as not supported.
const OF_STANDARD: c_int = (IBV_QP_DEST_QPN << 1) - 1;

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
        && (asked.path_mig_state != 0 || !takes_migration_state(qp, attributes.state)?)
    {
        return Err(EINVAL);
    }
    let most = qp.context.limits.max_qp_rd_atom.unwrap_or(u32::MAX);
    let is_deeper = |flag: c_int, asked: u8| mask & flag != 0 && u32::from(asked) > most;
    if is_deeper(IBV_QP_MAX_QP_RD_ATOMIC, asked.max_rd_atomic)
        || is_deeper(IBV_QP_MAX_DEST_RD_ATOMIC, asked.max_dest_rd_atomic)
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
    qp.as_set.lock().unwrap_or_else(PoisonError::into_inner).note(asked, mask);
    if mask & IBV_QP_STATE != 0 {
        // SAFETY: a field that this library alone changes.
        unsafe { (*qp.base()).state = asked.qp_state };
    }
    Ok(())
}

/// Returns true if a change to this state, or of none, may name the migration state.
///
/// # Errors
/// An `errno` value.
fn takes_migration_state(qp: &QueuePair, to: Option<QpState>) -> Result<bool, c_int> {
    let from = qp.qp.query().map_err(|error| errno::of(&error))?.state;
    let fits = match to.unwrap_or(from) {
        QpState::ReadyToSend => {
            matches!(from, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrain)
        }
        QpState::SendQueueDrain => from == QpState::SendQueueDrain,
        _ => false,
    };
    Ok(fits && qp.qp.service() != Service::Ud)
}

/// Translates all attributes but the path.
fn translate(asked: &ibv_qp_attr, mask: c_int) -> Result<QpAttributes, c_int> {
    if mask & !OF_STANDARD != 0 {
        return Err(EOPNOTSUPP);
    }
    if mask & !KNOWN != 0 {
        return Err(EINVAL);
    }
    let has = |attribute: c_int| mask & attribute != 0;
    let known = |is_set: bool, value| if is_set { Some(value) } else { None };
    // As mlx5 has fields of so many bits; rxe stores all values, and uses as many bits.
    let low = |is_set: bool, value: u8, bits: u32| is_set.then_some(value & ((1 << bits) - 1));
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
        max_rd_atomic: has(IBV_QP_MAX_QP_RD_ATOMIC).then(|| depth(asked.max_rd_atomic)),
        max_dest_rd_atomic: has(IBV_QP_MAX_DEST_RD_ATOMIC).then(|| depth(asked.max_dest_rd_atomic)),
        min_rnr_timer: low(has(IBV_QP_MIN_RNR_TIMER), asked.min_rnr_timer, 5)
            .and_then(RnrTimer::new),
        ack_timeout: checked(has(IBV_QP_TIMEOUT), || AckTimeout::new(asked.timeout))?,
        retry_count: low(has(IBV_QP_RETRY_CNT), asked.retry_cnt, 3),
        rnr_retry: low(has(IBV_QP_RNR_RETRY), asked.rnr_retry, 3),
        sqd_notify: has(IBV_QP_EN_SQD_ASYNC_NOTIFY).then_some(asked.en_sqd_async_notify != 0),
        q_key: has(IBV_QP_QKEY).then_some(asked.qkey),
        gap_reports: None,
    })
}

/// Returns the number of READs and atomics for which a queue pair has room: a power of two, as in rxe and mlx5.
fn depth(asked: u8) -> u8 {
    if asked == 0 { 0 } else { asked.checked_next_power_of_two().unwrap_or(asked) }
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
    mask: c_int,
    init: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    if mask & IBV_QP_RATE_LIMIT != 0 {
        return errno::failed(EOPNOTSUPP); // as rdma-core, without asking the device
    }
    let info = match qp.qp.query() {
        Ok(info) => info,
        Err(error) => return errno::failed(errno::of(&error)),
    };
    let as_set = *qp.as_set.lock().unwrap_or_else(PoisonError::into_inner);
    *attributes = describe(&info, &as_set, qp.cap);
    if mask & IBV_QP_STATE != 0 {
        // SAFETY: a field that this library alone changes.
        unsafe { (*qp.base()).state = attributes.qp_state };
    }
    // SAFETY: fields of the structure, which do not change but for `state`.
    let base = unsafe { &*qp.base() };
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
fn describe(info: &QpInfo, as_set: &AttributesAsSet, cap: ibv_qp_cap) -> ibv_qp_attr {
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
        ah_attr: as_set.address.unwrap_or_default(),
        alt_ah_attr: ibv_ah_attr::default(),
        pkey_index: set.pkey_index.unwrap_or(0),
        alt_pkey_index: 0,
        en_sqd_async_notify: u8::from(set.sqd_notify.unwrap_or(false)),
        sq_draining: u8::from(info.is_draining),
        max_rd_atomic: set.max_rd_atomic.unwrap_or(0),
        max_dest_rd_atomic: set.max_dest_rd_atomic.unwrap_or(0),
        min_rnr_timer: as_set.min_rnr_timer.unwrap_or(0),
        port_num: set.port.unwrap_or(0),
        timeout: set.ack_timeout.map_or(0, AckTimeout::exponent),
        retry_cnt: as_set.retry_cnt.unwrap_or(0),
        rnr_retry: as_set.rnr_retry.unwrap_or(0),
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
            timeout: 32,
            ..ibv_qp_attr::default()
        };
        for attribute in [
            IBV_QP_STATE,
            IBV_QP_PATH_MTU,
            IBV_QP_DEST_QPN,
            IBV_QP_TIMEOUT,
            roce_abi::IBV_QP_ALT_PATH,
            roce_abi::IBV_QP_CAP,
        ] {
            assert_eq!(translate(&asked, attribute), Err(EINVAL), "{attribute:#x}");
        }
    }

    #[test]
    fn numbers_beyond_their_field_are_cut_to_its_bits() {
        let asked = ibv_qp_attr {
            min_rnr_timer: 32 + 14,
            retry_cnt: 8 + 5,
            rnr_retry: 255,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_MIN_RNR_TIMER | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
        let set = translate(&asked, mask).unwrap();
        assert_eq!(set.min_rnr_timer, RnrTimer::new(14));
        assert_eq!((set.retry_count, set.rnr_retry), (Some(5), Some(7)));
        let mut as_set = AttributesAsSet::default();
        as_set.note(&asked, mask);
        as_set.note(&ibv_qp_attr::default(), IBV_QP_STATE);
        let found = (as_set.min_rnr_timer, as_set.retry_cnt, as_set.rnr_retry);
        assert_eq!(found, (Some(46), Some(13), Some(255)));
    }

    #[test]
    fn the_depth_of_reads_is_a_power_of_two() {
        for (asked, depth) in [(0, 0), (1, 1), (3, 4), (16, 16), (100, 128), (255, 255)] {
            let asked = ibv_qp_attr {
                max_rd_atomic: asked,
                max_dest_rd_atomic: asked,
                ..Default::default()
            };
            let mask = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
            let set = translate(&asked, mask).unwrap();
            assert_eq!((set.max_rd_atomic, set.max_dest_rd_atomic), (Some(depth), Some(depth)));
        }
    }
}
