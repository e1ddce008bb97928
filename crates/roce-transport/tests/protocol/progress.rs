//! Progress: every request ends within a bound, whatever keeps its driver from sending.

use std::time::Duration;

use proptest::prelude::*;
use roce_fabric::{Impairment, ImpairmentRates};
use roce_transport::{
    CompletionStatus, Instant, PeerWindowConfig, QpState, RecvWr, SendOperation, SendWr,
    WindowConfig,
};

use crate::common::connection::{DEFAULT, End, Options, PD, connect, timeout};
use crate::common::exchange::{Exchange, Kind, request, sge, work};
use crate::common::repeat::for_each_case;
use crate::common::world::{World, WorldConfig, test_config};
use roce_simnet::{Driver, EventKind, Region, Rights};
use roce_wire::Service;

/// The time that all tries of a request take: an ACK timeout for each, and another one at most
/// where what is sent again has to wait before it leaves.
fn bound(options: &Options) -> Duration {
    Duration::from_nanos(4096 << options.ack_timeout.exponent())
        * 2
        * (u32::from(options.retry_count) + 1)
}

/// Time until the window of a dead peer stops limiting.
const PEER_TIMEOUTS: Duration = Duration::from_millis(16 + 32 + 64);

/// Time until UC and UD requests are dropped that the interface does not take, and that of the
/// longest packet at the lowest static rate.
const UNSENT: Duration = Duration::from_millis(1002);

/// Something that happens to one side.
#[derive(Clone, Debug)]
enum Step {
    Post {
        qp: usize,
        kind: Kind,
        len: usize,
        lazy: bool,
        has_receive: bool,
    },
    Invalidate {
        qp: usize,
    },
    /// The interface takes no frames for a while.
    Full(Duration),
    /// The transmit queue is suspended for a while.
    Suspended(Duration),
    /// The interface loses all frames for a while.
    NoCarrier(Duration),
    /// The driver does not run for a while.
    Stopped(Duration),
    /// The driver runs for a millisecond in so many.
    Starved(u64),
    HoldAcks(Duration),
    Drain {
        qp: usize,
    },
    Resume {
        qp: usize,
    },
    /// Nothing, for a while.
    Pause(Duration),
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        6 => (0..14u32).prop_map(|shift| Duration::from_micros(1 << shift)),
        1 => Just(Duration::MAX),
    ]
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let kind = prop::sample::select(&Kind::ALL[..]);
    let post = (0..QUEUE_PAIRS, kind, 0..2000usize, any::<bool>(), prop::bool::weighted(0.95));
    let step = prop_oneof![
        10 => post.prop_map(|(qp, kind, len, lazy, has_receive)| {
            Step::Post { qp, kind, len, lazy, has_receive }
        }),
        1 => (0..QUEUE_PAIRS).prop_map(|qp| Step::Invalidate { qp }),
        2 => span().prop_map(Step::Full),
        2 => span().prop_map(Step::Suspended),
        2 => span().prop_map(Step::NoCarrier),
        2 => span().prop_map(Step::Stopped),
        1 => (2..50u64).prop_map(Step::Starved),
        1 => (0..8u32).prop_map(|shift| Step::HoldAcks(Duration::from_micros(1 << shift))),
        1 => (0..QUEUE_PAIRS).prop_map(|qp| Step::Drain { qp }),
        1 => (0..QUEUE_PAIRS).prop_map(|qp| Step::Resume { qp }),
        6 => (0..12u32).prop_map(|shift| Step::Pause(Duration::from_micros(1 << shift))),
    ];
    (0..2usize, step)
}

/// How both ends are made.
#[derive(Clone, Debug)]
struct Setup {
    options: Options,
    services: [Service; QUEUE_PAIRS],
    peer: PeerWindowConfig,
    window: u32,
    max_packets: usize,
    /// Of a hundred frames so many are lost on the way.
    loss: u32,
    seed: u64,
}

