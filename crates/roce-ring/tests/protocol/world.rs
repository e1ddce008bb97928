//! All ranks of a ring in one process. Messages of a queue pair stay in order; all other events
//! come in any order.
//!
//! The world is adversarial within the rules: it reads the source of a write only when the write
//! arrives, completes it any time later, and starts ranks at any time. It panics when a rank breaks
//! a rule of the hardware.
//!
//! It has neither packets nor time: whatever order a network may lead to is possible here. `roce-lab` runs the
//! same machines over endpoints in virtual time.

use std::collections::VecDeque;

use rand::Rng;
use rand::rngs::StdRng;
use roce_ring::{
    Action, Compute, Geometry, Machine, MemoryKind, MemorySpan, Operation, RankBuffers, Remote,
    RingConfig, Side, Violation, WindowRecord, Work,
};

/// The value of bytes that were never written.
const UNWRITTEN: u8 = 0xff;

/// One operation of all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    pub(crate) in_place: bool,
    /// Of each rank.
    pub(crate) inputs: Vec<Vec<u8>>,
}

/// Performs computations.
pub(crate) trait Arithmetic {
    fn execute(&mut self, compute: &Compute, memory: &mut RankBuffers);
}

/// A message in flight, or arrived and not completed at its sender.
#[derive(Clone, Debug)]
struct Message {
    id: u64,
    immediate: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Data {
        from: MemorySpan,
        to: Remote,
        posted: Vec<u8>,
        /// True if the source may be overwritten at once.
        copied: bool,
    },
    Credit,
    Window(WindowRecord),
}

/// The sending half of a queue pair, and the receives at its other end.
#[derive(Default)]
struct Wire {
    sent: VecDeque<Message>,
    /// Arrived, but not completed at the sender.
    arrived: VecDeque<Message>,
    armed: u32,
}

struct Rank {
    machine: Machine,
    memory: RankBuffers,
    /// Per lane, towards the next rank, and towards the previous rank.
    wires: [Vec<Wire>; 2],
    /// By writing neighbour and lane: true for slots whose message is not consumed.
    full: [Vec<Vec<bool>>; 2],
    /// By writing neighbour and lane: data that arrived and is not consumed.
    taken: [Vec<VecDeque<Option<u32>>>; 2],
    /// By neighbour and lane: credits and windows that arrived.
    answers: [Vec<usize>; 2],
    records: Vec<Option<WindowRecord>>,
    /// Jobs begun, jobs finished.
    begun: usize,
    results: Vec<Vec<u8>>,
}

/// A possible next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Act,
    Arrive { side: usize, lane: usize },
    Complete { side: usize, lane: usize },
}

pub(crate) struct World<'a, A> {
    ranks: Vec<Rank>,
    jobs: &'a [Job],
    arithmetic: A,
    /// Events that may be possible.
    events: Vec<(usize, Event)>,
    listed: Vec<bool>,
    lanes: usize,
    /// A rank that rarely runs.
    slow: usize,
}

const NEXT: usize = 0;
const PREVIOUS: usize = 1;
const SIDES: [Side; 2] = [Side::Next, Side::Previous];

fn index(side: Side) -> usize {
    if side == Side::Next { NEXT } else { PREVIOUS }
}

impl<'a, A: Arithmetic> World<'a, A> {
    pub(crate) fn new(size: u32, config: RingConfig, jobs: &'a [Job], arithmetic: A) -> Self {
        let lanes = config.lanes as usize;
        let ranks = (0..size).map(|rank| Rank::new(Geometry::new(rank, size, config).unwrap()));
        let mut world = Self {
            ranks: ranks.collect(),
            jobs,
            arithmetic,
            events: Vec::new(),
            listed: vec![false; size as usize * (1 + 4 * lanes)],
            lanes,
            slow: 0,
        };
        (0..size as usize).for_each(|rank| world.list(rank, Event::Act));
        world
    }

