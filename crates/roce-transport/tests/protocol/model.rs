//! Random operations against a naive model: two byte arrays and two lists of completions.

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use roce_fabric::{Impairment, ImpairmentRates};
use roce_transport::{RemoteAddr, SendOperation, SendWr, SgList, Sge, WrData};

use crate::common::connection::{DEFAULT, End, Options, PD, connect};
use crate::common::exchange::{sge, work};
use crate::common::repeat::for_each_case;
use crate::common::world::{World, WorldConfig, test_config};
use roce_simnet::{Region, Rights};

/// Bytes each side has for each direction.
const ROOM: usize = 2048;

#[derive(Clone, Copy, Debug)]
enum What {
    Send { immediate: bool },
    Write { immediate: bool },
    Read,
    FetchAdd(u64),
    CompareSwap { hit: bool, swap: u64 },
}

/// One step: work of one side, then perhaps some time.
#[derive(Clone, Debug)]
struct Step {
    side: usize,
    what: What,
    local: usize,
    remote: usize,
    len: usize,
    /// The local span is cut into this many pieces.
    pieces: usize,
    signaled: bool,
    inline: bool,
    /// The receive, if one is needed, is posted this many steps later.
    receive_late: bool,
    pause: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        any::<bool>().prop_map(|immediate| What::Send { immediate }),
        any::<bool>().prop_map(|immediate| What::Write { immediate }),
        Just(What::Read),
        any::<u64>().prop_map(What::FetchAdd),
        (any::<bool>(), any::<u64>()).prop_map(|(hit, swap)| What::CompareSwap { hit, swap }),
    ];
    let len = prop_oneof![Just(0usize), 1..300usize, 1..ROOM];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (0..2usize, what, 0..ROOM, 0..ROOM, len, 1..9usize, flags, 0..40u64).prop_map(
        |(side, what, local, remote, len, pieces, (signaled, inline, receive_late), pause)| Step {
            side,
            what,
            local,
            remote,
            len,
            pieces,
            signaled,
            inline,
            receive_late,
            pause,
        },
    )
}

/// What one direction should lead to: requester's and responder's bytes, and the completions.
struct Model {
    requester: Vec<u8>,
    responder: Vec<u8>,
    sent: Vec<(u64, u32)>,
    received: Vec<(u64, u32, Option<[u8; 4]>)>,
    /// Spans that READs and atomics since the last fence fill, here, and may look at again, there.
    filling: Vec<Range<usize>>,
    looking: Vec<Range<usize>>,
    /// Spans that were ever filled: when that happens, the model does not know.
    filled: Vec<Range<usize>>,
}

fn overlaps(spans: &[Range<usize>], span: &Range<usize>) -> bool {
    spans.iter().any(|it| it.start < span.end && span.start < it.end)
}

/// One direction of the connection with its own memory at both ends.
struct Direction {
    from: End,
    to: End,
    local: Region,
    remote: Region,
    model: Model,
    late: Vec<(u64, Vec<Sge>)>,
}

impl Direction {
    fn new(world: &mut World, from: End, to: End) -> Self {
        let local = world.hosts[from.node].memory.register_filled(PD, ROOM, Rights::ALL, 3);
        let remote = world.hosts[to.node].memory.register_filled(PD, ROOM, Rights::ALL, 130);
        let model = Model {
            requester: world.hosts[from.node].memory.bytes(local).to_vec(),
            responder: world.hosts[to.node].memory.bytes(remote).to_vec(),
            sent: vec![],
            received: vec![],
            filling: vec![],
            looking: vec![],
            filled: vec![],
        };
        Self { from, to, local, remote, model, late: vec![] }
    }

    /// Posts one step, and does it in the model.
    fn take(&mut self, world: &mut World, id: u64, step: &Step) {
        let atomic = matches!(step.what, What::FetchAdd(_) | What::CompareSwap { .. });
        let (len, remote) = match atomic {
            true => (8, step.remote.min(ROOM - 8) & !7),
            false => (step.len.min(ROOM - step.local.max(step.remote)), step.remote),
        };
        let local = step.local.min(ROOM - len);
        let (here, there) = (local..local + len, remote..remote + len);
        let model = &mut self.model;
        let brings = atomic || matches!(step.what, What::Read);
        let changes = !matches!(step.what, What::Read);
        // A READ may be repeated until its data has arrived: what it reads must not change
        // under it, and what it fills must not be sent, without a fence.
        let fence = overlaps(&model.filling, &here) || changes && overlaps(&model.looking, &there);
        if fence {
            model.filling.clear();
            model.looking.clear();
        }
        if brings {
            model.filling.push(here.clone());
            model.filled.push(here.clone());
        }
        if !changes {
            model.looking.push(there.clone());
        }
        let span = RemoteAddr { addr: self.remote.addr + remote as u64, rkey: self.remote.key };
        let tell = |immediate: bool| immediate.then(|| (id as u32 ^ 0x5a5a_0000).to_be_bytes());
        let mut original = [0; 8];
        if atomic {
            original.copy_from_slice(&model.responder[there.clone()]);
        }
        let word = u64::from_ne_bytes(original);
        let operation = match step.what {
            What::Send { immediate } => {
                SendOperation::Send { immediate: tell(immediate), invalidate: None }
            }
            What::Write { immediate } => {
                SendOperation::Write { remote: span, immediate: tell(immediate) }
            }
            What::Read => SendOperation::Read { remote: span },
            What::FetchAdd(add) => SendOperation::FetchAdd { remote: span, add },
            What::CompareSwap { hit, swap } => {
                let compare = if hit { word } else { !word };
                SendOperation::CompareSwap { remote: span, compare, swap }
            }
        };
        match step.what {
            What::Send { .. } | What::Write { .. } => {
                model.responder[there].copy_from_slice(&model.requester[here]);
            }
            What::Read => model.requester[here].copy_from_slice(&model.responder[there]),
            What::FetchAdd(add) => {
                model.requester[here].copy_from_slice(&original);
                model.responder[there].copy_from_slice(&word.wrapping_add(add).to_ne_bytes());
            }
            What::CompareSwap { hit, swap } => {
                model.requester[here].copy_from_slice(&original);
                let new = if hit { swap } else { word };
                model.responder[there].copy_from_slice(&new.to_ne_bytes());
            }
        }
        self.receive(world, id, step, remote, len);
        if step.signaled {
            let told = if brings { len as u32 } else { 0 };
            self.model.sent.push((id, told));
        }
        // Inline data is taken at the post, so it may not wait for a READ.
        let settled = !overlaps(&self.model.filled, &(local..local + len));
        let inline = step.inline && !brings && len <= 256 && settled;
        let data = if inline {
            let bytes = world.hosts[self.from.node].memory.bytes(self.local);
            WrData::Inline(bytes[local..local + len].to_vec().into())
        } else {
            WrData::Sges(SgList::from(cut(self.local, local, len, step.pieces).as_slice()))
        };
        let send = SendWr { wr_id: id, data, signaled: step.signaled, fence, ..work(operation) };
        self.from.post_send(world, send);
    }

