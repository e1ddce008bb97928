//! Posting: requests enter a send queue, and leave or wait for the next post.

use roce_transport::{Destination, InlineData, PostError, SendWr};
use roce_wire::Qpn;

use super::Engine;
use crate::consumer::Consumer;
use crate::policy::{Cause, Doorbell, DoorbellCoalescing, PostRuns, PostedRequests};
use crate::send_queue::{InlineBuffers, SendQueue, SendRequest};

/// The outcome of a post.
#[derive(Debug)]
#[must_use]
pub struct Posted<E> {
    /// The position of the first request that was refused, and why, if one was.
    pub result: Result<(), (usize, E)>,
    /// What became of the others.
    pub departure: Departure,
}

/// What became of posted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// They wait for the next post, or until the caller polls. The driver thread looks after them.
    Held,
    /// They have left, as far as a window admits them.
    Left,
    /// As `Left`, and the rest has a caller that does not poll. The driver thread looks after them.
    Stalled,
}

impl<C: Consumer> Engine<C> {
    /// Posts requests to a send queue in order, until `next` returns none or one is refused, and sends them
    /// or holds them: see [`DoorbellCoalescing`]. Frames that have arrived wait for the next poll.
    #[inline]
    pub fn post<R: SendRequest<C::Refusal>>(
        &mut self,
        queue: &impl SendQueue,
        runs: &mut PostRuns,
        mut next: impl FnMut(&mut InlineBuffers<'_>) -> Option<R>,
    ) -> Posted<C::Refusal> {
        let queue_pair = queue.queue_pair();
        self.on_send(queue_pair);
        let mut posted = PostedRequests::none_to(queue_pair);
        // In a loop, to move the requests fewer times.
        let result = loop {
            let mut take = || self.endpoint.take_inline_buffer(queue_pair);
            let Some(request) = next(&mut InlineBuffers::new(&mut take)) else { break Ok(()) };
            let entered = self
                .meet_fault_of_post(queue_pair)
                .and_then(|()| request.destination())
                .and_then(|to| Ok(self.enter(queue, request.into_work(), to, &mut posted)?));
            if let Err(source) = entered {
                break Err((posted.requests as usize, source));
            }
        };
        Posted { result, departure: self.end_post(queue, runs, posted) }
    }

    /// As [`post`](Self::post), but posts all requests or none; `to` returns the destination of a datagram by
    /// its position. `requests` is empty afterwards unless one was refused. Fills `buffers` with memory for as
    /// many allocated inline data as were posted, as far as completed requests have left some.
    pub fn post_all(
        &mut self,
        queue: &impl SendQueue,
        runs: &mut PostRuns,
        requests: &mut Vec<SendWr>,
        buffers: &mut Vec<InlineData>,
        to: impl Fn(usize) -> Result<Option<Destination>, C::Refusal>,
    ) -> Posted<C::Refusal> {
        let queue_pair = queue.queue_pair();
        self.on_send(queue_pair);
        let mut posted = PostedRequests::none_to(queue_pair);
        let mut post = || {
            for (index, work) in requests.iter().enumerate() {
                self.meet_fault_of_post(queue_pair)
                    .and_then(|()| to(index))
                    .and_then(|to| {
                        self.endpoint.check_send(queue_pair, work, to.as_ref(), index)?;
                        Ok(queue.check_room(index as u32, || self.endpoint.query_qp(queue_pair))?)
                    })
                    .map_err(|source| (index, source))?;
            }
            let mut allocated = 0;
            for (index, work) in requests.drain(..).enumerate() {
                allocated += usize::from(work.data.is_allocated_inline());
                to(index)
                    .and_then(|to| Ok(self.enter(queue, work, to, &mut posted)?))
                    .map_err(|source| (index, source))?;
            }
            let taken = (0..allocated).map(|_| self.endpoint.take_inline_buffer(queue_pair));
            buffers.extend(taken.take_while(InlineData::is_allocated));
            Ok(())
        };
        let result = post();
        Posted { result, departure: self.end_post(queue, runs, posted) }
    }

    /// Lets the post of a request meet a fault, if it does.
    #[inline]
    fn meet_fault_of_post(&mut self, queue_pair: Qpn) -> Result<(), C::Refusal> {
        let Self { delivery, endpoint, .. } = self;
        match delivery.consumer.fault_of_post(queue_pair, || endpoint.send_queue_of(queue_pair)) {
            None => Ok(()),
            Some(fault) => self.meet_fault(self.last_now, fault),
        }
    }

    /// Enters a request into the send queue.
    #[inline]
    fn enter(
        &mut self,
        queue: &impl SendQueue,
        work: SendWr,
        to: Option<Destination>,
        posted: &mut PostedRequests,
    ) -> Result<(), PostError> {
        let (now, queue_pair) = (self.last_now, posted.queue_pair);
        let (bytes, is_signaled) = (work.data.len(), work.signaled);
        queue.check_room(0, || self.endpoint.query_qp(queue_pair))?;
        match to {
            None => self.endpoint.post_send(now, queue_pair, work)?,
            Some(to) => {
                let path = to.path.handle;
                self.endpoint.post_send_to(now, queue_pair, work, to)?;
                self.tables.keep_path(&self.endpoint, queue_pair, path);
            }
        }
        queue.take_place();
        posted.add(bytes, is_signaled);
        Ok(())
    }

    /// Sends what was posted, unless it waits for the next post.
    #[inline]
    fn end_post(
        &mut self,
        queue: &impl SendQueue,
        PostRuns { caller, queue_pair: run }: &mut PostRuns,
        mut posted: PostedRequests,
    ) -> Departure {
        posted.is_outstanding = self.endpoint.has_outstanding(posted.queue_pair);
        if caller.is_begun() {
            let now = queue.now();
            match self.policy.doorbells.on_post(now, caller, run, posted) {
                Doorbell::Hold => {
                    self.set_now(now);
                    return Departure::Held;
                }
                Doorbell::Ring => self.run(now, Cause::Post, None),
                Doorbell::RingAndReceive => self.run(now, Cause::LongPost, None),
            };
        } else {
            self.policy.doorbells.begin_run(caller, run);
            let is_clock_read = self.endpoint.needs_fresh_now();
            let now = if is_clock_read { queue.now() } else { self.last_now };
            self.run(now, Cause::Post, None);
        }
        // The clock is read after the message has left: 20 ns of half a round trip.
        let now = queue.now();
        self.set_now(now);
        self.policy.doorbells.on_returned(now, caller);
        if DoorbellCoalescing::is_long_run(*run) && self.endpoint.has_unsent(posted.queue_pair) {
            // The caller does not poll, so no ACK would open the window.
            self.run(now, Cause::LongPost, None);
            return Departure::Stalled;
        }
        Departure::Left
    }
}
