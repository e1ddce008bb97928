//! Recovery from losses that nobody tells of.
//!
//! A responder complains of a gap once. Where the complaint is lost, or the first packet
//! that is sent again, or the last packets of all, it says nothing more, and only a timer
//! helps. The ACK timer is made for peers that are gone: it takes milliseconds to seconds,
//! and each time it fires costs a retry. So there is a shorter one beside it, of a few
//! measured round trips, doubled each time it fires in a row and never beyond the ACK
//! timer:
//!
//! 1. It fires while all seems well: the last packet is sent again, alone. If only its
//!    answer was late or lost, the peer acknowledges it again; if something is missing, the
//!    peer says what.
//! 2. It fires after that, or after we went back already: everything unacknowledged is sent
//!    again, which costs no retry.
//!
//! The ACK timer runs on beside it as if nothing had been done, so that a silent peer is
//! given up exactly when it would have been.
//!
//! After going back, no more than a few packets leave until something arrives: a queue that
//! just overflowed is still full.

use core::time::Duration;

use crate::context::Context;
use crate::rc::common::Common;
use crate::rc::requester::Step;
use crate::rc::round_trip::RoundTrip;
use crate::rc::send_queue::SendEntry;
use crate::rc::sender::{NextNak, Sender};
use crate::timers::{Timer, Timers};
use crate::train::TrainWriter;
use crate::transfer::Gather;
use crate::{CompletionStatus, Instant, Memory, Observer, RetransmitCause};

/// What has been done about a loss, and when to do more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    trip: RoundTrip,
    stage: Stage,
    /// How often nothing was heard in a row.
    quiet: u32,
    /// Where we had been when we went back because of that.
    before: Place,
    /// From when on silence counts: nobody who was not asked is late.
    since: Instant,
}

/// A place in the sequence: the next packet, and the number of its entry.
pub(crate) type Place = (u64, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Answers come, as far as is known.
    #[default]
    Calm,
    /// The last packet is to be sent again.
    Probing,
    /// It was sent again.
    Probed,
    /// We went back, told by a NAK or by the ACK timer.
    Back,
    /// We went back because it was quiet.
    BackUnasked,
}

impl Recovery {
    /// When it has been quiet for too long that has been quiet since `since`.
    fn quiet_until(&self, since: Instant) -> Instant {
        let wait = self.trip.patience_nanos().saturating_mul(1 << self.quiet.min(20));
        Instant::from_nanos(since.as_nanos().saturating_add(wait))
    }

    /// A packet that asks for an answer was sent, for the first time.
    pub(crate) fn on_sent(&mut self, seq: u64, now: Instant) {
        self.trip.on_sent(seq, now);
    }

    /// Something new was sent, behind nothing that asks for an answer: silence counts from now on.
    pub(crate) fn on_unasked(&mut self, now: Instant) {
        // Of what is sent again it counts from the first time.
        if self.is_calm() {
            self.since = now;
        }
    }

    /// Is there a packet whose answer is being timed?
    pub(crate) fn is_timing(&self) -> bool {
        self.trip.is_timing()
    }

    /// Everything before `to` is answered, and some of it was not before. `was_lost`: see
    /// [`was_quiet_for_a_loss`](Self::was_quiet_for_a_loss).
    pub(crate) fn on_progress(&mut self, to: u64, was_lost: bool, now: Instant) {
        if was_lost {
            self.trip.on_resent();
        }
        self.trip.on_answered(to, now);
        self.stage = Stage::Calm;
        self.quiet = 0;
    }

    /// Everything is sent again.
    pub(crate) fn on_back(&mut self, why: RetransmitCause) {
        self.stage = match why {
            // Nothing was lost on the way; the receiver was not there.
            RetransmitCause::RnrTimeout => Stage::Calm,
            RetransmitCause::ProbeTimeout => Stage::BackUnasked,
            _ => Stage::Back,
        };
        // Of the short timer nobody knows yet whether it fired too early. Were the round
        // trip not measured whenever it does, it would do so for ever.
        if why != RetransmitCause::ProbeTimeout {
            self.trip.on_resent();
        }
    }

    /// Do answers come, as far as is known?
    pub(crate) fn is_calm(&self) -> bool {
        self.stage == Stage::Calm
    }

    /// Is the last packet to be sent again? Says so once.
    pub(crate) fn takes_probe(&mut self) -> bool {
        let is_due = self.stage == Stage::Probing;
        if is_due {
            self.stage = Stage::Probed;
        }
        is_due
    }

    /// Must this packet be answered because we wait for a sign of life? `in_flight` counts
    /// it.
    pub(crate) fn wants_answer(&self, in_flight: u64) -> bool {
        self.is_back() && in_flight == 1
    }

    /// Does this answer show that it was quiet because of a loss? A peer that has nothing
    /// beyond what was just sent again did not get it the first time.
    pub(crate) fn was_quiet_for_a_loss(&self, to: u64, next: u64, sent_end: u64) -> bool {
        self.stage == Stage::BackUnasked && to <= next && to < sent_end
    }

