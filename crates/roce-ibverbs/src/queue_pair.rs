//! Queue pairs.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use libc::{EBUSY, EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, ibv_cq, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_sge,
};
use roce_verbs::{EventSource, QpCap, Service};

use crate::acks::Acks;
use crate::attributes_as_set::AttributesAsSet;
use crate::cancellation::Uncancellable;
use crate::completion_queue::{CompletionQueue, CqInner};
use crate::context::ContextInner;
use crate::errno;
use crate::memory_reserve;
use crate::object::{self, Object, Shared};
use crate::protection_domain::{PdInner, ProtectionDomain};
use crate::shared_receive_queue::{SharedReceiveQueue, SrqInner};
use crate::staging::Staging;

/// A queue pair.
#[repr(C)]
pub(crate) struct QueuePair {
    c: Shared<ibv_qp_ex>,
    pub(crate) qp: roce_verbs::QueuePair,
    pub(crate) context: Arc<ContextInner>,
    /// The capacities that it was created with.
    pub(crate) cap: ibv_qp_cap,
    pub(crate) signal_all: bool,
    /// Attributes that are queried as the program has set them.
    pub(crate) as_set: Mutex<AttributesAsSet>,
    acks: Arc<Acks>,
    /// The requests between `ibv_wr_start` and `ibv_wr_complete`, for queue pairs that have these.
    pub(crate) staging: Option<Staging>,
    _pd: Arc<PdInner>,
    _queues: [Arc<CqInner>; 2],
    _srq: Option<Arc<SrqInner>>,
}

// SAFETY: `repr(C)` with the structure first; that begins with an `ibv_qp`.
unsafe impl Object for QueuePair {
    type C = ibv_qp;
}

impl QueuePair {
    /// Returns the structure.
    pub(crate) fn c(&self) -> *mut ibv_qp_ex {
        self.c.get()
    }

    /// Returns the part of the structure that all queue pairs have.
    pub(crate) fn base(&self) -> *mut ibv_qp {
        self.c.get().cast()
    }

    /// Notes that the program has acknowledged an event of the queue pair.
    pub(crate) fn acknowledge_event(&self) {
        // SAFETY: a field that this function alone changes.
        unsafe { self.acks.acknowledge(1, &raw mut (*self.base()).events_completed) };
    }
}

/// Fewest requests of a send queue that takes any, as of hns; see `MIN_SLOTS` of completion queues.
const MIN_SEND_WR: u32 = 64;

/// Bytes of an inline request for each element that a request may have, as with rxe: where a card has
/// the elements it has the bytes, and programs such as rdma_xclient take that for granted.
const MIN_INLINE_PER_SGE: u32 = size_of::<ibv_sge>() as u32;

/// Inline bytes are granted in steps of so many. mlx5 makes requests of blocks of 64 bytes and grants what is left in
/// the last one (`mlx5_calc_send_wqe`): 124 bytes of 64, 252 of 220. Programs live on the rest: NCCL with
/// `NCCL_IB_USE_INLINE=1` asks for one record of 64 bytes, and posts as many records as it has receives. A request
/// takes memory for the bytes that it has, so that what is granted beyond these costs nothing.
const INLINE_STEP: u32 = 128;

/// Returns the inline bytes of a queue pair for which a program asks for `asked`, with so many elements.
fn inline_bytes(asked: u32, elements: u32) -> u32 {
    let granted = match asked {
        // More than any queue pair has: the number stays as it is, and is refused.
        0 | QpCap::MAX_INLINE.. => asked,
        _ => asked.next_multiple_of(INLINE_STEP).min(QpCap::MAX_INLINE),
    };
    granted.max(elements.saturating_mul(MIN_INLINE_PER_SGE).min(QpCap::MAX_INLINE))
}

/// Returns the service of a queue pair type.
fn service_of(qp_type: c_int) -> Result<Service, c_int> {
    match qp_type {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        _ => Err(EOPNOTSUPP),
    }
}

