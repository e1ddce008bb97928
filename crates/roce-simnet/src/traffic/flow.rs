//! One flow: its sender, and what its receiver has.

use std::collections::BTreeSet;
use std::time::Duration;

use roce_transport::congestion::NotificationPoint;

use super::control::RateControl;
use super::round_trip::{RoundTrip, Timeouts};
use roce_fabric::Time;

/// Reaction of a flow's ends to a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// The receiver discards the whole message and the sender starts it again.
    GoBack0,
    /// The receiver discards what follows the gap and the sender starts again at the gap.
    GoBackN,
    /// The receiver keeps what follows the gap and the sender sends only what is missing.
    Keep,
}

/// Time at which a receiver answers a marked packet by a CNP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CnpTiming {
    /// At once, unless a CNP left within the interval before: as
    /// [`NotificationPoint`] and network cards do.
    AtOnce,
    /// As `AtOnce`; marks within the interval cause the next CNP at its end, as in the DCQCN paper.
    Remembered,
    /// At once, unless a CNP left in the same slot of a clock that ticks once in each interval. The
    /// clocks of the flows differ. The rate of CNPs is then what fluid models of DCQCN assume:
    /// 1 − (1 − p)^n per interval for n packets that are marked with probability p.
    Slots,
}

/// A flow to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Index of the sending host.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// Bytes of payload; `u64::MAX` for a flow without end.
    pub bytes: u64,
    /// Time of the first packet.
    pub start: Time,
    /// First rate as a share of the line rate, 0 to 1; `None` for the rate that the congestion
    /// control starts with.
    pub first_rate: Option<f64>,
    /// Index of the flow whose received bytes this flow forwards, and the number of bytes that it
    /// may send before any arrive: a step of a ring.
    pub forwards: Option<(usize, u64)>,
}

impl FlowSpec {
    /// Creates a flow that starts at [`Time::START`].
    pub const fn new(from: usize, to: usize, bytes: u64) -> Self {
        Self { from, to, bytes, start: Time::START, first_rate: None, forwards: None }
    }
}

/// State of both ends.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) spec: FlowSpec,
    pub(super) packets: u64,
    pub(super) started: bool,
    pub(super) control: RateControl,
    // Sender
    pub(super) next: u64,
    pub(super) highest: u64,
    pub(super) acked: u64,
    /// Number of packets that may be sent, below `packets` for a flow that forwards another.
    pub(super) available: u64,
    /// Time in nanoseconds at which the last packet was due.
    pub(super) last_send: Option<f64>,
    pub(super) missing: BTreeSet<u64>,
    kept_by_peer: BTreeSet<u64>,
    /// Packets before this one were considered for this recovery.
    repaired: u64,
    recovery_end: u64,
    /// Packets sent since the last one that asked for an ACK.
    since_asked: u64,
    pub(super) round_trip: RoundTrip,
    pub(super) retry_at: Option<Time>,
    pub(super) retry_armed: bool,
    // Receiver
    pub(super) expected: u64,
    kept: BTreeSet<u64>,
    pub(super) nak_sent: bool,
    pub(super) notification: NotificationPoint,
    pub(super) last_cnp: Time,
    /// Number of the slot of the last CNP, from 1.
    cnp_slot: u64,
    /// A packet was marked since then.
    pub(super) marked: bool,
    pub(super) ce_seen: bool,
    // Results
    pub(super) finished: Option<Time>,
    pub(super) resent: u64,
    pub(super) sent: u64,
    pub(super) cnps: u64,
    pub(super) timeouts: u64,
}

/// What a data packet meant to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// `expected` advanced.
    InOrder,
    /// It was there already.
    Duplicate,
    /// It lies behind a gap.
    Gap,
}

impl Flow {
    pub(super) fn new(spec: FlowSpec, packets: u64, available: u64, control: RateControl) -> Self {
        Self {
            last_send: None,
            spec,
            packets,
            started: false,
            control,
            next: 0,
            highest: 0,
            acked: 0,
            available,
            missing: BTreeSet::new(),
            kept_by_peer: BTreeSet::new(),
            repaired: 0,
            recovery_end: 0,
            since_asked: 0,
            round_trip: RoundTrip::default(),
            retry_at: None,
            retry_armed: false,
            expected: 0,
            kept: BTreeSet::new(),
            nak_sent: false,
            notification: NotificationPoint::default(),
            last_cnp: Time::START,
            cnp_slot: 0,
            marked: false,
            ce_seen: false,
            finished: None,
            resent: 0,
            sent: 0,
            cnps: 0,
            timeouts: 0,
        }
    }

    /// Returns true if the flow has a packet to send, within a window of so many packets.
    pub(super) fn has_packet(&self, window: u64) -> bool {
        self.started
            && (!self.missing.is_empty()
                || self.next < self.available.min(self.acked.saturating_add(window)))
    }

