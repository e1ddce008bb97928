//! SEND with invalidate: the bytes arrive, and the key named with them is dead.

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode};

use super::transfer::{check_receive, send_opcode};

/// A key that was ended, and the address that it stood for.
#[derive(Clone, Copy, Debug)]
pub struct DeadKey {
    address: u64,
    key: u32,
}

/// Sends a message of each length, each ending a key of its own, which was good before; returns
/// the last.
///
/// # Errors
/// At the first difference.
pub fn run(
    connection: &mut Connection,
    lens: &[usize],
    wait_mode: WaitMode,
) -> Result<Option<DeadKey>, Fault> {
    lens.iter().try_fold(None, |_, len| send(connection, *len, wait_mode).map(Some))
}

/// Sends one message and returns the key that it ended.
fn send(connection: &mut Connection, len: usize, wait_mode: WaitMode) -> Result<DeadKey, Fault> {
    let Connection { requester, responder, .. } = connection;
    let lent = responder.agent.lend(responder.pair.handle, LENT_LEN, TYPE_2)?;

    // The key is good: a word written through it is there.
    requester.agent.set_word(requester.region.handle, 0, PROBE)?;
    requester.post(&Post::new(Operation::Write, requester.region.handle, 0, 8).to(lent, 8))?;
    requester.successes(Queue::Send, 1, wait_mode)?;
    expect_equal("the word written", responder.agent.word(lent.handle, 8)?, PROBE)?;

    let seed = 77 + len as u64;
    requester.lay_out(len, seed)?;
    responder.prepare_place(len)?;
    responder.receive(len, 1)?;
    let post = Post {
        invalidate: lent.key,
        ..Post::new(Operation::SendInvalidate, requester.region.handle, BASE, len)
    };
    requester.post(&post)?;
    for done in requester.successes(Queue::Send, 1, wait_mode)? {
        expect_equal("the requester's opcode", done.opcode, send_opcode(post.operation))?;
    }
    for done in responder.successes(Queue::Receive, 1, wait_mode)? {
        check_receive(&done, &post, Some(lent.key))?;
    }
    responder.check_place(len, Some(seed))?;
    Ok(DeadKey { address: lent.address, key: lent.key })
}

/// What uses the key is refused now. Not for networks that lose packets: the refusal is said once,
/// and rxe with 7 retries asks again for ever.
///
/// # Errors
/// When it is not refused.
pub fn expect_dead(connection: &mut Connection, dead: DeadKey) -> Result<(), Fault> {
    let requester = &mut connection.requester;
    let post = Post {
        remote_address: dead.address,
        remote_key: dead.key,
        ..Post::new(Operation::Write, requester.region.handle, 0, 8)
    };
    requester.post(&post)?;
    let done = requester.completions(Queue::Send, 1)?;
    expect_equal("status of a WRITE with the dead key", done[0].status, REMOTE_ACCESS_ERROR)
}

const LENT_LEN: usize = 4096;
const TYPE_2: u8 = 2;
const PROBE: u64 = 0x7072_6f62_6521_2121;
const REMOTE_ACCESS_ERROR: u32 = 10;
