//! Several queue pairs of one responder that take receives from one shared queue.

use roce_verbs::{GRH_LEN, Service};

use crate::connection::COMPLETION_LIMIT;
use crate::fault::{Fault, expect, expect_equal};
use crate::params::{
    ALL_RIGHTS, ConnectionParams, Operation, Pair, Post, Queue, Region, WaitMode, WorkCompletion,
};
use crate::{Agent, pattern};

/// Sends many messages on each of four queue pairs at once. Each message must complete on its own
/// queue pair, into a receive that no other message took, and in the order of its queue pair. Over a
/// reliable connection, messages that find the queue empty wait for the next receives.
///
/// # Errors
/// At the first difference.
pub fn run(
    requester: Agent,
    responder: Agent,
    settings: &ConnectionParams,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    let header = if settings.service == Service::Ud { GRH_LEN } else { 0 };
    let len = settings.path_mtu - 1;
    let mut world = World::new(requester, responder, settings, header, len)?;
    world.round(MESSAGES, wait_mode, true)?;
    if settings.service == Service::Rc {
        world.round(1, wait_mode, false)?;
    }
    Ok(())
}

struct World {
    requester: Agent,
    responder: Agent,
    srq: u32,
    pairs: Vec<(Pair, Pair)>,
    /// What each queue pair sends, one message beside the other.
    from: Region,
    /// The receives, one beside the other.
    to: Region,
    /// Bytes in front of each message.
    header: usize,
    len: usize,
}

impl World {
    fn new(
        mut requester: Agent,
        mut responder: Agent,
        settings: &ConnectionParams,
        header: usize,
        len: usize,
    ) -> Result<Self, Fault> {
        let from = requester.register(PAIRS * len, ALL_RIGHTS)?;
        let to = responder.register(PAIRS * MESSAGES * (header + len), ALL_RIGHTS)?;
        let srq = responder.shared_receive_queue(PAIRS * MESSAGES)?;
        let mut pairs = Vec::new();
        for index in 0..PAIRS {
            requester.fill(from.handle, (index * len) as u64, len, index as u64)?;
            let (ours, theirs) = (requester.pair(settings)?, responder.pair_on(srq, settings)?);
            requester.connect(ours.handle, &theirs.dest, settings)?;
            responder.connect(theirs.handle, &ours.dest, settings)?;
            pairs.push((ours, theirs));
        }
        Ok(Self { requester, responder, srq, pairs, from, to, header, len })
    }

    /// Sends `count` messages on each queue pair; receives are posted before or after that.
    fn round(&mut self, count: usize, wait_mode: WaitMode, is_ready: bool) -> Result<(), Fault> {
        let Self { len, header, to, .. } = *self;
        self.responder.fill(to.handle, 0, PAIRS * count * (header + len), EMPTY_SEED)?;
        if is_ready {
            self.post_receives(count)?;
        }
        for (index, (pair, _)) in self.pairs.iter().enumerate() {
            let post = Post {
                immediate: index as u32,
                step: 0,
                ..Post::new(Operation::SendImmediate, self.from.handle, (index * len) as u64, len)
            };
            self.requester.post(pair.handle, &post.times(count))?;
        }
        if !is_ready {
            self.post_receives(count)?;
        }
        let mut is_taken = vec![false; PAIRS * count];
        for (index, (ours, theirs)) in self.pairs.clone().into_iter().enumerate() {
            let agent = &mut self.requester;
            let sent = agent.wait(ours.handle, Queue::Send, count, wait_mode, COMPLETION_LIMIT)?;
            sent.iter().try_for_each(|done| expect_equal("status of a send", done.status, 0))?;
            let agent = &mut self.responder;
            let received =
                agent.wait(theirs.handle, Queue::Receive, count, wait_mode, COMPLETION_LIMIT)?;
            let mut last = None;
            for done in &received {
                let id = self.check(done, index, ours)?;
                let was_taken = is_taken.get_mut(id).map(|is| std::mem::replace(is, true));
                expect_equal("whether the receive was taken before", was_taken, Some(false))?;
                expect(last < Some(id), || format!("receive {id} completes after {last:?}"))?;
                last = Some(id);
            }
        }
        Ok(())
    }

    fn post_receives(&mut self, count: usize) -> Result<(), Fault> {
        let room = self.header + self.len;
        self.responder.receive(self.srq, self.to.handle, 0, room, PAIRS * count)
    }

    /// Compares a receive that queue pair number `index` completed; returns which it is.
    fn check(&mut self, done: &WorkCompletion, index: usize, sender: Pair) -> Result<usize, Fault> {
        let Self { len, header, .. } = *self;
        expect_equal("status of a receive", done.status, 0)?;
        expect_equal("bytes received", done.len as usize, header + len)?;
        expect_equal("the immediate value", done.immediate, Some(index as u32))?;
        let source = (header > 0).then(|| sender.dest.qpn.get());
        expect_equal("the sender's queue pair number", done.source_qpn, source)?;
        let id = done.id as usize;
        let offset = id * (header + len) + header;
        let crc = self.responder.checksum(self.to.handle, offset as u64, len)?;
        let expected = pattern::checksum(&pattern::bytes(index as u64, len));
        expect_equal(format!("the checksum of receive {id}"), crc, expected)?;
        Ok(id)
    }
}

const PAIRS: usize = 4;
/// Messages of each queue pair.
const MESSAGES: usize = 16;
/// Of bytes that no message has.
const EMPTY_SEED: u64 = 0xe1a7;
