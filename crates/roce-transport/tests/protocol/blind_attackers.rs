//! Senders that can forge the peer's address, and see no packet: what they reach without the number of a
//! queue pair is nothing, and with it what a right PSN gives them.
//!
//! `ROCE_BLIND_PACKETS` sets how many packets each test forges.

use std::collections::VecDeque;
use std::time::Duration;

use roce_fabric::{Fate, Impairment, LinkConfig};
use roce_transport::{EndpointConfig, QpState};
use roce_wire::{
    Credits, GapReport, GapRun, KnownOpcode, MAX_GAP_REPORT_LEN, NakCode, PathMtu, Psn, Qpn, Reth,
    RnrTimer, Syndrome, opcode,
};

use crate::common::connection::{DEFAULT, End, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), ..DEFAULT };
/// PSNs ahead of the expected one of which packets are kept.
const WINDOW: u32 = 4096;
const SPACE: u32 = 1 << 24;

/// Packets that are forged for the same victims; then others take their place, since memory adds up.
const ROUND: u64 = 20_000;

/// Seeds of the rounds.
fn rounds() -> impl Iterator<Item = u64> {
    let set = std::env::var("ROCE_BLIND_PACKETS").ok();
    let packets = set.map_or(3 * ROUND, |it| it.parse().expect("ROCE_BLIND_PACKETS is a number"));
    (0..packets.div_ceil(ROUND)).map(|round| 0x5eed + round * 0x9e37)
}

/// Numbers that only look random (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) as u32) % below
    }
}

/// A packet of any kind but CNPs: they have no PSN, so that those with the number of a queue pair count.
fn forged(dice: &mut Dice, to: Qpn, psn: Psn) -> Vec<u8> {
    let syndromes = [
        Syndrome::Ack { credits: Credits::UNLIMITED },
        Syndrome::Ack { credits: Credits::for_count(0) },
        Syndrome::Nak(NakCode::PsnSequence),
        Syndrome::Nak(NakCode::RemoteAccess),
        Syndrome::RnrNak { timer: RnrTimer::DEFAULT },
    ];
    match dice.next(8) {
        0 => forge::send_only(to, psn, b"EVILEVIL"),
        1 => {
            let reth = Reth { addr: 0, rkey: 0xdead_beef, len: 8 };
            forge::write_only(to, psn, reth, &[0; 8])
        }
        2 => forge::read_request(to, psn, Reth { addr: 0, rkey: 0xdead_beef, len: 1 << 20 }),
        3 => forge::acknowledge(to, psn, syndromes[dice.next(5) as usize]),
        4 => {
            let mut payload = [0; MAX_GAP_REPORT_LEN];
            let run = GapRun { missing: 1, kept: 1 + dice.next(60) as u16 };
            let len = GapReport::write([run], &mut payload);
            forge::packet(&forge::headers(opcode::GAP_REPORT, to, psn), &payload[..len])
        }
        5 => forge::response(opcode::RC_READ_RESPONSE_MIDDLE, to, psn, forge::ACK, &[0; 1024]),
        _ => {
            let all: Vec<_> = KnownOpcode::all().filter(|it| *it != opcode::CNP).collect();
            forge::packet(&forge::headers(all[dice.next(all.len() as u32) as usize], to, psn), &[])
        }
    }
}

const LINK: LinkConfig = LinkConfig {
    latency: Duration::from_micros(10),
    bits_per_sec: Some(10_000_000_000),
    queue_frames: usize::MAX,
};

/// Two connections that write to node 1 and read from it as long as wanted.
struct Victims {
    world: World,
    ends: Vec<[End; 2]>,
    running: Vec<Exchange>,
    /// Exchanges whose requests may still be repeated.
    done: VecDeque<Exchange>,
    bytes: u64,
}

const LEN: usize = 256 << 10;
/// Messages that are complete before the memory of one is given back.
const LATE: usize = 16;

