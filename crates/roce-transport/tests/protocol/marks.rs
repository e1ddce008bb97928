//! Congestion marks: what the receiver answers, and what the sender makes of it.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig};
use roce_transport::{EndpointConfig, Service};
use roce_wire::{Headers, PathMtu, Psn, Reth, opcode};

use crate::common::connection::{DEFAULT, End, Options, connect};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

/// ECT(0).
const ECT: u8 = 2;
const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ..DEFAULT };

fn world(traffic_class: u8, congestion: CongestionConfig) -> World {
    let endpoint = EndpointConfig { congestion, ..EndpointConfig::default() };
    // 10 Gbit/s, and room for all that is in flight: only marks show congestion.
    let latency = Duration::from_micros(20);
    let rate = Some(10_000_000_000);
    let link = LinkConfig { latency, bits_per_sec: rate, queue_frames: usize::MAX };
    World::new(2, WorldConfig { link, traffic_class, endpoint, ..test_config() })
}

/// Marks this share of the frames that `node` sends.
fn mark(world: &mut World, node: usize, share: f64) {
    let rates = ImpairmentRates { mark: share, ..ImpairmentRates::default() };
    world.set_impairment(node, Impairment::random(7, rates));
}

/// Does so many messages of 100 000 bytes, checks their data, and returns the time that they took.
fn exchange(world: &mut World, ends: [End; 2], kind: Kind, count: usize) -> Duration {
    let start = world.now();
    let exchange = Exchange::post(world, ends, kind, 100_000, count);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(world);
    world.now().saturating_since(start)
}

#[test]
fn marks_are_answered_by_cnps_at_most_one_in_an_interval_and_change_no_data() {
    for (kind, data_from) in [(Kind::Write, 0), (Kind::Send, 0), (Kind::Read, 1)] {
        let mut world = world(ECT, CongestionConfig::default());
        let ends = connect(&mut world, [0, 1], OPTIONS);
        mark(&mut world, data_from, 1.0);
        let took = exchange(&mut world, ends, kind, 20);
        let (from, to) = (data_from, 1 - data_from);
        let marked = world.counter(to, "np_ecn_marked_roce_packets");
        let sent = world.counter(to, "np_cnp_sent");
        let intervals = took.as_micros() as u64 / 50 + 1;
        assert!(marked >= 20 * 98, "{kind:?}: {marked}");
        assert!((1..=intervals).contains(&sent), "{kind:?}: {sent} in {intervals} intervals");
        world.settle();
        let sent = world.counter(to, "np_cnp_sent");
        assert_eq!(world.counter(from, "rp_cnp_handled"), sent, "{kind:?}");
    }
}

#[test]
fn without_ect_nothing_is_marked_and_no_cnp_leaves() {
    let mut world = world(0, CongestionConfig::default());
    let ends = connect(&mut world, [0, 1], OPTIONS);
    mark(&mut world, 0, 1.0);
    exchange(&mut world, ends, Kind::Write, 20);
    for name in ["np_ecn_marked_roce_packets", "np_cnp_sent"] {
        assert_eq!(world.counter(1, name), 0, "{name}");
    }
    assert_eq!(world.link_stats().marked, 0);
}

#[test]
fn a_path_that_marks_always_has_the_smallest_window_and_one_that_marks_rarely_a_large_one() {
    let took = |share| {
        let mut world = world(ECT, CongestionConfig::default());
        let ends = connect(&mut world, [0, 1], OPTIONS);
        mark(&mut world, 0, share);
        exchange(&mut world, ends, Kind::Write, 200)
    };
    let [never, rarely, always] = [0.0, 0.001, 1.0].map(took);
    assert!(always > never * 3, "{never:?} {always:?}");
    assert!(rarely < always / 2, "{rarely:?} {always:?}");
}

#[test]
fn a_queue_pair_recovers_after_its_marks_end() {
    let mut world = world(ECT, CongestionConfig::default());
    let ends = connect(&mut world, [0, 1], OPTIONS);
    exchange(&mut world, ends, Kind::Write, 200);
    let before = exchange(&mut world, ends, Kind::Write, 200);
    mark(&mut world, 0, 1.0);
    exchange(&mut world, ends, Kind::Write, 200);
    world.set_impairment(0, Impairment::default());
    for _ in 0..5 {
        exchange(&mut world, ends, Kind::Write, 200);
    }
    let after = exchange(&mut world, ends, Kind::Write, 200);
    assert!(after <= before * 2, "{before:?} before, {after:?} after");
}

