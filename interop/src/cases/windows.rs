//! Memory windows: what their key opens, and what ends it.

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect_equal};
use crate::params::{Operation, Post, Queue, Region, WaitMode};
use crate::pattern;

/// What ends the right that a binding gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another binding, of a type 1 window to other bytes.
    Rebound,
    /// A binding of a type 1 window to no bytes.
    Unbound,
    /// A request of the owner's send queue, of a type 2 window.
    Invalidated,
    /// Nothing: the requester asks for a byte behind the window.
    Exceeded,
}

impl End {
    /// Those that a window of a type has.
    pub const fn of_type(window_type: u8) -> &'static [Self] {
        match window_type {
            1 => &[Self::Rebound, Self::Unbound, Self::Exceeded],
            _ => &[Self::Invalidated, Self::Exceeded],
        }
    }

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rebound => "bound again",
            Self::Unbound => "unbound",
            Self::Invalidated => "invalidated",
            Self::Exceeded => "past the end",
        }
    }
}

/// Uses a window to a part of a region with every operation that names a key; then ends the right, and
/// expects that the next request is refused without a byte changed.
///
/// # Errors
/// At the first difference.
pub fn run(connection: &mut Connection, window_type: u8, end: End) -> Result<(), Fault> {
    let responder = &mut connection.responder;
    let pair = responder.pair.handle;
    let all = responder.agent.lend(pair, LENT_LEN, window_type)?;
    let lent = all.handle;
    if window_type == 2 {
        // A bound window of type 2 cannot be bound again.
        responder.agent.invalidate(pair, lent)?;
    }
    let start = match end {
        // At the end of the region, the only end that rxe of Linux 6.1 checks (rxe_resp.c: check_rkey).
        End::Exceeded => (LENT_LEN - LEN) as u64,
        _ => OFFSET,
    };
    let window = responder.agent.bind(pair, lent, start, LEN)?;
    expect_equal("the address of the window", window.address, all.address + start)?;
    use_window(connection, all, window)?;

    let responder = &mut connection.responder;
    let (target, offset) = match end {
        End::Rebound => {
            let now = responder.agent.bind(pair, lent, OFFSET + LEN as u64, LEN)?;
            use_window(connection, all, now)?;
            (window, 0)
        }
        End::Unbound => {
            responder.agent.bind(pair, lent, OFFSET, 0)?;
            (window, 0)
        }
        End::Invalidated => {
            responder.agent.invalidate(pair, lent)?;
            (window, 0)
        }
        End::Exceeded => (window, LEN as u64 + 1 - 8),
    };
    let Connection { requester, responder, .. } = connection;
    responder.agent.fill(lent, 0, LENT_LEN, UNTOUCHED_SEED)?;
    requester
        .post(&Post::new(Operation::Write, requester.region.handle, BASE, 8).to(target, offset))?;
    let done = requester.completions(Queue::Send, 1)?;
    expect_equal("status after the end of the right", done[0].status, REMOTE_ACCESS_ERROR)?;
    let untouched = pattern::checksum(&pattern::bytes(UNTOUCHED_SEED, LENT_LEN));
    expect_equal("the lent region", responder.agent.checksum(lent, 0, LENT_LEN)?, untouched)
}

/// Writes through the key, reads it back, and changes a word.
fn use_window(connection: &mut Connection, all: Region, window: Region) -> Result<(), Fault> {
    let Connection { requester, responder, .. } = connection;
    let region = requester.region.handle;
    requester.lay_out(LEN, DATA_SEED)?;
    requester.post(&Post::new(Operation::Write, region, BASE, LEN).to(window, 0))?;
    requester.successes(Queue::Send, 1, WaitMode::Poll)?;
    let data = pattern::checksum(&pattern::bytes(DATA_SEED, LEN));
    let offset = window.address - all.address;
    let there = responder.agent.checksum(all.handle, offset, LEN)?;
    expect_equal("the bytes in the window", there, data)?;

    requester.prepare_place(LEN)?;
    requester.post(&Post::new(Operation::Read, region, BASE, LEN).to(window, 0))?;
    requester.successes(Queue::Send, 1, WaitMode::Poll)?;
    requester.check_place(LEN, Some(DATA_SEED))?;

    let word = responder.agent.word(all.handle, offset)?;
    let add = Post { swap_or_add: 5, ..Post::new(Operation::FetchAdd, region, BASE, 8) };
    requester.post(&add.to(window, 0))?;
    requester.successes(Queue::Send, 1, WaitMode::Poll)?;
    let after = responder.agent.word(all.handle, offset)?;
    expect_equal("the word after an addition", after, word.wrapping_add(5))
}

/// Bytes of the region.
const LENT_LEN: usize = 4 << 12;
/// Where the window begins in the region.
const OFFSET: u64 = 4096;
/// Bytes of the window, more than a packet.
const LEN: usize = 5000;
const DATA_SEED: u64 = 4711;
const UNTOUCHED_SEED: u64 = 12;
const REMOTE_ACCESS_ERROR: u32 = 10;