    /// Where to go on if this answer shows that the peer was only busy: it has more than
    /// was sent again, so the rest is as likely on its way as it was before.
    pub(crate) fn undoes_going_back(&self, to: u64, next: u64) -> Option<Place> {
        let is_undone = self.stage == Stage::BackUnasked && to > next && to <= self.before.0;
        is_undone.then_some(self.before)
    }

    /// Is the last packet to be sent again?
    pub(crate) fn is_probing(&self) -> bool {
        self.stage == Stage::Probing
    }

    fn is_back(&self) -> bool {
        matches!(self.stage, Stage::Back | Stage::BackUnasked)
    }
}

impl Sender {
    /// Packets that may be on their way now.
    pub(super) fn most_in_flight(&self) -> u32 {
        if self.recovery.is_back() { self.window.min() } else { self.window.size() }
    }

    /// Nothing was heard for a few round trips.
    ///
    /// # Errors
    /// As [`go_back`](Self::go_back).
    pub(crate) fn on_quiet<O: Observer>(
        &mut self,
        common: &Common,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.next == self.oldest || self.is_waiting_for_receiver {
            return Ok(());
        }
        if self.recovery.quiet_until(self.recovery.since) > cx.time {
            // Before that nobody was asked, and of a gap before what was sent last the peer would
            // have told: only the last packet can be missing unnoticed.
            self.arm_quiet(self.recovery.since, timers);
            return Ok(());
        }
        self.recovery.quiet += 1;
        if self.recovery.stage == Stage::Calm && self.last_in_flight().is_some() {
            self.recovery.stage = Stage::Probing;
            return Ok(());
        }
        cx.counters().probe_timeout += 1;
        if self.recovery.stage != Stage::BackUnasked {
            self.recovery.before = (self.next, self.cursor);
        }
        self.go_back(RetransmitCause::ProbeTimeout, false, common, timers, cx)?;
        self.next_nak = NextNak::Free;
        Ok(())
    }

    /// The short timer fires when it has been quiet since `since` for longer than answers take,
    /// unless the ACK timer does before.
    pub(super) fn arm_quiet(&self, since: Instant, timers: &mut Timers) {
        let at = self.recovery.quiet_until(since);
        if timers.at(Timer::AckWait).is_some_and(|later| at < later) {
            timers.arm(Timer::Quiet, at);
        }
    }

    /// Is the ACK timer's time not over, since nobody was asked when it began? Then the peer is
    /// asked now, or has the rest of its time: a silence that nobody broke is not the peer's.
    pub(super) fn goes_on_waiting(
        &mut self,
        wait: Duration,
        timers: &mut Timers,
        now: Instant,
    ) -> bool {
        if !self.is_asked() && self.recovery.is_calm() && self.last_in_flight().is_some() {
            self.recovery.stage = Stage::Probing;
            timers.stop(Timer::Quiet);
            // From when the question is sent, if it can be.
            timers.arm(Timer::AckWait, now + wait);
            self.is_unsent = true;
            return true;
        }
        let over = self.recovery.since + wait;
        if over > now {
            timers.arm(Timer::AckWait, over);
            self.arm_quiet(self.recovery.since, timers);
        }
        over > now
    }

    /// Has any packet in flight asked for an answer?
    pub(super) fn is_asked(&self) -> bool {
        // One that does not has a single sequence number.
        self.next.saturating_sub(u64::from(self.unasked)) > self.oldest
    }

    /// The last packet sent and the number of its entry, if the peer can be asked by it how
    /// far it is. It cannot where answers with data are outstanding: those come first, and
    /// asking for them again brings them again.
    fn last_in_flight(&self) -> Option<(u64, u64)> {
        let last = self.next.checked_sub(1).filter(|last| *last >= self.oldest)?;
        if self.reads.outstanding(self.next) > 0 {
            return None;
        }
        let holds = |entry: SendEntry<'_>| entry.first <= last && last < entry.end();
        let mut numbers = (self.queue.head()..=self.cursor).rev();
        let number = numbers.find(|it| self.queue.get(*it).is_some_and(holds))?;
        Some((last, number))
    }

    /// Sends the last packet again, alone; false where that is not possible.
    pub(super) fn write_probe<M: Memory, O: Observer>(
        &mut self,
        common: &Common,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> bool {
        let Some((last, number)) = self.last_in_flight() else { return false };
        let place = (self.next, self.cursor, self.unasked);
        // It asks for an answer whatever it is.
        (self.next, self.cursor, self.unasked) = (last, number, u32::MAX - 1);
        let written = self
            .queue
            .get(number)
            .map(|entry| self.write_data(entry, common, memory, &mut Gather::new(), train));
        (self.next, self.cursor, self.unasked) = place;
        // Where it cannot be written, going back finds out why.
        let Some(Ok(Step::Sent(_))) = written else { return false };
        // The round trip is measured on, from the first time: a peer that has become slow
        // is believed, and after a loss the next wait is too long rather than too short.
        self.unasked = 0;
        cx.counters().tail_probe += 1;
        cx.counters().resent_pkts += 1;
        cx.out.observer.retransmit(cx.now, cx.qpn, self.psn(last), RetransmitCause::TailProbe);
        true
    }
}