fn setup() -> impl Strategy<Value = Setup> {
    let frames = prop::sample::select(&[1, 2, 6, 96][..]);
    let window = prop::sample::select(&[1, 2, 5, 128][..]);
    let times = (4..9u8, 0..4u8, 0..7u8);
    let rest = (any::<bool>(), any::<bool>(), prop::sample::select(&[0, 0, 2, 20][..]));
    let services = prop::sample::select(
        &[
            [Service::Rc; QUEUE_PAIRS],
            [Service::Rc, Service::Uc, Service::Ud],
            [Service::Uc, Service::Ud, Service::Ud],
        ][..],
    );
    let rate = prop::option::of(prop::sample::select(&[1_000_000, 300_000_000][..]));
    let services = (services, rate);
    (times, frames, window, rest, any::<u64>(), services).prop_map(
        |((ack_timeout, retry_count, rnr_retry), frames, window, rest, seed, services)| {
            let (services, max_rate) = services;
            let (signal_all, is_single, loss) = rest;
            let options = Options {
                ack_timeout: timeout(ack_timeout),
                retry_count,
                rnr_retry,
                signal_all,
                max_rate,
                ..DEFAULT
            };
            let peer = PeerWindowConfig {
                initial_frames: frames,
                min_frames: 1,
                max_frames: frames.max(1),
            };
            let max_packets = if is_single { 1 } else { 16 };
            Setup { options, services, peer, window, max_packets, loss, seed }
        },
    )
}

const QUEUE_PAIRS: usize = 3;

