//! Small operations of the extended interface.

use std::ffi::{c_int, c_void};

use libc::{EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_CQ_ATTR_MODERATE, IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_cq, ibv_modify_cq_attr,
    ibv_mr, ibv_mr_init_attr, ibv_pd, ibv_sge, ibv_srq, ibv_values_ex,
};

use crate::cancellation::Uncancellable;
use crate::completion_queue::CompletionQueue;
use crate::object;
use crate::protection_domain::ProtectionDomain;
use crate::receive_list::Elements;
use crate::{errno, memory_region, registration};

/// `ibv_query_rt_values_ex`: the clock of completion times.
pub(crate) unsafe extern "C" fn query_rt_values(
    _context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the program passes the structure.
    let values = unsafe { &mut *values };
    if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
        return errno::failed(EINVAL);
    }
    if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
        let nanos = super::poll::raw_clock_nanos().cast_signed();
        values.raw_clock =
            libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
    }
    0
}

/// `ibv_modify_cq`: moderation of events, which is advice: any count and period is taken, and changes nothing. The
/// kernel, too, refuses a call that asks for nothing, and one that asks for what it does not know.
pub(crate) unsafe extern "C" fn modify_cq(
    queue: *mut ibv_cq,
    attributes: *mut ibv_modify_cq_attr,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program passes attributes.
    match unsafe { (*attributes).attr_mask } {
        0 => errno::failed(EINVAL),
        IBV_CQ_ATTR_MODERATE => {
            // SAFETY: see `object`; the operations of a context are called with its objects alone.
            let queue = unsafe { object::lend::<CompletionQueue>(queue) };
            errno::code(queue.inner().queue.advise_moderation())
        }
        _ => errno::failed(EOPNOTSUPP),
    }
}

/// `ibv_reg_mr_ex` as an operation.
pub(crate) unsafe extern "C" fn reg_mr_ex(
    pd: *mut ibv_pd,
    attributes: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the program passes attributes.
    unsafe { registration::by_attributes(object::lend::<ProtectionDomain>(pd), &*attributes) }
}

/// `ibv_advise_mr` as an operation.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    pieces: *mut ibv_sge,
    count: u32,
) -> c_int {
    if pieces.is_null() {
        return errno::failed(EINVAL);
    }
    // SAFETY: see `object`; the program passes so many pieces.
    let done = unsafe {
        let pieces = Elements::new(pieces, count as usize);
        memory_region::advise(object::lend::<ProtectionDomain>(pd), advice, flags, pieces)
    };
    done.map_or_else(errno::failed, |()| 0)
}

/// `ibv_get_srq_num`: only queues of XRC have a number.
pub(crate) unsafe extern "C" fn srq_num(_: *mut ibv_srq, _: *mut u32) -> c_int {
    errno::failed(EOPNOTSUPP)
}

/// `ibv_close_xrcd`: the program cannot have a domain of XRC.
pub(crate) unsafe extern "C" fn close_xrcd(_: *mut c_void) -> c_int {
    errno::failed(EOPNOTSUPP)
}
