//! One direction of a fault injector.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rand::Rng;
use roce_faults::FaultAction;

use super::script::{Admitted, FaultScript, State};
use super::{ActivityKind, FaultConfig, FaultRates};
use crate::device::Direction;

/// Maximum time for which a packet is held; `Instant` can represent now plus this.
const MAX_HOLD: Duration = Duration::from_secs(24 * 3600);

/// A fault of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Drop,
    /// The second one comes this much later.
    Duplicate(Duration),
    Delay(Duration),
    /// This many later packets overtake it, or as many as follow within a time.
    Reorder(u32, Duration),
    /// A bit is flipped, this one or any.
    Corrupt(Option<u32>),
    Mark,
    /// It follows the packet for which this rule waits.
    HoldUntil(usize),
}

/// Packets enter by [`admit`](Self::admit) and leave through the ready queue, in order except for
/// the faults.
pub(super) struct FaultedDirection {
    direction: Direction,
    rail: Option<u32>,
    rates: FaultRates,
    script: FaultScript,
    max_delay: Duration,
    max_reorder: u32,
    reorder_hold: Duration,
    admitted: u64,
    /// Packets that leave, and between them those that are lost.
    ready: VecDeque<Faulted>,
    held: Vec<Held>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    counts: [u64; 6],
    /// Time of the last call.
    now: Option<Instant>,
}

/// A packet and what faults did to it.
#[derive(Debug)]
struct Faulted {
    bytes: Vec<u8>,
    /// Comment of a capture; empty if no fault met the packet.
    comment: String,
    is_lost: bool,
}

struct Held {
    packet: Faulted,
    due: Instant,
    /// Due once this many packets were admitted.
    behind: Option<u64>,
    /// Due once the packet for which this rule waits came by more often than so many times.
    until: Option<(usize, u64)>,
}

impl FaultedDirection {
    pub(super) fn new(config: &FaultConfig, direction: Direction, script: FaultScript) -> Self {
        Self {
            direction,
            rail: None,
            rates: match direction {
                Direction::In => config.inbound,
                Direction::Out => config.outbound,
            },
            script,
            max_delay: config.max_delay,
            max_reorder: config.max_reorder.max(1),
            reorder_hold: config.reorder_hold,
            admitted: 0,
            ready: VecDeque::new(),
            held: Vec::new(),
            spare: Vec::new(),
            counts: [0; 6],
            now: None,
        }
    }

    pub(super) fn set_rail(&mut self, rail: Option<u32>) {
        self.rail = rail;
    }

    /// Takes the next packet and applies its faults.
    pub(super) fn admit(&mut self, packet: &[u8], now: Instant) {
        self.now = Some(now);
        let script = self.script.clone();
        let mut state = script.lock();
        let admitted = state.admit(packet, self.direction, self.rail, now);
        let faults = match admitted.rules[..] {
            [] => self.draw(&mut state, &admitted),
            _ => self.scripted(&mut state, &admitted),
        };
        self.admitted += 1;
        let is_lost = self.apply(packet, &faults, &mut state, &admitted, now);
        if let Some(rail) = self.rail.filter(|_| self.direction == Direction::Out) {
            let kind = if is_lost { ActivityKind::Lost(rail) } else { ActivityKind::Sent(rail) };
            state.note_activity(kind, now);
        }
        // Packets that this one was the last to overtake, or that waited for it, follow it.
        self.release_overtaken(&state);
    }

    fn release_overtaken(&mut self, state: &State) {
        let admitted = self.admitted;
        self.release(|held| {
            held.behind.is_some_and(|behind| behind <= admitted)
                || held.until.is_some_and(|(rule, times)| state.released(rule) > times)
        });
    }

    /// Abandons the packets that are held, and those that are ready.
    pub(super) fn abandon_held(&mut self) {
        let end = match self.direction {
            Direction::In => "not received: the device was closed before",
            Direction::Out => "not sent: the device was closed before",
        };
        self.ready.extend(self.held.drain(..).map(|held| held.packet));
        for packet in self.ready.iter_mut().filter(|packet| !packet.is_lost) {
            packet.note(end);
            packet.is_lost = true;
        }
    }

    /// Releases packets whose hold has expired.
    pub(super) fn release_due(&mut self, now: Instant) {
        self.now = Some(now);
        self.release(|held| held.due <= now);
        if self.held.iter().any(|held| held.until.is_some()) {
            // The packet that they wait for may have come by in the other direction.
            let script = self.script.clone();
            self.release_overtaken(&script.lock());
        }
    }

