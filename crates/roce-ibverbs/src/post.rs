//! Posting: the engine takes lists of work requests in C one by one.

use std::ffi::c_int;

use libc::EINVAL;
use roce_abi::{
    IBV_ACCESS_ZERO_BASED, IBV_SEND_FENCE, IBV_SEND_SIGNALED, ibv_mw, ibv_mw_bind, ibv_qp,
    ibv_recv_wr, ibv_send_wr,
};
use roce_verbs::{SendOperation, SendWr, Service};

use crate::cancellation::Uncancellable;
use crate::queue_pair::QueuePair;
use crate::receive_list::{ReceiveList, tell};
use crate::send_list::SendList;
use crate::{errno, memory_window, object};

/// `ibv_post_send`
pub(crate) unsafe extern "C" fn send(
    qp: *mut ibv_qp,
    requests: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the operations of a context are called with its objects alone.
    let qp = unsafe { object::lend::<QueuePair>(qp) };
    // SAFETY: the list of the program.
    let mut list = unsafe { SendList::new(requests, &qp.cap, !qp.context.limits.has_no_atomics) };
    let result = match qp.qp.service() {
        Service::Ud => qp.qp.post_datagrams_with(|buffers| list.next_datagram(buffers)),
        _ => qp.qp.post_send_with(|buffers| Some(list.next(buffers)?.0)),
    };
    let errno = result.err().map_or(list.failed, |bad| errno::of_post(&bad.source));
    if errno != 0 {
        // SAFETY: the program passes room for a pointer, or null.
        unsafe { tell(refused, list.current) };
        errno::set(errno);
    }
    errno
}

/// `ibv_bind_mw`: a window of type 1, under the key with the next tag.
pub(crate) unsafe extern "C" fn bind_window(
    qp: *mut ibv_qp,
    window: *mut ibv_mw,
    to: *mut ibv_mw_bind,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the program passes the structure.
    let (qp, to) = unsafe { (object::lend::<QueuePair>(qp), &*to) };
    // SAFETY: a field that the program does not change during the call.
    let key = unsafe { (*window).rkey };
    let next = (key & !0xff) | u32::from((key as u8).wrapping_add(1));
    if to.bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return errno::failed(EINVAL);
    }
    // SAFETY: the program's.
    let operation = match unsafe { memory_window::binding(window, next, &to.bind_info) } {
        Ok(binding) => SendOperation::BindWindow(binding),
        Err(errno) => return errno::failed(errno),
    };
    let request = SendWr {
        signaled: to.send_flags & IBV_SEND_SIGNALED != 0,
        fence: to.send_flags & IBV_SEND_FENCE != 0,
        ..SendWr::new(to.wr_id, operation, [])
    };
    if let Err(bad) = qp.qp.post_send([request]) {
        return errno::failed(errno::of_post(&bad.source));
    }
    // SAFETY: as above. As with rxe the program sees the key before the binding is executed.
    unsafe { (*window).rkey = next };
    0
}

/// `ibv_post_recv`
pub(crate) unsafe extern "C" fn receive(
    qp: *mut ibv_qp,
    requests: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`; the operations of a context are called with its objects alone.
    let qp = unsafe { object::lend::<QueuePair>(qp) };
    // SAFETY: the list of the program.
    let mut list = unsafe { ReceiveList::new(requests) };
    let result = qp.qp.post_recv(&mut list);
    // SAFETY: the program passes room for a pointer.
    unsafe { list.conclude(result, refused) }
}
