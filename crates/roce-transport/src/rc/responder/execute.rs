//! Checks READs, FLUSH and ATOMIC WRITE, and executes atomics.

use core::sync::atomic::{Ordering, fence};

use roce_wire::{ATOMIC_WRITE_LEN, AtomicEth, Feth, FlushExtent, Operation, Reth};

use crate::qp::context::QpContext;
use crate::qp::segmentation::packets_for;
use crate::{
    Access, AccessFlags, AtomicChange, MAX_MESSAGE_LEN, MAX_READ_PACKETS, Memory, MemoryFault,
    RequestFault,
};

/// Checks that the peer may read these bytes. Returns the packets of the response.
pub(super) fn check_read(
    reth: Reth,
    qp: &QpContext,
    memory: &impl Memory,
) -> Result<u32, RequestFault> {
    let len = u64::from(reth.len);
    //= rule rc-access-flags: rxe_resp.c: check_op_valid
    //# A READ, WRITE or atomic that the access flags of the queue pair do not allow is an invalid
    //# request.
    if !qp.params.access.contains(AccessFlags::REMOTE_READ) {
        return Err(RequestFault::NotAllowed);
    }
    let packets = packets_for(len, qp.params.mtu);
    //= rule rc-message-length: InfiniBand, clause not known; rxe_resp.c: check_length
    //# A READ or WRITE of more than 2^31 bytes is an invalid request.
    if len > MAX_MESSAGE_LEN || packets > MAX_READ_PACKETS {
        return Err(RequestFault::MessageTooLong { len });
    }
    //= rule rc-empty-needs-no-key: InfiniBand, clause not known; rxe_resp.c: check_rkey
    //# A READ or WRITE of no bytes needs no key.
    if len > 0 {
        memory
            //= also rc-remote-key
            .check(qp.accessor(), reth.rkey, reth.addr, len, Access::RemoteRead)
            .map_err(RequestFault::RemoteMemory)?;
    }
    Ok(packets)
}

/// Checks that the peer may change this word.
pub(super) fn check_atomic<M: Memory>(
    atomic: AtomicEth,
    qp: &QpContext,
    memory: &M,
) -> Result<M::Grant, RequestFault> {
    //= also rc-access-flags
    if !qp.params.access.contains(AccessFlags::REMOTE_ATOMIC) {
        return Err(RequestFault::NotAllowed);
    }
    //= rule rc-atomic-aligned: InfiniBand, clause not known; rxe_resp.c: atomic_reply
    //# An atomic on an address that is no multiple of 8 is an invalid request.
    if !atomic.addr.is_multiple_of(8) {
        return Err(RequestFault::Misaligned);
    }
    memory.check(qp.accessor(), atomic.rkey, atomic.addr, 8, Access::RemoteAtomic).map_err(
        |fault| match fault {
            // The key does give the right to the bytes, so it is no fault of access.
            MemoryFault::Misaligned => RequestFault::Misaligned,
            fault => RequestFault::RemoteMemory(fault),
        },
    )
}

/// Checks that the peer may store this word. Returns the word, too.
pub(super) fn check_atomic_write<M: Memory>(
    reth: Reth,
    payload: &[u8],
    qp: &QpContext,
    memory: &M,
) -> Result<(M::Grant, AtomicChange), RequestFault> {
    //= also rc-access-flags
    if !qp.params.access.contains(AccessFlags::REMOTE_WRITE) {
        return Err(RequestFault::NotAllowed);
    }
    //= rule rc-atomic-write-length: InfiniBand oA19-28; rxe_resp.c: check_rkey
    //# An ATOMIC WRITE has exactly 8 bytes, and its RETH says so; otherwise it is an invalid request.
    let word =
        payload.try_into().map_err(|_| RequestFault::PayloadLength { len: payload.len() })?;
    if reth.len as usize != ATOMIC_WRITE_LEN {
        return Err(RequestFault::PayloadLength { len: payload.len() });
    }
    //= rule rc-atomic-write-aligned: rxe_mr.c: rxe_mr_do_atomic_write
    //# An ATOMIC WRITE to an address that is no multiple of 8 is an invalid request.
    if !reth.addr.is_multiple_of(8) {
        return Err(RequestFault::Misaligned);
    }
    let grant = memory
        .check(qp.accessor(), reth.rkey, reth.addr, 8, Access::RemoteAtomicWrite)
        .map_err(|fault| match fault {
            MemoryFault::Misaligned => RequestFault::Misaligned,
            fault => RequestFault::RemoteMemory(fault),
        })?;
    Ok((grant, AtomicChange::Store(u64::from_ne_bytes(word))))
}

/// Checks that the peer may have these bytes placed.
///
/// There is nothing to do then: what was written before is in memory that other threads see, and that
/// keeps it if it gives the right to make it persistent.
pub(super) fn check_flush(
    feth: Feth,
    reth: Reth,
    qp: &QpContext,
    memory: &impl Memory,
) -> Result<(), RequestFault> {
    //= rule rc-flush-rights: rxe_resp.c: check_rkey
    //# A FLUSH needs the right of each of its placement types, of the queue pair, without which it is an
    //# invalid request, and of the key, without which it draws a NAK (remote access error).
    let placements = [
        (feth.is_global(), Access::RemoteFlushGlobal),
        (feth.is_persistent(), Access::RemoteFlushPersistent),
    ];
    let asked = || placements.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, it)| it);
    if asked().any(|access| !qp.params.access.contains(access.required_flags())) {
        return Err(RequestFault::NotAllowed);
    }
    //= rule rc-flush-selectivity: InfiniBand, clause not known
    //# A FLUSH of a selectivity level that is reserved is an invalid request.
    let extent = feth.extent().ok_or(RequestFault::NotAllowed)?;
    //= also rc-message-length
    if u64::from(reth.len) > MAX_MESSAGE_LEN {
        return Err(RequestFault::MessageTooLong { len: reth.len.into() });
    }
    for access in asked() {
        //= rule rc-flush-region: rxe_resp.c: check_rkey
        //# A FLUSH of a whole region names no bytes: its address and length mean nothing.
        let checked = match extent {
            FlushExtent::Region => memory.check_region(qp.accessor(), reth.rkey, access),
            FlushExtent::Range => {
                memory.check(qp.accessor(), reth.rkey, reth.addr, reth.len.into(), access).map(drop)
            }
        };
        checked.map_err(RequestFault::RemoteMemory)?;
    }
    // Orders the copies of before with the response, which other threads of the program may send.
    fence(Ordering::SeqCst);
    Ok(())
}

/// What an atomic does to its word.
//= rule rc-atomic-operation: InfiniBand, clause not known; rxe_resp.c: atomic_reply
//# An atomic returns the value before it; compare-and-swap stores the new value if that equals the
//# one to compare, fetch-and-add adds modulo 2^64.
pub(super) fn change_of(operation: Operation, atomic: AtomicEth) -> AtomicChange {
    match operation {
        Operation::CompareSwap => {
            AtomicChange::SwapIf { expected: atomic.compare, new: atomic.swap_or_add }
        }
        _ => AtomicChange::Add(atomic.swap_or_add),
    }
}