    /// Takes the number of the next packet to send within a window of so many packets. The second
    /// value tells whether the packet asks for an ACK, as one of `ack_every` packets does.
    pub(super) fn take(&mut self, window: u64, ack_every: u64) -> (u64, bool) {
        let (seq, is_repair) = match self.missing.pop_first() {
            Some(seq) => (seq, true),
            None => {
                self.next += 1;
                (self.next - 1, false)
            }
        };
        self.sent += 1;
        if seq < self.highest {
            self.resent += 1;
        }
        self.highest = self.highest.max(seq + 1);
        self.since_asked += 1;
        // As the requester does: the window moves on before it is used up.
        let most = ack_every.min(window / 2);
        let asks = is_repair || self.since_asked >= most || !self.has_packet(window);
        if asks {
            self.since_asked = 0;
        }
        (seq, asks)
    }

    /// Handles a data packet at the receiver.
    pub(super) fn receive(&mut self, seq: u64, recovery: Recovery, message: u64) -> Received {
        if seq < self.expected || self.kept.contains(&seq) {
            return Received::Duplicate;
        }
        if seq == self.expected {
            self.expected += 1;
            while self.kept.remove(&self.expected) {
                self.expected += 1;
            }
            self.nak_sent = false;
            return Received::InOrder;
        }
        match recovery {
            Recovery::Keep => {
                self.kept.insert(seq);
            }
            Recovery::GoBackN => {}
            Recovery::GoBack0 => self.expected -= self.expected % message,
        }
        Received::Gap
    }

    /// Returns true for the first call in each slot of this length. The slots of flow `index` begin
    /// at times of its own.
    pub(super) fn enters_slot(&mut self, now: Time, index: usize, length: Duration) -> bool {
        let length = (length.as_nanos() as u64).max(1);
        // The multiples of the golden ratio spread evenly, however many there are.
        let phase = (index as f64 * 0.618_034).fract() * length as f64;
        let slot = (now.as_nanos() + phase as u64) / length + 1;
        std::mem::replace(&mut self.cnp_slot, slot) != slot
    }

    /// Handles an acknowledgement of all packets before `seq`. Returns the number of packets that
    /// it acknowledges for the first time.
    pub(super) fn acknowledge(&mut self, seq: u64) -> u64 {
        let newly = seq.saturating_sub(self.acked);
        if newly > 0 {
            self.acked = seq;
            self.next = self.next.max(seq);
            self.missing = self.missing.split_off(&seq);
            self.kept_by_peer = self.kept_by_peer.split_off(&seq);
        }
        newly
    }

    /// Handles a NAK: everything before `seq` arrived, and `seen` behind a gap.
    pub(super) fn reject(&mut self, seq: u64, seen: u64, recovery: Recovery, tolerance: u64) {
        match recovery {
            Recovery::GoBack0 => {
                self.acked = self.acked.min(seq);
                self.next = seq;
            }
            Recovery::GoBackN => self.next = seq.max(self.acked),
            Recovery::Keep => {
                if seen >= self.acked {
                    self.kept_by_peer.insert(seen);
                }
                if self.acked >= self.recovery_end {
                    self.recovery_end = self.next;
                    self.repaired = self.acked;
                }
                let newest = self.kept_by_peer.last().copied().unwrap_or(0);
                let end = (newest + 1).saturating_sub(tolerance);
                for seq in self.repaired.max(self.acked)..end {
                    if !self.kept_by_peer.contains(&seq) {
                        self.missing.insert(seq);
                    }
                }
                self.repaired = self.repaired.max(end);
            }
        }
    }

    /// Handles a retransmission timeout.
    pub(super) fn expire(&mut self, recovery: Recovery, message: u64) {
        self.timeouts += 1;
        match recovery {
            Recovery::GoBack0 => {
                self.acked -= self.acked % message;
                self.next = self.acked;
            }
            Recovery::GoBackN => self.next = self.acked,
            Recovery::Keep => {
                self.missing.insert(self.acked);
                self.recovery_end = self.next;
                self.repaired = self.acked + 1;
            }
        }
    }

    pub(super) fn in_flight(&self) -> bool {
        self.started && self.acked < self.next
    }

    /// Returns true if the flow has started and its sender does not know that it is finished.
    pub(super) fn is_active(&self) -> bool {
        self.started && self.acked < self.packets
    }

    pub(super) fn arm_retry(&mut self, now: Time, timeouts: Timeouts) {
        self.retry_at = self.in_flight().then(|| now + self.timeout(timeouts));
    }

    /// Returns the time without progress after which the flow sends again.
    pub(super) fn timeout(&self, timeouts: Timeouts) -> Duration {
        self.round_trip.timeout().unwrap_or(timeouts.first).max(timeouts.least)
    }
}
