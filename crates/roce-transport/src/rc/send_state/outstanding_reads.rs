//! READ requests and atomics whose responses are outstanding.

use std::collections::VecDeque;

/// The sequence numbers of the responses to a READ request or atomic, as it was first sent.
///
/// A long READ is sent as several requests, so that its responses do not overrun our own receive
/// ring. A request is repeated within its first limits, since responders compare it with what they
/// keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_atomic: bool,
    /// A part of it was requested again that ends before it.
    pub(crate) is_split: bool,
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

    /// A part of the request was requested again from `seq` on.
    pub(crate) fn note_split(&mut self, seq: u64) {
        let index = self.0.partition_point(|it| it.end <= seq);
        if let Some(request) = self.0.get_mut(index) {
            request.is_split = true;
        }
    }

    /// The oldest missing response, where everything before `unacked` has arrived.
    pub(crate) fn first_missing(&self, unacked: u64) -> Option<u64> {
        self.0.front().map(|it| it.start.max(unacked))
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
        requests.push(ReadRequest { start: 2, end: 5, is_atomic: false, is_split: false });
        requests.push(ReadRequest { start: 7, end: 8, is_atomic: true, is_split: false });
        requests
    }

    #[test]
    fn a_response_belongs_to_the_request_that_it_answers_or_to_none() {
        let requests = requests();
        assert_eq!(requests.find(1), None);
        assert_eq!(requests.find(4).map(|it| it.start), Some(2));
        assert_eq!(requests.find(5), None);
        assert_eq!(requests.find(7).map(|it| it.is_atomic), Some(true));
        assert_eq!(requests.find(8), None);
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