    /// Runs events in random order until none is possible; returns all results by rank and job.
    pub(crate) fn run(mut self, random: &mut StdRng) -> Result<Vec<Vec<Vec<u8>>>, Violation> {
        // Half of the worlds have a slow rank.
        self.slow = random.random_range(0..2 * self.ranks.len());
        while !self.events.is_empty() {
            let mut at = random.random_range(0..self.events.len());
            if self.events[at].0 == self.slow && random.random_range(0..20) > 0 {
                at = random.random_range(0..self.events.len());
            }
            let (rank, event) = self.events.swap_remove(at);
            let place = self.place(rank, event);
            self.listed[place] = false;
            match event {
                Event::Act => self.act(rank)?,
                Event::Arrive { side, lane } => self.arrive(rank, side, lane)?,
                Event::Complete { side, lane } => {
                    let wire = &mut self.ranks[rank].wires[side][lane];
                    let count = random.random_range(1..=wire.arrived.len());
                    let last = wire.arrived.drain(..count).next_back().unwrap();
                    self.ranks[rank].machine.handle_sent(last.id).unwrap();
                    self.list(rank, Event::Act);
                    if !self.ranks[rank].wires[side][lane].arrived.is_empty() {
                        self.list(rank, event);
                    }
                }
            }
        }
        for (number, rank) in self.ranks.iter().enumerate() {
            assert_eq!(
                rank.results.len(),
                self.jobs.len(),
                "rank {number} stands still: {:?}",
                rank.machine
            );
        }
        Ok(self.ranks.into_iter().map(|rank| rank.results).collect())
    }

    fn act(&mut self, number: usize) -> Result<(), Violation> {
        let rank = &mut self.ranks[number];
        let Some(action) = rank.machine.poll_action()? else {
            if rank.machine.is_done() {
                if rank.begun > rank.results.len() {
                    let result = rank.result(&self.jobs[rank.begun - 1].inputs[number]);
                    rank.results.push(result);
                }
                if rank.begun < self.jobs.len() {
                    let job = &self.jobs[rank.begun];
                    rank.memory.begin(&job.operation, job.in_place, &job.inputs[number]);
                    let begun = rank.machine.start(&job.operation, job.in_place);
                    assert_eq!(begun, Ok(rank.begun as u64));
                    rank.begun += 1;
                    self.list(number, Event::Act);
                }
            }
            return Ok(());
        };
        let geometry = *rank.machine.geometry();
        let (side, lane, message) = match action {
            Action::Write { side, lane, id, from, to, immediate, .. } => {
                let posted = rank.memory.bytes(from).to_vec();
                let copied = from.len <= 64 && id % 3 > 0;
                if copied {
                    rank.machine.handle_copied(id).unwrap();
                }
                let kind = Kind::Data { from, to, posted, copied };
                (index(side), lane as usize, Message { id, immediate, kind })
            }
            Action::Credit { side, lane, id, immediate } => {
                (index(side), lane as usize, Message { id, immediate, kind: Kind::Credit })
            }
            Action::Announce { lane, id, immediate, length } => {
                let (_, output) =
                    self.jobs[rank.begun - 1].operation.buffer_bytes(&geometry).unwrap();
                assert_eq!(length, output);
                let record =
                    WindowRecord { addr: address(number), len: length, rkey: rank.begun as u32 };
                (PREVIOUS, lane as usize, Message { id, immediate, kind: Kind::Window(record) })
            }
            Action::Rearm { side, lane } | Action::Received { side, lane, .. } => {
                self.rearm(number, side, lane as usize);
                self.list(number, Event::Act);
                return Ok(());
            }
            Action::Compute(compute) => {
                rank.check_unsent(&compute);
                self.arithmetic.execute(&compute, &mut rank.memory);
                self.list(number, Event::Act);
                return Ok(());
            }
        };
        let wire = &mut rank.wires[side][lane];
        wire.sent.push_back(message.clone());
        let depth = wire.sent.len() + wire.arrived.len();
        assert!(depth <= geometry.sends() as usize, "the send queue overflows");
        if let Kind::Data { from, to, .. } = message.kind {
            self.place_first_packet(number, side, lane, from.len, to);
        }
        self.list(number, Event::Act);
        self.list(number, Event::Arrive { side, lane });
        Ok(())
    }

