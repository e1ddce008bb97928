//! Completion queues.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use libc::{EBUSY, EINVAL, EIO};
use roce_abi::{IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_cq, ibv_cq_ex, ibv_wc};
use roce_verbs::{Completion, EventSource, VerbMoment};

use crate::acks::Acks;
use crate::cancellation::Uncancellable;
use crate::completion_channel::{ChannelInner, CompletionChannel};
use crate::context::{ContextInner, ContextPtr, EventTarget};
use crate::errno;
use crate::memory_reserve;
use crate::object::{self, Object, Shared, is_used};
use crate::poll_cursor::Cursor;

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    c: Shared<ibv_cq_ex>,
    inner: Arc<CqInner>,
    /// Where a program is that polls with `ibv_start_poll`.
    pub(crate) cursor: Cursor,
}

// SAFETY: `repr(C)` with the structure first; that begins as an `ibv_cq` does.
unsafe impl Object for CompletionQueue {
    type C = ibv_cq;
}

/// The part that queue pairs keep alive.
pub(crate) struct CqInner {
    pub(crate) queue: roce_verbs::CompletionQueue,
    pub(crate) context: Arc<ContextInner>,
    channel: Option<Arc<ChannelInner>>,
    /// Of completion events.
    acks: Arc<Acks>,
    /// Of asynchronous events.
    async_acks: Arc<Acks>,
}

impl CompletionQueue {
    pub(crate) fn inner(&self) -> &Arc<CqInner> {
        &self.inner
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.inner.acks
    }

    /// Notes that the program has acknowledged an asynchronous event of the queue.
    pub(crate) fn acknowledge_event(&self) {
        // SAFETY: a field that this function alone changes.
        unsafe {
            let completed = &raw mut (*self.c.get()).async_events_completed;
            self.inner.async_acks.acknowledge(1, completed);
        }
    }

    /// Returns the structure, whose functions a queue of `ibv_create_cq_ex` needs.
    pub(crate) fn c(&self) -> *mut ibv_cq_ex {
        self.c.get()
    }
}

/// The parameters of a queue.
pub(crate) struct CqParameters<'a> {
    pub(crate) capacity: i64,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: Option<&'a CompletionChannel>,
    pub(crate) vector: i64,
    /// The program polls it by `ibv_start_poll` from one thread at a time.
    pub(crate) is_single_threaded: bool,
}

/// Most completions of a queue, as of mlx5.
pub(crate) const MAX_CQE: c_int = (1 << 22) - 1;

/// Fewest slots of a queue, as of hns. Programs that ask for too few completions live on the rest:
/// with one channel for both queues, `ib_send_lat -e` of perftest before 23.07 takes the event of a
/// receive for that of its request when a packet is lost, and sends on while completions wait in a
/// queue of one.
const MIN_SLOTS: usize = 64;

/// Returns the capacity of a queue for which a program asks for `count` completions: one less than a
/// power of two, as those of mlx5 and rxe.
///
/// # Errors
/// `EINVAL` out of 1 ..= [`MAX_CQE`].
fn capacity_of(count: i64) -> Result<usize, c_int> {
    let in_range = |count: &usize| (1..=MAX_CQE as usize).contains(count);
    let count = usize::try_from(count).ok().filter(in_range).ok_or(EINVAL)?;
    Ok((count + 1).next_power_of_two().max(MIN_SLOTS) - 1)
}

/// Makes a completion queue.
///
/// # Errors
/// An `errno` value.
pub(crate) fn make(
    context: ContextPtr,
    parameters: &CqParameters<'_>,
) -> Result<*mut ibv_cq, c_int> {
    let &CqParameters { capacity, cq_context, channel, vector, is_single_threaded } = parameters;
    memory_reserve::check()?;
    if vector != 0 {
        return Err(EINVAL);
    }
    let capacity = capacity_of(capacity)?;
    let channel_inner = channel.map(|channel| Arc::clone(channel.inner()));
    let queue = context
        .device()
        .create_cq(capacity, channel_inner.as_ref().map(|it| &it.channel))
        .map_err(|error| errno::of(&error))?;
    // SAFETY: integers, pointers and optional functions.
    let c = unsafe { Shared::<ibv_cq_ex>::zeroed() };
    // SAFETY: the structure is not shared yet.
    let fields = unsafe { &mut *c.get() };
    fields.context = context.as_ptr();
    fields.channel = channel.map_or(ptr::null_mut(), object::pointer_to);
    fields.cq_context = cq_context;
    fields.cqe = c_int::try_from(queue.capacity()).unwrap_or(c_int::MAX);
    let handle = queue.handle();
    let (acks, async_acks) = (Arc::default(), Arc::default());
    let inner = Arc::new(CqInner {
        queue,
        context: Arc::clone(context.inner()),
        channel: channel_inner,
        acks: Arc::clone(&acks),
        async_acks: Arc::clone(&async_acks),
    });
    let made =
        CompletionQueue { c, inner: Arc::clone(&inner), cursor: Cursor::new(is_single_threaded) };
    let made = object::give(made);
    if let Some(channel) = &inner.channel {
        channel.add(handle, EventTarget { address: made.addr(), acks });
    }
    if let Some(channel) = channel {
        channel.count_queues(1);
    }
    context.inner().add_object(EventSource::CompletionQueue(handle), made.addr(), &async_acks);
    Ok(made)
}

