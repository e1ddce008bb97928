//! Atomics: each done once, in order, and the old value brought back.

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode};

/// Does `count` atomics at once to one word and compares every old value brought back, the word
/// and its neighbours.
///
/// # Errors
/// At the first difference.
pub fn run(
    connection: &mut Connection,
    operation: Operation,
    count: usize,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    let Connection { requester, responder, .. } = connection;
    let words = [(BASE - 8, LEFT), (BASE, START), (BASE + 8, RIGHT)];
    for (offset, value) in words {
        responder.agent.set_word(responder.region.handle, offset, value)?;
    }
    let swaps = operation == Operation::CompareSwap;
    let post = Post {
        compare: START,
        swap_or_add: if swaps { SWAPPED } else { STEP },
        ..Post::new(operation, requester.region.handle, BASE, 8)
    };
    requester.post(&post.to(responder.region, BASE).times(count))?;
    for done in requester.successes(Queue::Send, count, wait_mode)? {
        expect_equal(
            "the requester's opcode",
            done.opcode,
            super::transfer::send_opcode(operation),
        )?;
    }
    requester.nothing_more(Queue::Send)?;

    // A swap hits once, and all later ones miss; a sum grows by each step and wraps.
    let after = |done: usize| match (swaps, done) {
        (true, 0) => START,
        (true, _) => SWAPPED,
        (false, _) => START.wrapping_add(STEP.wrapping_mul(done as u64)),
    };
    for index in 0..count {
        let old = requester.agent.word(requester.region.handle, BASE + 8 * index as u64)?;
        expect_equal(format!("old value {index}"), old, after(index))?;
    }
    let words = [(BASE - 8, LEFT), (BASE, after(count)), (BASE + 8, RIGHT)];
    for (offset, value) in words {
        let is = responder.agent.word(responder.region.handle, offset)?;
        expect_equal(format!("the word at {offset}"), is, value)?;
    }
    Ok(())
}

const LEFT: u64 = 0x1111_2222_3333_4444;
const RIGHT: u64 = 0x5555_6666_7777_8888;
const START: u64 = u64::MAX - 0x5_0000_0003;
const STEP: u64 = 0x1_0000_0001;
const SWAPPED: u64 = 0x0123_4567_89ab_cdef;
