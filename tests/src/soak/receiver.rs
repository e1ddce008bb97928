//! Receives: posted, checked in order, posted again.

use roce_verbs::{
    Completion, CompletionOperation, CompletionStatus, MemoryRegion, ProtectionDomain, QueuePair,
    RecvWr,
};

use super::Result;
use super::random_bytes;
use super::traffic::{NOTE_LEN, NOTES, NOTES_AT};
use crate::fixtures::every_right;

/// The receives of one end.
#[derive(Debug)]
pub(super) struct Receiver {
    region: MemoryRegion,
    posted: usize,
    /// Messages that have come over this connection.
    received: u64,
    /// Regions whose keys the other end may invalidate, in this order.
    disposable: Vec<MemoryRegion>,
    invalidated: usize,
    scratch: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(pd: &ProtectionDomain) -> Result<Self> {
        Ok(Self {
            region: pd.register(RECEIVES * MAX_MESSAGE, every_right())?,
            posted: 0,
            received: 0,
            disposable: Vec::new(),
            invalidated: 0,
            scratch: vec![0; MAX_MESSAGE],
        })
    }

    /// Posts all receives of a new connection.
    pub(super) fn start(&mut self, disposable: Vec<MemoryRegion>, qp: &QueuePair) -> Result<()> {
        (self.posted, self.received, self.invalidated) = (0, 0, 0);
        self.disposable = disposable;
        (0..RECEIVES).try_for_each(|place| self.post(place, qp))
    }

    pub(super) fn keys(&self) -> Vec<u32> {
        self.disposable.iter().map(MemoryRegion::rkey).collect()
    }

    /// Receives that are posted and not complete.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    fn post(&mut self, place: usize, qp: &QueuePair) -> Result<()> {
        let bytes = self.region.sge(place * MAX_MESSAGE..(place + 1) * MAX_MESSAGE)?;
        qp.post_recv([RecvWr::new(place as u64 | IS_RECEIVE, [bytes])])?;
        self.posted += 1;
        Ok(())
    }

    /// Checks a receive that is complete and posts it again; returns the bytes that came.
    pub(super) fn handle(
        &mut self,
        completion: &Completion,
        target: &MemoryRegion,
        qp: &QueuePair,
    ) -> Result<u64> {
        self.posted -= 1;
        if completion.status != CompletionStatus::Success {
            return Ok(0);
        }
        let place = (completion.wr_id & !IS_RECEIVE) as usize;
        let number = self.received;
        self.received += 1;
        let wrong = |what: &str| format!("message {number}: {what}: {completion:?}");
        if completion.immediate.is_some_and(|it| it != immediate_of(number)) {
            return Err(wrong("the immediate is of another message").into());
        }
        let len = completion.byte_len as usize;
        match completion.operation {
            CompletionOperation::RecvWithImmediate => {
                let at = NOTES_AT + number as usize % NOTES * NOTE_LEN;
                target.read(at, &mut self.scratch[..NOTE_LEN])?;
                if len != NOTE_LEN || self.scratch[..NOTE_LEN] != random_bytes(number, NOTE_LEN) {
                    return Err(wrong("a WRITE with immediate has other bytes").into());
                }
            }
            CompletionOperation::Recv => {
                let seen = self.scratch.get_mut(..len).ok_or_else(|| wrong("it is too long"))?;
                self.region.read(place * MAX_MESSAGE, seen)?;
                if *seen != message_of(number, len) {
                    return Err(wrong("a SEND has other bytes").into());
                }
            }
            _ => return Err(wrong("no receive completes like this").into()),
        }
        if let Some(key) = completion.invalidated_key {
            let region = self.disposable.get(self.invalidated);
            self.invalidated += 1;
            if region.is_none_or(|region| region.rkey() != key || region.is_valid()) {
                return Err(wrong("the key that it names was not invalidated").into());
            }
        }
        self.post(place, qp)?;
        Ok(len as u64)
    }
}

/// The bytes of a SEND by its number among the messages of its connection.
pub(super) fn message_of(number: u64, len: usize) -> Vec<u8> {
    random_bytes(number ^ len as u64, len)
}

/// The immediate of a message, where it has one.
pub(super) fn immediate_of(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// Receives that are kept posted.
pub(super) const RECEIVES: usize = 32;
/// Bytes of the longest SEND.
pub(super) const MAX_MESSAGE: usize = 8 << 10;
/// Marks the work ids of receives.
pub(super) const IS_RECEIVE: u64 = 1 << 63;
