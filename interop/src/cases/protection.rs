//! Requests that the responder must refuse, without a byte changed.

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect_equal};
use crate::params::{Operation, Post, Queue, Region, Rights};
use crate::pattern;

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// No region has the key.
    WrongKey,
    /// The last byte lies one past the region.
    PastTheEnd,
    /// The first byte lies before the region.
    BeforeTheStart,
    /// The region allows everything but this.
    MissingRight,
}

impl Offence {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::WrongKey, Self::PastTheEnd, Self::BeforeTheStart, Self::MissingRight];

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WrongKey => "wrong key",
            Self::PastTheEnd => "past the end",
            Self::BeforeTheStart => "before start",
            Self::MissingRight => "missing right",
        }
    }
}

/// Commits the offence with each length that makes sense and expects: remote access error on the
/// requester, what was posted behind it flushed, both queue pairs in error, and no byte changed.
///
/// # Errors
/// When it is not so.
pub fn run(
    connection: &mut Connection,
    operation: Operation,
    offence: Offence,
) -> Result<(), Fault> {
    let long = 3 * connection.settings.path_mtu;
    let lens: &[usize] = if operation.is_of_word() { &[8] } else { &[8, long] };
    for (round, len) in lens.iter().enumerate() {
        if round > 0 {
            connection.renew()?; // the first offence ended the pairs
        }
        commit(connection, operation, offence, *len)?;
    }
    Ok(())
}

fn commit(
    connection: &mut Connection,
    operation: Operation,
    offence: Offence,
    len: usize,
) -> Result<(), Fault> {
    let Connection { requester, responder, .. } = connection;
    let rights = match offence {
        Offence::MissingRight => all_but(operation),
        _ => operation.all_rights(),
    };
    let victim = responder.agent.register(VICTIM_LEN, rights)?;
    responder.agent.fill(victim.handle, 0, VICTIM_LEN, VICTIM_SEED)?;
    requester.prepare_place(len)?;

    let target = match offence {
        // The index part differs, so it can be no key of a region made since.
        Offence::WrongKey => Region { key: victim.key ^ 0x00ab_cd00, ..victim },
        Offence::BeforeTheStart => Region { address: victim.address - 8, ..victim },
        _ => victim,
    };
    let offset = match offence {
        // Atomics must be aligned, which would be another offence.
        Offence::PastTheEnd if operation.is_of_word() => VICTIM_LEN,
        Offence::PastTheEnd => VICTIM_LEN + 1 - len,
        _ => 0,
    };
    if operation.takes_receive() {
        // Without a receive the responder would rather ask to wait.
        responder.receive(0, 2)?;
    }
    let post = Post::new(operation, requester.region.handle, BASE, len);
    // Two, so that something is behind it; both land in the same place.
    let post = Post { step: 0, ..post.to(target, offset as u64).times(2) };
    requester.post(&post)?;
    let done = requester.completions(Queue::Send, 2)?;
    expect_equal(format!("status for {len} bytes"), done[0].status, REMOTE_ACCESS_ERROR)?;
    expect_equal("status of the one behind it", done[1].status, FLUSHED)?;
    requester.expect_state("ERROR")?;
    responder.expect_state("ERROR")?;
    let untouched = pattern::checksum(&pattern::bytes(VICTIM_SEED, VICTIM_LEN));
    let is = responder.agent.checksum(victim.handle, 0, VICTIM_LEN)?;
    expect_equal("the checksum of the region", is, untouched)?;
    requester.check_place(len, None)
}

/// All rights but the one that the operation needs.
const fn all_but(operation: Operation) -> Rights {
    match operation {
        Operation::Read => "lwa",
        Operation::CompareSwap | Operation::FetchAdd => "lwr",
        Operation::Flush => "lwra",
        _ => "lra",
    }
}

const VICTIM_LEN: usize = 64 << 10;
const VICTIM_SEED: u64 = 31337;
const REMOTE_ACCESS_ERROR: u32 = 10;
const FLUSHED: u32 = 5;
