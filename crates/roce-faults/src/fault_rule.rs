//! Scripted faults: which packet meets which fault, as a sentence such as `drop request 3 of queue
//! pair 2`.
//!
//! The same sentences stand in lessons, on command lines and in files. [`FaultRule::parse`] reads one and
//! `Display` writes it; [`RuleCounter`] finds the packets.

mod facts;
mod packet_kind;
mod text;

use core::time::Duration;

pub use self::facts::{PacketFacts, Sender};
pub use self::packet_kind::PacketKind;
use crate::sentence::Which;
use crate::window::Window;

/// A fault and the packets that meet it.
///
/// ```
/// use roce_faults::{FaultAction, FaultRule};
///
/// let rule = FaultRule::parse("drop  request 3 of queue pair 2")?;
/// assert_eq!(rule.action, FaultAction::Drop);
/// assert_eq!(rule.packets.queue_pair, Some(2));
/// assert_eq!(rule.to_string(), "drop request 3 of queue pair 2");
/// let error = FaultRule::parse("drop reqest 3").unwrap_err();
/// assert_eq!(error.word, "reqest");
/// # Ok::<(), roce_faults::FaultRuleError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultRule {
    /// What happens to the packets.
    pub action: FaultAction,
    /// The packets.
    pub packets: PacketSelector,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultAction {
    /// It is lost.
    Drop,
    /// It arrives twice, the second time this much later.
    Duplicate(Duration),
    /// It gets a congestion mark (CE), if its sender set ECT.
    Mark,
    /// One bit is flipped: the bit of this number from the first byte's most significant bit, if
    /// the frame has so many, or without a number one behind the Ethernet header at random.
    Damage(Option<u32>),
    /// It is delayed by this much; later packets overtake it.
    Delay(Duration),
    /// So many later packets overtake it.
    HoldBehind(u32),
    /// It is held until another packet comes by, and follows that one.
    HoldUntil(PacketSelector),
}

/// Which packets are meant. Where nothing is said, all are: of every queue pair, rank and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketSelector {
    /// Kind of the packets; the others are not counted.
    pub kind: PacketKind,
    /// Which of them.
    pub which: Which,
    /// Direction, seen from where the fault happens.
    pub direction: Option<FaultDirection>,
    /// Queue pair that sends them, from 1: the queue pairs of one direction are numbered in the order
    /// of the first packet that each sends.
    pub queue_pair: Option<u32>,
    /// Rank that sends them, from 0.
    pub rank: Option<u32>,
    /// Rail on which they are, from 0.
    pub rail: Option<u32>,
    /// When they pass; the others are not counted.
    pub window: Window,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FaultDirection {
    Sent,
    Received,
}

/// Finds the packets of one [`PacketSelector`] in a sequence of packets.
#[derive(Clone, Debug)]
pub struct RuleCounter {
    selector: PacketSelector,
    seen: u64,
    seed: u64,
}

/// A packet as a [`RuleCounter`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct SeenPacket {
    /// What the packet says; `None` if it is no RoCE packet.
    pub facts: Option<PacketFacts>,
    /// Direction.
    pub direction: FaultDirection,
    /// Number of its sender in that direction, from 1.
    pub queue_pair: Option<u32>,
    /// Rank of its sender, where there are ranks.
    pub rank: Option<u32>,
    /// Rail on which it is, where there are rails.
    pub rail: Option<u32>,
    /// Time since the beginning of the run.
    pub time: Duration,
}

impl RuleCounter {
    /// Begins before the first packet.
    pub const fn new(selector: PacketSelector) -> Self {
        Self { selector, seen: 0, seed: 0 }
    }

    /// Chooses shares by another seed: of the packets that are counted, the same seed chooses the same numbers.
    ///
    /// ```
    /// use roce_faults::{FaultDirection, FaultRule, RuleCounter, SeenPacket};
    ///
    /// let rule = FaultRule::parse("drop 10% of packets on rail 1 from 2s to 4s").unwrap();
    /// let (direction, time) = (FaultDirection::Sent, std::time::Duration::from_secs(3));
    /// let packet =
    ///     SeenPacket { facts: None, direction, queue_pair: None, rank: None, rail: Some(1), time };
    /// let mut counter = RuleCounter::new(rule.packets).with_seed(7);
    /// let dropped = (0..10_000).filter(|_| counter.admits(&packet)).count();
    /// assert!((900..1100).contains(&dropped));
    /// assert!(!counter.admits(&SeenPacket { rail: Some(0), ..packet }));
    /// ```
    #[must_use]
    pub const fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Counts the next packet; returns true if it is one of those that are meant.
    pub fn admits(&mut self, packet: &SeenPacket) -> bool {
        let PacketSelector { kind, which, direction, queue_pair, rank, rail, window } =
            self.selector;
        let is_of = |wanted: Option<u32>, found| wanted.is_none() || wanted == found;
        let counts = kind.includes(packet.facts.as_ref())
            && direction.is_none_or(|direction| direction == packet.direction)
            && is_of(queue_pair, packet.queue_pair)
            && is_of(rank, packet.rank)
            && is_of(rail, packet.rail)
            && window.includes(packet.time);
        if !counts {
            return false;
        }
        self.seen += 1;
        which.includes(self.seen, chance(self.seed, self.seen))
    }

    /// Returns how many packets were counted.
    pub const fn seen(&self) -> u64 {
        self.seen
    }
}

/// Draws a number below a million (SplitMix64).
const fn chance(seed: u64, number: u64) -> u32 {
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) % 1_000_000) as u32
}

#[cfg(test)]
mod tests;