impl Victims {
    fn new(gap_reports: bool) -> Self {
        let endpoint = EndpointConfig::default();
        // Whole trains: fewer steps.
        let config = WorldConfig { link: LINK, endpoint, whole_trains: true, ..test_config() };
        let mut world = World::new(2, config);
        let options = Options { gap_reports, ..OPTIONS };
        let ends = (0..2).map(|_| connect(&mut world, [0, 1], options)).collect();
        let mut victims = Self { world, ends, running: vec![], done: VecDeque::new(), bytes: 0 };
        victims.keep_running();
        victims
    }

    /// Gives `node` a packet of the other, one of four marked.
    fn forge(&mut self, dice: &mut Dice, node: usize, packet: &[u8]) {
        match dice.next(4) {
            0 => self.world.forge_marked(1 - node, node, packet),
            _ => self.world.forge(1 - node, node, packet),
        }
    }

    /// Posts the next message of each connection whose last is complete.
    fn keep_running(&mut self) {
        let kinds = [Kind::Write, Kind::Read];
        if self.running.is_empty() {
            for (ends, kind) in self.ends.iter().zip(kinds) {
                self.running.push(Exchange::post(&mut self.world, *ends, kind, LEN, 1));
            }
        }
        if self.running.iter().all(|it| it.is_done(&self.world)) {
            for exchange in self.running.drain(..) {
                exchange.check(&self.world);
                self.bytes += LEN as u64;
                self.done.push_back(exchange);
            }
            // A READ that is repeated late ends the connection if its memory is gone.
            for exchange in self.done.drain(..self.done.len().saturating_sub(LATE)) {
                self.world.hosts[0].memory.deregister(exchange.local);
                self.world.hosts[1].memory.deregister(exchange.remote);
            }
            self.world.hosts.iter_mut().for_each(|it| it.completions.clear());
            self.keep_running();
        }
    }

    /// Microseconds in which `bytes` are transferred.
    fn rate(&self) -> f64 {
        self.bytes as f64 * 1000.0 / self.world.now().as_nanos() as f64
    }

    /// Returns true if `psn` is one that the peer of this end may send now, or that it has outstanding.
    fn is_right(&self, end: End, psn: Psn) -> bool {
        let info = self.world.hosts[end.node].endpoint.query_qp(end.qpn).unwrap();
        let attributes = info.attributes;
        let (expected, sent) = (attributes.rq_psn.unwrap(), attributes.sq_psn.unwrap());
        psn == expected || (-(WINDOW as i32)..0).contains(&psn.distance_from(sent))
    }

    fn is_ahead(&self, end: End, psn: Psn) -> bool {
        let info = self.world.hosts[end.node].endpoint.query_qp(end.qpn).unwrap();
        (1..=WINDOW as i32).contains(&psn.distance_from(info.attributes.rq_psn.unwrap()))
    }
}

/// What the victims transfer in a time when nothing is forged, in bytes per microsecond.
fn undisturbed(gap_reports: bool) -> f64 {
    let mut victims = Victims::new(gap_reports);
    for _ in 0..ROUND {
        victims.world.run_for(STEP);
        victims.keep_running();
    }
    victims.rate()
}

/// A million forged packets a second.
const STEP: Duration = Duration::from_micros(1);

#[test]
fn without_the_number_of_a_queue_pair_nothing_that_is_forged_has_an_effect() {
    let plain = undisturbed(true);
    for seed in rounds() {
        attack_without_number(seed, plain);
    }
}

