//! Decides which packets carry AckReq.

use super::Requester;
use crate::qp::context::QpContext;
use crate::qp::send_queue::SendEntry;
use crate::rc::send_state::SendState;

/// Number of packets in a row of which at least one carries AckReq.
const ACK_REQ_INTERVAL: u32 = 128;

/// AckReq bits in a window's worth of packets, while one queue pair's trains follow each other.
///
/// With one for each train WRITEs of 1 MiB go 4 % slower at path MTU 4096. With 8 as fast, but then
/// a message of 128 KiB has one in its middle, which takes 3 % off an allreduce of 256 KiB. Where
/// queue pairs take turns each train has one: its ACK shows that the peer admits the next train.
const ACK_REQUESTS_PER_WINDOW: u32 = 4;

/// Decides for each packet of a train whether it carries AckReq.
///
/// A packet carries it
/// - if it is a READ request or an atomic,
/// - at the end of a message, unless the request defers its ACK,
/// - in the middle of the window, so that the window moves on before it is used up,
/// - at the end of the window, since nothing is sent before the ACK,
/// - if it is the first after a retransmission, or a probe,
/// - at the end of a train, if the peer window wants an ACK or another queue pair is next.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckPolicy {
    /// Packets sent since the last one that carried AckReq.
    since_ack_req: u32,
    /// The packet that would make `since_ack_req` this number carries AckReq.
    max_since: u32,
    /// First sequence number behind the window.
    window_end: u64,
    /// Packet whose ACK shows that the peer is alive, after a retransmission.
    first_retransmitted: Option<u64>,
    /// The peer window needs an ACK to one of the next packets.
    peer_wants_ack: bool,
}

impl Requester {
    /// Returns the policy for the train that is sent next.
    #[inline]
    pub(super) fn ack_policy(&self, peer_wants_ack: bool) -> AckPolicy {
        let (send, window) = (&self.send, self.window());
        AckPolicy {
            since_ack_req: send.since_ack_req(),
            max_since: (window / 2).min(ACK_REQ_INTERVAL),
            // Pacing may end the train before the window does.
            window_end: (send.unacked() + u64::from(window)).min(self.limit.train_end()),
            first_retransmitted: self.recovery.is_retransmitting().then_some(send.unacked()),
            peer_wants_ack,
        }
    }
}

impl AckPolicy {
    /// Each packet carries AckReq.
    pub(super) const ALWAYS: Self = Self {
        since_ack_req: 0,
        max_since: 0,
        window_end: u64::MAX,
        first_retransmitted: None,
        peer_wants_ack: true,
    };

    /// Returns true if packet `seq`, which ends no message, carries AckReq.
    #[inline]
    pub(super) fn requests_inside(&mut self, seq: u64) -> bool {
        let requests = self.must_request(seq);
        self.note(requests)
    }

    /// Returns true if packet `seq`, of a SEND or WRITE, carries AckReq.
    #[inline]
    pub(super) fn requests(
        &mut self,
        seq: u64,
        entry: &SendEntry<'_>,
        send: &SendState,
        qp: &QpContext,
    ) -> bool {
        let is_last = seq + 1 == entry.end();
        let requests = self.must_request(seq)
            || (is_last && !may_defer_ack(send, self.since_ack_req + 1, seq, entry, qp));
        self.note(requests)
    }

    /// Returns true if the packet that is a train of its own, and a whole message, carries AckReq.
    #[inline]
    pub(super) fn requests_single(
        &mut self,
        seq: u64,
        entry: &SendEntry<'_>,
        send: &SendState,
        qp: &QpContext,
    ) -> bool {
        let requests = self.requests(seq, entry, send, qp) || self.peer_wants_ack;
        self.note_train_end(requests);
        requests
    }

    /// Returns true: a READ request or an atomic draws a response, as AckReq does.
    pub(super) fn requests_response(&mut self) -> bool {
        self.note(true)
    }

    /// Returns true if the last of `packets` packets, which end a train, carries AckReq even if it
    /// would not inside the train. `continues`: the next train is of the same queue pair and of the
    /// same messages. `window` packets may be in flight now.
    pub(super) fn requests_at_train_end(
        &mut self,
        packets: usize,
        continues: bool,
        window: u32,
        send: &SendState,
    ) -> bool {
        let limit = window / ACK_REQUESTS_PER_WINDOW;
        let may_wait = (continues && self.since_ack_req < limit) || send.defers_ack();
        let requests = packets > 0 && (self.peer_wants_ack || (packets > 1 && !may_wait));
        self.note_train_end(requests);
        requests
    }

    /// First sequence number behind the window.
    pub(super) const fn window_end(&self) -> u64 {
        self.window_end
    }

    /// Packets sent since the last one that carried AckReq.
    pub(super) const fn since_ack_req(&self) -> u32 {
        self.since_ack_req
    }

    //= rule rc-ack-request: InfiniBand, clause not known; rxe_req.c: init_req_packet
    //# The last packet of a message carries AckReq, unless the application defers it, and so do
    //# some before it.
    #[inline]
    fn must_request(&self, seq: u64) -> bool {
        self.since_ack_req + 1 >= self.max_since
            || seq + 1 >= self.window_end
            || self.first_retransmitted == Some(seq)
    }

    #[inline]
    fn note(&mut self, requests: bool) -> bool {
        self.since_ack_req = if requests { 0 } else { self.since_ack_req + 1 };
        requests
    }

    #[inline]
    fn note_train_end(&mut self, requests: bool) {
        if requests {
            self.since_ack_req = 0;
        }
    }
}

/// Returns true if the application does not wait for the ACK of this request, and neither send
/// queue nor the peer's receives run short without it. `since_ack_req` counts packet `seq`.
fn may_defer_ack(
    send: &SendState,
    since_ack_req: u32,
    seq: u64,
    entry: &SendEntry<'_>,
    qp: &QpContext,
) -> bool {
    let is_new_message = seq == entry.first;
    entry.work.defer_ack
        && !entry.work.signaled
        // Without a timer nothing would request an ACK later.
        && qp.params.ack_timeout.is_some()
        && !qp.init.signal_all
        // Requested in the middle, the ACK comes before the queue is full.
        && since_ack_req < qp.init.cap.max_send_wr / 2
        && (!entry.work.operation.takes_receive()
            || send.credits_left(is_new_message).is_none_or(|left| since_ack_req < left))
}
