//! Decides what each round holds back: ACKs, and everything else that could leave.

use std::mem;

use roce_transport::Instant;
use roce_wire::Qpn;

use super::delayed_ack::{AckRelease, DelayedAck, Received};
use super::doorbell::DoorbellCoalescing;
use super::silent_reply::SilentReply;

/// Why a round runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The application polls a completion queue.
    Poll,
    /// A polling thread is about to block: all that waits for its next poll leaves.
    Block,
    /// The application waits, or has changed an object.
    Call,
    /// A post that leaves at once. Frames that have arrived wait for the next poll.
    Post,
    /// A post of an application that has not polled for a while: frames are received too. It does not
    /// show when its caller polls.
    LongPost,
    /// Held posts leave, since their caller polls, arms or waits.
    HeldPosts,
    /// An object or the process is about to end: all that is held leaves.
    Flush,
    /// The driver thread serves a program that does not poll: ACKs may wait for its reply.
    DriverThread,
}

impl Cause {
    /// Returns true if the round receives frames.
    #[inline]
    pub(crate) fn receives(self) -> bool {
        !matches!(self, Self::Post | Self::HeldPosts | Self::Flush)
    }
}

/// What a round has received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    /// Frames.
    pub(crate) frames: usize,
    /// Messages that require an ACK.
    pub(crate) messages: usize,
    /// None of them has used up a receive.
    pub(crate) are_silent: bool,
    /// The queue pair that the latest packet came to.
    pub(crate) queue_pair: Option<Qpn>,
    /// The queue that is polled has a channel, on which the program may sleep.
    pub(crate) poller_may_sleep: bool,
}

/// What the rest of a round holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// What was held before the round still is.
    AsBefore,
    /// Nothing.
    Nothing,
    /// ACKs.
    Acks,
    /// All frames: the application most likely posts a reply at once, which leaves before the ACK.
    All,
}

/// The policies that a round asks, and what they have decided for the next one.
#[derive(Debug, Default)]
pub(crate) struct RoundPolicy {
    pub(crate) doorbells: DoorbellCoalescing,
    delayed_ack: DelayedAck,
    pub(crate) silent_reply: SilentReply,
    /// Delayed ACKs leave in front of the next packets, in the same batch.
    acks_before_send: bool,
    /// Delayed ACKs leave behind the next packets, in the same batch.
    pub(crate) acks_after_send: bool,
    /// The driver thread may delay the ACK of what it receives now.
    may_delay: bool,
    /// ACKs that were to leave beside a reply are late.
    is_overdue: bool,
}

