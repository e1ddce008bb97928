//! Static probes (USDT, provider `roce`) for bpftrace, perf, gdb and SystemTap.
//!
//! A probe is one `nop` instruction in the program and a note in the ELF file that says
//! where it is and which registers hold its arguments. A tracer puts a breakpoint there while it
//! watches; otherwise the `nop` is the only cost.
//!
//! | probe | arguments |
//! |---|---|
//! | `modify_qp` | queue pair, from state, to state (`enum ibv_qp_state`) |
//! | `post_send` | queue pair, work id, opcode (`enum ibv_wc_opcode`), bytes |
//! | `post_recv` | queue pair, work id |
//! | `post_srq_recv` | shared receive queue, work id |
//! | `poll_cq` | queue pair, work id, opcode, status (`enum ibv_wc_status`), bytes |
//! | `retransmit` | queue pair, PSN, cause ([`RetransmitCause::code`]) |
//! | `nak_sent`, `nak_received` | queue pair, PSN, code as on the wire |
//! | `rnr_sent` | queue pair, PSN |
//! | `rnr_received` | queue pair, PSN, wait asked for in microseconds |
//! | `ring_send` | rank, operation, step, bytes |
//! | `ring_receive` | rank, operation, step, bytes |
//!
//! Every argument is a signed 64-bit number; work ids are the application's own 64 bits.
//!
//! The library fires the probes of verbs. A program that runs a ring fires those of the ring:
//!
//! ```
//! use roce_verbs::probes;
//! probes::ring_send(0, 17, 3, 131_072);
//! probes::ring_receive(0, 17, 3, 131_072);
//! ```

// `probe!` is an `asm!` block of one `nop`. SAFETY, once for all: the instruction does
// nothing; the block says that it writes no memory, touches no stack and keeps all flags
// (`readonly, nostack, preserves_flags`), which is so; everything else in it goes into
// sections that are never executed. A tracer that replaces the `nop` by a breakpoint
// restores every register before the program goes on.

use probe::probe;
use roce_transport::{Completion, CompletionOperation, QpState, RetransmitCause, SrqHandle};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer, Syndrome};

/// A rank of a ring has posted a message of `bytes` bytes to its next neighbour.
///
/// `operation` counts the operations of a group from 0, `step` the steps of an operation.
#[inline(never)]
pub fn ring_send(rank: u32, operation: u64, step: u32, bytes: u64) {
    probe!(roce, ring_send, rank, operation, step, bytes);
}

/// A rank of a ring has a message of its previous neighbour, and has computed with it.
#[inline(never)]
pub fn ring_receive(rank: u32, operation: u64, step: u32, bytes: u64) {
    probe!(roce, ring_receive, rank, operation, step, bytes);
}

/// Keeps them in every program, as those of verbs are, each at one place.
#[used]
static OF_RINGS: [fn(u32, u64, u32, u64); 2] = [ring_send, ring_receive];

#[inline(always)]
pub(crate) fn modify_qp(qpn: Qpn, from: QpState, to: QpState) {
    probe!(roce, modify_qp, qpn.get(), from.code(), to.code());
}

#[inline(always)]
pub(crate) fn post_send(qpn: Qpn, wr_id: u64, operation: CompletionOperation, bytes: u64) {
    probe!(roce, post_send, qpn.get(), wr_id, operation.code(), bytes);
}

#[inline(always)]
pub(crate) fn post_recv(qpn: Qpn, wr_id: u64) {
    probe!(roce, post_recv, qpn.get(), wr_id);
}

#[inline(always)]
pub(crate) fn post_srq_recv(srq: SrqHandle, wr_id: u64) {
    probe!(roce, post_srq_recv, srq.0, wr_id);
}

#[inline(always)]
pub(crate) fn poll_cq(completion: &Completion) {
    let Completion { qpn, wr_id, operation, status, byte_len, .. } = *completion;
    probe!(roce, poll_cq, qpn.get(), wr_id, operation.code(), status.code(), byte_len);
}

#[inline(always)]
pub(crate) fn retransmit(qpn: Qpn, from: Psn, cause: RetransmitCause) {
    probe!(roce, retransmit, qpn.get(), from.get(), cause.code());
}

#[inline(always)]
pub(crate) fn nak_sent(qpn: Qpn, psn: Psn, code: NakCode) {
    probe!(roce, nak_sent, qpn.get(), psn.get(), nak_number(code));
}

#[inline(always)]
pub(crate) fn nak_received(qpn: Qpn, psn: Psn, code: NakCode) {
    probe!(roce, nak_received, qpn.get(), psn.get(), nak_number(code));
}

#[inline(always)]
pub(crate) fn rnr_sent(qpn: Qpn, psn: Psn) {
    probe!(roce, rnr_sent, qpn.get(), psn.get());
}

#[inline(always)]
pub(crate) fn rnr_received(qpn: Qpn, psn: Psn, timer: RnrTimer) {
    probe!(roce, rnr_received, qpn.get(), psn.get(), timer.duration().as_micros());
}

/// Returns the number of a NAK on the wire.
const fn nak_number(code: NakCode) -> u8 {
    Syndrome::Nak(code).to_byte() & 0x1f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naks_have_the_numbers_of_the_wire() {
        let known = [
            NakCode::PsnSequence,
            NakCode::InvalidRequest,
            NakCode::RemoteAccess,
            NakCode::RemoteOperational,
        ];
        assert_eq!(known.map(nak_number), [0, 1, 2, 3]);
        assert_eq!(nak_number(NakCode::Reserved(31)), 31);
    }
}
