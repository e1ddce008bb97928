//! Thread domains and parent domains, and shared receive queues of `ibv_create_srq_ex`.

use std::ffi::c_int;
use std::sync::Arc;

use libc::{EBUSY, EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC,
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQT_BASIC, ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_srq,
    ibv_srq_init_attr_ex, ibv_td, ibv_td_init_attr,
};

use crate::cancellation::Uncancellable;
use crate::object::{self, Object, Shared, is_used};
use crate::protection_domain::ProtectionDomain;
use crate::{errno, shared_receive_queue};

/// A thread domain: the promise of a program to use what it makes with it from one thread. It spares
/// nothing here, as locks that are free cost little.
#[repr(C)]
struct ThreadDomain {
    c: Shared<ibv_td>,
    /// Shared with the parent domains that use it.
    uses: Arc<()>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for ThreadDomain {
    type C = ibv_td;
}

/// `ibv_alloc_td`
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attributes: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    // SAFETY: the program passes attributes.
    if unsafe { (*attributes).comp_mask } != 0 {
        return errno::null(EINVAL);
    }
    object::give(ThreadDomain { c: Shared::new(ibv_td { context }), uses: Arc::default() })
}

/// `ibv_dealloc_td`
pub(crate) unsafe extern "C" fn dealloc_td(domain: *mut ibv_td) -> c_int {
    // SAFETY: see `object`.
    if is_used(unsafe { &object::lend::<ThreadDomain>(domain).uses }) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    drop(unsafe { object::take::<ThreadDomain>(domain) });
    0
}

/// `ibv_alloc_parent_domain`. The program's functions that allocate memory are not called: this
/// library has no queues that a device reads. Leave to allocate memory that the host of a confidential
/// guest can read changes nothing: buffers are memory of the process in any case.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    _context: *mut ibv_context,
    attributes: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &*attributes };
    let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    if attributes.comp_mask & !known != 0 {
        return errno::null(EINVAL);
    }
    // SAFETY: see `object`; null where the program has forgotten it.
    let pd = unsafe { object::lend_optional::<ProtectionDomain>(attributes.pd) };
    // SAFETY: see `object`; null where the program wants none.
    let thread_domain = unsafe { object::lend_optional::<ThreadDomain>(attributes.td) };
    match pd {
        Some(pd) if !pd.is_alias() => pd.give_alias(thread_domain.map(|it| Arc::clone(&it.uses))),
        _ => errno::null(EINVAL),
    }
}

/// `ibv_create_srq_ex`, for queues without tags and without XRC.
pub(crate) unsafe extern "C" fn create_srq(
    _context: *mut ibv_context,
    attributes: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &mut *attributes };
    let mask = attributes.comp_mask;
    let is_basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || attributes.srq_type == IBV_SRQT_BASIC;
    if !is_basic || mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0 {
        return errno::null(EOPNOTSUPP);
    }
    // SAFETY: see `object`; null where the program has forgotten it.
    let pd = unsafe { object::lend_optional::<ProtectionDomain>(attributes.pd) };
    let Some(pd) = pd.filter(|_| mask & IBV_SRQ_INIT_ATTR_PD != 0) else {
        return errno::null(EINVAL);
    };
    shared_receive_queue::make(pd, attributes.srq_context, &mut attributes.attr)
        .unwrap_or_else(errno::null)
}
