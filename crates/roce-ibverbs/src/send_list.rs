//! Lists of send requests in C, converted one by one while the engine takes them.

use std::ffi::c_int;
use std::ptr;

use libc::EINVAL;
use roce_abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_IP_CSUM, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_ah, ibv_qp_cap, ibv_send_wr,
};
use roce_verbs::{
    DatagramTarget, InlineBuffers, InlineData, Qpn, RemoteAddr, SendOperation, SendWr, WrData,
    load_units,
};

use crate::address_handle::AddressHandle;
use crate::receive_list::{elements, read_request, sg_list};
use crate::{memory_window, object};

/// Length of the word of an atomic operation, and its alignment, in bytes.
const ATOMIC_LEN: u64 = 8;

/// A list of send requests of the program.
pub(crate) struct SendList {
    next: *mut ibv_send_wr,
    /// The request that was converted last.
    pub(crate) current: *mut ibv_send_wr,
    max_inline: u32,
    max_pieces: u32,
    has_atomics: bool,
    /// The `errno` value of a request that cannot be converted.
    pub(crate) failed: c_int,
}

impl SendList {
    /// Wraps a list.
    ///
    /// # Safety
    /// The requests of the list are as `ibv_post_send` needs them while this is used.
    pub(crate) unsafe fn new(first: *mut ibv_send_wr, cap: &ibv_qp_cap, has_atomics: bool) -> Self {
        let (max_inline, max_pieces) = (cap.max_inline_data, cap.max_send_sge);
        Self { next: first, current: first, max_inline, max_pieces, has_atomics, failed: 0 }
    }

    /// Returns the next request, converted, and where it is; `None` at the end, and where it cannot be
    /// converted.
    #[inline]
    pub(crate) fn next(
        &mut self,
        buffers: &mut InlineBuffers<'_>,
    ) -> Option<(SendWr, *const ibv_send_wr)> {
        // SAFETY: null at the end, or a request of the list; see `new`.
        let request = unsafe { read_request(self.next) }?;
        self.current = self.next;
        // SAFETY: see `new`.
        match unsafe { convert(&request, self.max_inline, self.max_pieces, buffers) } {
            Ok(converted) if !self.has_atomics && converted.operation.is_atomic() => {
                self.failed = EINVAL;
                None
            }
            Ok(converted) => {
                self.next = request.next;
                Some((converted, self.current))
            }
            Err(errno) => {
                self.failed = errno;
                None
            }
        }
    }

    /// As [`next`](Self::next), with the destination of a datagram.
    pub(crate) fn next_datagram<'a>(
        &mut self,
        buffers: &mut InlineBuffers<'_>,
    ) -> Option<(SendWr, DatagramTarget<'a>)> {
        let (converted, request) = self.next(buffers)?;
        // SAFETY: the request was read just now; in a list for datagrams this part of the union is
        // set, and it is integers and a pointer in any case.
        let ud = unsafe { (&raw const (*request).wr.ud).read_unaligned() };
        // SAFETY: see `new`.
        match unsafe { target(ud.ah, ud.remote_qpn, ud.remote_qkey) } {
            Ok(to) => Some((converted, to)),
            Err(errno) => {
                self.failed = errno;
                None
            }
        }
    }
}

/// Returns where a datagram goes.
///
/// # Errors
/// `EINVAL` without an address handle, and for a number that no queue pair has.
///
/// # Safety
/// `ah` is null, or an address handle of the program.
pub(crate) unsafe fn target<'a>(
    ah: *mut ibv_ah,
    qpn: u32,
    q_key: u32,
) -> Result<DatagramTarget<'a>, c_int> {
    // SAFETY: the caller's promise.
    let handle = unsafe { object::lend_optional::<AddressHandle>(ah) }.ok_or(EINVAL)?;
    Ok(DatagramTarget { ah: &handle.ah, qpn: Qpn::new(qpn).ok_or(EINVAL)?, q_key })
}

