//! The send queue: posted requests that are not complete, and their sequence numbers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use roce_wire::PathMtu;

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::{
    Completion, CompletionOperation, CompletionStatus, InlineData, Observer, PostError, Retired,
    SendWr, WrData,
};

/// A posted request and its sequence numbers.
///
/// Sequence numbers count the packets of a connection from 0 and never wrap. PSNs are the same
/// modulo 2^24, from the first PSN on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry<'q> {
    pub(crate) work: &'q SendWr,
    /// Position in the order of posting, from 0.
    pub(crate) number: u64,
    /// Bytes of the message, 0 ..= 2^31.
    pub(crate) len: u64,
    /// The first sequence number.
    pub(crate) first: u64,
    /// Sequence numbers used; for a READ those of its responses, for a local operation none.
    pub(crate) packets: u32,
}

impl SendEntry<'_> {
    /// The first sequence number behind it.
    pub(crate) const fn end(&self) -> u64 {
        self.first + self.packets as u64
    }

    /// Where in the message packet `seq` starts, in bytes.
    pub(crate) const fn offset_of(&self, seq: u64, mtu: PathMtu) -> u64 {
        (seq - self.first) * mtu.bytes() as u64
    }

    pub(crate) const fn operation(&self) -> CompletionOperation {
        self.work.operation.completion_operation()
    }
}

/// Requests in the order in which they were posted, numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Apart from their places: a request that is put together with its place first is moved once
    /// more, and moving requests is a seventh of what an 8-byte WRITE costs its sender.
    work: VecDeque<SendWr>,
    /// As many.
    places: VecDeque<Place>,
    /// The number of the entry in front.
    head: u64,
    /// The first sequence number that no entry has.
    end: u64,
    /// Requests that are done without a completion since the last one that had one, modulo 2^32.
    silent: u32,
    /// Allocated memory of inline data that was sent, for new requests.
    inline_buffers: Vec<InlineData>,
}

impl SendQueue {
    /// Makes room for another request.
    ///
    /// # Errors
    /// [`PostError::OutOfMemory`].
    #[inline]
    pub(crate) fn reserve(&mut self) -> Result<(), PostError> {
        let len = self.places.len();
        if len < self.places.capacity() && len < self.work.capacity() {
            return Ok(());
        }
        self.grow()
    }

    #[cold]
    fn grow(&mut self) -> Result<(), PostError> {
        let reserved = self.places.try_reserve(1).and_then(|()| self.work.try_reserve(1));
        reserved.map_err(|_| PostError::OutOfMemory)
    }

    /// Puts a request at the end.
    #[inline]
    pub(crate) fn push(&mut self, work: SendWr, len: u64, packets: u32) {
        self.work.push_back(work);
        self.places.push_back(Place { len, first: self.end, packets });
        self.end += u64::from(packets);
    }

    /// The entry with this number, unless it is complete or not posted yet.
    pub(crate) fn get(&self, number: u64) -> Option<SendEntry<'_>> {
        let index = usize::try_from(number.checked_sub(self.head)?).ok()?;
        Some(self.places.get(index)?.with(number, self.work.get(index)?))
    }

    /// The entry with this number, if it is the last.
    #[inline]
    pub(crate) fn last_if(&self, number: u64) -> Option<SendEntry<'_>> {
        let is_last = number + 1 == self.head + self.len() as u64;
        if !is_last {
            return None;
        }
        Some(self.places.back()?.with(number, self.work.back()?))
    }

    pub(crate) fn front(&self) -> Option<SendEntry<'_>> {
        Some(self.places.front()?.with(self.head, self.work.front()?))
    }

    /// Removes the entry in front, with a completion if it is signaled or failed.
    #[inline]
    pub(crate) fn complete_front<O: Observer>(
        &mut self,
        status: CompletionStatus,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        let takes_receive = self.front().is_some_and(|it| it.work.operation.takes_receive());
        if takes_receive && status == CompletionStatus::Success {
            cx.counters().rdma_sends += 1;
        }
        self.end_front(status, qp, cx);
    }

    /// As [`complete_front`](Self::complete_front), for a request that may not have been sent.
    #[inline]
    pub(crate) fn end_front<O: Observer>(
        &mut self,
        status: CompletionStatus,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        let Some(entry) = self.front() else { return };
        let is_success = status == CompletionStatus::Success;
        //= rule rc-unsignaled-failure: InfiniBand 10.7.3.1; rxe_comp.c: do_complete
        //# A request that fails has a completion, signaled or not.
        if !is_success || entry.work.signaled || qp.init.signal_all {
            let immediate = entry.work.operation.immediate();
            let completion = qp.completion(entry.work.wr_id, entry.operation(), status, entry.len);
            let retired = Retired::new(qp.init.numbers.send, self.silent.wrapping_add(1));
            cx.complete(qp.init.send_cq, Completion { immediate, retired, ..completion });
            self.silent = 0;
        } else {
            self.silent = self.silent.wrapping_add(1);
        }
        self.places.pop_front();
        if let Some(SendWr { data: WrData::Inline(mut bytes), .. }) = self.work.pop_front()
            && bytes.is_allocated()
            && self.inline_buffers.len() < qp.init.cap.max_send_wr as usize
        {
            bytes.clear();
            self.inline_buffers.push(bytes);
        }
        self.head += 1;
    }

    /// Returns empty inline data, with the memory of an earlier request if there is some.
    pub(crate) fn take_inline_buffer(&mut self) -> InlineData {
        self.inline_buffers.pop().unwrap_or_default()
    }

    /// Returns the entry with the packet `seq`.
    pub(crate) fn containing(&self, seq: u64) -> Option<SendEntry<'_>> {
        let ends_before = |it: &Place| it.first + u64::from(it.packets) <= seq;
        let index = self.places.partition_point(ends_before);
        self.get(self.head + index as u64).filter(|it| it.first <= seq)
    }

    /// The number of the entry in front, or of the next to be posted.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

/// What the queue knows of a request besides what was posted; see [`SendEntry`].
#[derive(Clone, Copy, Debug)]
struct Place {
    len: u64,
    first: u64,
    packets: u32,
}

impl Place {
    #[inline]
    fn with(self, number: u64, work: &SendWr) -> SendEntry<'_> {
        let Self { len, first, packets } = self;
        SendEntry { work, number, len, first, packets }
    }
}
