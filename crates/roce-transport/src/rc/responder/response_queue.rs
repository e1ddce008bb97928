//! Responses that wait to be sent, in the order in which the peer must see them.

use alloc::collections::VecDeque;

use roce_wire::{NakCode, Psn, Reth, RnrTimer};

/// A response that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Response {
    /// Everything up to this PSN is executed.
    Ack { psn: Psn },
    /// The packet cannot be executed, or is missing.
    Nak { psn: Psn, code: NakCode },
    /// No receive is posted.
    Rnr { psn: Psn, timer: RnrTimer },
    /// There are gaps behind this PSN. Always the last: it goes beside an ACK or NAK, never instead.
    GapReport { psn: Psn },
    /// The bytes of a READ.
    Read(ReadResponse),
    /// The word of an atomic before its execution.
    Atomic { psn: Psn, original: u64, is_replay: bool },
    /// Nothing, in response to a FLUSH or ATOMIC WRITE.
    Empty { psn: Psn, is_replay: bool },
}

/// The response to a READ request, as far as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadResponse {
    /// First PSN of its responder resource.
    pub(crate) resource: Psn,
    /// PSN of the first packet of this response.
    pub(crate) first: Psn,
    pub(crate) packets: u32,
    pub(crate) sent: u32,
    pub(crate) reth: Reth,
    /// The peer has repeated the request.
    pub(crate) is_replay: bool,
}

/// Maximum repeated responses to parts of a READ that wait to be sent. A request for more is dropped.
const MAX_REPLAYS: u32 = 16;

/// Maximum responses that wait to be sent when a FLUSH is executed. It is more than requests that a
/// requester has in flight while it waits for the first of their responses.
const MAX_FLUSHES: usize = 1024;

impl ReadResponse {
    /// The PSN of the next packet, and that behind the last.
    fn rest(&self) -> (Psn, Psn) {
        (self.first.advanced_by(self.sent), self.first.advanced_by(self.packets))
    }

    /// Returns true if all of `other` is still to be sent as a part of this response.
    fn will_send(&self, other: &Self) -> bool {
        let ((next, end), (start, other_end)) = (self.rest(), other.rest());
        start.distance_from(next) >= 0 && end.distance_from(other_end) >= 0
    }

    /// Returns true if this response has all that is left of `other`, and was requested instead of it:
    /// both end with the same packet.
    fn will_send_rest_of(&self, other: &Self) -> bool {
        let ((start, end), (next, other_end)) = (self.rest(), other.rest());
        next.distance_from(start) >= 0 && end == other_end
    }
}

impl Response {
    /// The PSN of its last packet.
    fn last_psn(&self) -> Psn {
        match *self {
            Self::Ack { psn }
            | Self::Nak { psn, .. }
            | Self::Rnr { psn, .. }
            | Self::GapReport { psn }
            | Self::Atomic { psn, .. }
            | Self::Empty { psn, .. } => psn,
            Self::Read(read) => read.first.advanced_by(read.packets - 1),
        }
    }

    /// Returns true if no report follows: the expected packet is refused.
    const fn is_last_word(&self) -> bool {
        match self {
            Self::Rnr { .. } => true,
            Self::Nak { code, .. } => !matches!(code, NakCode::PsnSequence),
            _ => false,
        }
    }

    /// First PSN of the responder resource that it uses.
    fn resource(&self) -> Option<Psn> {
        match *self {
            Self::Read(read) => Some(read.resource),
            Self::Atomic { psn, .. } | Self::Empty { psn, .. } => Some(psn),
            _ => None,
        }
    }
}

/// Responses in the order of their PSNs.
///
/// Bounded by the responder resources: at most one response to each READ and atomic, and
/// [`MAX_REPLAYS`] to parts of it, at most one ACK between two of them, one NAK and one gap report
/// at the end. FLUSH needs no responder resource: beyond [`MAX_FLUSHES`] responses none is executed.
#[derive(Debug, Default)]
pub(crate) struct ResponseQueue(VecDeque<Response>);

impl ResponseQueue {
    /// Acknowledges everything up to `psn`. Returns true if a response that already waits does so.
    //= rule rc-acks-joined: InfiniBand 9.7.5.1.2
    //# One ACK acknowledges all requests up to its PSN: acknowledgements that wait in a row leave
    //# as the last of them.
    pub(crate) fn acknowledge(&mut self, psn: Psn) -> bool {
        match self.0.back_mut() {
            Some(Response::Ack { psn: waiting }) => {
                if psn.distance_from(*waiting) > 0 {
                    *waiting = psn;
                }
                true
            }
            Some(Response::Nak { .. } | Response::Rnr { .. }) => true,
            Some(Response::GapReport { .. }) => self.before_report(|queue| queue.acknowledge(psn)),
            // The response to a later packet acknowledges this one too.
            Some(last) if last.last_psn().distance_from(psn) > 0 => true,
            _ => {
                self.0.push_back(Response::Ack { psn });
                false
            }
        }
    }

