//! Requests of every kind: posted at random, checked when they are complete.

use rand::Rng;
use rand::seq::IndexedRandom;
use roce_verbs::{
    Completion, CompletionStatus, MemoryRegion, PostError, RegisterOptions, RemoteAddr,
    SendOperation, SendWr, Sge, WrError,
};

use super::Result;
use super::random_bytes;
use super::receiver::{MAX_MESSAGE, immediate_of, message_of};
use super::traffic::{
    ADDITIONS_AT, MAX_INLINE, MAX_LEN, NOTE_LEN, NOTES, NOTES_AT, SLOTS, SLOTS_AT, SWAPS_AT,
    Traffic,
};
use crate::fixtures::every_right;

/// Kind of a request and its expected result. A slot that it uses is free once it is complete.
#[derive(Debug)]
pub(super) enum Request {
    /// A WRITE to the other end's place for this slot. The READ behind it frees the slot.
    Write { len: usize },
    /// A READ of the same place, which must bring what the WRITE wrote.
    ReadBack { slot: usize, len: usize, seed: u64 },
    /// A SEND, or a WRITE with immediate.
    Message { slot: usize, len: usize },
    /// A fetch-and-add or compare-and-swap, which must bring this value.
    Atomic { slot: usize, before: u64 },
    /// The invalidation of the key of this region.
    LocalInvalidate { slot: usize, region: MemoryRegion },
}

#[derive(Clone, Copy)]
enum Kind {
    WriteAndRead,
    Send,
    WriteWithImmediate,
    FetchAdd,
    CompareSwap,
    LocalInvalidate,
}

impl Traffic {
    /// Posts requests of random kinds until all slots are in use.
    pub(super) fn post_requests(&mut self) -> Result<()> {
        use Kind::*;
        const KINDS: [Kind; 8] = [
            WriteAndRead,
            WriteAndRead,
            Send,
            Send,
            WriteWithImmediate,
            FetchAdd,
            CompareSwap,
            LocalInvalidate,
        ];
        while let Some(slot) = self.free_slots.pop() {
            let kind = *KINDS.choose(&mut self.random).expect("there are kinds");
            let is_posted = match kind {
                WriteAndRead => self.write_and_read(slot)?,
                Send => self.send(slot)?,
                WriteWithImmediate => self.write_with_immediate(slot)?,
                FetchAdd | CompareSwap => self.change_word(slot, matches!(kind, FetchAdd))?,
                LocalInvalidate => self.invalidate(slot)?,
            };
            if !is_posted {
                break;
            }
        }
        Ok(())
    }

    fn write_and_read(&mut self, slot: usize) -> Result<bool> {
        let (len, seed) = (self.draw_len(MAX_LEN), self.random.random());
        self.local.write(slot * MAX_LEN, &random_bytes(seed, len))?;
        self.local.write((SLOTS + slot) * MAX_LEN, &random_bytes(!seed, len))?;
        let remote = self.remote((SLOTS_AT + slot * MAX_LEN) as u64)?;
        let (from, to) =
            (self.pieces(slot * MAX_LEN, len)?, self.pieces((SLOTS + slot) * MAX_LEN, len)?);
        let write = SendWr::new(self.next_id(), SendOperation::write(remote), from);
        let mut read = SendWr::new(self.next_id(), SendOperation::read(remote), to);
        read.fence = self.random.random_bool(0.2);
        Ok(self.post(write, Request::Write { len })?
            && self.post(read, Request::ReadBack { slot, len, seed })?)
    }

    fn send(&mut self, slot: usize) -> Result<bool> {
        let (len, number) = (self.draw_len(MAX_MESSAGE), self.counts.messages);
        let message = message_of(number, len);
        let immediate = self.random.random_bool(0.3).then(|| immediate_of(number));
        let keys = &self.peer.as_ref().ok_or(NOT_CONNECTED)?.disposable;
        let invalidate = keys.get(self.counts.invalidations).copied();
        let invalidate = invalidate.filter(|_| immediate.is_none());
        self.counts.invalidations += usize::from(invalidate.is_some());
        let operation = SendOperation::Send { immediate, invalidate };
        let mut work = if len <= MAX_INLINE && self.random.random_bool(0.5) {
            SendWr::inline(self.next_id(), operation, message)
        } else {
            self.local.write(slot * MAX_LEN, &message)?;
            let pieces = self.pieces(slot * MAX_LEN, len)?;
            SendWr::new(self.next_id(), operation, pieces)
        };
        work.solicited = self.random.random_bool(0.2);
        self.counts.messages += 1;
        self.post(work, Request::Message { slot, len })
    }

