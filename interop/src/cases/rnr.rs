//! A responder whose receive queue is empty.

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode};

/// The requester is told to wait, tries again, and succeeds once a receive is posted.
///
/// # Errors
/// When it is not so.
pub fn recover(connection: &mut Connection, operation: Operation) -> Result<(), Fault> {
    let Connection { requester, responder, settings } = connection;
    let len = 3 * settings.path_mtu + 1;
    let seed = 4242;
    requester.lay_out(len, seed)?;
    responder.prepare_place(len)?;
    let before = requester.agent.counter(TOLD_TO_WAIT)?;
    let post = Post::new(operation, requester.region.handle, BASE, len);
    requester.post(&post.to(responder.region, BASE))?;
    requester.counter_above(TOLD_TO_WAIT, before)?;
    requester.nothing_more(Queue::Send)?;
    responder.receive(if operation.is_send() { len } else { 0 }, 1)?;
    requester.successes(Queue::Send, 1, WaitMode::Poll)?;
    responder.successes(Queue::Receive, 1, WaitMode::Poll)?;
    responder.nothing_more(Queue::Receive)?;
    responder.check_place(len, Some(seed))
}

/// The requester gives up when it was told to wait once more than its budget allows. Needs a
/// connection whose budget is finite.
///
/// # Errors
/// When it is not so.
pub fn give_up(connection: &mut Connection, operation: Operation) -> Result<(), Fault> {
    let Connection { requester, responder, settings } = connection;
    let before = requester.agent.counter(TOLD_TO_WAIT)?;
    let post = Post::new(operation, requester.region.handle, BASE, 100);
    requester.post(&post.to(responder.region, BASE).times(2))?;
    let done = requester.completions(Queue::Send, 2)?;
    expect_equal("status of the first", done[0].status, RNR_RETRY_EXCEEDED)?;
    expect_equal("status of the one behind it", done[1].status, FLUSHED)?;
    requester.expect_state("ERROR")?;
    let told = requester.agent.counter(TOLD_TO_WAIT)? - before;
    // rxe has a NAK of another kind follow each, and one that comes late may cause another round.
    let least = u64::from(settings.rnr_retry) + 1;
    expect((least..=2 * least).contains(&told), || {
        format!("told to wait {told} times, should be {least} to {}", 2 * least)
    })
}

/// The counter of RNR NAKs received.
const TOLD_TO_WAIT: &str = "rcvd_rnr_err";
const RNR_RETRY_EXCEEDED: u32 = 13;
const FLUSHED: u32 = 5;
