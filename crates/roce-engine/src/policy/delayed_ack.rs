//! Delays ACKs of an application that busy-polls.

use std::time::Duration;

use roce_transport::Instant;

use super::expected_reply::ExpectedReply;
use super::guess::Guess;

/// Longest time between two polls of a program that does little else.
const MAX_FAST_POLL_GAP: Duration = Duration::from_micros(20);
/// Longest absence of a polling program that is not counted against it: interrupts and other
/// programs take a processor for that long now and then.
const GRACE: Duration = Duration::from_micros(200);
/// Consecutive fast polls, at first, of a program that does nothing else.
const MIN_REQUIRED_POLLS: u32 = 16;
/// Most such polls: some 60 ms of polling.
const MAX_REQUIRED_POLLS: u32 = 1 << 20;
/// Longest wait for the peer's next message.
const MAX_IDLE: Duration = Duration::from_micros(30);
/// Time after which the next reply releases an ACK: far below the probe timeout of a peer.
const MAX_DELAY: Duration = Duration::from_micros(120);
/// Longest wait of the driver thread for a reply.
const MAX_REPLY_WAIT: Duration = Duration::from_micros(200);
/// Longest wait for the response to a request of the program, behind which it replies.
const MAX_RESPONSE_WAIT: Duration = Duration::from_micros(30);

/// Decides when an ACK can wait.
///
/// An ACK costs both ends a frame, and a program that polls has most likely waited for the message
/// and is about to reply. The policy makes three guesses, and backs off exponentially when one is
/// wrong:
///
/// 1. *A program that polls in a tight loop polls again at once.* So the ACK leaves with its next
///    poll, behind the reply if there is one. If that poll finds responses of the peer, a request of
///    the program completes, and the ACK waits once more. If the program goes away instead, the driver thread
///    sends the ACK only milliseconds later, so the policy then requires twice as many fast polls.
/// 2. *A peer that got a reply at once sends its next message soon.* As long as message and reply
///    alternate, one ACK serves several messages, and leaves in one batch with a reply, behind it.
///    A peer that sends nothing may be waiting for the ACK (programs may wait for the completion of
///    a request before they poll for a reply). It gets its ACKs straight behind the replies for a
///    number of exchanges, which doubles each time.
/// 3. *A program that polls for the completion of its own request replies when it has it.* So the ACK
///    of a message that only its memory shows waits for that response, and leaves behind the reply. `ib_write_lat` polls like this and then
///    reads its memory, without a call: if the ACK came alone, each end would leave the polls before
///    the reply is there, and a driver thread, which has to be woken, would receive it. Two ends that
///    send at the same time wait for each other's ACK, until the policy gives this guess up for a
///    number of exchanges. [`SilentReply`](super::silent_reply::SilentReply) serves the same program at
///    the other end of its connection; without this guess it has to hold a completion far more often.
///
/// A program that does not poll, but answers what the driver thread receives, has its ACKs delayed by
/// [`ExpectedReply`]. That of a message without a completion leaves behind the reply. That of another
/// leaves in front of it, in the same batch: a peer with one completion queue then finds the completion
/// of its request before the reply to it, as network cards have it, and some programs rely on that
/// order (an iSER target fails its initiator's login otherwise). So does that of what a poll of a queue
/// with a channel receives, whose program may sleep at any time. `ibv_rc_pingpong -e` took 11.1 µs an
/// exchange with ACKs behind and 11.4 with ACKs in front, less than its spread.
///
/// No ACK waits for the driver thread's program if a completion queue is armed whose channel serves
/// several queues: a program with one channel for both its queues may take the report of a reply for
/// that of its send, as `ib_send_lat -e` does, and its peer has most likely the same program. With one
/// queue there is nothing to mistake, and an ACK that leaves when the message comes makes a round trip
/// 28 µs instead of 16.
///
/// An ACK that leaves behind a reply of one packet goes in the same train with it, where the device sends
/// trains ([`Endpoint::join_acks`](roce_transport::Endpoint::join_acks)): the peer of `ib_write_lat` needs both
/// before it goes on.
///
/// An 8-byte ping-pong between two namespaces took 3.4 µs half a round trip without any, 2.3
/// with the first, and 1.9 with the first two. That of `ib_write_lat` took 37 µs without the third, and
/// took 5.5 in most runs with it; on another day, it took 3.8 with an ACK in a frame of its own, and 2.8 in the
/// train of the reply.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    last_poll: Instant,
    /// Consecutive fast polls.
    fast_polls: u32,
    /// Fast polls after which an ACK is delayed.
    required_polls: u32,
    /// The delayed ACK, if there is one.
    delayed: Option<Delayed>,
    /// The peer sends its next message soon.
    next_message: Guess,
    /// The program replies when its own request completes.
    reply_to_response: Guess,
    expected_reply: ExpectedReply,
    /// The program has sent a message, and no response of the peer has come since.
    awaits_response: bool,
}