    /// The first bytes of a write may arrive at once, long before its last.
    fn place_first_packet(
        &mut self,
        sender: usize,
        side: usize,
        lane: usize,
        len: u64,
        to: Remote,
    ) {
        let receiver = self.neighbour(sender, side);
        let rank = &mut self.ranks[receiver];
        let span = match to {
            Remote::Slot { index, .. } => {
                assert!(!rank.full[1 - side][lane][index as usize], "slot {index} is not consumed");
                let writer = SIDES[1 - side];
                MemorySpan::new(MemoryKind::Slot { side: writer, lane: lane as u32, index }, 0, len)
            }
            Remote::Window { offset, .. } => {
                assert!(!rank.machine.is_done(), "no rank expects it there");
                MemorySpan::new(MemoryKind::Output, offset, len)
            }
        };
        rank.memory.bytes_mut(span).fill(UNWRITTEN);
    }

    fn arrive(&mut self, sender: usize, side: usize, lane: usize) -> Result<(), Violation> {
        let receiver = self.neighbour(sender, side);
        // From the receiver's perspective.
        let (from_side, writer) = (1 - side, SIDES[1 - side]);
        let wire = &mut self.ranks[sender].wires[side][lane];
        let message = wire.sent.pop_front().unwrap();
        wire.armed = wire.armed.checked_sub(1).expect("a receive is armed");
        wire.arrived.push_back(message.clone());
        if !wire.sent.is_empty() {
            self.list(sender, Event::Arrive { side, lane });
        }
        self.list(sender, Event::Complete { side, lane });
        self.list(receiver, Event::Act);

        let outcome = match message.kind {
            Kind::Data { from, to, posted: bytes, copied } => {
                if !copied {
                    let found = self.ranks[sender].memory.bytes(from);
                    assert_eq!(bytes, found, "overwritten before it was sent");
                }
                let rank = &mut self.ranks[receiver];
                let (place, offset) = match to {
                    Remote::Slot { index, offset } => {
                        let full = &mut rank.full[from_side][lane][index as usize];
                        assert!(!std::mem::replace(full, true), "slot {index} is not consumed");
                        let pitch = rank.machine.geometry().slot_pitch(writer);
                        assert_eq!(offset, u64::from(index) * pitch);
                        rank.taken[from_side][lane].push_back(Some(index));
                        (MemoryKind::Slot { side: writer, lane: lane as u32, index }, 0)
                    }
                    Remote::Window { address: found, key, offset } => {
                        assert_eq!(found, address(receiver) + offset);
                        assert_eq!(key as usize, rank.begun, "the window is of another operation");
                        assert!(!rank.machine.is_done());
                        assert_eq!(writer, Side::Previous);
                        rank.taken[from_side][lane].push_back(None);
                        (MemoryKind::Output, offset)
                    }
                };
                let len = bytes.len() as u32;
                rank.memory
                    .bytes_mut(MemorySpan::new(place, offset, len.into()))
                    .copy_from_slice(&bytes);
                self.hand_in(receiver, writer, lane, message.immediate, len)
            }
            Kind::Credit => {
                self.ranks[receiver].answers[from_side][lane] += 1;
                self.hand_in(receiver, writer, lane, message.immediate, 0)
            }
            Kind::Window(record) => {
                self.ranks[receiver].records[lane] = Some(record);
                self.ranks[receiver].answers[from_side][lane] += 1;
                let len = WindowRecord::LEN as u32;
                self.hand_in(receiver, writer, lane, message.immediate, len)
            }
        };
        outcome.map_err(|fault| match fault {
            roce_ring::MachineError::Peer(violation) => violation,
            roce_ring::MachineError::Caller(error) => panic!("{error}"),
        })
    }

    fn hand_in(
        &mut self,
        rank: usize,
        side: Side,
        lane: usize,
        immediate: u32,
        len: u32,
    ) -> Result<(), roce_ring::MachineError> {
        let Rank { machine, records, .. } = &mut self.ranks[rank];
        let record = || records[lane].take().unwrap();
        machine.handle_message(side, lane as u32, immediate, len, record)
    }

