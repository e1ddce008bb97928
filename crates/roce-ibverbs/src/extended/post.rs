//! Queue pairs of `ibv_create_qp_ex`, to which requests are posted by a call for each part.

use std::ffi::{c_int, c_uint, c_void};

use libc::{EINVAL, EIO, ENOMEM, EOPNOTSUPP};
use roce_abi::{
    IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE,
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_FLUSH,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_SEND_FENCE,
    IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_ah, ibv_context, ibv_data_buf, ibv_mw,
    ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_sge,
};
use roce_verbs::{
    FlushExtent, PostError, RemoteAddr, SendOperation, SendWr, Service, SgList, WrData, WrError,
};

use crate::cancellation::Uncancellable;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::{self, QueuePair};
use crate::staging::Staged;
use crate::{errno, memory_window, object, receive_list, send_list};

/// The operations that each service has.
fn operations_of(qp_type: c_int) -> u64 {
    const DATAGRAMS: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const UNRELIABLE: u64 = DATAGRAMS
        | IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_BIND_MW;
    const RELIABLE: u64 = UNRELIABLE
        | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_FLUSH
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    match qp_type {
        IBV_QPT_RC => RELIABLE,
        IBV_QPT_UC => UNRELIABLE,
        IBV_QPT_UD => DATAGRAMS,
        _ => 0,
    }
}

/// `ibv_create_qp_ex`
pub(crate) unsafe extern "C" fn create(
    _context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &mut *attributes };
    let mask = attributes.comp_mask;
    let has = |attribute| mask & attribute != 0;
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if mask & !known != 0 || (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attributes.create_flags != 0) {
        return errno::null(EOPNOTSUPP);
    }
    let extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    if extended && attributes.send_ops_flags & !operations_of(attributes.qp_type) != 0 {
        return errno::null(EOPNOTSUPP);
    }
    // SAFETY: see `object`.
    let pd = unsafe { object::lend_optional::<ProtectionDomain>(attributes.pd) };
    let Some(pd) = pd.filter(|_| has(IBV_QP_INIT_ATTR_PD)) else { return errno::null(EINVAL) };
    let atomics = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    if extended
        && pd.inner().context.limits.has_no_atomics
        && attributes.send_ops_flags & atomics != 0
    {
        return errno::null(EOPNOTSUPP);
    }
    let mut base = ibv_qp_init_attr {
        qp_context: attributes.qp_context,
        send_cq: attributes.send_cq,
        recv_cq: attributes.recv_cq,
        srq: attributes.srq,
        cap: attributes.cap,
        qp_type: attributes.qp_type,
        sq_sig_all: attributes.sq_sig_all,
    };
    // SAFETY: the attributes are the program's.
    let made = match unsafe { queue_pair::make(pd, &mut base, extended) } {
        Ok(made) => made,
        Err(errno) => return errno::null(errno),
    };
    attributes.cap = base.cap;
    // SAFETY: made above.
    let fields = unsafe { &mut *object::lend::<QueuePair>(made).c() };
    fields.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    fields.wr_atomic_fetch_add = Some(atomic_fetch_add);
    fields.wr_bind_mw = Some(bind_mw);
    fields.wr_local_inv = Some(local_inv);
    fields.wr_rdma_read = Some(rdma_read);
    fields.wr_rdma_write = Some(rdma_write);
    fields.wr_rdma_write_imm = Some(rdma_write_imm);
    fields.wr_send = Some(send);
    fields.wr_send_imm = Some(send_imm);
    fields.wr_send_inv = Some(send_inv);
    fields.wr_set_ud_addr = Some(set_ud_addr);
    fields.wr_set_inline_data = Some(set_inline_data);
    fields.wr_set_inline_data_list = Some(set_inline_data_list);
    fields.wr_set_sge = Some(set_sge);
    fields.wr_set_sge_list = Some(set_sge_list);
    fields.wr_start = Some(start);
    fields.wr_complete = Some(complete);
    fields.wr_abort = Some(abort);
    fields.wr_atomic_write = Some(atomic_write);
    fields.wr_flush = Some(flush);
    made
}

/// Borrows the queue pair of one of its own functions.
///
/// # Safety
/// As of [`object::lend`]: the functions of a queue pair are called with it alone.
unsafe fn lent<'a>(qp: *mut ibv_qp_ex) -> &'a QueuePair {
    // SAFETY: the caller's promise.
    unsafe { object::lend(qp.cast()) }
}

