//! What a rank knows of one lane.

use std::collections::VecDeque;

use super::id::{self, Queue};
use crate::{Action, Breach, Geometry, Immediate, Label, Side, WindowRecord};

/// One lane: a queue pair to the next rank and one to the previous rank.
#[derive(Debug)]
pub(super) struct Lane {
    slots: u64,
    /// Data sent to the next rank.
    pub(super) data: Queue,
    /// How much of it the next rank has reported as consumed.
    reported: u64,
    /// How much of it was sent before the operation under way.
    base: u64,
    /// How much of it must be completed before the last byte that is still read from memory
    /// is: what comes behind was copied when it was posted.
    uncopied: u64,
    /// What that was before the message posted last.
    uncopied_before: u64,
    /// The window announced last, until the operation that it is for uses it.
    announced: Option<(Label, WindowRecord)>,
    /// The window of the operation under way.
    window: Option<WindowRecord>,

    /// Credits and windows sent to the previous rank.
    pub(super) answers: Queue,
    /// What the previous rank sent and was not consumed yet: as many as slots at most.
    arrivals: VecDeque<(Immediate, u32)>,
    /// How much of it was consumed, since the beginning.
    consumed: u64,
    /// How much of that the previous rank was told.
    credited: u64,
}

impl Lane {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            slots: u64::from(geometry.slots()),
            data: Queue::default(),
            reported: 0,
            base: 0,
            uncopied: 0,
            uncopied_before: 0,
            announced: None,
            window: None,
            answers: Queue::default(),
            arrivals: VecDeque::with_capacity(geometry.slots() as usize),
            consumed: 0,
            credited: 0,
        }
    }

    /// A new operation begins.
    pub(super) fn begin(&mut self) {
        self.base = self.data.posted;
        self.window = None;
    }

    /// A message from the previous rank. Whether it is the right one is looked at when its turn
    /// comes: it may belong to an operation that is not begun here.
    pub(super) fn arrive(&mut self, immediate: Immediate, len: u32) -> Result<(), Breach> {
        if !matches!(immediate, Immediate::Slot(_) | Immediate::Window(_)) {
            return Err(Breach::WrongKind { found: immediate });
        }
        if self.consumed + self.arrivals.len() as u64 == self.credited + self.slots {
            return Err(Breach::BeyondCredit { slots: self.slots as u32 });
        }
        self.arrivals.push_back((immediate, len));
        Ok(())
    }

    /// A message from the next rank.
    pub(super) fn answer(
        &mut self,
        immediate: Immediate,
        len: u32,
        record: impl FnOnce() -> WindowRecord,
    ) -> Result<(), Breach> {
        let expected = match immediate {
            Immediate::Credit { .. } => 0,
            Immediate::Announce(_) => WindowRecord::LEN as u64,
            found => return Err(Breach::WrongKind { found }),
        };
        if u64::from(len) != expected {
            return Err(Breach::WrongLength { expected, found: u64::from(len) });
        }
        match immediate {
            Immediate::Announce(_) if self.announced.is_some() => Err(Breach::WindowTwice),
            Immediate::Announce(label) => {
                self.announced = Some((label, record()));
                Ok(())
            }
            Immediate::Credit { consumed } => self.credit(consumed),
            found => Err(Breach::WrongKind { found }),
        }
    }

    fn credit(&mut self, consumed: u32) -> Result<(), Breach> {
        let mask = u64::from(Immediate::CREDIT_MASK);
        let newly = u64::from(consumed).wrapping_sub(self.reported) & mask;
        let (reported, sent) = (self.reported, self.data.posted);
        if newly == 0 || newly > sent - reported {
            return Err(Breach::WrongCredit { consumed, reported, sent });
        }
        self.reported += newly;
        Ok(())
    }

    /// Posts data; returns its number.
    pub(super) fn post_data(&mut self) -> u64 {
        let number = self.data.post();
        self.uncopied_before = self.uncopied;
        self.uncopied = self.data.posted;
        number
    }

    /// The bytes of the message posted last were copied; `false` if `number` (mod 2^48) is
    /// another one.
    pub(super) fn copied(&mut self, number: u64) -> bool {
        let is_last = self.data.is_last(number);
        if is_last {
            self.uncopied = self.uncopied_before;
        }
        is_last
    }

    /// Whether everything sent may be overwritten.
    pub(super) fn is_read(&self) -> bool {
        self.data.completed >= self.uncopied
    }

    /// Whether the next rank has a free slot and the send queue a free place.
    pub(super) fn may_send(&self) -> bool {
        self.data.posted < self.reported + self.slots && self.data.in_flight() < 2 * self.slots
    }

    /// The window of the operation under way, if it was announced already.
    pub(super) fn window(
        &mut self,
        label: Label,
        output_bytes: u64,
    ) -> Result<Option<WindowRecord>, Breach> {
        if self.window.is_none()
            && let Some((found, record)) = self.announced.take()
        {
            if let Some(breach) = Breach::of_label(label, found) {
                return Err(breach);
            }
            let WindowRecord { address, length, .. } = record;
            if length < output_bytes || address.checked_add(length).is_none() {
                let (expected, found) = (output_bytes, length);
                return Err(Breach::WindowTooShort { address, expected, found });
            }
            self.window = Some(record);
        }
        Ok(self.window)
    }

    /// Which slot the next message to be sent may use.
    pub(super) fn slot_sent(&self) -> u32 {
        (self.data.posted % self.slots) as u32
    }

    /// Whether the `index`-th send of the operation on this lane has completed.
    pub(super) fn has_sent(&self, index: u64) -> bool {
        self.data.completed > self.base + index
    }

    /// The message that waits to be consumed.
    pub(super) fn arrived(&self) -> Option<(Immediate, u64)> {
        self.arrivals.front().map(|&(immediate, len)| (immediate, u64::from(len)))
    }

    /// Consumes a message; returns the slot that was its.
    pub(super) fn consume(&mut self) -> u32 {
        self.arrivals.pop_front();
        self.consumed += 1;
        ((self.consumed - 1) % self.slots) as u32
    }

    /// Whether another answer may be posted.
    pub(super) fn may_answer(&self) -> bool {
        self.answers.in_flight() < self.slots + 2
    }

    /// A credit that is due on any of the lanes.
    pub(super) fn poll_credits(lanes: &mut [Self], geometry: &Geometry) -> Option<Action> {
        let due = u64::from(geometry.slots() / 4).max(1);
        let (number, lane) = lanes
            .iter_mut()
            .enumerate()
            .find(|(_, lane)| lane.consumed - lane.credited >= due && lane.may_answer())?;
        lane.credited = lane.consumed;
        let number = number as u32;
        // What is cut off is what the message has no room for.
        let consumed = (lane.consumed & u64::from(Immediate::CREDIT_MASK)) as u32;
        Some(Action::Credit {
            lane: number,
            id: id::join(Side::Previous, number, lane.answers.post()),
            immediate: Immediate::Credit { consumed }.to_bits(),
        })
    }
}
