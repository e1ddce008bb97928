//! Checks READs and executes atomics.

use roce_wire::{AtomicEth, Operation, Reth};

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
            .check(qp.accessor(), reth.key, reth.address, len, Access::RemoteRead)
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
    if !atomic.address.is_multiple_of(8) {
        return Err(RequestFault::Misaligned);
    }
    memory.check(qp.accessor(), atomic.key, atomic.address, 8, Access::RemoteAtomic).map_err(
        |fault| match fault {
            // The key does give the right to the bytes, so it is no fault of access.
            MemoryFault::Misaligned => RequestFault::Misaligned,
            fault => RequestFault::RemoteMemory(fault),
        },
    )
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