fn attack_without_number(seed: u64, plain: f64) {
    let (mut victims, mut dice) = (Victims::new(true), Dice(seed));
    for _ in 0..ROUND {
        let qpn = Qpn::new(dice.next(SPACE)).unwrap();
        let node = dice.next(2) as usize;
        if victims.ends.iter().all(|it| it[node].qpn != qpn) {
            let psn = Psn::wrapping(dice.next(SPACE));
            let packet = match dice.next(8) {
                0 => forge::packet(&forge::headers(opcode::CNP, qpn, psn), &[]),
                _ => forged(&mut dice, qpn, psn),
            };
            victims.forge(&mut dice, node, &packet);
        }
        victims.world.run_for(STEP);
        victims.keep_running();
    }
    for node in 0..2 {
        for name in
            ["reorder_kept", "gap_report_rcvd", "rcvd_seq_err", "resent_pkts", "rp_cnp_handled"]
        {
            assert_eq!(victims.world.counter(node, name), 0, "{name}, seed {seed}");
        }
        assert_eq!(victims.world.hosts[node].refused_packets, 0, "all reach the endpoint");
    }
    assert_eq!(victims.rate(), plain, "seed {seed}");
}

#[test]
fn with_the_number_of_a_queue_pair_a_wrong_psn_gives_a_packet_in_a_window_of_4096_and_no_more() {
    for gap_reports in [false, true] {
        let plain = undisturbed(gap_reports);
        let (mut count, mut right, mut ahead, mut marks) = (0, 0, 0, 0);
        let (mut sum, mut least) = (0.0, f64::MAX);
        for seed in rounds() {
            let ([in_place, in_window, with_mark], rate) = attack_with_number(seed, gap_reports);
            (count, right, ahead) = (count + ROUND, right + in_place, ahead + in_window);
            marks += with_mark;
            (sum, least) = (sum + rate, least.min(rate));
        }
        let rate = sum * ROUND as f64 / count as f64;
        println!(
            "{count} packets, reports {gap_reports}: {rate:.1} of {plain:.1} bytes each µs, {least:.1} at least, \
             {right} right PSNs, {ahead} requests in the window, {marks} marks counted"
        );
        let share = 2.0 * f64::from(WINDOW + 1) / f64::from(SPACE);
        let limit = (count as f64 * share * 1.2) as u64 + 20;
        assert!(right + ahead <= limit, "{right} right, {ahead} ahead, {limit} at most");
        assert!(marks <= limit, "{marks} marks of {limit} at most");
        assert!(rate >= 0.9 * plain, "{rate} of {plain}");
    }
}

/// Returns the packets that were left out since their PSN was right, or that of a request in the
/// window, the marks that counted, and what the victims transferred.
fn attack_with_number(seed: u64, gap_reports: bool) -> ([u64; 3], f64) {
    let (mut victims, mut dice) = (Victims::new(gap_reports), Dice(seed));
    let (mut right, mut ahead) = (0, 0);
    for i in 0..ROUND {
        let end = victims.ends[dice.next(2) as usize][dice.next(2) as usize];
        let psn = Psn::wrapping(dice.next(SPACE));
        if victims.is_right(end, psn) {
            right += 1;
        } else {
            let is_ahead = victims.is_ahead(end, psn);
            let packet = forged(&mut dice, end.qpn, psn);
            let is_request = forge::parse(&packet).bth.opcode.info().is_request();
            // One that is kept is executed in its turn: that is what the window gives away.
            ahead += u64::from(is_ahead && is_request);
            if !(is_ahead && is_request) {
                let kept = victims.world.counter(end.node, "reorder_kept");
                victims.forge(&mut dice, end.node, &packet);
                assert_eq!(
                    victims.world.counter(end.node, "reorder_kept"),
                    kept,
                    "{i}, seed {seed}"
                );
            }
        }
        victims.world.run_for(STEP);
        victims.keep_running();
    }
    for node in 0..2 {
        assert_eq!(victims.world.counter(node, "gap_report_rcvd"), 0);
        assert_eq!(victims.world.hosts[node].refused_packets, 0, "all reach the endpoint");
    }
    for end in victims.ends.iter().flatten() {
        let state = end.state(&victims.world);
        assert_eq!(state, QpState::ReadyToSend, "{end:?}, seed {seed}\n{}", victims.world.report());
    }
    let marks = (0..2).map(|it| victims.world.counter(it, "np_ecn_marked_roce_packets")).sum();
    ([right, ahead, marks], victims.rate())
}

