//! ATOMIC WRITE and FLUSH, which Linux has since 6.2.

use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::connection::{BASE, COMPLETION_LIMIT, Connection, Side};
use crate::fault::{Fault, expect, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode};

use super::transfer::send_opcode;

/// Returns true if the rxe of a release of Linux, such as `6.1.0-56-amd64`, has the operations.
///
/// ```
/// use roce_interop::cases::placement::is_in;
/// assert!(!is_in("6.1.0-56-amd64") && !is_in("5.19.11"));
/// assert!(is_in("6.2.0") && is_in("6.12.95+deb12-amd64") && is_in("7.0-rc1"));
/// ```
pub fn is_in(release: &str) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|it| it.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 2)
}

/// Skips the case unless the agent's device has the operation, as ours has.
///
/// # Errors
/// [`Fault::Lacking`].
pub fn expect_capable(agent: &mut Agent, operation: Operation) -> Result<(), Fault> {
    let flag = match operation {
        Operation::Flush => DEVICE_FLUSH_GLOBAL,
        _ => DEVICE_ATOMIC_WRITE,
    };
    if agent.name() == "ours" || agent.capabilities()? & flag != 0 {
        return Ok(());
    }
    Err(Fault::Lacking(format!("the {} of this kernel has no {operation}", agent.name())))
}

/// Skips the case unless the agent's device pages memory in on demand for the operation, at both ends of it.
///
/// # Errors
/// [`Fault::Lacking`].
pub fn expect_paging(agent: &mut Agent, operation: Operation) -> Result<(), Fault> {
    // `enum ibv_odp_transport_cap_bits`.
    let needed = match operation {
        Operation::Write | Operation::WriteImmediate => 1 << 2,
        Operation::Read => 1 << 3,
        operation if operation.is_atomic() => 1 << 4,
        _ => 1 | 1 << 1,
    };
    if agent.name() == "ours" || agent.paging()? & needed == needed {
        return Ok(());
    }
    let name = agent.name();
    Err(Fault::Lacking(format!("the {name} of this kernel pages no memory in for {operation}")))
}

/// Skips the case if the requester's programs have no call for the operation.
///
/// # Errors
/// [`Fault::Lacking`].
pub fn expect_postable(requester: &mut Agent, operation: Operation) -> Result<(), Fault> {
    if (requester.name(), operation) != ("rxe", Operation::Flush) {
        return Ok(());
    }
    let release = requester.rdma_core_release()?;
    if release >= 45 {
        return Ok(());
    }
    Err(Fault::Lacking(format!(
        "rdma-core {release} of the guest has no ibv_wr_flush, which came with 45"
    )))
}

/// Skips the case if one end is an rxe that gives a FLUSH another ICRC than it should.
///
/// rxe gives a FLUSH no offset of its payload (rxe_opcode.c of Linux 6.2 to 7.3), and so computes the ICRC
/// over BTH and headers, and over BTH and headers once more. It drops a FLUSH with a right ICRC, and each
/// of its own has a wrong one. With rxe's ICRC both ends answer as they should.
///
/// # Errors
/// [`Fault::Lacking`], or an answer other than success.
pub fn expect_answered(connection: &mut Connection, operation: Operation) -> Result<(), Fault> {
    if operation != Operation::Flush {
        return Ok(());
    }
    let Connection { requester, responder, .. } = connection;
    let wrong_before = wrong_icrcs(responder)?;
    let flush = Post::new(operation, requester.region.handle, BASE, 8);
    requester.post(&flush.to(responder.region, BASE))?;
    // rxe repeats a FLUSH for longer than a case may take.
    let deadline = Instant::now() + COMPLETION_LIMIT;
    let (pair, queue, one_look) = (requester.pair.handle, Queue::Send, Duration::from_millis(100));
    let status = loop {
        match requester.agent.wait(pair, queue, 1, WaitMode::Poll, one_look) {
            Ok(done) => break done[0].status,
            Err(Fault::TooFew { .. }) if Instant::now() < deadline => {}
            Err(fault) => return Err(fault),
        }
        if wrong_icrcs(responder)? > wrong_before {
            return Err(Fault::Lacking(
                "rxe of this kernel sends each FLUSH with an ICRC that covers the headers twice"
                    .to_owned(),
            ));
        }
    };
    if status == RETRY_EXCEEDED && responder.agent.name() == "rxe" {
        return Err(Fault::Lacking(
            "rxe of this kernel drops each FLUSH with a right ICRC: its own covers the headers twice"
                .to_owned(),
        ));
    }
    expect_equal("the status of a FLUSH", status, 0)
}