/// What a round has received, besides retransmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing.
    Nothing,
    /// ACKs and other responses.
    Responses,
    /// Messages that require an ACK.
    Messages {
        /// Responses came beside them.
        has_responses: bool,
        /// None of them has used up a receive: the program finds them in its memory alone.
        are_silent: bool,
    },
}

/// What becomes of delayed ACKs when the application sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckRelease {
    /// They stay delayed, or there are none.
    None,
    /// They leave in front of what the application sends.
    InFront,
    /// They leave straight behind it.
    Behind,
}

#[derive(Clone, Copy, Debug)]
struct Delayed {
    since: Instant,
    /// The driver thread has received the message, and waits for a reply.
    is_by_driver: bool,
    /// The last messages to arrive use up no receive.
    is_silent: bool,
    /// Time of the last arrival.
    arrival: Instant,
    /// The application has sent a message since.
    is_replied: bool,
    /// Where it leaves when the program replies.
    on_reply: AckRelease,
    /// [`MAX_DELAY`] is over: the next reply releases the ACK.
    is_last: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self {
            last_poll: Instant::default(),
            fast_polls: 0,
            required_polls: MIN_REQUIRED_POLLS,
            delayed: None,
            next_message: Guess::default(),
            reply_to_response: Guess::default(),
            expected_reply: ExpectedReply::default(),
            awaits_response: false,
        }
    }
}

impl Delayed {
    #[inline]
    fn new(since: Instant, is_by_driver: bool) -> Self {
        Self {
            since,
            is_by_driver,
            is_silent: false,
            on_reply: AckRelease::Behind,
            arrival: since,
            is_replied: false,
            is_last: false,
        }
    }

    /// Returns when it leaves if the application does not call before.
    #[inline]
    fn due(&self) -> Instant {
        self.since + if self.is_by_driver { MAX_REPLY_WAIT } else { MAX_DELAY }
    }
}

impl DelayedAck {
    /// Notes a poll at `now`, what has arrived that it may have waited for, and whether its caller may
    /// sleep on a channel instead. Returns true if ACKs are to be delayed until the next poll.
    #[inline]
    pub(crate) fn on_poll(&mut self, now: Instant, received: Received, may_sleep: bool) -> bool {
        self.note_poll(now);
        let (has_arrived, has_responses, is_silent) = match received {
            Received::Nothing => (false, false, false),
            Received::Responses => (false, true, false),
            Received::Messages { has_responses, are_silent } => (true, has_responses, are_silent),
        };
        self.awaits_response &= !has_responses;
        let before = self.delayed.take();
        self.delayed = match before {
            None if has_arrived && self.fast_polls >= self.required_polls => {
                self.next_message.on_exchange();
                self.reply_to_response.on_exchange();
                Some(Delayed { is_silent, ..Delayed::new(now, false) })
            }
            Some(it) if !it.is_replied && has_responses => {
                (now.saturating_since(it.arrival) < MAX_IDLE).then_some(it)
            }
            Some(it)
                if it.is_silent
                    && !it.is_replied
                    && self.awaits_response
                    && self.reply_to_response.is_made() =>
            {
                let is_late = now.saturating_since(it.arrival) >= MAX_RESPONSE_WAIT;
                if is_late {
                    self.reply_to_response.on_wrong();
                }
                (!is_late).then_some(it)
            }
            Some(it) if it.is_replied && self.next_message.is_made() => {
                if has_arrived {
                    // The peer did not wait for the ACK.
                    self.next_message.on_right();
                    let is_last = now.saturating_since(it.since) >= MAX_DELAY;
                    Some(Delayed { arrival: now, is_replied: false, is_last, is_silent, ..it })
                } else if now.saturating_since(it.arrival) < MAX_IDLE {
                    Some(it)
                } else {
                    self.next_message.on_wrong();
                    None
                }
            }
            _ => None,
        };
        if has_arrived
            && !is_silent
            && may_sleep
            && let Some(delayed) = &mut self.delayed
        {
            delayed.on_reply = AckRelease::InFront;
        }
        self.delayed.is_some()
    }

