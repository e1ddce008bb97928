//! READ requests, atomics, FLUSH and ATOMIC WRITE whose responses are outstanding.

use alloc::collections::VecDeque;

/// The sequence numbers of the responses to a READ request or atomic, as it was first sent.
///
/// A long READ is sent as several requests, so that its responses do not overrun our own receive
/// ring. A request is repeated within its first limits, since responders compare it with what they
/// keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) response: ResponseKind,
    /// A part of it was requested again that ends before it.
    pub(crate) is_split: bool,
}

/// What responses bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// The bytes of a READ.
    Read,
    /// The word of an atomic.
    Atomic,
    /// Nothing: the response to a FLUSH or ATOMIC WRITE.
    Empty,
}

/// Every request whose responses have not all arrived, oldest first; those behind the requester's
/// `next` are sent again.
#[derive(Debug, Default)]
pub(crate) struct OutstandingReads(VecDeque<ReadRequest>);

impl OutstandingReads {
    /// Adds a request that is sent for the first time.
    pub(crate) fn push(&mut self, request: ReadRequest) {
        self.0.push_back(request);
    }

    /// The request whose responses contain `seq`.
    pub(crate) fn find(&self, seq: u64) -> Option<ReadRequest> {
        // A response that arrives in order belongs to the oldest request: a search takes 50
        // instructions for each.
        let oldest = self.0.front()?;
        if seq < oldest.end {
            return (oldest.start <= seq).then_some(*oldest);
        }
        let index = self.0.partition_point(|it| it.end <= seq);
        self.0.get(index).filter(|it| it.start <= seq).copied()
    }

    /// The requests from that whose responses contain `seq`, or the next one.
    pub(crate) fn iter_from(&self, seq: u64) -> impl Iterator<Item = &ReadRequest> {
        self.0.iter().skip(self.0.partition_point(|it| it.end <= seq))
    }

    /// As [`iter_from`](Self::iter_from), only requests whose responses bring something.
    pub(crate) fn with_data_from(&self, seq: u64) -> impl Iterator<Item = &ReadRequest> {
        self.iter_from(seq).filter(|it| it.response != ResponseKind::Empty)
    }

    /// A part of the request was requested again from `seq` on.
    pub(crate) fn note_split(&mut self, seq: u64) {
        let index = self.0.partition_point(|it| it.end <= seq);
        if let Some(request) = self.0.get_mut(index) {
            request.is_split = true;
        }
    }

    /// The oldest missing response that brings something, where everything before `unacked` has arrived.
    //= rule rc-empty-response-implied: rxe_comp.c: check_psn
    //# A FLUSH or ATOMIC WRITE is complete, too, when a later request is acknowledged: its response
    //# brings nothing.
    pub(crate) fn first_missing(&self, unacked: u64) -> Option<u64> {
        let oldest = self.0.front()?;
        if oldest.response == ResponseKind::Empty {
            return self.first_missing_behind_empty(unacked);
        }
        Some(oldest.start.max(unacked))
    }

    // Apart: a search takes 40 instructions for each response to a READ.
    #[cold]
    #[inline(never)]
    fn first_missing_behind_empty(&self, unacked: u64) -> Option<u64> {
        let request = self.0.iter().find(|it| it.response != ResponseKind::Empty)?;
        Some(request.start.max(unacked))
    }

    /// The number of requests sent since the last retransmission, up to `next`.
    pub(crate) fn outstanding(&self, next: u64) -> usize {
        self.0.partition_point(|it| it.end <= next)
    }

    /// Removes requests whose responses lie before `unacked`.
    pub(crate) fn settle(&mut self, unacked: u64) {
        while self.0.front().is_some_and(|it| it.end <= unacked) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> OutstandingReads {
        let mut requests = OutstandingReads::default();
        requests.push(ReadRequest {
            start: 2,
            end: 5,
            response: ResponseKind::Read,
            is_split: false,
        });
        let response = ResponseKind::Atomic;
        requests.push(ReadRequest { start: 7, end: 8, response, is_split: false });
        requests
    }

    #[test]
    fn a_response_belongs_to_the_request_that_it_answers_or_to_none() {
        let requests = requests();
        assert_eq!(requests.find(1), None);
        assert_eq!(requests.find(4).map(|it| it.start), Some(2));
        assert_eq!(requests.find(5), None);
        assert_eq!(requests.find(7).map(|it| it.response), Some(ResponseKind::Atomic));
        assert_eq!(requests.find(8), None);
    }

    //= test rc-empty-response-implied
    #[test]
    fn an_empty_response_is_never_missing() {
        let mut requests = OutstandingReads::default();
        for (start, response) in [(2, ResponseKind::Empty), (3, ResponseKind::Atomic)] {
            requests.push(ReadRequest { start, end: start + 1, response, is_split: false });
        }
        assert_eq!(requests.first_missing(2), Some(3));
        assert_eq!(requests.with_data_from(2).map(|it| it.start).collect::<Vec<_>>(), [3]);
        assert_eq!(requests.outstanding(4), 2);
    }

    #[test]
    fn a_partial_response_leaves_the_request_in_place_but_not_outstanding_after_a_retransmission() {
        let mut requests = requests();
        assert_eq!(requests.outstanding(8), 2);
        requests.settle(3);
        assert_eq!(requests.first_missing(3), Some(3));
        assert_eq!(requests.outstanding(3), 0);
        requests.settle(5);
        assert_eq!(requests.first_missing(5), Some(7));
    }
}