/// Two nodes, the requests posted at each, and when something of them last ended.
struct Run {
    world: World,
    options: Options,
    services: [Service; QUEUE_PAIRS],
    /// Of each queue pair both ends.
    ends: Vec<[End; 2]>,
    regions: [Region; 2],
    posted: [Vec<u64>; 2],
    /// Running time of each side's driver since it last made progress.
    waited: [Duration; 2],
    /// What a side had completed and received answers to at that time.
    seen: [u64; 2],
    /// How often something of each side was acknowledged, in so many events of the timeline.
    acknowledged: ([u64; 2], usize),
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let mut config = WorldConfig { train_packets: setup.max_packets, ..test_config() };
        config.endpoint.peer_window = setup.peer;
        config.endpoint.window = WindowConfig {
            initial_packets: setup.window,
            min_packets: 1,
            max_packets: setup.window.max(8),
            ..WindowConfig::default()
        };
        let mut world = World::new(2, config);
        world.keep_timeline(true);
        let options = |service| Options { service, ..setup.options };
        let services = setup.services;
        let ends = services.map(|it| connect(&mut world, [0, 1], options(it))).to_vec();
        let rates =
            ImpairmentRates { drop: f64::from(setup.loss) / 100.0, ..ImpairmentRates::default() };
        for node in 0..2 {
            let seed = setup.seed ^ node as u64;
            world.set_impairment(node, Impairment::random(seed, rates));
        }
        let regions = [0, 1]
            .map(|node: usize| world.hosts[node].memory.register_filled(PD, 2000, Rights::ALL, 9));
        let options = setup.options;
        let (posted, waited, seen) = ([vec![], vec![]], [Duration::ZERO; 2], [0; 2]);
        let acknowledged = ([0; 2], 0);
        Self { world, options, services, ends, regions, posted, waited, seen, acknowledged }
    }

    fn take(&mut self, id: u64, side: usize, step: Step) {
        let until = |span: Duration| match span {
            Duration::MAX => Driver::FOR_EVER,
            span => self.world.now() + span,
        };
        match step {
            Step::Full(span) => self.driver(side).full_until = until(span),
            Step::Suspended(span) => {
                let until = until(span);
                self.world.with(side, |node, _| node.driver.suspended_until = until);
            }
            Step::NoCarrier(span) => self.driver(side).no_carrier_until = until(span),
            // One that never runs again ends nothing.
            Step::Stopped(Duration::MAX) => {}
            Step::Stopped(span) => self.driver(side).stopped_until = until(span),
            Step::HoldAcks(span) => self.driver(side).holds_acks_until = until(span),
            Step::Starved(period) => {
                let starved = (Duration::from_millis(period), Duration::from_millis(1));
                self.driver(side).starved = Some(starved);
            }
            Step::Pause(span) => self.pause(span),
            Step::Post { qp, kind, len, lazy, has_receive } => {
                let (kind, len) = within(self.services[qp], kind, len);
                let len = if kind.is_atomic() { 8 } else { len };
                let mut remote = self.regions[1 - side];
                if kind == Kind::SendInvalidate {
                    let rights = Rights { invalidatable: true, ..Rights::ALL };
                    remote = self.world.hosts[1 - side].memory.register_filled(PD, 8, rights, 0);
                }
                if kind.takes_receive() && has_receive {
                    let peer = self.ends[qp][1 - side];
                    let scatter = sge(self.regions[1 - side], 0, 2000).into();
                    let receive = RecvWr { wr_id: id, sg_list: scatter };
                    self.world.with(1 - side, |node, now| {
                        let _is_full = node.endpoint.post_recv(now, peer.qpn, receive);
                    });
                }
                let mut work = request(kind, remote, sge(self.regions[side], 0, len));
                (work.defer_ack, work.signaled) = (lazy, !lazy);
                self.post(qp, side, SendWr { wr_id: id, ..work });
            }
            Step::Invalidate { qp } => {
                let rights = Rights { invalidatable: true, ..Rights::ALL };
                let key = self.world.hosts[side].memory.register_filled(PD, 8, rights, 0).key;
                let work = work(SendOperation::LocalInvalidate { key });
                self.post(qp, side, SendWr { wr_id: id, ..work });
            }
            Step::Drain { qp } => self.modify(self.ends[qp][side], QpState::SendQueueDrain),
            Step::Resume { qp } => self.modify(self.ends[qp][side], QpState::ReadyToSend),
        }
    }

    fn driver(&mut self, side: usize) -> &mut Driver {
        &mut self.world.hosts[side].driver
    }

    fn modify(&mut self, end: End, to: QpState) {
        let from = end.state(&self.world);
        if matches!(from, QpState::ReadyToSend | QpState::SendQueueDrain) && from != to {
            end.move_to(&mut self.world, to);
        }
    }

    fn post(&mut self, qp: usize, side: usize, work: SendWr) {
        let id = work.wr_id;
        let (end, peer) = (self.ends[qp][side], self.ends[qp][1 - side]);
        let options = Options { service: self.services[qp], ..self.options };
        if end.try_post_to_peer(&mut self.world, work, peer, &options).is_ok() {
            self.posted[side].push(id);
        }
    }

    fn pause(&mut self, span: Duration) {
        let end = self.world.now() + span;
        while self.world.now() < end {
            let before = self.world.now();
            self.world.run_to_next(end);
            self.note(before);
        }
    }

    /// Runs until every request has ended.
    fn finish(&mut self) {
        for qp in 0..QUEUE_PAIRS {
            (0..2).for_each(|side| self.modify(self.ends[qp][side], QpState::ReadyToSend));
        }
        while (0..2).any(|side| self.is_waiting(side)) {
            let before = self.world.now();
            assert!(self.world.step(), "nothing more will happen\n{}", self.world.report());
            self.note(before);
        }
    }

    /// Whether a request of this side has not ended.
    fn is_waiting(&self, side: usize) -> bool {
        self.ends.iter().any(|ends| {
            let info = self.world.hosts[side].endpoint.query_qp(ends[side].qpn);
            info.is_some_and(|info| {
                info.state != QpState::SendQueueDrain && info.sends_outstanding > 0
            })
        })
    }

    /// The queue pairs of this side without acknowledgements.
    fn unreliable(&self, side: usize) -> impl Iterator<Item = End> {
        let all = self.ends.iter().zip(self.services);
        all.filter(|(_, service)| *service != Service::Rc).map(move |(ends, _)| ends[side])
    }

    /// Notes which side made progress since `before`, and fails if a side that waits did not for
    /// too long.
    fn note(&mut self, before: Instant) {
        let now = self.world.now();
        let (acknowledged, noted) = &mut self.acknowledged;
        for event in &self.world.timeline().events[*noted..] {
            let is_one = matches!(event.kind, EventKind::Acknowledged { .. });
            acknowledged[event.host] += u64::from(is_one);
            *noted += 1;
        }
        for side in 0..2 {
            let node = &self.world.hosts[side];
            let unacknowledged: u64 = self.unreliable(side).map(|end| psn(&self.world, end)).sum();
            let node_seen = node.completions.len() as u64 + self.acknowledged.0[side];
            let seen = node_seen + unacknowledged;
            if seen != self.seen[side] || !self.is_waiting(side) {
                (self.seen[side], self.waited[side]) = (seen, Duration::ZERO);
                continue;
            }
            self.waited[side] += node.driver.running_between(before, now);
            // It catches up for half of each millisecond at worst, and gets over some stops.
            let rest = if self.unreliable(side).next().is_some() { UNSENT } else { Duration::ZERO };
            let most =
                (bound(&self.options) + PEER_TIMEOUTS + rest) * 2 + Duration::from_millis(20);
            let waited = self.waited[side];
            assert!(waited <= most, "side {side} waits for {waited:?}\n{}", self.world.report());
        }
    }
}