/// Makes a queue pair, and writes its capacities to `attributes`. With `extended` it takes requests
/// between `ibv_wr_start` and `ibv_wr_complete` too.
///
/// # Errors
/// An `errno` value.
///
/// # Safety
/// The objects that the attributes name are null, or objects of the program.
pub(crate) unsafe fn make(
    pd: &ProtectionDomain,
    attributes: &mut ibv_qp_init_attr,
    extended: bool,
) -> Result<*mut ibv_qp, c_int> {
    memory_reserve::check()?;
    let service = service_of(attributes.qp_type)?;
    // SAFETY: the caller's promise.
    let [send_cq, recv_cq] = [attributes.send_cq, attributes.recv_cq]
        .map(|queue: *mut ibv_cq| unsafe { object::lend_optional::<CompletionQueue>(queue) });
    let (Some(send_cq), Some(recv_cq)) = (send_cq, recv_cq) else { return Err(EINVAL) };
    // SAFETY: as above.
    let srq = unsafe { object::lend_optional::<SharedReceiveQueue>(attributes.srq) };
    let inner = pd.inner();
    // The kernel finds no object of another context.
    let contexts = [&send_cq.inner().context, &recv_cq.inner().context];
    let srq_context = srq.map(|srq| &srq.inner().context);
    if contexts.into_iter().chain(srq_context).any(|it| !Arc::ptr_eq(it, &inner.context)) {
        return Err(EINVAL);
    }
    let limits = &inner.context.limits;
    let cap = &mut attributes.cap;
    let has_too_many = |pieces: u32| limits.max_sge.is_some_and(|most| pieces > most);
    if has_too_many(cap.max_send_sge)
        || has_too_many(cap.max_recv_sge)
        || limits.max_inline.is_some_and(|most| cap.max_inline_data > most)
    {
        return Err(EINVAL);
    }
    if cap.max_send_wr > 0 {
        cap.max_send_wr = cap.max_send_wr.max(MIN_SEND_WR);
    }
    let most = limits.max_inline.unwrap_or(u32::MAX);
    cap.max_inline_data = inline_bytes(cap.max_inline_data, cap.max_send_sge).min(most);
    let mut builder = inner
        .pd
        .queue_pair(&send_cq.inner().queue, &recv_cq.inner().queue)
        .service(service)
        .max_send_wr(cap.max_send_wr)
        .max_send_sge(cap.max_send_sge)
        .max_recv_wr(cap.max_recv_wr)
        .max_recv_sge(cap.max_recv_sge)
        .max_inline(cap.max_inline_data)
        .signal_all(attributes.sq_sig_all != 0);
    if let Some(srq) = srq {
        // A queue pair with a shared queue has no receives of its own.
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        builder = builder.srq(&srq.inner().srq).max_recv_wr(0).max_recv_sge(0);
    }
    let qp = builder.build().map_err(|error| errno::of(&error))?;
    // SAFETY: integers, pointers and optional functions.
    let c = unsafe { Shared::<ibv_qp_ex>::zeroed() };
    // SAFETY: the structure is not shared yet.
    let base = unsafe { &mut (*c.get()).qp_base };
    base.context = pd.context().as_ptr();
    base.qp_context = attributes.qp_context;
    base.pd = object::pointer_to(pd);
    (base.send_cq, base.recv_cq, base.srq) =
        (attributes.send_cq, attributes.recv_cq, attributes.srq);
    base.qp_num = qp.number().get();
    base.handle = base.qp_num;
    base.qp_type = attributes.qp_type;
    let number = qp.number();
    let acks = Arc::<Acks>::default();
    let context = Arc::clone(&inner.context);
    let made = object::give(QueuePair {
        c,
        qp,
        context: Arc::clone(&context),
        cap: *cap,
        signal_all: attributes.sq_sig_all != 0,
        as_set: Mutex::default(),
        acks: Arc::clone(&acks),
        staging: extended.then(Staging::default),
        _pd: Arc::clone(inner),
        _queues: [send_cq, recv_cq].map(|queue| Arc::clone(queue.inner())),
        _srq: srq.map(|srq| Arc::clone(srq.inner())),
    });
    context.add_object(EventSource::QueuePair(number), made.addr(), &acks);
    Ok(made)
}

/// `ibv_create_qp`
pub(crate) unsafe extern "C" fn create(
    pd: &ProtectionDomain,
    attributes: &mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the attributes are the program's.
    unsafe { make(pd, attributes, false) }.unwrap_or_else(errno::null)
}

/// `ibv_destroy_qp`
pub(crate) unsafe extern "C" fn destroy(qp: *mut ibv_qp) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // qperf's server destroys the queue pair of its listener, which has none. Elsewhere it ends
    // there by SIGSEGV.
    if qp.is_null() {
        return errno::failed(EINVAL);
    }
    // SAFETY: see `object`.
    if unsafe { object::lend::<QueuePair>(qp) }.qp.is_attached() {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    let made = unsafe { object::take::<QueuePair>(qp) };
    let source = EventSource::QueuePair(made.qp.number());
    let QueuePair { qp, context, acks, .. } = *made;
    context.remove_object(source, &acks, || drop(qp));
    0
}

/// `ibv_qp_to_qp_ex`
pub(crate) extern "C" fn to_extended(qp: &QueuePair) -> *mut ibv_qp_ex {
    match &qp.staging {
        Some(_) => qp.c(),
        None => std::ptr::null_mut(),
    }
}

/// `ibv_query_qp_data_in_order`: packets are executed in order, and the last bytes of each are
/// written last.
pub(crate) extern "C" fn data_in_order(_qp: &QueuePair, _operation: c_int, flags: u32) -> c_int {
    const WHOLE_MESSAGES_AND_128_BYTES: c_int = 3;
    match flags {
        0 => 1,
        roce_abi::IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS => WHOLE_MESSAGES_AND_128_BYTES,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_bytes_are_granted_in_steps_up_to_the_most_of_the_device() {
        let granted = |asked| inline_bytes(asked, 0);
        assert_eq!([1, 64, 128, 129, 220].map(granted), [128, 128, 128, 256, 256]);
        assert_eq!([4000, 4096].map(granted), [4096, 4096]);
        for too_many in [4097, 1 << 20, u32::MAX] {
            assert_eq!(granted(too_many), too_many);
        }
    }

    #[test]
    fn a_queue_pair_that_asks_for_no_inline_bytes_has_those_of_its_elements() {
        assert_eq!(
            [0, 1, 4, u32::MAX].map(|elements| inline_bytes(0, elements)),
            [0, 16, 64, 4096]
        );
        assert_eq!(inline_bytes(64, 32), 512);
    }
}