/// Returns how many packets the end dropped for their ICRC; 0 of rxe, which does not count them.
fn wrong_icrcs(side: &mut Side) -> Result<u64, Fault> {
    match side.agent.name() {
        "ours" => side.agent.counter("drop_icrc"),
        _ => Ok(0),
    }
}

/// Does many at once, and one as requester and responder see it.
///
/// # Errors
/// At the first difference.
pub fn run(connection: &mut Connection, operation: Operation) -> Result<(), Fault> {
    match operation {
        Operation::Flush => flush(connection),
        _ => atomic_write(connection),
    }
}

/// Stores words side by side, and compares them and their neighbours.
fn atomic_write(connection: &mut Connection) -> Result<(), Fault> {
    let Connection { requester, responder, .. } = connection;
    let end = BASE + 8 * MANY as u64;
    for (offset, value) in [(BASE - 8, LEFT), (end, RIGHT)] {
        responder.agent.set_word(responder.region.handle, offset, value)?;
    }
    let post = Post::new(Operation::AtomicWrite, requester.region.handle, BASE, 8);
    let post = Post { swap_or_add: FIRST, ..post.to(responder.region, BASE).times(MANY) };
    requester.post(&post)?;
    for done in requester.successes(Queue::Send, MANY, WaitMode::Poll)? {
        expect_equal("the opcode", done.opcode, send_opcode(Operation::AtomicWrite))?;
    }
    requester.nothing_more(Queue::Send)?;
    let stored = (0..MANY as u64).map(|i| (BASE + 8 * i, FIRST.wrapping_add(8 * i)));
    for (offset, value) in stored.chain([(BASE - 8, LEFT), (end, RIGHT)]) {
        let is = responder.agent.word(responder.region.handle, offset)?;
        expect_equal(format!("the word at {offset}"), is, value)?;
    }
    // The responder refuses a word that is not aligned.
    let misaligned = Post { swap_or_add: FIRST, ..Post::new(post.operation, post.region, BASE, 8) };
    requester.post(&misaligned.to(responder.region, BASE + 4))?;
    let done = requester.completions(Queue::Send, 1)?;
    expect_equal("the status of a misaligned word", done[0].status, REMOTE_INVALID_REQUEST)?;
    requester.expect_state("ERROR")?;
    let is = responder.agent.word(responder.region.handle, BASE)?;
    expect_equal("the word beside it", is, FIRST)
}

/// Writes and flushes what was written, by range and by region.
fn flush(connection: &mut Connection) -> Result<(), Fault> {
    let Connection { requester, responder, .. } = connection;
    for round in 0..4 {
        let seed = 90 + round;
        requester.lay_out(WRITTEN, seed)?;
        responder.prepare_place(WRITTEN)?;
        let write = Post::new(Operation::Write, requester.region.handle, BASE, WRITTEN);
        requester.post(&write.to(responder.region, BASE))?;
        let flush = Post::new(Operation::Flush, requester.region.handle, BASE, WRITTEN);
        let flush = Post { step: 0, ..flush.to(responder.region, BASE).times(MANY) };
        // Of a whole region; its address means nothing.
        let whole = Post { compare: 1, remote_address: 1, ..flush };
        requester.post(if round % 2 == 0 { &flush } else { &whole })?;
        let written = requester.successes(Queue::Send, 1, WaitMode::Poll)?;
        expect_equal("the opcode", written[0].opcode, send_opcode(Operation::Write))?;
        let flushed = requester.successes(Queue::Send, MANY, WaitMode::Poll)?;
        expect(flushed.iter().all(|it| it.opcode == send_opcode(Operation::Flush)), || {
            format!("an opcode is not that of FLUSH: {flushed:?}")
        })?;
        requester.nothing_more(Queue::Send)?;
        responder.check_place(WRITTEN, Some(seed))?;
    }
    Ok(())
}

/// `IB_UVERBS_DEVICE_FLUSH_GLOBAL` in `device_cap_flags_ex`.
const DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
/// `IB_UVERBS_DEVICE_ATOMIC_WRITE` in `device_cap_flags_ex`.
const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;
/// More than may be on their way at once.
const MANY: usize = 40;
const WRITTEN: usize = 5000;
const REMOTE_INVALID_REQUEST: u32 = 9;
const RETRY_EXCEEDED: u32 = 12;
const LEFT: u64 = 0x1111_2222_3333_4444;
const RIGHT: u64 = 0x5555_6666_7777_8888;
const FIRST: u64 = 0xfedc_ba98_7654_3210;
