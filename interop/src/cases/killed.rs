//! The peer's program is killed in the middle of a transfer.

use std::time::{Duration, Instant};

use crate::connection::{BASE, COMPLETION_LIMIT, Connection};
use crate::fault::{Fault, expect, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode, WorkCompletion};

/// Kills the responder's program while operations are under way, and expects: those behind the
/// last success end with retry exceeded and flushed, (retries + 1) · T to four times that after the
/// peer's last word.
///
/// The connection's retry count is less than 7, which rxe takes as for ever.
///
/// # Errors
/// When it is not so.
pub fn run(connection: Connection, operation: Operation) -> Result<(), Fault> {
    let Connection { mut requester, responder, settings } = connection;
    let silence = Duration::from_nanos(4096 << settings.timeout);
    let all = silence * (u32::from(settings.retry) + 1);
    // When the order to kill goes out the peer may have been silent for a while, but for less than
    // T: otherwise the requester would have begun to resend. And it may live on a little after.
    let (shortest, longest) = (all - silence, 4 * all);

    let post = Post::new(operation, requester.region.handle, BASE, MESSAGE);
    let post = Post { step: 0, ..post.to(responder.region, BASE).times(MESSAGES) };
    requester.post(&post)?;
    // In the middle: some are done, more are not.
    let (queue, mut done) = (Queue::Send, requester.completions(Queue::Send, SOME)?);
    let killed = Instant::now();
    responder.agent.kill()?;
    let handle = requester.pair.handle;
    while done.last().is_some_and(|last| last.status == SUCCESS) && done.len() < MESSAGES {
        done.extend(requester.agent.wait(handle, queue, 1, WaitMode::Poll, COMPLETION_LIMIT)?);
    }
    let took = killed.elapsed();
    done.extend(requester.completions(queue, MESSAGES - done.len())?);

    let successes = done.iter().take_while(|done| done.status == SUCCESS).count();
    expect(successes < MESSAGES, || "all was done before the peer died".to_owned())?;
    expect_equal("status behind the last success", done[successes].status, RETRY_EXCEEDED)?;
    let flushed = |done: &WorkCompletion| done.status == FLUSHED;
    expect(done[successes + 1..].iter().all(flushed), || {
        format!("not all behind it were flushed: {:?}", &done[successes + 1..])
    })?;
    let in_order = done.iter().enumerate().all(|(index, done)| done.id == index as u64);
    expect(in_order, || "completions out of order".to_owned())?;
    requester.expect_state("ERROR")?;
    expect((shortest..=longest).contains(&took), || {
        format!("gave up after {took:?}, should be {shortest:?} to {longest:?}")
    })
}

const MESSAGE: usize = 1 << 20;
/// More than rxe takes in while the order to kill is on its way.
const MESSAGES: usize = 250;
const SOME: usize = 3;
const SUCCESS: u32 = 0;
const FLUSHED: u32 = 5;
const RETRY_EXCEEDED: u32 = 12;
