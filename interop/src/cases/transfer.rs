//! Bytes from one end to the other: SEND, WRITE, READ and their kin.

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode, WorkCompletion};

/// Transfers `count` messages of `len` bytes at once and compares everything: the bytes and those
/// around them, each completion on both sides, and that there are no more.
///
/// # Errors
/// At the first difference.
pub fn run(
    connection: &mut Connection,
    operation: Operation,
    len: usize,
    count: usize,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    let total = len * count;
    let seed = (operation as u64) << 32 | len as u64;
    let Connection { requester, responder, .. } = connection;
    let (from, to) = match operation {
        Operation::Read => (&mut *responder, &mut *requester),
        _ => (&mut *requester, &mut *responder),
    };
    from.lay_out(total, seed)?;
    to.prepare_place(total)?;
    if operation.takes_receive() {
        // An immediate of a WRITE takes a receive but puts nothing into it.
        responder.receive(if operation.is_send() { len } else { 0 }, count)?;
    }
    let post = Post {
        immediate: IMMEDIATE ^ len as u32,
        // Short messages whole, longer ones from many places.
        pieces: if len >= MANY_PIECES { MANY_PIECES } else { 1 },
        ..Post::new(operation, requester.region.handle, BASE, len)
    };
    requester.post(&post.to(responder.region, BASE).times(count))?;

    for done in requester.successes(Queue::Send, count, wait_mode)? {
        expect_equal("the requester's opcode", done.opcode, send_opcode(operation))?;
        if operation == Operation::Read {
            expect_equal("bytes read", done.len as usize, len)?;
        }
    }
    if operation.takes_receive() {
        for done in responder.successes(Queue::Receive, count, wait_mode)? {
            check_receive(&done, &post, None)?;
        }
        responder.nothing_more(Queue::Receive)?;
    }
    requester.nothing_more(Queue::Send)?;
    let to = if operation == Operation::Read { requester } else { responder };
    to.check_place(total, Some(seed))
}

/// Compares a completed receive with what was posted to it.
///
/// # Errors
/// At the first difference.
pub fn check_receive(
    done: &WorkCompletion,
    post: &Post,
    invalidated: Option<u32>,
) -> Result<(), Fault> {
    let immediate = post.operation.has_immediate().then_some(post.immediate);
    expect_equal("the receiver's opcode", done.opcode, receive_opcode(post.operation))?;
    expect_equal("bytes received", done.len as usize, post.len)?;
    expect_equal("the immediate value", done.immediate, immediate)?;
    expect_equal("the invalidated key", done.invalidated, invalidated)
}

/// The number in `ibv_wc_opcode` by which the requester's completion names an operation.
pub const fn send_opcode(operation: Operation) -> u32 {
    match operation {
        Operation::Send | Operation::SendImmediate | Operation::SendInvalidate => 0,
        Operation::Write | Operation::WriteImmediate => 1,
        Operation::Read => 2,
        Operation::CompareSwap => 3,
        Operation::FetchAdd => 4,
        Operation::Flush => 8,
        Operation::AtomicWrite => 9,
    }
}

const fn receive_opcode(operation: Operation) -> u32 {
    if operation.is_send() { 128 } else { 129 }
}

const IMMEDIATE: u32 = 0x8001_7eff;

/// The most scatter/gather entries of a work request.
const MANY_PIECES: usize = 32;
