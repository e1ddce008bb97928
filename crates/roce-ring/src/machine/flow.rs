//! One end of a lane: the queue pair to one neighbour, and what goes over it both ways.

use std::collections::VecDeque;

use super::id::Queue;
use crate::{Geometry, Immediate, ViolationKind};

/// The queue pair to one neighbour.
#[derive(Debug)]
pub(super) struct QpFlow {
    slots: u64,
    max_in_flight: [u64; 2],
    /// Everything sent.
    sent: Queue,
    /// What of it is not completed, oldest first: is it data?
    in_flight_kinds: VecDeque<bool>,

    /// Data sent, and how much of it is completed.
    data: Queue,
    /// How much of it the neighbour has consumed, as far as is known.
    reported: u64,
    /// How much of it the last credit said.
    last_credit: u64,
    /// How much of it was sent before the operation under way.
    sent_before: u64,
    /// How much of it must be completed before the last byte that is still read from memory
    /// is: what comes behind was copied when it was posted.
    uncopied: u64,
    /// What that was before the message posted last.
    uncopied_before: u64,

    /// What the neighbour sent and was not consumed yet: as many as slots at most.
    arrivals: VecDeque<(Immediate, u32)>,
    /// How much of it was consumed, since the beginning.
    consumed: u64,
    /// How much of it was consumed before the operation under way.
    consumed_before: u64,
    /// How much of that the neighbour was told, or will know by itself.
    credited: u64,
}

impl QpFlow {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let slots = geometry.slots();
        Self {
            slots: u64::from(slots),
            max_in_flight: [geometry.control_sends(), geometry.data_sends()].map(u64::from),
            sent: Queue::default(),
            in_flight_kinds: VecDeque::with_capacity(geometry.sends() as usize),
            data: Queue::default(),
            reported: 0,
            last_credit: 0,
            sent_before: 0,
            uncopied: 0,
            uncopied_before: 0,
            arrivals: VecDeque::with_capacity(slots as usize),
            consumed: 0,
            consumed_before: 0,
            credited: 0,
        }
    }

    /// A new operation begins.
    pub(super) fn begin(&mut self) {
        self.sent_before = self.data.posted;
        self.consumed_before = self.consumed;
    }

    /// The operation under way is over, and its result depends on every rank: so all had begun it,
    /// and had consumed what was before. They know that as we do.
    pub(super) fn synchronize(&mut self) {
        self.reported = self.reported.max(self.sent_before);
        self.credited = self.credited.max(self.consumed_before);
    }

    /// Data. Whether it is the right one is looked at when its turn comes: it may belong to an
    /// operation that is not begun here.
    pub(super) fn on_data(&mut self, immediate: Immediate, len: u32) -> Result<(), ViolationKind> {
        // The neighbour may have finished the operation that is under way here.
        let known = self.credited.max(self.consumed_before);
        if self.consumed + self.arrivals.len() as u64 == known + self.slots {
            return Err(ViolationKind::BeyondCredit { slots: self.slots as u32 });
        }
        self.arrivals.push_back((immediate, len));
        Ok(())
    }

    /// A credit. It may be older than what is known by now, but not older than another one.
    pub(super) fn on_credit(&mut self, consumed: u32) -> Result<(), ViolationKind> {
        let mask = u64::from(Immediate::CREDIT_MASK);
        let (last_credit, sent) = (self.last_credit, self.data.posted);
        let uncredited = sent.wrapping_sub(u64::from(consumed)) & mask;
        if uncredited >= sent - last_credit {
            return Err(ViolationKind::WrongCredit { consumed, reported: last_credit, sent });
        }
        self.last_credit = sent - uncredited;
        self.reported = self.reported.max(self.last_credit);
        Ok(())
    }

    /// Posts data; returns its number.
    pub(super) fn post_data(&mut self) -> u64 {
        self.data.post();
        self.uncopied_before = self.uncopied;
        self.uncopied = self.data.posted;
        self.post(true)
    }

    /// Posts a credit or a window; returns its number.
    pub(super) fn post_control(&mut self) -> u64 {
        self.post(false)
    }

    fn post(&mut self, is_data: bool) -> u64 {
        self.in_flight_kinds.push_back(is_data);
        self.sent.post()
    }

    /// Everything up to `number` (mod 2^48) is completed; `false` if that was not under way.
    pub(super) fn complete(&mut self, number: u64) -> bool {
        let before = self.sent.completed;
        let good = self.sent.complete(number);
        let newly = (self.sent.completed - before) as usize;
        self.data.completed += self.in_flight_kinds.drain(..newly).map(u64::from).sum::<u64>();
        good
    }

    /// The bytes of the data posted last were copied; `false` if `number` (mod 2^48) is
    /// something else.
    pub(super) fn copied(&mut self, number: u64) -> bool {
        let is_last = self.sent.is_last(number) && self.in_flight_kinds.back() == Some(&true);
        if is_last {
            self.uncopied = self.uncopied_before;
        }
        is_last
    }

    /// Whether everything sent may be overwritten.
    pub(super) fn may_overwrite_all(&self) -> bool {
        self.data.completed >= self.uncopied
    }

    /// Whether what the `index`-th data of the operation carried may be overwritten.
    pub(super) fn has_sent(&self, index: u64) -> bool {
        let flow = self.sent_before + index + 1;
        self.data.posted >= flow && (self.may_overwrite_all() || self.data.completed >= flow)
    }

    /// Whether the neighbour has a free slot and the send queue a free place.
    pub(super) fn may_send(&self) -> bool {
        self.data.posted < self.reported + self.slots && self.has_send_room(true)
    }

    /// Whether another answer may be posted.
    pub(super) fn may_post_control(&self) -> bool {
        self.has_send_room(false)
    }

    fn has_send_room(&self, is_data: bool) -> bool {
        let data = self.data.in_flight();
        let used = if is_data { data } else { self.in_flight_kinds.len() as u64 - data };
        used < self.max_in_flight[usize::from(is_data)]
    }

    /// Which slot the next message to be sent may use.
    pub(super) fn slot_sent(&self) -> u32 {
        (self.data.posted % self.slots) as u32
    }

    /// The message that waits to be consumed.
    pub(super) fn oldest_arrival(&self) -> Option<(Immediate, u64)> {
        self.arrivals.front().map(|&(immediate, len)| (immediate, u64::from(len)))
    }

    /// Consumes a message; returns the slot that was its.
    pub(super) fn consume(&mut self) -> u32 {
        self.arrivals.pop_front();
        self.consumed += 1;
        ((self.consumed - 1) % self.slots) as u32
    }

    /// How much to report as consumed, if it is time to.
    pub(super) fn take_credit(&mut self) -> Option<Immediate> {
        if self.consumed - self.credited < (self.slots / 2).max(1) || !self.may_post_control() {
            return None;
        }
        self.credited = self.consumed;
        // What is cut off is what the message has no room for.
        let consumed = (self.consumed & u64::from(Immediate::CREDIT_MASK)) as u32;
        Some(Immediate::Credit { consumed })
    }
}