#[test]
fn an_endpoint_sends_no_cnps_where_they_are_switched_off_and_ignores_them_where_reactions_are() {
    let silent = CongestionConfig { np_enable: false, ..CongestionConfig::default() };
    let mut silent = world(ECT, silent);
    let deaf =
        CongestionConfig { algorithm: CongestionAlgorithm::Loss, ..CongestionConfig::default() };
    let mut deaf = world(ECT, deaf);
    for world in [&mut silent, &mut deaf] {
        let ends = connect(world, [0, 1], OPTIONS);
        mark(world, 0, 1.0);
        exchange(world, ends, Kind::Write, 20);
        world.settle();
        assert!(world.counter(1, "np_ecn_marked_roce_packets") > 0);
        assert_eq!(world.counter(0, "rp_cnp_handled"), 0);
    }
    assert_eq!(silent.counter(1, "np_cnp_sent"), 0);
    assert_eq!(deaf.counter(0, "rp_cnp_ignored"), deaf.counter(1, "np_cnp_sent"));
    assert!(deaf.counter(0, "rp_cnp_ignored") > 0);
}

#[test]
fn marked_uc_packets_are_answered_and_the_uc_sender_ignores_the_cnps() {
    let mut world = world(ECT, CongestionConfig::default());
    let ends = connect(&mut world, [0, 1], Options { service: Service::Uc, ..OPTIONS });
    mark(&mut world, 0, 1.0);
    exchange(&mut world, ends, Kind::Send, 3);
    world.settle();
    let sent = world.counter(1, "np_cnp_sent");
    assert!(sent > 0);
    assert_eq!(world.counter(0, "rp_cnp_ignored"), sent);
}

#[test]
fn only_the_marked_packet_makes_a_cnp_and_it_has_becn_and_names_the_sender() {
    let mut world = world(ECT, CongestionConfig::default());
    let ends = connect(&mut world, [0, 1], OPTIONS);
    world.set_impairment(0, Impairment::scripted([Fate::Pass, Fate::Mark]));
    world.keep_timeline(true);
    for _ in 0..3 {
        exchange(&mut world, ends, Kind::Write, 1);
    }
    world.settle();
    let cnps: Vec<Headers> = world
        .sent(1)
        .iter()
        .filter(|sent| sent.opcode() == opcode::CNP)
        .map(|sent| sent.headers())
        .collect();
    let [cnp] = &cnps[..] else { panic!("{cnps:?}") };
    assert!(cnp.bth.becn && !cnp.bth.fecn && !cnp.bth.ack_request);
    assert_eq!(cnp.bth.dest_qp, ends[0].qpn);
    assert_eq!(cnp.bth.psn, Psn::ZERO);
}

/// A marked packet that is not of node `from`.
struct ForgedMark {
    from: usize,
    packet: fn(&[End; 2], Psn) -> Vec<u8>,
    /// Distances from the first PSN of the requester at which the mark counts.
    plausible: std::ops::RangeInclusive<i32>,
}

/// Packets in flight.
const IN_FLIGHT: i32 = 20;
const FORGED_MARKS: [ForgedMark; 2] = [
    ForgedMark {
        from: 0,
        packet: |ends, psn| {
            forge::with_reth(
                opcode::RC_WRITE_ONLY,
                ends[1].qpn,
                psn,
                Reth { addr: 0, rkey: 0, len: 0 },
                &[],
            )
        },
        plausible: -4096..=4096,
    },
    ForgedMark {
        from: 1,
        packet: |ends, psn| {
            forge::response(
                opcode::RC_READ_RESPONSE_MIDDLE,
                ends[0].qpn,
                psn,
                forge::ACK,
                &[0; 1024],
            )
        },
        plausible: 0..=IN_FLIGHT - 1,
    },
];

#[test]
fn a_forged_mark_with_a_psn_that_the_peer_cannot_be_at_draws_no_cnp_and_limits_no_rate() {
    for mark in &FORGED_MARKS {
        for ahead in [-0x80_0000, -5000, -4097, -4096, -1, 0, 19, 20, 4096, 4097, 0x7f_ffff] {
            let is_plausible = mark.plausible.contains(&ahead);
            let algorithm = CongestionAlgorithm::Dcqcn;
            let mut world =
                world(ECT, CongestionConfig { algorithm, ..CongestionConfig::default() });
            let ends = connect(&mut world, [0, 1], OPTIONS);
            world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
            let len = 1024 * IN_FLIGHT as usize;
            let _exchange = Exchange::post(&mut world, ends, Kind::Read, len, 1);
            let first = OPTIONS.first_psn[0];
            let psn = Psn::wrapping(first.get().wrapping_add_signed(ahead));
            let packet = (mark.packet)(&ends, psn);
            world.forge_marked(mark.from, 1 - mark.from, &packet);
            let named = format!("from {}, {ahead} ahead: {}", mark.from, world.report());
            let to = 1 - mark.from;
            let counted =
                [world.counter(to, "np_ecn_marked_roce_packets"), world.counter(to, "np_cnp_sent")];
            assert_eq!(counted, [u64::from(is_plausible); 2], "{named}");
            // The requester itself reacts to a marked response.
            let is_limited = world.hosts[0].endpoint.rate_limit(ends[0].qpn).is_some();
            assert_eq!(is_limited, is_plausible && mark.from == 1, "{named}");
        }
    }
}
