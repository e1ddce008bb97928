//! READs and atomics asked for: which answers are outstanding, and in which pieces.

use std::collections::VecDeque;

/// A READ request or atomic as it was first sent: the sequence numbers of its answers.
///
/// A long READ leaves as several requests, so that its answers do not overrun our own
/// receive queue. What was asked for in one piece is asked for again within that piece: a
/// responder remembers it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_atomic: bool,
}

/// Every request whose answers are not all here, oldest first; those behind the requester's
/// `next` were sent once and will be again.
#[derive(Debug, Default)]
pub(crate) struct OutstandingReads(VecDeque<ReadRequest>);

impl OutstandingReads {
    /// Remembers a request that is sent for the first time; the sequence goes up.
    pub(crate) fn push(&mut self, request: ReadRequest) {
        self.0.push_back(request);
    }

    /// The request that brings the answer `seq`.
    pub(crate) fn find(&self, seq: u64) -> Option<ReadRequest> {
        let index = self.0.partition_point(|it| it.end <= seq);
        self.0.get(index).filter(|it| it.start <= seq).copied()
    }

    /// The oldest answer that is missing, where everything before `oldest` is settled.
    pub(crate) fn first_missing(&self, unacked: u64) -> Option<u64> {
        self.0.front().map(|it| it.start.max(unacked))
    }

    /// How many have been sent, counting from the last time we went back, up to `next`.
    pub(crate) fn outstanding(&self, next: u64) -> usize {
        self.0.partition_point(|it| it.end <= next)
    }

    /// Everything before `oldest` is settled.
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
        requests.push(ReadRequest { start: 2, end: 5, is_atomic: false });
        requests.push(ReadRequest { start: 7, end: 8, is_atomic: true });
        requests
    }

    #[test]
    fn an_answer_belongs_to_the_request_that_asked_for_it_or_to_none() {
        let requests = requests();
        assert_eq!(requests.find(1), None);
        assert_eq!(requests.find(4).map(|it| it.start), Some(2));
        assert_eq!(requests.find(5), None);
        assert_eq!(requests.find(7).map(|it| it.is_atomic), Some(true));
        assert_eq!(requests.find(8), None);
    }

    #[test]
    fn half_an_answer_leaves_the_request_open_but_not_outstanding_after_going_back() {
        let mut requests = requests();
        assert_eq!(requests.outstanding(8), 2);
        requests.settle(3);
        assert_eq!(requests.first_missing(3), Some(3));
        assert_eq!(requests.outstanding(3), 0);
        requests.settle(5);
        assert_eq!(requests.first_missing(5), Some(7));
    }
}