    /// Adds a response to what was just executed, or a NAK. Returns true if it replaces an ACK: what the
    /// peer must see first acknowledges as much.
    pub(crate) fn push(&mut self, response: Response) -> bool {
        match self.0.back() {
            Some(Response::Ack { .. }) => {
                self.0.pop_back();
                self.0.push_back(response);
                true
            }
            Some(Response::GapReport { .. }) => {
                let report = self.0.pop_back();
                let merges = self.push(response);
                self.0.extend(report.filter(|_| !response.is_last_word()));
                merges
            }
            _ => {
                self.0.push_back(response);
                false
            }
        }
    }

    /// Reports the gaps behind `psn`, up to which everything is executed.
    pub(crate) fn report_gaps(&mut self, psn: Psn) {
        match self.0.back_mut() {
            Some(last) if last.is_last_word() => {}
            Some(Response::GapReport { psn: waiting }) => *waiting = psn,
            _ => self.0.push_back(Response::GapReport { psn }),
        }
    }

    /// Changes what waits before the gap report at the end.
    #[cold]
    #[inline(never)]
    fn before_report<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let report = self.0.pop_back();
        let result = change(self);
        self.0.extend(report);
        result
    }

    /// Adds a response to what was executed before, in the order of PSNs: a requester repeats all
    /// later requests too, and their responses must follow this one.
    //= rule rc-response-order: InfiniBand 9.7.5
    //# Responses leave in the order of the PSNs of their requests.
    pub(crate) fn insert_replay(&mut self, response: Response) {
        if matches!(self.0.back(), Some(Response::GapReport { .. })) {
            return self.before_report(|queue| queue.insert_replay(response));
        }
        let resource = response.resource();
        let mut waiting =
            self.0.iter_mut().filter(|it| resource.is_some() && it.resource() == resource);
        if let Response::Read(again) = &response {
            let mut replays = 0;
            for old in waiting {
                let Response::Read(old) = old else { continue };
                if old.will_send(again) {
                    return;
                }
                if again.will_send_rest_of(old) {
                    *old = *again;
                    return;
                }
                replays += u32::from(old.is_replay);
            }
            if replays >= MAX_REPLAYS {
                return;
            }
        } else if waiting.next().is_some() {
            return;
        }
        let last = response.last_psn();
        let later = self.0.iter().rev().take_while(|it| it.last_psn().distance_from(last) > 0);
        let at = self.0.len() - later.count();
        self.0.insert(at, response);
    }

    /// Returns true if there is room for the response to a FLUSH.
    pub(crate) fn has_room_for_flush(&self) -> bool {
        self.0.len() < MAX_FLUSHES
    }

    /// Returns true if an ACK is all that waits.
    pub(crate) fn is_only_an_ack(&self) -> bool {
        matches!((self.0.len(), self.0.front()), (1, Some(Response::Ack { .. })))
    }

    /// Returns true if an RNR NAK waits at the end.
    pub(crate) fn has_rnr_nak(&self) -> bool {
        // No report is behind one.
        matches!(self.0.back(), Some(Response::Rnr { .. }))
    }

    /// Removes a sequence or RNR NAK at the end. Returns true if there was one.
    pub(crate) fn cancel_nak(&mut self) -> bool {
        if matches!(self.0.back(), Some(Response::GapReport { .. })) {
            return self.before_report(Self::cancel_nak);
        }
        let is_cancelled = matches!(
            self.0.back(),
            Some(Response::Nak { code: NakCode::PsnSequence, .. } | Response::Rnr { .. })
        );
        if is_cancelled {
            self.0.pop_back();
        }
        is_cancelled
    }

    /// Returns true if the first response to the request of `resource` waits to be sent.
    pub(crate) fn is_pending(&self, resource: Psn) -> bool {
        self.0.iter().any(|it| {
            it.resource() == Some(resource)
                && !matches!(
                    it,
                    Response::Read(ReadResponse { is_replay: true, .. })
                        | Response::Atomic { is_replay: true, .. }
                        | Response::Empty { is_replay: true, .. }
                )
        })
    }

    /// Removes the responses that use `resource`, which is evicted.
    pub(crate) fn remove(&mut self, resource: Psn) {
        self.0.retain(|it| it.resource() != Some(resource));
    }

    /// Takes the first response as a packet without data: an ACK up to this PSN, or a NAK of this
    /// PSN.
    pub(crate) fn take_first_ack(&mut self) -> Option<(Psn, Option<NakCode>)> {
        self.0.retain(|it| !matches!(it, Response::GapReport { .. }));
        Some(match self.0.pop_front()? {
            Response::Ack { psn } => (psn, None),
            Response::Nak { psn, code } if code != NakCode::PsnSequence => (psn, Some(code)),
            Response::Read(read) => (read.first.advanced_by(read.sent).previous(), None),
            Response::Nak { psn, .. }
            | Response::Rnr { psn, .. }
            | Response::GapReport { psn }
            | Response::Atomic { psn, .. }
            | Response::Empty { psn, .. } => (psn.previous(), None),
        })
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Response> {
        self.0.front_mut()
    }

    pub(crate) fn pop_front(&mut self) {
        self.0.pop_front();
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(raw: u32) -> Psn {
        Psn::wrapping(raw)
    }

    fn read(first: u32, packets: u32) -> Response {
        let reth = Reth { addr: 0, rkey: 0, len: 0 };
        let (resource, first) = (psn(first), psn(first));
        Response::Read(ReadResponse { resource, first, packets, sent: 0, reth, is_replay: false })
    }

    fn order(responses: &ResponseQueue) -> Vec<u32> {
        responses.0.iter().map(|it| it.last_psn().get()).collect()
    }

    //= test rc-acks-joined
    #[test]
    fn acks_in_a_row_leave_as_one_with_the_last_psn() {
        let mut responses = ResponseQueue::default();
        assert!(!responses.acknowledge(psn(0xff_ffff)));
        assert!(responses.acknowledge(psn(0)));
        assert!(responses.acknowledge(psn(0xff_ffff)), "an older one changes nothing");
        assert_eq!(order(&responses), [0]);
    }

    #[test]
    fn an_ack_of_less_leaves_a_gap_report_as_it_is() {
        let mut responses = ResponseQueue::default();
        responses.push(read(6, 3));
        responses.report_gaps(psn(8));
        assert!(responses.acknowledge(psn(5)), "of the WRITE before the READ, which came again");
        assert_eq!(order(&responses), [8, 8]);
    }

    #[test]
    fn a_response_replaces_the_ack_before_it() {
        let mut responses = ResponseQueue::default();
        responses.acknowledge(psn(5));
        assert!(responses.push(read(6, 3)));
        assert!(responses.acknowledge(psn(5)));
        responses.acknowledge(psn(9));
        assert_eq!(order(&responses), [8, 9]);
    }

    //= test rc-response-order
    #[test]
    fn the_response_to_a_repeated_read_precedes_those_to_later_requests() {
        let mut responses = ResponseQueue::default();
        responses.push(read(20, 5));
        responses.acknowledge(psn(25));
        responses.insert_replay(read(10, 3));
        responses.insert_replay(read(10, 3));
        assert_eq!(order(&responses), [12, 24, 25]);
        responses.insert_replay(read(20, 5));
        assert_eq!(order(&responses), [12, 24, 25], "it waits already");
    }

    #[test]
    fn a_read_repeated_during_its_response_starts_again() {
        let mut responses = ResponseQueue::default();
        responses.push(read(20, 5));
        let Some(Response::Read(first)) = responses.front_mut() else { panic!("a read") };
        first.sent = 3;
        assert!(responses.is_pending(psn(20)));
        responses.insert_replay(read(20, 5));
        let Some(Response::Read(first)) = responses.front_mut() else { panic!("a read") };
        assert_eq!(first.sent, 0);
    }

    #[test]
    fn one_gap_report_waits_behind_everything_else_however_often_there_is_news() {
        let mut responses = ResponseQueue::default();
        for n in 0..100 {
            responses.report_gaps(psn(30));
            responses.insert_replay(read(26, 5));
            responses.acknowledge(psn(30));
            responses.report_gaps(psn(30));
            let count = responses.0.iter().filter(|it| matches!(it, Response::GapReport { .. }));
            assert_eq!(count.count(), 1, "after {n}");
            assert!(matches!(responses.0.back(), Some(Response::GapReport { .. })));
            assert!(responses.0.len() <= 3, "{responses:?}");
        }
        responses.push(Response::Nak { psn: psn(31), code: NakCode::PsnSequence });
        assert!(matches!(responses.0.back(), Some(Response::GapReport { .. })));
        assert!(responses.cancel_nak() && !responses.cancel_nak());
        responses.push(Response::Rnr { psn: psn(31), timer: RnrTimer::DEFAULT });
        assert!(responses.has_rnr_nak(), "no report is behind it: {responses:?}");
    }
}