/// Changes what is staged; returns `None` for a queue pair that stages nothing.
///
/// # Safety
/// The calling thread holds the lock that `start` has taken, and `change` does not call this.
unsafe fn with_staged<T>(qp: &QueuePair, change: impl FnOnce(&mut Staged) -> T) -> Option<T> {
    let staging = qp.staging.as_ref()?;
    // SAFETY: the caller's promise.
    Some(unsafe { staging.with(change) })
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: its own function.
    let qp = unsafe { lent(qp) };
    if qp.context.device.is_inherited() {
        // Another thread of the parent may have held the lock.
        return;
    }
    // SAFETY: a lock that began as zeros, which is an unlocked one.
    unsafe { libc::pthread_mutex_lock(&raw mut (*qp.base()).mutex) };
    let begin = |staged: &mut Staged| {
        staged.clear();
        staged.failed = 0;
    };
    // SAFETY: with the lock of the line above.
    unsafe { with_staged(qp, begin) };
}

/// Ends what `start` has begun.
///
/// # Safety
/// The calling thread holds the lock that `start` has taken.
unsafe fn unlock(qp: &QueuePair) {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp.base()).mutex) };
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: its own function.
    let qp = unsafe { lent(qp) };
    if !qp.context.device.is_inherited() {
        // SAFETY: the program has called `start` before.
        unsafe {
            with_staged(qp, Staged::clear);
            unlock(qp);
        }
    }
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: its own function.
    let qp = unsafe { lent(qp) };
    if qp.context.device.is_inherited() {
        return errno::failed(EIO);
    }
    let post = |staged: &mut Staged| match staged.failed {
        // SAFETY: the address handles are the program's.
        0 => unsafe { post_all(qp, staged) },
        errno => Err(errno),
    };
    // SAFETY: the program has called `start` before.
    let result = unsafe {
        let result = with_staged(qp, post);
        unlock(qp);
        result
    };
    errno::code_of(result.unwrap_or(Err(EINVAL)))
}

/// Posts what is staged, or nothing if a part of it is refused, under one lock of the engine.
///
/// # Safety
/// The address handles of the destinations are null, or the program's.
unsafe fn post_all(qp: &QueuePair, staged: &mut Staged) -> Result<(), c_int> {
    let Staged { requests, destinations, buffers, .. } = staged;
    let result = match qp.qp.service() {
        Service::Ud => qp.qp.post_datagrams_all(requests, buffers, |index| {
            let named = destinations.get(index).copied().flatten();
            // SAFETY: the caller's promise.
            let target = named
                .and_then(|(ah, qpn, q_key)| unsafe { send_list::target(ah, qpn, q_key) }.ok());
            target.ok_or(WrError::Post(PostError::NoDestination))
        }),
        _ => qp.qp.post_send_all(requests, buffers),
    };
    result.map_err(|bad| errno::of_post(&bad.source))
}

/// Stages a request without data.
///
/// # Safety
/// `qp` is the queue pair of the function that calls this, between `start` and `complete`.
unsafe fn stage(qp: *mut ibv_qp_ex, operation: SendOperation) {
    // SAFETY: fields that the program sets before each request.
    let (wr_id, flags): (u64, c_uint) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let request = SendWr {
        signaled: flags & IBV_SEND_SIGNALED != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
        fence: flags & IBV_SEND_FENCE != 0,
        ..SendWr::new(wr_id, operation, SgList::default())
    };
    // SAFETY: the caller's promise.
    let qp = unsafe { lent(qp) };
    let push = |staged: &mut Staged| {
        // More than the queue has room for are never posted.
        if staged.requests.len() < qp.cap.max_send_wr as usize {
            staged.requests.push(request);
            staged.destinations.push(None);
        } else {
            staged.failed = ENOMEM;
        }
    };
    // SAFETY: the caller's promise.
    unsafe { with_staged(qp, push) };
}

/// Sets the inline data of the last request.
///
/// # Safety
/// As of [`stage`]; each piece is an address of the program and the number of bytes there.
unsafe fn set_inline(qp: *mut ibv_qp_ex, pieces: impl Iterator<Item = (u64, usize)>) {
    // SAFETY: the caller's promise.
    unsafe {
        let max = lent(qp).cap.max_inline_data;
        let take = || with_staged(lent(qp), |staged| staged.buffers.pop()).flatten();
        set_data(qp, send_list::inline_data(pieces, max, || take().unwrap_or_default()));
    }
}