/// A forged packet that ends a connection, if it is taken.
#[derive(Clone, Copy, Debug)]
enum Deadly {
    /// Requests.
    WriteKey,
    ReadKey,
    Sequence,
    /// Responses.
    AccessNak,
    RequestNak,
    ReadLength,
}

impl Deadly {
    const ALL: [Self; 6] = [
        Self::WriteKey,
        Self::ReadKey,
        Self::Sequence,
        Self::AccessNak,
        Self::RequestNak,
        Self::ReadLength,
    ];

    fn is_request(self) -> bool {
        matches!(self, Self::WriteKey | Self::ReadKey | Self::Sequence)
    }

    fn packet(self, to: Qpn, psn: Psn) -> Vec<u8> {
        let reth = Reth { addr: 0, rkey: 0xdead_beef, len: 8 };
        match self {
            Self::WriteKey => forge::write_only(to, psn, reth, &[0; 8]),
            Self::ReadKey => forge::read_request(to, psn, reth),
            Self::Sequence => {
                forge::packet(&forge::headers(opcode::RC_SEND_MIDDLE, to, psn), &[0; 1024])
            }
            Self::AccessNak => forge::acknowledge(to, psn, forge::nak(NakCode::RemoteAccess)),
            Self::RequestNak => forge::acknowledge(to, psn, forge::nak(NakCode::InvalidRequest)),
            Self::ReadLength => {
                let opcode = opcode::RC_READ_RESPONSE_MIDDLE;
                forge::response(opcode, to, psn, forge::ACK, &[0; 8])
            }
        }
    }

    /// Whether the packet so far ahead of the oldest that is missing ends the connection at once.
    fn ends_at(self, ahead: i32) -> bool {
        match self {
            // A NAK says of which of the requests in flight it is.
            Self::AccessNak | Self::RequestNak => (0..IN_FLIGHT as i32).contains(&ahead),
            _ => ahead == 0,
        }
    }

    /// Whether it is kept until its turn comes.
    fn is_kept_at(self, ahead: i32) -> bool {
        match self {
            Self::AccessNak | Self::RequestNak => false,
            Self::ReadLength => (1..IN_FLIGHT as i32).contains(&ahead),
            _ => (1..=WINDOW as i32).contains(&ahead),
        }
    }
}

/// Packets that node 0 has in flight, or responses that it waits for.
const IN_FLIGHT: usize = 10;

#[test]
fn only_a_packet_of_exactly_the_right_psn_ends_a_connection_at_once() {
    for deadly in Deadly::ALL {
        for ahead in [-0x80_0000, -4096, -1, 0, 1, 2, 9, 10, 11, 4095, 4096, 4097, 0x7f_ffff] {
            let mut world = World::pair();
            let ends = connect(&mut world, [0, 1], OPTIONS);
            world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 100_000]));
            let kind = if matches!(deadly, Deadly::ReadLength) { Kind::Read } else { Kind::Write };
            let _exchange = Exchange::post(&mut world, ends, kind, IN_FLIGHT * 1024, 1);
            let first = OPTIONS.first_psn[0];
            let psn = Psn::wrapping(first.get().wrapping_add_signed(ahead));
            let node = usize::from(deadly.is_request());
            let end = ends[node];
            world.forge(1 - node, node, &deadly.packet(end.qpn, psn));
            let named = format!("{deadly:?}, {ahead} ahead: {}", world.report());
            let is_ended = end.state(&world) == QpState::Error;
            assert_eq!(is_ended, deadly.ends_at(ahead), "{named}");
            let kept = world.hosts[node].endpoint.reorder_bytes() > 0;
            assert_eq!(kept, deadly.is_kept_at(ahead), "{named}");
            if !deadly.is_request() || !deadly.is_kept_at(ahead) {
                continue;
            }
            // That is what the window gives away: its turn comes.
            let before = (0..ahead as u32).map(|it| {
                let reth = Reth { addr: 0, rkey: 0, len: 0 };
                forge::write_only(end.qpn, first.advanced_by(it), reth, &[])
            });
            let before: Vec<_> = before.collect();
            world.forge_batch(1 - node, node, &before);
            assert_eq!(end.state(&world), QpState::Error, "{named}");
        }
    }
}