    /// Returns when the next held packet is due; at once if a packet is ready.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.has_ready() { self.now } else { self.held.iter().map(|held| held.due).min() }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lends the next packet with its comment if it is lost; returns false if it is not, or there is
    /// none.
    pub(super) fn pop_lost(&mut self, on_packet: impl FnOnce(&[u8], &str)) -> bool {
        self.pop_if(|next| next.is_lost, on_packet)
    }

    /// Lends the next packet with its comment; returns false if it is lost, or there is none.
    pub(super) fn pop_with(&mut self, on_packet: impl FnOnce(&[u8], &str)) -> bool {
        self.pop_if(|next| !next.is_lost, on_packet)
    }

    /// Copies the next packet to the start of `slot` if it is not lost and has this comment; returns
    /// its length.
    pub(super) fn pop_into(&mut self, slot: &mut [u8], comment: &str) -> Option<usize> {
        let mut len = 0;
        let is_meant = |next: &Faulted| !next.is_lost && next.comment == comment;
        self.pop_if(is_meant, |packet, _| {
            len = packet.len();
            slot[..len].copy_from_slice(packet);
        })
        .then_some(len)
    }

    /// Returns the comment of the next packet; empty if there is none.
    pub(super) fn next_comment(&self) -> String {
        self.ready.front().map(|next| next.comment.clone()).unwrap_or_default()
    }

    fn pop_if(
        &mut self,
        is_meant: impl FnOnce(&Faulted) -> bool,
        on_packet: impl FnOnce(&[u8], &str),
    ) -> bool {
        if !self.ready.front().is_some_and(is_meant) {
            return false;
        }
        let Some(packet) = self.ready.pop_front() else { return false };
        on_packet(&packet.bytes, &packet.comment);
        self.spare.push(packet.bytes);
        true
    }

    /// Returns the numbers of packets dropped, duplicated, delayed, reordered, corrupted, marked.
    pub(super) fn counters(&self) -> [u64; 6] {
        self.counts
    }

    /// Draws in the same order for every packet, so that a seed repeats a run.
    fn draw(&self, state: &mut State, admitted: &Admitted) -> Vec<Fault> {
        if self.rates == FaultRates::default() {
            return Vec::new();
        }
        let rng = state.generator(admitted.stream);
        let FaultRates { drop, duplicate, delay, reorder, corrupt, mark } = self.rates;
        let [drop, duplicate, delay, reorder, corrupt, mark] =
            [drop, duplicate, delay, reorder, corrupt, mark].map(|rate| rng.random::<f64>() < rate);
        let mut faults = Vec::new();
        if drop {
            faults.push(Fault::Drop);
        }
        if mark {
            faults.push(Fault::Mark);
        }
        if corrupt {
            faults.push(Fault::Corrupt(None));
        }
        if duplicate {
            faults.push(Fault::Duplicate(Duration::ZERO));
        }
        if delay {
            faults.push(Fault::Delay(self.max_delay.mul_f64(rng.random())));
        }
        if reorder {
            faults.push(Fault::Reorder(rng.random_range(1..=self.max_reorder), self.reorder_hold));
        }
        faults
    }

    /// Returns the faults of the rules that a packet meets, in their order.
    fn scripted(&self, state: &mut State, admitted: &Admitted) -> Vec<Fault> {
        let fault = |rule: &usize| match state.action(*rule) {
            FaultAction::Drop => Fault::Drop,
            FaultAction::Duplicate(lag) => Fault::Duplicate(lag),
            FaultAction::Mark => Fault::Mark,
            FaultAction::Damage(bit) => Fault::Corrupt(bit),
            FaultAction::Delay(by) => Fault::Delay(by),
            FaultAction::HoldBehind(count) => Fault::Reorder(count, MAX_HOLD),
            FaultAction::HoldUntil(_) => Fault::HoldUntil(*rule),
        };
        admitted.rules.iter().map(fault).collect()
    }