/// `ibv_create_cq`
pub(crate) extern "C" fn create(
    context: ContextPtr,
    capacity: c_int,
    cq_context: *mut c_void,
    channel: Option<&CompletionChannel>,
    vector: c_int,
) -> *mut ibv_cq {
    let _uncancellable = Uncancellable::begin();
    let (capacity, vector) = (i64::from(capacity), i64::from(vector));
    let is_single_threaded = false;
    let parameters = CqParameters { capacity, cq_context, channel, vector, is_single_threaded };
    make(context, &parameters).unwrap_or_else(errno::null)
}

/// `ibv_resize_cq`
pub(crate) extern "C" fn resize(queue: &CompletionQueue, count: c_int) -> c_int {
    let _uncancellable = Uncancellable::begin();
    let capacity = match capacity_of(i64::from(count)) {
        // As rxe, also where its least capacity would hold them.
        Ok(_) if usize::try_from(count).is_ok_and(|count| count < queue.inner.queue.held()) => {
            return errno::failed(EINVAL);
        }
        Ok(capacity) => capacity,
        Err(errno) => return errno::failed(errno),
    };
    if let Err(errno) = queue.inner.context.meet_faults_of(VerbMoment::ResizeCq) {
        return errno::failed(errno);
    }
    let result = queue.inner.queue.resize(capacity);
    if result.is_ok() {
        // SAFETY: a field that this function alone changes.
        unsafe { (*queue.c.get()).cqe = c_int::try_from(capacity).unwrap_or(c_int::MAX) };
    }
    errno::code(result)
}

/// `ibv_destroy_cq`
pub(crate) unsafe extern "C" fn destroy(queue: *mut ibv_cq) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    if is_used(unsafe { object::lend::<CompletionQueue>(queue) }.inner()) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    let queue = unsafe { object::take::<CompletionQueue>(queue) };
    let CqInner { queue: polled, context, channel, acks, async_acks } = &*queue.inner;
    if let Some(channel) = channel {
        channel.remove(polled);
    }
    // SAFETY: the channel of the queue, which the queue keeps from being destroyed.
    let channel = unsafe { object::lend_optional::<CompletionChannel>((*queue.c.get()).channel) };
    if let Some(channel) = channel {
        channel.count_queues(-1);
    }
    let source = EventSource::CompletionQueue(polled.handle());
    context.remove_object(source, async_acks, || polled.end_reports());
    if !context.device.is_inherited() {
        acks.wait();
    }
    0
}

/// `ibv_poll_cq`
pub(crate) unsafe extern "C" fn poll(queue: *mut ibv_cq, count: c_int, to: *mut ibv_wc) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the operations of a context are called with its objects alone.
    let CompletionQueue { inner, .. } = unsafe { object::lend(queue) };
    let Ok(max) = usize::try_from(count) else { return -EINVAL };
    let mut next = to;
    let polled = inner.queue.poll_with(max, |completion| {
        // SAFETY: at most `max` entries, for which the program has room.
        unsafe {
            write(&completion, next);
            next = next.add(1);
        }
    });
    if polled == 0 && inner.context.device.is_inherited() {
        return -EIO;
    }
    polled as c_int // at most `count`
}

/// Writes an entry in place.
///
/// # Safety
/// `to` may be written.
#[inline]
unsafe fn write(completion: &Completion, to: *mut ibv_wc) {
    let wc = ibv_wc {
        wr_id: completion.wr_id,
        status: c_int::from(completion.status.code()),
        opcode: c_int::from(completion.operation.code()),
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_data: imm_data(completion),
        qp_num: completion.qpn.get(),
        src_qp: completion.source_qpn.map_or(0, |qpn| qpn.get()),
        wc_flags: wc_flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { to.write(wc) };
}

/// Returns the bytes of the immediate data, or the key that the peer invalidated.
#[inline]
pub(crate) fn imm_data(completion: &Completion) -> u32 {
    match completion.immediate {
        Some(bytes) => u32::from_ne_bytes(bytes),
        None => completion.invalidated_key.unwrap_or(0),
    }
}

/// Returns the service level: of a datagram the kind of its packet, as the completions of mlx5 have
/// it. UCX learns from it whether an IPv4 header is in front of the datagram, and drops it otherwise.
#[inline]
pub(crate) fn service_level(completion: &Completion) -> u8 {
    const UDP: u8 = 8;
    match completion.source_qpn {
        None => 0,
        Some(_) if completion.is_over_ipv6 => UDP | 1,
        Some(_) => UDP | 2,
    }
}

/// Returns the flags of an entry.
#[inline]
pub(crate) fn wc_flags(completion: &Completion) -> u32 {
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    flag(completion.immediate.is_some(), IBV_WC_WITH_IMM)
        | flag(completion.invalidated_key.is_some(), IBV_WC_WITH_INV)
        | flag(completion.source_qpn.is_some(), IBV_WC_GRH)
}

/// `ibv_req_notify_cq`
pub(crate) unsafe extern "C" fn req_notify(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the operations of a context are called with its objects alone.
    let CompletionQueue { inner, .. } = unsafe { object::lend(queue) };
    if inner.context.device.is_inherited() {
        return errno::failed(EIO);
    }
    inner.queue.arm(solicited_only != 0);
    0
}

/// `ibv_ack_cq_events`
pub(crate) extern "C" fn ack_events(queue: &CompletionQueue, count: c_uint) {
    // SAFETY: a field that this function alone changes.
    unsafe { queue.acks().acknowledge(count, &raw mut (*queue.c.get()).comp_events_completed) };
}
