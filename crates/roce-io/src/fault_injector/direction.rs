//! One direction of a fault injector.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{Fault, FaultConfig, FaultRates};
use crate::device::Direction;

/// Maximum time for which a packet is held; `Instant` can represent now plus this.
const MAX_HOLD: Duration = Duration::from_secs(24 * 3600);

/// Packets enter by [`admit`](Self::admit) and leave through the ready queue, in order except for
/// the faults.
pub(super) struct FaultDirection {
    rates: FaultRates,
    script: HashMap<u64, Vec<Fault>>,
    max_delay: Duration,
    max_reorder: u32,
    reorder_hold: Duration,
    rng: StdRng,
    admitted: u64,
    ready: VecDeque<Vec<u8>>,
    held: Vec<Held>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    counts: [u64; 6],
    /// Time of the last call.
    now: Option<Instant>,
}

struct Held {
    packet: Vec<u8>,
    due: Instant,
    /// Due once this many packets were admitted.
    behind: Option<u64>,
}

impl FaultDirection {
    pub(super) fn new(config: &FaultConfig, direction: Direction) -> Self {
        let (rates, stream) = match direction {
            Direction::In => (config.inbound, 0),
            Direction::Out => (config.outbound, 1),
        };
        let mut script: HashMap<u64, Vec<Fault>> = HashMap::new();
        for line in config.script.iter().filter(|line| line.direction == direction) {
            script.entry(line.packet).or_default().push(line.fault);
        }
        Self {
            rates,
            script,
            max_delay: config.max_delay,
            max_reorder: config.max_reorder.max(1),
            reorder_hold: config.reorder_hold,
            // A generator for each direction: traffic in one does not change the other's faults.
            rng: StdRng::seed_from_u64(config.seed.wrapping_mul(2).wrapping_add(stream)),
            admitted: 0,
            ready: VecDeque::new(),
            held: Vec::new(),
            spare: Vec::new(),
            counts: [0; 6],
            now: None,
        }
    }

    /// Takes the next packet and applies its faults.
    pub(super) fn admit(&mut self, packet: &[u8], now: Instant) {
        self.now = Some(now);
        let faults = self.script.remove(&self.admitted).unwrap_or_else(|| self.draw());
        self.admitted += 1;
        self.apply(packet, &faults, now);
        // Packets that this one was the last to overtake follow it.
        let admitted = self.admitted;
        self.release(|held| held.behind.is_some_and(|behind| behind <= admitted));
    }

    /// Releases packets whose hold has expired.
    pub(super) fn release_due(&mut self, now: Instant) {
        self.now = Some(now);
        self.release(|held| held.due <= now);
    }

    /// Returns when the next held packet is due; at once if a packet is ready.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.has_ready() { self.now } else { self.held.iter().map(|held| held.due).min() }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lends the next ready packet; returns false if there is none.
    pub(super) fn pop_with(&mut self, on_packet: &mut dyn FnMut(&[u8])) -> bool {
        let Some(packet) = self.ready.pop_front() else { return false };
        on_packet(&packet);
        self.spare.push(packet);
        true
    }

    /// Copies the next ready packet to the start of `slot`; returns its length.
    pub(super) fn pop_into(&mut self, slot: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        self.pop_with(&mut |packet| {
            len = packet.len();
            slot[..len].copy_from_slice(packet);
        })
        .then_some(len)
    }

    /// Returns the numbers of packets dropped, duplicated, delayed, reordered, corrupted, marked.
    pub(super) fn counters(&self) -> [u64; 6] {
        self.counts
    }

    /// Draws in the same order for every packet, so that a seed repeats a run.
    fn draw(&mut self) -> Vec<Fault> {
        let FaultRates { drop, duplicate, delay, reorder, corrupt, mark } = self.rates;
        let [drop, duplicate, delay, reorder, corrupt] =
            [drop, duplicate, delay, reorder, corrupt].map(|rate| self.rng.random::<f64>() < rate);
        // Drawn only where it can occur: a seed without marks repeats a run of before.
        let mark = mark > 0.0 && self.rng.random::<f64>() < mark;
        let mut faults = Vec::new();
        if drop {
            faults.push(Fault::Drop);
        }
        if mark {
            faults.push(Fault::Mark);
        }
        if corrupt {
            faults.push(Fault::Corrupt);
        }
        if duplicate {
            faults.push(Fault::Duplicate);
        }
        if delay {
            faults.push(Fault::Delay(self.max_delay.mul_f64(self.rng.random())));
        }
        if reorder {
            faults.push(Fault::Reorder(self.rng.random_range(1..=self.max_reorder)));
        }
        faults
    }

    fn apply(&mut self, packet: &[u8], faults: &[Fault], now: Instant) {
        let mut packet = self.copy(packet);
        let mut hold: Option<(Instant, Option<u64>)> = None;
        let mut twin = None;
        for fault in faults {
            // A packet without ECT is not marked.
            let is_real = *fault != Fault::Mark || roce_wire::mark_congestion(&mut packet);
            self.counts[index(fault)] += u64::from(is_real);
            match *fault {
                Fault::Drop => {
                    self.spare.push(packet);
                    self.spare.extend(twin);
                    return;
                }
                Fault::Mark => {}
                Fault::Corrupt => self.flip_a_bit(&mut packet),
                Fault::Duplicate => twin = Some(self.copy(&packet)),
                Fault::Delay(by) => hold = Some((now + by.min(MAX_HOLD), None)),
                Fault::Reorder(behind) => {
                    let behind = self.admitted.saturating_add(behind.into());
                    hold = Some((now + self.reorder_hold.min(MAX_HOLD), Some(behind)));
                }
            }
        }
        // One of the two stays in its place, as in a network.
        self.ready.extend(twin);
        match hold {
            None => self.ready.push_back(packet),
            Some((due, behind)) => self.held.push(Held { packet, due, behind }),
        }
        if self.held.len() > MAX_HELD {
            let Held { packet, .. } = self.held.remove(0);
            self.ready.push_back(packet);
        }
    }

    fn flip_a_bit(&mut self, packet: &mut [u8]) {
        if packet.len() > ETHERNET_LEN {
            let bit = self.rng.random_range(ETHERNET_LEN * 8..packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn release(&mut self, is_due: impl Fn(&Held) -> bool) {
        if self.held.is_empty() {
            return;
        }
        let mut freed: Vec<Held> = self.held.extract_if(.., |held| is_due(held)).collect();
        freed.sort_by_key(|held| held.due);
        self.ready.extend(freed.into_iter().map(|held| held.packet));
    }

    fn copy(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(packet);
        copy
    }
}

fn index(fault: &Fault) -> usize {
    match fault {
        Fault::Drop => 0,
        Fault::Duplicate => 1,
        Fault::Delay(_) => 2,
        Fault::Reorder(_) => 3,
        Fault::Corrupt => 4,
        Fault::Mark => 5,
    }
}

const ETHERNET_LEN: usize = 14;
/// Maximum number of held packets; beyond it the oldest is released early.
const MAX_HELD: usize = 4096;