/// Sets the data of the last request.
///
/// # Safety
/// As of [`stage`].
unsafe fn set_data(qp: *mut ibv_qp_ex, data: Result<WrData, c_int>) {
    let set = |staged: &mut Staged| match (staged.requests.last_mut(), data) {
        (Some(last), Ok(data)) => last.data = data,
        (_, Err(errno)) => staged.failed = errno,
        (None, _) => staged.failed = EINVAL,
    };
    // SAFETY: the caller's promise.
    unsafe { with_staged(lent(qp), set) };
}

fn remote(rkey: u32, addr: u64) -> RemoteAddr {
    RemoteAddr { addr, rkey }
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    key: u32,
    at: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::CompareSwap { remote: remote(key, at), compare, swap }) };
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, key: u32, at: u64, add: u64) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::FetchAdd { remote: remote(key, at), add }) };
}

unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, key: u32, at: u64, word: *const c_void) {
    // SAFETY: the program passes a word, at any alignment.
    let value = unsafe { word.cast::<u64>().read_unaligned() };
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::AtomicWrite { remote: remote(key, at), value }) };
}

unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    key: u32,
    at: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    let known = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT;
    let extent = match level {
        IBV_FLUSH_RANGE => Some(FlushExtent::Range),
        IBV_FLUSH_MR => Some(FlushExtent::Region),
        _ => None,
    };
    match (extent, u32::try_from(len)) {
        (Some(extent), Ok(len)) if placement & !known == 0 => {
            let remote = remote(key, at);
            // SAFETY: its own function.
            unsafe { stage(qp, SendOperation::Flush { remote, len, placement, extent }) };
        }
        _ => {
            // SAFETY: its own function.
            unsafe { with_staged(lent(qp), |staged| staged.failed = EINVAL) };
        }
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    rkey: u32,
    to: *const ibv_mw_bind_info,
) {
    // SAFETY: the program passes a window, and what it is bound to.
    match unsafe { memory_window::binding(window, rkey, &*to) } {
        // SAFETY: its own function.
        Ok(binding) => unsafe { stage(qp, SendOperation::BindWindow(binding)) },
        Err(errno) => {
            // SAFETY: its own function.
            unsafe { with_staged(lent(qp), |staged| staged.failed = errno) };
        }
    }
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::LocalInvalidate { key }) };
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, key: u32, at: u64) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::Read { remote: remote(key, at) }) };
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, key: u32, at: u64) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::Write { remote: remote(key, at), immediate: None }) };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, key: u32, at: u64, imm: u32) {
    let immediate = Some(imm.to_ne_bytes());
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::Write { remote: remote(key, at), immediate }) };
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::send()) };
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    // SAFETY: its own function.
    unsafe {
        stage(qp, SendOperation::Send { immediate: Some(imm.to_ne_bytes()), invalidate: None })
    };
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: its own function.
    unsafe { stage(qp, SendOperation::Send { immediate: None, invalidate: Some(key) }) };
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, q_key: u32) {
    let set = |staged: &mut Staged| match staged.destinations.last_mut() {
        Some(last) => *last = Some((ah, qpn, q_key)),
        None => staged.failed = EINVAL,
    };
    // SAFETY: its own function.
    unsafe { with_staged(lent(qp), set) };
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, address: *mut c_void, len: usize) {
    let piece = std::iter::once((address.expose_provenance() as u64, len));
    // SAFETY: the program passes so many bytes.
    unsafe { set_inline(qp, piece) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let pieces = (0..count).map(|index| {
        // SAFETY: the program passes so many buffers, at any alignment.
        let buffer = unsafe { list.wrapping_add(index).read_unaligned() };
        (buffer.addr.expose_provenance() as u64, buffer.length)
    });
    // SAFETY: as above.
    unsafe { set_inline(qp, pieces) };
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let data = WrData::Sges(receive_list::sg_list(std::iter::once(ibv_sge { addr, length, lkey })));
    // SAFETY: its own function.
    unsafe { set_data(qp, Ok(data)) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let count = c_int::try_from(count).unwrap_or(-1);
    // SAFETY: its own function; the program passes so many elements.
    unsafe {
        let pieces = receive_list::elements(list, count);
        set_data(qp, pieces.map(|pieces| WrData::Sges(receive_list::sg_list(pieces))));
    }
}