/// Converts a request.
///
/// # Safety
/// Its pointers are as `ibv_post_send` needs them.
#[inline]
unsafe fn convert(
    request: &ibv_send_wr,
    max_inline: u32,
    max_pieces: u32,
    buffers: &mut InlineBuffers<'_>,
) -> Result<SendWr, c_int> {
    let flags = request.send_flags;
    if flags & IBV_SEND_IP_CSUM != 0 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise.
    let pieces = unsafe { elements(request.sg_list, request.num_sge) }?;
    let data = if flags & IBV_SEND_INLINE == 0 {
        WrData::Sges(sg_list(pieces.clone()))
    } else {
        // As with cards, although the copy would take any number.
        if request.num_sge.cast_unsigned() > max_pieces {
            return Err(EINVAL);
        }
        let pieces = pieces.clone().map(|it| (it.addr, it.length as usize));
        // SAFETY: the caller's promise: with this flag the addresses are the program's memory.
        unsafe { inline_data(pieces, max_inline, || buffers.take()) }?
    };
    // SAFETY: the operation says which parts of the unions are set.
    let operation = unsafe { operation(request) }?;
    // The word's alignment is the responder's to check, as with cards: programs test for its NAK.
    if operation.is_atomic() {
        let len = pieces.map(|it| u64::from(it.length)).sum::<u64>();
        if len < ATOMIC_LEN {
            return Err(EINVAL);
        }
    }
    Ok(SendWr {
        wr_id: request.wr_id,
        operation,
        data,
        signaled: flags & IBV_SEND_SIGNALED != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
        fence: flags & IBV_SEND_FENCE != 0,
        defer_ack: false,
    })
}

/// Returns what a request does.
///
/// # Safety
/// The part of the union that belongs to the operation is set.
#[inline]
unsafe fn operation(request: &ibv_send_wr) -> Result<SendOperation, c_int> {
    let immediate = request.imm_data.to_ne_bytes();
    // SAFETY: the caller's promise.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let remote = RemoteAddr { addr: rdma.remote_addr, rkey: rdma.rkey };
    let word = RemoteAddr { addr: atomic.remote_addr, rkey: atomic.rkey };
    Ok(match request.opcode {
        IBV_WR_RDMA_WRITE => SendOperation::Write { remote, immediate: None },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOperation::Write { remote, immediate: Some(immediate) },
        IBV_WR_SEND => SendOperation::Send { immediate: None, invalidate: None },
        IBV_WR_SEND_WITH_IMM => {
            SendOperation::Send { immediate: Some(immediate), invalidate: None }
        }
        IBV_WR_SEND_WITH_INV => {
            SendOperation::Send { immediate: None, invalidate: Some(request.imm_data) }
        }
        IBV_WR_RDMA_READ => SendOperation::Read { remote },
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOperation::CompareSwap {
            remote: word,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            SendOperation::FetchAdd { remote: word, add: atomic.compare_add }
        }
        IBV_WR_LOCAL_INV => SendOperation::LocalInvalidate { key: request.imm_data },
        IBV_WR_BIND_MW => {
            // SAFETY: the caller's promise.
            let binding = unsafe {
                let bind = request.extra.bind_mw;
                memory_window::binding(bind.mw, bind.rkey, &bind.bind_info)
            };
            SendOperation::BindWindow(binding?)
        }
        _ => return Err(EINVAL),
    })
}

/// Copies the bytes of an inline request. `take` returns memory for long ones.
///
/// # Errors
/// `EINVAL` for more bytes than the queue pair takes.
///
/// # Safety
/// Each piece is an address of the program and the number of bytes there.
#[inline]
pub(crate) unsafe fn inline_data(
    pieces: impl Iterator<Item = (u64, usize)>,
    max: u32,
    take: impl FnOnce() -> InlineData,
) -> Result<WrData, c_int> {
    let mut take = Some(take);
    let mut bytes = InlineData::default();
    // Each element is read once, so that what is judged is what is copied.
    for (address, len) in pieces.filter(|(_, len)| *len > 0) {
        let held = bytes.as_slice().len();
        if len > (max as usize).saturating_sub(held) {
            return Err(EINVAL);
        }
        if held + len > InlineData::MAX_LEN_WITHOUT_ALLOCATION
            && let Some(take) = take.take()
        {
            let short = std::mem::replace(&mut bytes, take());
            bytes.extend_from_slice(short.as_slice());
        }
        let from = ptr::with_exposed_provenance(address as usize);
        // SAFETY: the caller's promise; the program's other threads may change the bytes meanwhile.
        bytes.extend_with(len, |room| unsafe { load_units(from, room) });
    }
    Ok(WrData::Inline(bytes))
}