    /// Returns true if the packet is lost.
    fn apply(
        &mut self,
        packet: &[u8],
        faults: &[Fault],
        state: &mut State,
        admitted: &Admitted,
        now: Instant,
    ) -> bool {
        let mut packet = self.copy(packet);
        let mut hold = None;
        let mut twin = None;
        let held = |by: Duration| (now + by.min(MAX_HOLD), None, None);
        for (place, fault) in faults.iter().enumerate() {
            let rule = admitted.rules.get(place).copied();
            let obstacle = change(&mut packet.bytes, *fault, state, admitted).err();
            let is_hindered = obstacle.is_some();
            if let Some(rule) = rule {
                state.note(rule, admitted, obstacle);
            }
            if is_hindered {
                continue;
            }
            self.counts[index(fault)] += 1;
            packet.note(&match rule {
                Some(rule) => format!("{}: scripted fault {}", effect(fault), rule + 1),
                None => format!("{}: random fault", effect(fault)),
            });
            match *fault {
                Fault::Drop => {
                    packet.is_lost = true;
                    self.ready.push_back(packet);
                    return true;
                }
                Fault::Mark | Fault::Corrupt(_) => {}
                Fault::Duplicate(lag) => twin = Some((self.twin_of(&packet), lag)),
                Fault::Delay(by) => hold = Some(held(by)),
                Fault::Reorder(behind, at_most) => {
                    let behind = self.admitted.saturating_add(behind.into());
                    hold = Some((now + at_most.min(MAX_HOLD), Some(behind), None));
                }
                Fault::HoldUntil(rule) => {
                    hold = Some((now + MAX_HOLD, None, Some((rule, state.released(rule)))));
                }
            }
        }
        // One of the two stays in its place, as in a network.
        match twin {
            Some((twin, Duration::ZERO)) => self.ready.push_back(twin),
            Some((twin, lag)) if hold.is_none() => {
                let (due, behind, until) = held(lag);
                self.held.push(Held { packet: twin, due, behind, until });
            }
            Some((twin, _)) => self.ready.push_back(twin),
            None => {}
        }
        match hold {
            None => self.ready.push_back(packet),
            Some((due, behind, until)) => self.held.push(Held { packet, due, behind, until }),
        }
        while self.held.len() > MAX_HELD {
            let Held { packet, .. } = self.held.remove(0);
            self.ready.push_back(packet);
        }
        false
    }

    fn release(&mut self, is_due: impl Fn(&Held) -> bool) {
        if self.held.is_empty() {
            return;
        }
        let mut freed: Vec<Held> = self.held.extract_if(.., |held| is_due(held)).collect();
        freed.sort_by_key(|held| held.due);
        self.ready.extend(freed.into_iter().map(|held| held.packet));
    }

    fn copy(&mut self, packet: &[u8]) -> Faulted {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(packet);
        Faulted { bytes, comment: String::new(), is_lost: false }
    }

    fn twin_of(&mut self, packet: &Faulted) -> Faulted {
        Faulted { comment: packet.comment.clone(), ..self.copy(&packet.bytes) }
    }
}

impl Faulted {
    /// Adds to the comment.
    fn note(&mut self, text: &str) {
        if !self.comment.is_empty() {
            self.comment.push_str("; ");
        }
        self.comment.push_str(text);
    }
}

/// Changes a packet as a fault does that changes one.
///
/// # Errors
/// Says why the packet stays as it is.
fn change(
    packet: &mut [u8],
    fault: Fault,
    state: &mut State,
    admitted: &Admitted,
) -> Result<(), String> {
    let bits = packet.len() * 8;
    let bit = match fault {
        Fault::Mark if roce_wire::mark_congestion(packet) => return Ok(()),
        Fault::Mark => return Err("not marked: its sender has set no ECT".to_owned()),
        // Counted as in a lesson: the first is the highest of its byte.
        Fault::Corrupt(Some(bit)) if (bit as usize) < bits => bit as usize ^ 7,
        Fault::Corrupt(Some(bit)) => {
            return Err(format!("not damaged: bit {bit} is beyond the frame of {bits} bits"));
        }
        Fault::Corrupt(None) if packet.len() <= ETHERNET_LEN => {
            return Err("not damaged: nothing is behind its Ethernet header".to_owned());
        }
        Fault::Corrupt(None) => {
            state.generator(admitted.stream).random_range(ETHERNET_LEN * 8..bits)
        }
        _ => return Ok(()),
    };
    packet[bit / 8] ^= 1 << (bit % 8);
    Ok(())
}

/// Returns what a fault does to a packet, for the comment of a capture.
fn effect(fault: &Fault) -> &'static str {
    match fault {
        Fault::Drop => "lost",
        Fault::Duplicate(_) => "duplicated",
        Fault::Delay(_) => "delayed",
        Fault::Reorder(..) => "reordered",
        Fault::HoldUntil(_) => "held",
        Fault::Corrupt(_) => "damaged",
        Fault::Mark => "marked",
    }
}

fn index(fault: &Fault) -> usize {
    match fault {
        Fault::Drop => 0,
        Fault::Duplicate(_) => 1,
        Fault::Delay(_) => 2,
        Fault::Reorder(..) | Fault::HoldUntil(_) => 3,
        Fault::Corrupt(_) => 4,
        Fault::Mark => 5,
    }
}

const ETHERNET_LEN: usize = 14;
/// Maximum number of held packets; beyond it the oldest is released early.
const MAX_HELD: usize = 4096;