    /// The receive that a SEND or WRITE with immediate uses up: at once, or later.
    fn receive(&mut self, world: &mut World, id: u64, step: &Step, remote: usize, len: usize) {
        let immediate = match step.what {
            What::Send { immediate } => immediate,
            What::Write { immediate: true } => true,
            _ => return,
        };
        let told = immediate.then(|| (id as u32 ^ 0x5a5a_0000).to_be_bytes());
        self.model.received.push((id, len as u32, told));
        let pieces = match step.what {
            What::Send { .. } => cut(self.remote, remote, len, step.pieces % 5 + 1),
            _ => vec![],
        };
        self.late.push((id, pieces));
        if !step.receive_late {
            self.post_late(world);
        }
    }

    fn post_late(&mut self, world: &mut World) {
        for (id, pieces) in self.late.drain(..) {
            self.to.post_recv(world, id, &pieces);
        }
    }

    fn check(&self, world: &World) {
        let report = || world.report();
        let sent: Vec<_> = self.from.sent(world);
        assert!(sent.iter().all(|it| it.status == roce_transport::CompletionStatus::Success));
        let ids: Vec<_> = sent.iter().map(|it| it.wr_id).collect();
        let expected: Vec<_> = self.model.sent.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, expected, "{}", report());
        for (completion, (_, len)) in sent.iter().zip(&self.model.sent) {
            if *len > 0 {
                assert_eq!(completion.byte_len, *len);
            }
        }
        let received: Vec<_> = self.to.received(world);
        let received: Vec<_> =
            received.iter().map(|it| (it.wr_id, it.byte_len, it.immediate)).collect();
        assert_eq!(received, self.model.received, "{}", report());
        let requester = world.hosts[self.from.node].memory.bytes(self.local);
        let responder = world.hosts[self.to.node].memory.bytes(self.remote);
        assert!(requester == self.model.requester, "requester's bytes\n{}", report());
        assert!(responder == self.model.responder, "responder's bytes\n{}", report());
    }
}

/// A span in up to `pieces` pieces, some of them empty.
fn cut(region: Region, start: usize, len: usize, pieces: usize) -> Vec<Sge> {
    let bound = |i: usize| start + len * i / pieces;
    (0..pieces).map(|i| sge(region, bound(i), bound(i + 1) - bound(i))).collect()
}

#[test]
fn random_operations_both_ways_do_what_the_naive_model_says() {
    let rates = (0..4u32, 0..4u32, 0..10u32).prop_map(|(drop, twice, late)| ImpairmentRates {
        drop: f64::from(drop) / 100.0,
        duplicate: f64::from(twice) / 100.0,
        delay: f64::from(late) / 100.0,
        corrupt: 0.0,
        mark: 0.1,
        max_delay: Duration::from_micros(300),
    });
    let strategy = (any::<u64>(), rates, prop::collection::vec(step(), 1..40));
    for_each_case(6000, strategy, |(seed, rates, steps)| {
        let ect = WorldConfig { traffic_class: 2, ..test_config() };
        let mut world = World::new(2, ect);
        let options = Options { signal_all: false, ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        world.set_impairment(0, Impairment::random(seed, rates));
        world.set_impairment(1, Impairment::random(!seed, rates));
        let mut directions = [
            Direction::new(&mut world, ends[0], ends[1]),
            Direction::new(&mut world, ends[1], ends[0]),
        ];
        for (id, step) in steps.iter().enumerate() {
            directions[step.side].take(&mut world, id as u64, step);
            world.run_for(Duration::from_micros(step.pause));
        }
        for direction in &mut directions {
            direction.post_late(&mut world);
        }
        world.settle();
        directions.iter().for_each(|direction| direction.check(&world));
        world.assert_guards_untouched();
    });
}