/// The kind and length nearest to these that the service has.
fn within(service: Service, kind: Kind, len: usize) -> (Kind, usize) {
    match (service, kind) {
        (Service::Rc, _) => (kind, len),
        (Service::Uc, Kind::Send | Kind::SendImmediate | Kind::Write | Kind::WriteImmediate) => {
            (kind, len)
        }
        (Service::Uc, _) => (Kind::Write, len),
        (_, Kind::SendImmediate) => (kind, len.min(256)),
        _ => (Kind::Send, len.min(256)),
    }
}

/// The PSN of the next packet.
fn psn(world: &World, end: End) -> u64 {
    let info = world.hosts[end.node].endpoint.query_qp(end.qpn).expect("it is there");
    info.attributes.sq_psn.map_or(0, |psn| psn.get().into())
}

#[test]
fn every_request_ends_whatever_keeps_the_driver_from_sending() {
    let strategy = (setup(), prop::collection::vec(step(), 1..40));
    for_each_case(5000, strategy, |(setup, steps)| {
        let mut run = Run::new(&setup);
        for (id, (side, step)) in steps.into_iter().enumerate() {
            run.take(id as u64, side, step);
        }
        run.finish();
        for side in 0..2 {
            let node = &run.world.hosts[side];
            for id in &run.posted[side] {
                let ended = node.completions.iter().filter(|(_, it)| {
                    it.wr_id == *id && it.operation != roce_transport::CompletionOperation::Recv
                });
                assert!(ended.count() <= 1, "request {id} of side {side} ended twice");
            }
        }
        run.world.assert_guards_untouched();
    });
}

/// Options whose bound is short, and the bound.
fn short() -> (Options, Duration) {
    let options = Options { ack_timeout: timeout(8), retry_count: 3, ..DEFAULT };
    (options, Duration::from_nanos(4096 << 8) * 4)
}

#[test]
fn requests_that_the_interface_never_takes_end_at_the_bound() {
    for kind in Kind::ALL {
        for was_idle in [true, false] {
            let (options, bound) = short();
            let mut world = World::pair();
            let ends = connect(&mut world, [0, 1], options);
            let before = if was_idle { 0 } else { 1 };
            if !was_idle {
                let exchange = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
                world.run_until(|world| exchange.is_done(world));
                // A program posts by the clock of its last call.
                world.run_for(Duration::from_secs(1));
            }
            world.hosts[0].driver.full_until = Driver::FOR_EVER;
            let began = world.now();
            Exchange::post(&mut world, ends, kind, 1000, 3);
            world.run_until(|world| ends[0].sent(world).len() > before);
            let took = world.now().saturating_since(began);
            let statuses: Vec<_> =
                ends[0].sent(&world)[before..].iter().map(|it| it.status).collect();
            let flushed = CompletionStatus::WorkRequestFlushed;
            assert_eq!(statuses, [CompletionStatus::RetryExceeded, flushed, flushed]);
            assert_eq!(took, bound, "{kind:?}");
        }
    }
}

