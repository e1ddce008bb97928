//! Messages of services without acknowledgements: UC and UD.

use std::time::{Duration, Instant};

use roce_verbs::{GRH_LEN, Service};

use super::transfer::{check_receive, send_opcode};
use crate::connection::{BASE, Connection, Side};
use crate::fault::{Fault, expect_equal};
use crate::params::{Operation, Post, Queue, WaitMode};

/// Sends one message of each length in turn and compares everything that
/// [`transfer::run`](super::transfer::run) compares, and of a datagram its sender too.
///
/// A message of up to `MAX_SAFE` bytes must arrive, since the receiver is ready for it and does
/// nothing else. One that is longer may lose a packet in the queues between, and rxe sometimes stops
/// in the middle of it until more is posted: it is sent up to `MAX_ATTEMPTS` times.
///
/// # Errors
/// At the first difference.
pub fn run(
    connection: &mut Connection,
    operation: Operation,
    lens: &[usize],
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    for len in lens {
        one(connection, operation, *len, wait_mode)
            .map_err(|fault| Fault::Wrong(format!("{len} bytes: {fault}")))?;
    }
    Ok(())
}

fn one(
    connection: &mut Connection,
    operation: Operation,
    len: usize,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    let seed = (operation as u64) << 32 | len as u64;
    let Connection { requester, responder, settings } = connection;
    let header = if settings.service == Service::Ud { GRH_LEN } else { 0 };
    requester.lay_out(len, seed)?;
    responder.prepare_place(header + len)?;
    if operation.takes_receive() {
        let room = if operation.is_send() { header + len } else { 0 };
        responder.receive(room, 1)?;
    }
    let post = Post {
        immediate: len as u32 ^ 0x8001_7eff,
        ..Post::new(operation, requester.region.handle, BASE, len)
    };
    let mut attempts = if len > MAX_SAFE { MAX_ATTEMPTS } else { 1 };
    let mut outstanding = 0;
    loop {
        requester.post(&post.to(responder.region, BASE))?;
        (outstanding, attempts) = (outstanding + 1, attempts - 1);
        let arrived = sent(requester, operation, &mut outstanding, wait_mode)
            .and_then(|()| arrival(responder, &post, header, seed, wait_mode));
        match arrived {
            Ok(source) => {
                let sender = (header > 0).then(|| requester.pair.dest.qpn.get());
                expect_equal("the sender's queue pair number", source, sender)?;
                break;
            }
            Err(fault) if attempts == 0 => return Err(fault),
            Err(_) => {}
        }
    }
    if header > 0 {
        check_header(requester, responder)?;
    }
    requester.nothing_more(Queue::Send)?;
    responder.nothing_more(Queue::Receive)
}

/// Waits for the completions of all that was posted.
fn sent(
    requester: &mut Side,
    operation: Operation,
    outstanding: &mut usize,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    let pair = requester.pair.handle;
    let done = requester.agent.wait(pair, Queue::Send, *outstanding, wait_mode, ARRIVAL_LIMIT);
    *outstanding -= match &done {
        Ok(done) => done.len(),
        Err(Fault::TooFew { seen, .. }) => *seen,
        Err(_) => 0,
    };
    for done in done? {
        expect_equal("status of the send", done.status, 0)?;
        expect_equal("the sender's opcode", done.opcode, send_opcode(operation))?;
    }
    Ok(())
}

/// Waits until the message is whole at its place, and returns the number of the sender's queue pair
/// as its completion has it.
fn arrival(
    responder: &mut Side,
    post: &Post,
    header: usize,
    seed: u64,
    wait_mode: WaitMode,
) -> Result<Option<u32>, Fault> {
    let (pair, mut source) = (responder.pair.handle, None);
    if post.operation.takes_receive() {
        let done = responder.agent.wait(pair, Queue::Receive, 1, wait_mode, ARRIVAL_LIMIT)?;
        expect_equal("status of the receive", done[0].status, 0)?;
        check_receive(&done[0], &Post { len: header + post.len, ..*post }, None)?;
        source = done[0].source_qpn;
    }
    let deadline = Instant::now() + ARRIVAL_LIMIT;
    loop {
        // Nothing tells the responder of a WRITE that it has arrived.
        match responder.check_place_behind(header, post.len, seed) {
            Err(_) if !post.operation.takes_receive() && Instant::now() < deadline => {}
            ended => return ended.map(|()| source),
        }
    }
}

/// The 40 bytes in front of a datagram hold the addresses of both ends.
fn check_header(requester: &Side, responder: &mut Side) -> Result<(), Fault> {
    let mut header = Vec::new();
    for offset in (0..GRH_LEN as u64).step_by(8) {
        let word = responder.agent.word(responder.region.handle, BASE + offset)?;
        header.extend(word.to_ne_bytes());
    }
    let (from, to) = (requester.pair.dest.gid.0, responder.pair.dest.gid.0);
    let is_ipv4 = from[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    // An IPv4 header stands in the second half, with addresses of four bytes.
    let (version, addresses) = match is_ipv4 {
        true => (header[20] >> 4, [&from[12..], &to[12..]].concat()),
        false => (header[0] >> 4, [from, to].concat()),
    };
    expect_equal("the IP version", version, if is_ipv4 { 4 } else { 6 })?;
    expect_equal("the addresses", &header[GRH_LEN - addresses.len()..], &addresses[..])
}

/// The longest message that no queue between the ends is too short for.
const MAX_SAFE: usize = 64 << 10;
/// How often a longer message is sent. A receiver that resynchronises within a message may lose the
/// one behind it too: rxe does.
const MAX_ATTEMPTS: usize = 5;
/// How long a message may take to arrive.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(2);