    /// Returns true if the driver thread would delay the ACK of the next message.
    #[inline]
    pub(crate) fn expects_reply(&self) -> bool {
        self.expected_reply.is_expected()
    }

    /// Notes a round of the driver thread at `now`, what has arrived, and whether its ACKs may be
    /// delayed. Returns true if they are, until the program replies.
    pub(crate) fn on_driver_round(
        &mut self,
        now: Instant,
        received: Received,
        may_delay: bool,
    ) -> bool {
        let (has_arrived, is_silent) = match received {
            Received::Messages { are_silent, .. } => (true, are_silent),
            _ => (false, false),
        };
        let before = self.delayed.take();
        match before {
            Some(it) if it.is_by_driver && now >= it.due() => self.expected_reply.on_omission(),
            // The thread may run for another reason.
            Some(it) if now < it.due() && !has_arrived => self.delayed = Some(it),
            _ => {}
        }
        if has_arrived && self.expected_reply.on_arrival() && may_delay {
            // A repetition uses up no receive: the message that a poll has received before may have.
            let is_silent = is_silent && before.is_none_or(|it| it.on_reply == AckRelease::Behind);
            let on_reply = if is_silent { AckRelease::Behind } else { AckRelease::InFront };
            self.delayed = Some(Delayed { is_silent, on_reply, ..Delayed::new(now, true) });
        }
        self.delayed.is_some()
    }

    /// Notes that the application sends.
    #[inline]
    pub(crate) fn on_send(&mut self) -> AckRelease {
        self.expected_reply.on_send();
        self.awaits_response = true;
        let Some(delayed) = &mut self.delayed else { return AckRelease::None };
        delayed.is_replied = true;
        if !delayed.is_by_driver {
            self.reply_to_response.on_right();
        }
        let on_reply = delayed.on_reply;
        let leaves = delayed.is_by_driver
            || delayed.is_last
            || on_reply == AckRelease::InFront
            || !self.next_message.is_made();
        if !leaves {
            return AckRelease::None;
        }
        self.delayed = None;
        on_reply
    }