#[test]
fn requests_in_flight_end_at_the_bound_when_the_interface_takes_no_more() {
    for kind in Kind::ALL {
        // Its frames are lost from some moment on; later it does not even take them.
        for full_after in [0, 100, 900, 1500, 3000] {
            let (options, bound) = short();
            let mut world = World::pair();
            let ends = connect(&mut world, [0, 1], options);
            world.hosts[0].driver.no_carrier_until = Driver::FOR_EVER;
            let began = world.now();
            Exchange::post(&mut world, ends, kind, 1000, 3);
            world.run_for(Duration::from_micros(full_after));
            world.hosts[0].driver.full_until = Driver::FOR_EVER;
            world.run_until(|world| !ends[0].sent(world).is_empty());
            let took = world.now().saturating_since(began);
            assert_eq!(ends[0].sent(&world)[0].status, CompletionStatus::RetryExceeded);
            assert!(took >= bound && took <= bound * 2, "{kind:?}, {full_after} µs: {took:?}");
        }
    }
}

#[test]
fn requests_that_the_interface_takes_late_are_sent_and_complete() {
    let (options, bound) = short();
    for kind in Kind::ALL {
        for part in [1, 5, 9] {
            let mut world = World::pair();
            let ends = connect(&mut world, [0, 1], options);
            world.hosts[0].driver.full_until = world.now() + bound * part / 10;
            let exchange = Exchange::post(&mut world, ends, kind, 1000, 3);
            world.run_until(|world| exchange.is_done(world));
            exchange.check(&world);
        }
    }
}

#[test]
fn a_queue_pair_that_waits_for_its_turn_spends_no_retry_while_others_get_responses() {
    // A peer that works off a packet in 33 µs; an ACK timeout is 15 packets, and there is no retry.
    let link = roce_fabric::LinkConfig {
        latency: Duration::from_micros(1),
        bits_per_sec: Some(62_000_000),
        queue_frames: usize::MAX,
    };
    let mut config = WorldConfig { link, ..test_config() };
    config.endpoint.peer_window =
        PeerWindowConfig { initial_frames: 4, min_frames: 4, max_frames: 4 };
    let mut world = World::new(2, config);
    let options = Options { ack_timeout: timeout(7), retry_count: 0, ..DEFAULT };
    let exchanges: Vec<_> = (0..100)
        .map(|_| {
            let ends = connect(&mut world, [0, 1], options);
            Exchange::prepare(&mut world, ends, Kind::Write, 200, 2)
        })
        .collect();
    exchanges.iter().for_each(|it| it.post_sends(&mut world));
    world.run_until(|world| exchanges.iter().all(|it| it.is_done(world)));
    exchanges.iter().for_each(|it| it.check(&world));
}

#[test]
fn requests_behind_a_full_window_end_though_the_interface_takes_no_more() {
    let mut config = WorldConfig { train_packets: 1, ..test_config() };
    config.endpoint.peer_window =
        PeerWindowConfig { initial_frames: 1, min_frames: 1, max_frames: 1 };
    let mut world = World::new(2, config);
    world.hosts[0].driver.no_carrier_until = Driver::FOR_EVER;
    let (options, bound) = short();
    let connections: Vec<_> = (0..3).map(|_| connect(&mut world, [0, 1], options)).collect();
    for ends in &connections {
        Exchange::post(&mut world, *ends, Kind::Write, 100, 2);
    }
    let began = world.now();
    world.hosts[0].driver.full_until = Driver::FOR_EVER;
    world.run_until(|world| connections.iter().all(|ends| ends[0].sent(world).len() == 2));
    let took = world.now().saturating_since(began);
    assert!(took <= PEER_TIMEOUTS + bound * 2, "{took:?}");
}

#[test]
fn what_was_not_begun_waits_without_a_timer_while_the_queue_is_drained() {
    let (options, _) = short();
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], options);
    ends[0].move_to(&mut world, QpState::SendQueueDrain);
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
    world.settle();
    assert_eq!((world.hosts[0].endpoint.poll_timeout(), exchange.is_done(&world)), (None, false));
    world.hosts[0].driver.full_until = Driver::FOR_EVER;
    ends[0].move_to(&mut world, QpState::ReadyToSend);
    world.run_until(|world| !ends[0].sent(world).is_empty());
    assert_eq!(ends[0].sent(&world)[0].status, CompletionStatus::RetryExceeded);
}
