//! Completion queues of `ibv_create_cq_ex`, which are polled field by field.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, SystemTime};

use libc::{EINVAL, EIO, ENOENT, EOPNOTSUPP};
use roce_abi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_EX_WITH_BYTE_LEN,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL,
    IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_poll_cq_attr, ibv_wc_tm_info,
};
use roce_verbs::{Completion, CompletionStatus};

use crate::cancellation::Uncancellable;
use crate::completion_queue::{self, CompletionQueue, CqParameters};
use crate::context::ContextPtr;
use crate::{errno, object};

/// What a program may ask to read. Times are those of the poll.
const KNOWN_FIELDS: u64 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// `ibv_create_cq_ex`
pub(crate) unsafe extern "C" fn create(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &*attributes };
    let mask = attributes.comp_mask;
    let flags = if mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attributes.flags } else { 0 };
    let known_flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0
        || flags & !known_flags != 0
    {
        return errno::null(EINVAL);
    }
    if attributes.wc_flags & !KNOWN_FIELDS != 0 {
        return errno::null(EOPNOTSUPP);
    }
    // SAFETY: see `object`; null where the program wants none.
    let channel = unsafe { object::lend_optional(attributes.channel) };
    let parameters = CqParameters {
        capacity: i64::from(attributes.cqe),
        cq_context: attributes.cq_context,
        channel,
        vector: i64::from(attributes.comp_vector),
        is_single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    };
    // SAFETY: the program passes a context.
    let made = match completion_queue::make(unsafe { ContextPtr::of(context) }, &parameters) {
        Ok(made) => made,
        Err(errno) => return errno::null(errno),
    };
    // SAFETY: made above.
    let queue = unsafe { object::lend::<CompletionQueue>(made) };
    if flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0 {
        queue.inner().queue.ignore_overrun();
    }
    // SAFETY: the program does not have the queue yet.
    let fields = unsafe { &mut *queue.c() };
    fields.start_poll = Some(start_poll);
    fields.next_poll = Some(next_poll);
    fields.end_poll = Some(end_poll);
    fields.read_opcode = Some(read_opcode);
    fields.read_vendor_err = Some(read_vendor_err);
    fields.read_byte_len = Some(read_byte_len);
    fields.read_imm_data = Some(read_imm_data);
    fields.read_qp_num = Some(read_qp_num);
    fields.read_src_qp = Some(read_src_qp);
    fields.read_wc_flags = Some(read_wc_flags);
    fields.read_slid = Some(read_slid);
    fields.read_sl = Some(read_sl);
    fields.read_dlid_path_bits = Some(read_zero);
    fields.read_completion_ts = Some(read_completion_ts);
    fields.read_cvlan = Some(read_cvlan);
    fields.read_flow_tag = Some(read_slid);
    fields.read_tm_info = Some(read_tm_info);
    fields.read_completion_wallclock_ns = Some(read_wallclock);
    made.cast()
}

/// Borrows the queue of one of its own functions.
///
/// # Safety
/// As of [`object::lend`]: the functions of a queue are called with it alone.
#[inline]
unsafe fn lent<'a>(queue: *mut ibv_cq_ex) -> &'a CompletionQueue {
    // SAFETY: the caller's promise.
    unsafe { object::lend(queue.cast()) }
}

/// Returns what `read` finds in the completion that the program looks at; without one, zero.
///
/// # Safety
/// As of [`lent`].
#[inline]
unsafe fn read<T: Default>(queue: *mut ibv_cq_ex, read: impl FnOnce(&Completion) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { lent(queue) }.cursor.completion.get().as_ref().map_or_else(T::default, read)
}

/// Takes the next completion.
fn advance(queue: &CompletionQueue) -> c_int {
    let inner = queue.inner();
    let found = inner.queue.poll_one();
    queue.cursor.completion.set(found);
    match found {
        Some(completion) => {
            // SAFETY: fields that the program reads only, and this thread alone.
            unsafe {
                (*queue.c()).wr_id = completion.wr_id;
                (*queue.c()).status = c_int::from(completion.status.code());
            }
            0
        }
        None if inner.context.device.is_inherited() => errno::failed(EIO),
        None => ENOENT,
    }
}

unsafe extern "C" fn start_poll(queue: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: null, or attributes of the program.
    if unsafe { attributes.as_ref() }.is_some_and(|attributes| attributes.comp_mask != 0) {
        return errno::failed(EINVAL);
    }
    // SAFETY: its own function.
    let queue = unsafe { lent(queue) };
    if queue.inner().context.device.is_inherited() {
        // A thread of the parent may hold the lock for ever.
        return errno::failed(EIO);
    }
    queue.cursor.begin();
    let result = advance(queue);
    if result != 0 {
        queue.cursor.end();
    } else {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        queue.cursor.polled_at.set((raw_clock_nanos(), nanos(wall)));
    }
    result
}

unsafe extern "C" fn next_poll(queue: *mut ibv_cq_ex) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: its own function.
    advance(unsafe { lent(queue) })
}

unsafe extern "C" fn end_poll(queue: *mut ibv_cq_ex) {
    // SAFETY: its own function.
    unsafe { lent(queue) }.cursor.end();
}

/// Returns the clock of completions in nanoseconds: the one that `ibv_query_rt_values_ex` reads.
pub(crate) fn raw_clock_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

unsafe extern "C" fn read_opcode(queue: *mut ibv_cq_ex) -> c_int {
    // SAFETY: its own function.
    unsafe { read(queue, |it| c_int::from(it.operation.code())) }
}

unsafe extern "C" fn read_vendor_err(_: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_byte_len(queue: *mut ibv_cq_ex) -> u32 {
    // SAFETY: its own function.
    unsafe {
        read(queue, |it| if it.status == CompletionStatus::Success { it.byte_len } else { 0 })
    }
}

unsafe extern "C" fn read_imm_data(queue: *mut ibv_cq_ex) -> u32 {
    // SAFETY: its own function.
    unsafe { read(queue, completion_queue::imm_data) }
}

unsafe extern "C" fn read_qp_num(queue: *mut ibv_cq_ex) -> u32 {
    // SAFETY: its own function.
    unsafe { read(queue, |it| it.qpn.get()) }
}

unsafe extern "C" fn read_src_qp(queue: *mut ibv_cq_ex) -> u32 {
    // SAFETY: its own function.
    unsafe { read(queue, |it| it.source_qpn.map_or(0, |qpn| qpn.get())) }
}

unsafe extern "C" fn read_wc_flags(queue: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: its own function.
    unsafe { read(queue, completion_queue::wc_flags) }
}

unsafe extern "C" fn read_slid(_: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_sl(queue: *mut ibv_cq_ex) -> u8 {
    // SAFETY: its own function.
    unsafe { read(queue, completion_queue::service_level) }
}

unsafe extern "C" fn read_zero(_: *mut ibv_cq_ex) -> u8 {
    0
}

unsafe extern "C" fn read_cvlan(_: *mut ibv_cq_ex) -> u16 {
    0
}

unsafe extern "C" fn read_completion_ts(queue: *mut ibv_cq_ex) -> u64 {
    // SAFETY: its own function.
    unsafe { lent(queue) }.cursor.polled_at.get().0
}

unsafe extern "C" fn read_wallclock(queue: *mut ibv_cq_ex) -> u64 {
    // SAFETY: its own function.
    unsafe { lent(queue) }.cursor.polled_at.get().1
}

unsafe extern "C" fn read_tm_info(_: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the program passes room for it.
    unsafe { info.write(ibv_wc_tm_info { tag: 0, r#priv: 0 }) };
}