#[test]
fn a_nak_for_the_last_request_that_was_sent_repeats_nothing_since_no_packet_can_have_drawn_it() {
    // Requests of four packets each; the packet that the NAK names, and whether that is taken for lost.
    let cases = [
        (Kind::Write, 1, 3, false),
        (Kind::Write, 1, 2, true),
        (Kind::Write, 2, 3, true),
        (Kind::Read, 1, 0, false),
        (Kind::Read, 2, 4, false),
        (Kind::Read, 2, 0, true),
    ];
    for (kind, count, missing, is_taken) in cases {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], OPTIONS);
        if kind == Kind::Write {
            world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 1000]));
        } else {
            // All responses of the first READ arrive before the NAK for the second.
            let fates = (0..1000).map(|it| if it < missing { Fate::Pass } else { Fate::Drop });
            world.set_impairment(1, Impairment::scripted(fates));
        }
        let _exchange = Exchange::post(&mut world, ends, kind, 4 * 1024, count);
        world.run_for(Duration::from_micros(10));
        let psn = OPTIONS.first_psn[0].advanced_by(missing);
        let nak = forge::acknowledge(ends[0].qpn, psn, forge::nak(NakCode::PsnSequence));
        world.forge(1, 0, &nak);
        let named = format!("{kind:?} {count} {missing}: {}", world.report());
        assert_eq!(world.counter(0, "rcvd_seq_err"), 1, "{named}");
        assert_eq!(world.counter(0, "resent_pkts") > 0, is_taken, "{named}");
    }
}

#[test]
fn forged_responses_from_far_behind_are_not_taken_for_late_ones_and_delay_no_repair() {
    let took = |forged: u32| {
        let mut world = World::new(2, WorldConfig { link: LINK, ..test_config() });
        let ends = connect(&mut world, [0, 1], OPTIONS);
        // Now the round trip is known.
        let first = Exchange::post(&mut world, ends, Kind::Read, 64 << 10, 1);
        world.run_until(|world| first.is_done(world));
        for i in 0..forged {
            let psn = Psn::wrapping(OPTIONS.first_psn[0].get().wrapping_sub(WINDOW + i * 0x1_0000));
            let opcode = opcode::RC_READ_RESPONSE_MIDDLE;
            let packet = forge::response(opcode, ends[0].qpn, psn, forge::ACK, &[0; 1024]);
            world.forge(1, 0, &packet);
        }
        let fates = (0..64).map(|it| if it == 17 { Fate::Drop } else { Fate::Pass });
        world.set_impairment(1, Impairment::scripted(fates));
        let second = Exchange::post(&mut world, ends, Kind::Read, 64 << 10, 1);
        world.run_until(|world| second.is_done(world));
        second.check(&world);
        world.now()
    };
    assert_eq!(took(50), took(0));
}

#[test]
fn forged_requests_that_are_kept_go_after_100_to_200_ms_without_progress() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], OPTIONS);
    let first = OPTIONS.first_psn[0];
    for ahead in [1, 2, 100, WINDOW] {
        let packet = forge::send_only(ends[1].qpn, first.advanced_by(ahead), b"EVILEVIL");
        world.forge(0, 1, &packet);
    }
    assert_eq!(world.counter(1, "reorder_kept"), 4);
    world.run_for(Duration::from_millis(99));
    assert!(world.hosts[1].endpoint.reorder_bytes() > 0);
    world.run_for(Duration::from_millis(102));
    assert_eq!(world.hosts[1].endpoint.reorder_bytes(), 0, "{}", world.report());
    world.settle();
}