impl RoundPolicy {
    /// Begins a round, before frames are received. Returns true if delayed ACKs leave now.
    /// `may_mistake_reports` is as in [`Consumer`](crate::Consumer).
    #[inline]
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        cause: Cause,
        may_mistake_reports: impl FnOnce() -> bool,
    ) -> bool {
        match cause {
            Cause::Post => mem::take(&mut self.acks_before_send),
            Cause::HeldPosts => {
                self.doorbells.on_round(now);
                mem::take(&mut self.acks_before_send)
            }
            Cause::Poll => {
                self.silent_reply.on_poll(now);
                self.doorbells.on_round(now);
                // The reply is held, or its batch had no space for them.
                self.take_acks_with_send()
            }
            Cause::DriverThread => {
                self.doorbells.on_driver_round(now);
                self.doorbells.on_round(now);
                self.is_overdue = self.take_acks_with_send();
                // Before what arrives disarms the queues.
                self.may_delay = self.delayed_ack.expects_reply() && !may_mistake_reports();
                false
            }
            Cause::Block => {
                self.doorbells.on_round(now);
                self.release_acks()
            }
            Cause::Call => {
                self.doorbells.on_round(now);
                self.release_acks()
            }
            Cause::LongPost | Cause::Flush => self.release_acks(),
        }
    }

    /// Decides what the rest of a round holds, after frames were received.
    #[inline]
    pub(crate) fn decide(&mut self, now: Instant, cause: Cause, arrivals: Arrivals) -> Holds {
        let Arrivals { frames, messages, are_silent, queue_pair, poller_may_sleep } = arrivals;
        let has_arrived = messages > 0;
        if has_arrived && are_silent {
            self.silent_reply.on_arrival(now, queue_pair);
        }
        let received = match frames {
            _ if has_arrived => Received::Messages { has_responses: frames > messages, are_silent },
            0 => Received::Nothing,
            _ => Received::Responses,
        };
        let holds_acks = match cause {
            Cause::Poll => self.delayed_ack.on_poll(now, received, poller_may_sleep),
            Cause::DriverThread => {
                self.delayed_ack.on_driver_round(now, received, self.may_delay) && !self.is_overdue
            }
            _ => return Holds::AsBefore,
        };
        if !holds_acks {
            self.delayed_ack.on_flush();
            return Holds::Nothing;
        }
        let is_replied_at_once =
            cause == Cause::Poll && has_arrived && frames == 1 && !self.doorbells.is_holding();
        if is_replied_at_once { Holds::All } else { Holds::Acks }
    }

    /// Notes that the application posts to the send queue of `queue_pair`, perhaps as a reply to the
    /// peer.
    #[inline]
    pub(crate) fn on_send(&mut self, queue_pair: Qpn) {
        self.silent_reply.on_send(queue_pair);
        match self.delayed_ack.on_send() {
            AckRelease::None => {}
            AckRelease::InFront => self.acks_before_send = true,
            AckRelease::Behind => self.acks_after_send = true,
        }
    }

    /// Returns the time at which delayed ACKs are due, if there are any. `last_now` is the time of the
    /// last round or post.
    #[inline]
    pub(crate) fn acks_due(&self, last_now: Instant) -> Option<Instant> {
        let leave_with_send = self.acks_before_send || self.acks_after_send;
        if leave_with_send { Some(last_now) } else { self.delayed_ack.due() }
    }

    fn take_acks_with_send(&mut self) -> bool {
        mem::take(&mut self.acks_before_send) | mem::take(&mut self.acks_after_send)
    }

    fn release_acks(&mut self) -> bool {
        self.delayed_ack.on_flush();
        let _were_due = self.take_acks_with_send();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Longest time for which an ACK is held without another round.
    const MAX_HOLD: Duration = Duration::from_micros(200);

    const CAUSES: [Cause; 8] = [
        Cause::Poll,
        Cause::Block,
        Cause::Call,
        Cause::Post,
        Cause::LongPost,
        Cause::HeldPosts,
        Cause::Flush,
        Cause::DriverThread,
    ];

    #[test]
    fn held_acks_are_due_within_a_bound_and_every_call_of_the_program_releases_them() {
        let mut held = 0;
        for seed in 0..100 {
            let mut dice = StdRng::seed_from_u64(seed);
            let (mut policy, mut now) = (RoundPolicy::default(), Instant::from_nanos(1_000_000));
            let (polls, gap) = (dice.random_range(0.1..1.0), dice.random_range(1..30_000));
            for _ in 0..5_000 {
                now += Duration::from_nanos(dice.random_range(1..=gap));
                if dice.random_bool(0.3) {
                    policy.on_send(Qpn::GSI);
                    assert!(policy.acks_due(now).is_none_or(|at| at <= now + MAX_HOLD));
                }
                let cause = match dice.random_bool(polls) {
                    true => Cause::Poll,
                    false => CAUSES[dice.random_range(0..CAUSES.len())],
                };
                let leave_in_front = policy.acks_before_send;
                let releases = policy.begin(now, cause, || dice.random_bool(0.1));
                if !cause.receives() {
                    assert_eq!(releases, cause == Cause::Flush || leave_in_front, "seed {seed}");
                    assert!(!releases || policy.acks_due(now).is_none(), "seed {seed}");
                    continue;
                }
                let messages = usize::from(dice.random_bool(0.3));
                let frames = messages + dice.random_range(0..3);
                let arrivals = Arrivals {
                    frames,
                    messages,
                    are_silent: dice.random_bool(0.5),
                    queue_pair: None,
                    poller_may_sleep: dice.random_bool(0.3),
                };
                let due = match policy.decide(now, cause, arrivals) {
                    Holds::Acks | Holds::All => {
                        held += 1;
                        policy.acks_due(now).expect("held ACKs are due at some time")
                    }
                    Holds::Nothing => {
                        assert_eq!(policy.acks_due(now), None, "seed {seed}");
                        continue;
                    }
                    Holds::AsBefore => {
                        assert!(releases && policy.acks_due(now).is_none(), "seed {seed}");
                        continue;
                    }
                };
                assert!(due <= now + MAX_HOLD, "seed {seed}: held until {due:?} at {now:?}");
            }
        }
        assert!(held > 1000, "{held} rounds held ACKs");
    }
}
