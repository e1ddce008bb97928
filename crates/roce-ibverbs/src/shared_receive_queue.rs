//! Shared receive queues.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::{EBUSY, EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};
use roce_verbs::{EventSource, SrqAttributes};

use crate::acks::Acks;
use crate::cancellation::Uncancellable;
use crate::context::ContextInner;
use crate::errno;
use crate::memory_reserve;
use crate::object::{self, Object, Shared, is_used};
use crate::protection_domain::{PdInner, ProtectionDomain};
use crate::receive_list::ReceiveList;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SharedReceiveQueue {
    c: Shared<ibv_srq>,
    inner: Arc<SrqInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for SharedReceiveQueue {
    type C = ibv_srq;
}

/// The part that queue pairs keep alive.
pub(crate) struct SrqInner {
    pub(crate) srq: roce_verbs::SharedReceiveQueue,
    pub(crate) context: Arc<ContextInner>,
    _pd: Arc<PdInner>,
    acks: Arc<Acks>,
}

impl SharedReceiveQueue {
    pub(crate) fn inner(&self) -> &Arc<SrqInner> {
        &self.inner
    }

    /// Notes that the program has acknowledged an event of the queue.
    pub(crate) fn acknowledge_event(&self) {
        // SAFETY: a field that this function alone changes.
        unsafe { self.inner.acks.acknowledge(1, &raw mut (*self.c.get()).events_completed) };
    }
}

/// Makes a shared receive queue, and writes its capacities to `attributes`.
///
/// # Errors
/// An `errno` value.
pub(crate) fn make(
    pd: &ProtectionDomain,
    srq_context: *mut c_void,
    attributes: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, c_int> {
    memory_reserve::check()?;
    let limits = &pd.inner().context.limits;
    if limits.has_no_srq {
        return Err(EOPNOTSUPP);
    }
    if attributes.max_wr == 0 || limits.max_sge.is_some_and(|most| attributes.max_sge > most) {
        return Err(EINVAL);
    }
    // As with rxe and mlx5, whose requests have room for one in any case.
    attributes.max_sge = attributes.max_sge.max(1);
    let inner = pd.inner();
    let srq = inner.pd.create_srq(attributes.max_wr, attributes.max_sge);
    let srq = srq.map_err(|error| errno::of(&error))?;
    // SAFETY: integers, pointers and locks that begin as zeros.
    let c = unsafe { Shared::<ibv_srq>::zeroed() };
    // SAFETY: the structure is not shared yet.
    let fields = unsafe { &mut *c.get() };
    fields.context = pd.context().as_ptr();
    fields.srq_context = srq_context;
    fields.pd = object::pointer_to(pd);
    fields.handle = srq.handle().0;
    let source = EventSource::SharedReceiveQueue(srq.handle());
    let (context, acks) = (Arc::clone(&inner.context), Arc::<Acks>::default());
    let inner = SrqInner {
        srq,
        context: Arc::clone(&context),
        _pd: Arc::clone(inner),
        acks: Arc::clone(&acks),
    };
    let made = object::give(SharedReceiveQueue { c, inner: Arc::new(inner) });
    context.add_object(source, made.addr(), &acks);
    Ok(made)
}

/// `ibv_create_srq`
pub(crate) extern "C" fn create(
    pd: &ProtectionDomain,
    attributes: &mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let _uncancellable = Uncancellable::begin();
    make(pd, attributes.srq_context, &mut attributes.attr).unwrap_or_else(errno::null)
}

/// `ibv_modify_srq`
pub(crate) extern "C" fn modify(
    srq: &SharedReceiveQueue,
    attributes: &ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    let is_emptied = mask & IBV_SRQ_MAX_WR != 0 && attributes.max_wr == 0;
    // Other bits have no meaning, as with rxe and cards.
    if is_emptied {
        return errno::failed(EINVAL);
    }
    errno::code(srq.inner.srq.modify(&SrqAttributes {
        max_wr: (mask & IBV_SRQ_MAX_WR != 0).then_some(attributes.max_wr),
        limit: (mask & IBV_SRQ_LIMIT != 0).then_some(attributes.srq_limit),
    }))
}

/// `ibv_query_srq`
pub(crate) extern "C" fn query(srq: &SharedReceiveQueue, attributes: &mut ibv_srq_attr) -> c_int {
    match srq.inner.srq.query() {
        Ok(info) => {
            *attributes = ibv_srq_attr {
                max_wr: info.init.max_wr,
                max_sge: info.init.max_sge,
                srq_limit: info.limit,
            };
            0
        }
        Err(error) => errno::failed(errno::of(&error)),
    }
}

/// `ibv_destroy_srq`
pub(crate) unsafe extern "C" fn destroy(srq: *mut ibv_srq) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    if is_used(unsafe { object::lend::<SharedReceiveQueue>(srq) }.inner()) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    let srq = unsafe { object::take::<SharedReceiveQueue>(srq) };
    let inner = &srq.inner;
    let source = EventSource::SharedReceiveQueue(inner.srq.handle());
    inner.context.remove_object(source, &inner.acks, || {});
    0
}

/// `ibv_post_srq_recv`
pub(crate) unsafe extern "C" fn post_recv(
    srq: *mut ibv_srq,
    requests: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the operations of a context are called with its objects alone.
    let srq = unsafe { object::lend::<SharedReceiveQueue>(srq) };
    // SAFETY: the list of the program.
    let mut list = unsafe { ReceiveList::new(requests) };
    let result = srq.inner.srq.post_recv(&mut list);
    // SAFETY: the program passes room for a pointer.
    unsafe { list.conclude(result, refused) }
}