    fn write_with_immediate(&mut self, slot: usize) -> Result<bool> {
        let number = self.counts.messages;
        self.local.write(slot * MAX_LEN, &random_bytes(number, NOTE_LEN))?;
        let at = NOTES_AT + number as usize % NOTES * NOTE_LEN;
        let (remote, immediate) = (self.remote(at as u64)?, Some(immediate_of(number)));
        let pieces = self.pieces(slot * MAX_LEN, NOTE_LEN)?;
        let operation = SendOperation::Write { remote, immediate };
        let work = SendWr::new(self.next_id(), operation, pieces);
        self.counts.messages += 1;
        self.post(work, Request::Message { slot, len: NOTE_LEN })
    }

    /// Counts on the other end, by one: each of these requests must be carried out once.
    fn change_word(&mut self, slot: usize, by_addition: bool) -> Result<bool> {
        let (operation, before) = if by_addition {
            let remote = self.remote(ADDITIONS_AT)?;
            self.counts.additions += 1;
            (SendOperation::FetchAdd { remote, add: 1 }, self.counts.additions - 1)
        } else {
            let remote = self.remote(SWAPS_AT)?;
            self.counts.swaps += 1;
            let (compare, swap) = (self.counts.swaps - 1, self.counts.swaps);
            (SendOperation::CompareSwap { remote, compare, swap }, compare)
        };
        let result = self.local.sge(slot * MAX_LEN..slot * MAX_LEN + 8)?;
        let work = SendWr::new(self.next_id(), operation, [result]);
        self.post(work, Request::Atomic { slot, before })
    }

    fn invalidate(&mut self, slot: usize) -> Result<bool> {
        let options = RegisterOptions { invalidatable: true, ..RegisterOptions::default() };
        let region = self.pd.register_with(64, every_right(), options)?;
        let operation = SendOperation::LocalInvalidate { key: region.lkey() };
        let work = SendWr::new(self.next_id(), operation, []);
        self.post(work, Request::LocalInvalidate { slot, region })
    }

    /// Posts one request that reports its success. Returns false if the queue pair has failed: its
    /// completions tell.
    fn post(&mut self, work: SendWr, request: Request) -> Result<bool> {
        let id = work.wr_id;
        match self.qp.post_send([work.signaled()]) {
            Ok(()) => {
                self.note_posted(id, request);
                Ok(true)
            }
            Err(refused) => match refused.source {
                WrError::Post(PostError::WrongState { .. }) => Ok(false),
                source => Err(format!("{request:?} was refused: {source}").into()),
            },
        }
    }

    /// Checks a request that is complete and frees its slot; returns its payload.
    pub(super) fn finish(&mut self, request: Request, completion: &Completion) -> Result<u64> {
        let succeeded = completion.status == CompletionStatus::Success;
        let (slot, len) = match request {
            Request::Write { len } => return Ok(len as u64),
            Request::ReadBack { slot, len, seed } => {
                let mut seen = vec![0; len];
                self.local.read((SLOTS + slot) * MAX_LEN, &mut seen)?;
                if succeeded && seen != random_bytes(seed, len) {
                    return Err(
                        format!("a READ of {len} bytes brought others: {completion:?}").into()
                    );
                }
                (slot, len)
            }
            Request::Message { slot, len } => (slot, len),
            Request::Atomic { slot, before } => {
                let seen = self.local.load_u64(slot * MAX_LEN)?;
                if succeeded && seen != before {
                    return Err(
                        format!("an atomic brought {seen}, not {before}: {completion:?}").into()
                    );
                }
                (slot, 8)
            }
            Request::LocalInvalidate { slot, region } => {
                if succeeded && region.is_valid() {
                    return Err(format!("the key is still valid: {completion:?}").into());
                }
                (slot, 0)
            }
        };
        self.free_slots.push(slot);
        Ok(len as u64)
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn remote(&self, offset: u64) -> Result<RemoteAddr> {
        let peer = self.peer.as_ref().ok_or(NOT_CONNECTED)?;
        Ok(RemoteAddr { addr: peer.address + offset, rkey: peer.key })
    }

    /// Cuts local bytes into one to four pieces.
    fn pieces(&mut self, start: usize, len: usize) -> Result<Vec<Sge>> {
        let count = self.random.random_range(1..=4.min(len));
        let mut cuts: Vec<usize> = (1..count).map(|_| self.random.random_range(0..=len)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        let ends = cuts.windows(2).map(|pair| self.local.sge(start + pair[0]..start + pair[1]));
        Ok(ends.collect::<std::result::Result<_, _>>()?)
    }
}

const NOT_CONNECTED: &str = "there is no peer";
