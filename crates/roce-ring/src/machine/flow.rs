//! The flow control of the queue pair to one neighbour.

use std::collections::VecDeque;

use super::id::Queue;
use crate::{Geometry, Immediate, ViolationKind};

/// The flow of messages in both directions over the queue pair to one neighbour.
#[derive(Debug)]
pub(super) struct QpFlow {
    slots: u64,
    max_in_flight: [u64; 2],
    /// All sends.
    sent: Queue,
    /// For each outstanding send, oldest first: true for data.
    in_flight_kinds: VecDeque<bool>,

    /// The sends with data.
    data: Queue,
    /// Data messages that the neighbour is known to have consumed.
    reported: u64,
    /// Data messages reported by the last credit.
    last_credit: u64,
    /// Data messages sent before the active operation.
    sent_before: u64,
    /// Data messages that must complete before no send reads memory any more: later ones were
    /// copied when they were posted.
    uncopied: u64,
    /// `uncopied` before the last data message was posted.
    uncopied_before: u64,

    /// Received messages that are not consumed: at most as many as slots.
    arrivals: VecDeque<(Immediate, u32)>,
    /// Messages consumed since the beginning.
    consumed: u64,
    /// Messages consumed before the active operation.
    consumed_before: u64,
    /// Consumed messages that were reported to the neighbour, or that it infers.
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

    /// Begins an operation.
    pub(super) fn begin(&mut self) {
        self.sent_before = self.data.posted;
        self.consumed_before = self.consumed;
    }

    /// Ends an operation whose result depends on every rank: all had started it, and so had
    /// consumed all earlier messages. The neighbours infer the same.
    pub(super) fn synchronize(&mut self) {
        self.reported = self.reported.max(self.sent_before);
        self.credited = self.credited.max(self.consumed_before);
    }

    /// Handles data. Its tag is checked when it is consumed: it may belong to an operation that
    /// this rank has not started.
    pub(super) fn on_data(&mut self, immediate: Immediate, len: u32) -> Result<(), ViolationKind> {
        // The neighbour may have finished the operation that is active here.
        let known = self.credited.max(self.consumed_before);
        if self.consumed + self.arrivals.len() as u64 == known + self.slots {
            return Err(ViolationKind::BeyondCredit { slots: self.slots as u32 });
        }
        self.arrivals.push_back((immediate, len));
        Ok(())
    }

    /// Handles a credit. It may be older than what is known, but not than the previous credit.
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

    /// Counts a data send and returns its number.
    pub(super) fn post_data(&mut self) -> u64 {
        self.data.post();
        self.uncopied_before = self.uncopied;
        self.uncopied = self.data.posted;
        self.post(true)
    }

    /// Counts a credit or a window and returns its number.
    pub(super) fn post_control(&mut self) -> u64 {
        self.post(false)
    }

    fn post(&mut self, is_data: bool) -> u64 {
        self.in_flight_kinds.push_back(is_data);
        self.sent.post()
    }

    /// Completes the sends up to `number` (mod 2^48); false if it is not outstanding.
    pub(super) fn complete(&mut self, number: u64) -> bool {
        let before = self.sent.completed;
        let good = self.sent.complete(number);
        let newly = (self.sent.completed - before) as usize;
        self.data.completed += self.in_flight_kinds.drain(..newly).map(u64::from).sum::<u64>();
        good
    }

    /// Notes that the bytes of the last data send were copied; false if `number` (mod 2^48) is
    /// another send.
    pub(super) fn copied(&mut self, number: u64) -> bool {
        let is_last = self.sent.is_last(number) && self.in_flight_kinds.back() == Some(&true);
        if is_last {
            self.uncopied = self.uncopied_before;
        }
        is_last
    }

    /// Returns true if the bytes of all sends may be overwritten.
    pub(super) fn may_overwrite_all(&self) -> bool {
        self.data.completed >= self.uncopied
    }

    /// Returns true if the bytes of the operation's `index`-th data send may be overwritten.
    pub(super) fn has_sent(&self, index: u64) -> bool {
        let flow = self.sent_before + index + 1;
        self.data.posted >= flow && (self.may_overwrite_all() || self.data.completed >= flow)
    }

    /// Returns true if the neighbour has a free slot and the send queue a free entry.
    pub(super) fn may_send(&self) -> bool {
        self.data.posted < self.reported + self.slots && self.has_send_room(true)
    }

    /// Returns true if another credit or window may be posted.
    pub(super) fn may_post_control(&self) -> bool {
        self.has_send_room(false)
    }

    fn has_send_room(&self, is_data: bool) -> bool {
        let data = self.data.in_flight();
        let used = if is_data { data } else { self.in_flight_kinds.len() as u64 - data };
        used < self.max_in_flight[usize::from(is_data)]
    }

    /// Returns the slot for the next data send.
    pub(super) fn slot_sent(&self) -> u32 {
        (self.data.posted % self.slots) as u32
    }

    /// Returns the oldest message that is not consumed.
    pub(super) fn oldest_arrival(&self) -> Option<(Immediate, u64)> {
        self.arrivals.front().map(|&(immediate, len)| (immediate, u64::from(len)))
    }

    /// Consumes a message and returns its slot.
    pub(super) fn consume(&mut self) -> u32 {
        self.arrivals.pop_front();
        self.consumed += 1;
        ((self.consumed - 1) % self.slots) as u32
    }

    /// Returns the credit to send, if one is due.
    pub(super) fn take_credit(&mut self) -> Option<Immediate> {
        if self.consumed - self.credited < (self.slots / 2).max(1) || !self.may_post_control() {
            return None;
        }
        self.credited = self.consumed;
        // The credit carries the count mod 2^30.
        let consumed = (self.consumed & u64::from(Immediate::CREDIT_MASK)) as u32;
        Some(Immediate::Credit { consumed })
    }
}