    /// Returns when a delayed ACK is due if the application does not call before.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.delayed.map(|delayed| delayed.due())
    }

    /// Notes that ACKs are not delayed any longer.
    #[inline]
    pub(crate) fn on_flush(&mut self) {
        self.delayed = None;
    }

    #[inline]
    fn note_poll(&mut self, now: Instant) {
        let away = now.saturating_since(self.last_poll);
        self.last_poll = now;
        if away < MAX_FAST_POLL_GAP {
            self.fast_polls = self.fast_polls.saturating_add(1);
            if self.fast_polls / 64 >= self.required_polls {
                // So many fast polls make up for an earlier absence.
                self.required_polls = (self.required_polls / 2).max(MIN_REQUIRED_POLLS);
                self.fast_polls = self.required_polls;
            }
            return;
        }
        // Interrupts and other threads take a processor for some µs now and then.
        self.fast_polls = if away > GRACE { 0 } else { self.fast_polls / 2 };
        if self.delayed.is_some() && away > GRACE {
            self.required_polls = (self.required_polls * 2).min(MAX_REQUIRED_POLLS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with a completion, and one without.
    const REPORTED: Received = Received::Messages { has_responses: false, are_silent: false };
    const SILENT: Received = Received::Messages { has_responses: false, are_silent: true };

    /// A policy in virtual time.
    struct Script {
        delayed_ack: DelayedAck,
        now: Instant,
    }

    impl Script {
        fn new() -> Self {
            Self { delayed_ack: DelayedAck::default(), now: Instant::from_nanos(1_000_000) }
        }

        fn after(&mut self, micros: u64) -> &mut DelayedAck {
            self.now += Duration::from_micros(micros);
            &mut self.delayed_ack
        }

        fn poll(&mut self, has_arrived: bool) -> bool {
            self.receive(if has_arrived { REPORTED } else { Received::Nothing })
        }

        fn receive(&mut self, received: Received) -> bool {
            let now = self.now + Duration::from_micros(1);
            self.after(1).on_poll(now, received, false)
        }

        /// A round of the driver thread.
        fn drive(&mut self, received: Received) -> bool {
            self.delayed_ack.on_driver_round(self.now, received, true)
        }

        /// Messages that the program answers, until it is expected to answer the next one.
        fn replies_until_expected(&mut self) {
            for _ in 0..10 {
                self.after(100);
                let _learning = self.drive(REPORTED);
                self.after(1).on_send();
            }
            self.after(100);
        }

        /// Polls every microsecond until an ACK would be delayed; returns the number of polls.
        fn polls_until_trusted(&mut self) -> u32 {
            let polls = (1..2 * MAX_REQUIRED_POLLS).find(|_| {
                self.poll(false);
                self.delayed_ack.fast_polls >= self.delayed_ack.required_polls
            });
            polls.unwrap_or(u32::MAX)
        }
    }

    #[test]
    fn no_ack_is_delayed_for_a_program_that_polls_now_and_then() {
        let mut script = Script::new();
        for _ in 0..1000 {
            script.after(30);
            assert!(!script.poll(true));
        }
    }

    #[test]
    fn without_a_reply_the_next_poll_releases_the_ack() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        assert!(!script.poll(false));
    }

    #[test]
    fn while_message_and_reply_alternate_an_ack_is_delayed_for_its_longest_time() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        let since = script.now;
        for _ in 0..100 {
            let is_released = script.delayed_ack.on_send() == AckRelease::Behind;
            assert_eq!(is_released, script.now.saturating_since(since) >= MAX_DELAY);
            if is_released {
                assert!(!script.poll(false));
                return;
            }
            assert!(script.poll(false) && script.poll(false) && script.poll(true));
        }
        panic!("held for ever");
    }

    #[test]
    fn an_ack_that_has_waited_its_longest_time_leaves_at_the_next_poll_without_a_reply() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        let since = script.now;
        while script.now.saturating_since(since) < MAX_DELAY {
            assert_eq!(script.delayed_ack.on_send(), AckRelease::None);
            assert!(script.poll(true));
        }
        assert!(!script.poll(false));
    }

    #[test]
    fn a_peer_that_waits_for_acks_is_delayed_few_times() {
        let mut script = Script::new();
        let mut held_up = 0;
        for _ in 0..1000 {
            script.polls_until_trusted();
            assert!(script.poll(true));
            script.delayed_ack.on_send();
            let polls = (1..=100).find(|_| !script.poll(false)).unwrap();
            assert!(polls as u128 <= MAX_IDLE.as_micros());
            held_up += u32::from(polls > 1);
        }
        assert!((1..=18).contains(&held_up), "{held_up}");
    }

    #[test]
    fn a_program_that_goes_away_with_a_delayed_ack_has_to_poll_twice_as_long_each_time() {
        let mut script = Script::new();
        let mut before = script.polls_until_trusted();
        for _ in 0..30 {
            assert!(script.poll(true));
            script.after(10_000);
            assert!(!script.poll(false));
            let polls = script.polls_until_trusted();
            assert!(polls >= (2 * before).min(MAX_REQUIRED_POLLS) - 2, "{before} {polls}");
            before = polls;
        }
        assert!(before >= MAX_REQUIRED_POLLS);
    }

    #[test]
    fn a_program_that_polls_for_long_without_going_away_has_its_acks_delayed_again() {
        let mut script = Script::new();
        for _ in 0..3 {
            script.polls_until_trusted();
            assert!(script.poll(true));
            script.after(10_000);
            script.poll(false);
        }
        (0..1_000_000).for_each(|_| assert!(!script.poll(false)));
        assert_eq!(script.delayed_ack.required_polls, MIN_REQUIRED_POLLS);
    }

    #[test]
    fn responses_that_come_before_the_reply_do_not_release_the_ack() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        assert!(script.receive(Received::Responses), "the program replies next");
        assert!(!script.poll(false), "it does not");
        assert!(script.poll(true));
        let held_for = (0..100).take_while(|_| script.receive(Received::Responses)).count();
        assert!(held_for as u128 <= MAX_IDLE.as_micros(), "{held_for}");
    }

    #[test]
    fn the_ack_of_a_message_without_a_completion_waits_for_the_response_to_the_programs_own_request()
     {
        let mut script = Script::new();
        script.polls_until_trusted();
        script.delayed_ack.on_send();
        assert!(script.receive(SILENT));
        assert!((0..20).all(|_| script.poll(false)), "its own request is under way");
        assert!(script.drive(Received::Nothing), "also for the driver thread");
        assert!(script.receive(Received::Responses), "the program replies next");
        script.delayed_ack.on_send();
        assert!(script.receive(SILENT));
        assert!(script.receive(Received::Responses));
        assert!(!script.poll(false), "it does not");

        script.delayed_ack.on_send();
        assert!(script.poll(true));
        assert!(!script.poll(false), "a message with a completion is no such message");
    }

    #[test]
    fn ends_that_send_at_the_same_time_wait_for_each_others_ack_few_times() {
        let mut script = Script::new();
        let mut held_up = 0;
        for _ in 0..1000 {
            script.polls_until_trusted();
            script.delayed_ack.on_send();
            assert!(script.receive(SILENT));
            let polls = (1..=100).find(|_| !script.poll(false)).unwrap();
            assert!(polls as u128 <= MAX_RESPONSE_WAIT.as_micros() + 1);
            held_up += u32::from(polls > 1);
            script.receive(Received::Responses);
        }
        assert!((1..=18).contains(&held_up), "{held_up}");
    }

    #[test]
    fn a_program_that_polls_on_after_a_short_absence_is_trusted_as_before() {
        let mut script = Script::new();
        (0..1000).for_each(|_| _ = script.poll(false));
        for _ in 0..4 {
            script.after(100);
            assert!(script.poll(true) && !script.poll(false));
        }
        script.after(1000);
        assert!(!script.poll(true), "a long absence");
    }

    #[test]
    fn what_the_driver_thread_receives_is_acknowledged_beside_the_reply_of_a_program_that_replies()
    {
        // The program has seen a completion, or its memory alone.
        for (received, place) in [(REPORTED, AckRelease::InFront), (SILENT, AckRelease::Behind)] {
            let mut script = Script::new();
            script.replies_until_expected();
            assert!(script.drive(received));
            script.after(10);
            assert!(script.drive(Received::Nothing), "the thread may run for another reason");
            assert_eq!(script.after(1).on_send(), place);
            assert_eq!(script.delayed_ack.due(), None);
        }
    }

    #[test]
    fn what_a_poll_of_a_queue_with_a_channel_receives_is_acknowledged_in_front_of_the_reply() {
        let mut script = Script::new();
        script.polls_until_trusted();
        for _ in 0..100 {
            let now = script.now;
            assert!(script.after(1).on_poll(now, REPORTED, true));
            assert_eq!(script.after(1).on_send(), AckRelease::InFront);
            assert_eq!(script.delayed_ack.due(), None);
        }
        let now = script.now;
        assert!(script.after(1).on_poll(now, SILENT, true));
        assert_ne!(script.after(1).on_send(), AckRelease::InFront);
    }

    #[test]
    fn a_repetition_that_the_driver_thread_receives_leaves_the_ack_of_the_message_in_front() {
        let mut script = Script::new();
        script.replies_until_expected();
        script.polls_until_trusted();
        let now = script.now;
        assert!(script.after(1).on_poll(now, REPORTED, true));
        assert!(script.drive(SILENT));
        assert_eq!(script.after(1).on_send(), AckRelease::InFront);
    }

    #[test]
    fn a_program_that_sleeps_on_a_channel_has_its_acks_sent_at_once_however_often_it_replies() {
        let mut script = Script::new();
        for _ in 0..100 {
            script.after(100);
            assert!(!script.delayed_ack.on_driver_round(script.now, REPORTED, false));
            assert_eq!(script.after(1).on_send(), AckRelease::None, "no ACK is left");
        }
        assert!(script.delayed_ack.expects_reply(), "it would be delayed otherwise");
    }

    #[test]
    fn an_ack_that_the_driver_thread_delays_leaves_in_time_without_a_reply_and_is_not_delayed_again()
     {
        let mut script = Script::new();
        script.replies_until_expected();
        assert!(script.drive(REPORTED));
        let due = script.delayed_ack.due().unwrap();
        assert_eq!(due, script.now + MAX_REPLY_WAIT);
        script.now = due;
        assert!(!script.drive(Received::Nothing));
        script.after(100);
        assert!(!script.drive(REPORTED));
    }
}