    fn neighbour(&self, rank: usize, side: usize) -> usize {
        let size = self.ranks.len();
        if side == NEXT { (rank + 1) % size } else { (rank + size - 1) % size }
    }

    /// Counts receives at the neighbour's end of the queue pair.
    fn rearm(&mut self, number: usize, side: Side, lane: usize) {
        let rank = &mut self.ranks[number];
        let (geometry, at) = (*rank.machine.geometry(), index(side));
        // Receives of credits and windows are posted first: these messages never wait.
        if rank.answers[at][lane] > 0 {
            rank.answers[at][lane] -= 1;
        } else if let Some(index) = rank.taken[at][lane].pop_front().unwrap() {
            rank.full[at][lane][index as usize] = false;
            let slot = MemoryKind::Slot { side, lane: lane as u32, index };
            rank.memory
                .bytes_mut(MemorySpan::new(slot, 0, geometry.slot_pitch(side)))
                .fill(UNWRITTEN);
        }
        let sender = self.neighbour(number, at);
        let wire = &mut self.ranks[sender].wires[1 - at][lane];
        wire.armed += 1;
        assert!(wire.armed <= geometry.receives(), "more receives than the queue holds");
    }

    fn list(&mut self, rank: usize, event: Event) {
        let place = self.place(rank, event);
        if !std::mem::replace(&mut self.listed[place], true) {
            self.events.push((rank, event));
        }
    }

    fn place(&self, rank: usize, event: Event) -> usize {
        let kind = match event {
            Event::Act => 0,
            Event::Arrive { side, lane } => 1 + side * self.lanes + lane,
            Event::Complete { side, lane } => 1 + (2 + side) * self.lanes + lane,
        };
        rank * (1 + 4 * self.lanes) + kind
    }
}

impl Rank {
    fn new(geometry: Geometry) -> Self {
        let lanes = geometry.lanes() as usize;
        let armed = geometry.receives();
        let wires = || (0..lanes).map(|_| Wire { armed, ..Wire::default() }).collect();
        let full = || vec![vec![false; geometry.slots() as usize]; lanes];
        Self {
            machine: Machine::new(geometry),
            memory: RankBuffers::new(geometry, UNWRITTEN),
            wires: [wires(), wires()],
            full: [full(), full()],
            taken: [vec![VecDeque::new(); lanes], vec![VecDeque::new(); lanes]],
            answers: [vec![0; lanes], vec![0; lanes]],
            records: vec![None; lanes],
            begun: 0,
            results: Vec::new(),
        }
    }

    /// Returns the result after checking that the input is as it was, but for what is output in place.
    fn result(&self, input: &[u8]) -> Vec<u8> {
        let output = self.memory.output();
        let span = |memory, at, len| MemorySpan::new(memory, at as u64, len as u64);
        let now = self.memory.bytes(span(MemoryKind::Input, 0, input.len()));
        for (at, _) in input.iter().zip(now).enumerate().filter(|(_, (before, now))| before != now)
        {
            let (byte, all) =
                (span(MemoryKind::Input, at, 1), span(MemoryKind::Output, 0, output.len()));
            assert!(self.memory.overlap(byte, all), "byte {at} of the input changed");
        }
        output.to_vec()
    }

    /// Checks that no computation overwrites the source of an outstanding send.
    fn check_unsent(&self, compute: &Compute) {
        let (Work::Copy { into, .. } | Work::Reduce { into, .. }) = compute.work;
        for wire in self.wires.iter().flatten() {
            for message in wire.sent.iter().chain(&wire.arrived) {
                if let Kind::Data { from, copied: false, .. } = message.kind {
                    assert!(!self.memory.overlap(from, into), "{into:?} overwrites {from:?}");
                }
            }
        }
    }
}

/// The address that a rank announces for its output.
fn address(rank: usize) -> u64 {
    (rank as u64 + 1) << 40
}
