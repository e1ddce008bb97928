//! Gap reports: what they make of a lossy path, and how little is sent for them.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_simnet::Rights;
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig};
use roce_transport::{EndpointConfig, PeerWindowConfig, WindowConfig};
use roce_wire::{GapReport, GapRun, MAX_GAP_REPORT_LEN, PathMtu, Psn, opcode};

use crate::common::connection::{DEFAULT, FIRST_PSN, Options, PD, connect, timeout};
use crate::common::exchange::{Exchange, Kind, sge};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

/// 10 Gb/s, and as long a way there and back as 250 frames of 1082 bytes take.
const LINK: LinkConfig = LinkConfig {
    latency: Duration::from_micros(108),
    bits_per_sec: Some(10_000_000_000),
    queue_frames: usize::MAX,
};

/// The part of the link that payload can have: 1024 of 1082 bytes.
const LINK_GBITS: f64 = 10.0 * 1024.0 / 1082.0;

/// Queue pairs that have agreed on reports, or not.
const fn options(gap_reports: bool) -> Options {
    Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), gap_reports, ..DEFAULT }
}

/// A window that losses do not shrink: what the path holds, and what is sent between two ACKs.
fn bounded() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.window =
        WindowConfig { initial_packets: 300, min_packets: 300, max_packets: 300, ..config.window };
    config.peer_window =
        PeerWindowConfig { initial_frames: 4096, min_frames: 4096, max_frames: 4096 };
    config.congestion =
        CongestionConfig { algorithm: CongestionAlgorithm::Loss, ..CongestionConfig::default() };
    config
}

fn lossy_world(endpoint: EndpointConfig, drop: f64, seed: u64) -> World {
    let mut world = World::new(2, WorldConfig { link: LINK, endpoint, ..test_config() });
    let rates = ImpairmentRates { drop, ..ImpairmentRates::default() };
    world.set_impairment(0, Impairment::random(seed, rates));
    world.set_impairment(1, Impairment::random(!seed, rates));
    world
}

/// Sends 32 MiB in WRITEs. Returns the part of the link that they take, and the packets sent for each
/// that is needed.
fn run(endpoint: EndpointConfig, gap_reports: bool, drop: f64, seed: u64) -> (f64, f64, World) {
    const LEN: usize = 32 << 20;
    let mut world = lossy_world(endpoint, drop, seed);
    let ends = connect(&mut world, [0, 1], options(gap_reports));
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 1 << 20, LEN >> 20);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    let gbits = LEN as f64 * 8.0 / world.now().as_nanos() as f64;
    let packets = world.counter(0, "sent_pkts") as f64 / (LEN >> 10) as f64;
    println!("{drop}: {:.3} of the link, {packets:.3} packets", gbits / LINK_GBITS);
    (gbits / LINK_GBITS, packets, world)
}

#[test]
fn one_packet_of_a_hundred_lost_leaves_nine_tenths_of_the_link() {
    let mut shares = 0.0;
    for seed in 0..4 {
        let (share, packets, world) = run(bounded(), true, 0.01, seed);
        shares += share;
        assert!(share > 0.85 && packets < 1.02, "{share} {packets}\n{}", world.report());
        let reports = world.counter(1, "gap_report_sent");
        assert!(reports < 32768 / 6, "{reports} reports");
    }
    assert!(shares > 4.0 * 0.9, "{shares} of four links");
    // The default window ignores rare losses where losses are not the only sign of congestion.
    let (window, congestion) = (WindowConfig::default(), CongestionConfig::default());
    let default = EndpointConfig { window, congestion, ..bounded() };
    let (share, _, world) = run(default, true, 0.01, 0);
    assert!(share > 0.9, "{share}\n{}", world.report());
    let (by_loss, _, _) = run(EndpointConfig { window, ..bounded() }, true, 0.01, 0);
    assert!(by_loss < 0.3, "where they are it halves with each: {by_loss}");
    // Without reports each round trip shows one gap; without kept packets each loss costs a window.
    let (kept, _, _) = run(bounded(), false, 0.01, 0);
    let (go_back_n, _, _) =
        run(EndpointConfig { max_reorder_bytes: 0, ..bounded() }, false, 0.01, 0);
    assert!(kept < 0.3 && go_back_n < 0.3, "{kept} {go_back_n}");
}

#[test]
fn a_connection_without_loss_hears_of_no_reports() {
    let (_, _, world) = run(bounded(), true, 0.0, 1);
    for node in 0..2 {
        assert_eq!(world.counter(node, "gap_report_sent"), 0);
        assert_eq!(world.counter(node, "gap_report_ignored"), 0);
    }
}

/// Packets that each node sent with the opcode of reports.
fn reports(world: &World) -> [usize; 2] {
    [0, 1].map(|node| {
        let sent = world.sent(node).into_iter();
        sent.filter(|it| it.opcode() == opcode::GAP_REPORT).count()
    })
}

#[test]
fn queue_pairs_that_have_not_agreed_send_no_packet_of_a_manufacturer_whatever_is_lost() {
    for kept_by_peer in [0, 4 << 20] {
        let mut world = lossy_world(bounded(), 0.01, 3);
        let config =
            EndpointConfig { max_reorder_bytes: kept_by_peer, ..EndpointConfig::default() };
        world.hosts[1].endpoint =
            roce_transport::Endpoint::with_observer(config, Default::default());
        world.keep_timeline(true);
        let ends = connect(&mut world, [0, 1], options(false));
        let exchange = Exchange::post(&mut world, ends, Kind::Write, 1 << 20, 4);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
        assert_eq!(reports(&world), [0, 0]);
    }
}

#[test]
fn reports_leave_beside_the_acks_and_naks_that_leave_without_them() {
    let refusals = [false, true].map(|gap_reports| {
        let mut world = World::pair();
        world.keep_timeline(true);
        let ends = connect(&mut world, [0, 1], options(gap_reports));
        let region = world.hosts[1].memory.register_filled(PD, 80, Rights::ALL, 0);
        for i in 0..8 {
            ends[1].post_recv(&mut world, i, &[sge(region, 8 * i as usize, 8)]);
        }
        // One packet a round trip, and then in batches.
        for ahead in [1, 2, 4, 0] {
            let psn = Psn::new(FIRST_PSN).unwrap().advanced_by(ahead);
            world.forge(0, 1, &forge::send_only(ends[1].qpn, psn, &[0; 8]));
        }
        let batch = [6, 3, 7].map(|ahead| {
            let psn = Psn::new(FIRST_PSN).unwrap().advanced_by(ahead);
            forge::send_only(ends[1].qpn, psn, &[0; 8])
        });
        world.forge_batch(0, 1, &batch);
        let [_, sent] = reports(&world);
        assert_eq!(sent > 0, gap_reports, "{}", world.report());
        let standard = world.sent(1).into_iter().filter(|it| it.opcode() != opcode::GAP_REPORT);
        standard.map(|it| it.packet.clone()).collect::<Vec<_>>()
    });
    assert_eq!(refusals[0], refusals[1]);
}

#[test]
fn the_report_of_a_peer_that_has_not_agreed_changes_nothing() {
    let mut world = lossy_world(bounded(), 0.0, 0);
    let ends = connect(&mut world, [0, 1], options(false));
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
    let _exchange = Exchange::post(&mut world, ends, Kind::Write, 60 << 10, 1);
    let mut payload = [0; MAX_GAP_REPORT_LEN];
    let len = GapReport::write([GapRun { missing: 1, kept: 5 }], &mut payload);
    for ahead in 0..70 {
        let psn = Psn::new(FIRST_PSN).unwrap().advanced_by(ahead);
        let headers = forge::headers(opcode::GAP_REPORT, ends[0].qpn, psn);
        world.forge(1, 0, &forge::packet(&headers, &payload[..len]));
    }
    assert_eq!(world.counter(0, "gap_report_ignored"), 70);
    assert_eq!(world.counter(0, "resent_pkts"), 0);
    assert_eq!(ends[0].sent(&world), []);
}

#[test]
fn forged_reports_complete_nothing_and_repeat_two_windows_of_packets_at_most() {
    let mut world = World::pair();
    let options = Options { ack_timeout: timeout(20), gap_reports: true, ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
    let _exchange = Exchange::post(&mut world, ends, Kind::Write, 60 * 256, 1);
    for i in 0..1000u32 {
        let run =
            |seed: u32| GapRun { missing: (seed % 5 + 1) as u16, kept: (seed % 7) as u16 + 1 };
        let mut payload = [0; MAX_GAP_REPORT_LEN];
        let len = GapReport::write((0..i % 39 + 1).map(|it| run(i + it)), &mut payload);
        let psn = roce_wire::Psn::new(FIRST_PSN).unwrap();
        let headers = forge::headers(opcode::GAP_REPORT, ends[0].qpn, psn);
        world.forge(1, 0, &forge::packet(&headers, &payload[..len]));
    }
    assert_eq!(ends[0].sent(&world), []);
    assert!(world.counter(0, "gap_report_ignored") > 0, "some are of packets never sent");
    let resent = world.counter(0, "resent_pkts");
    // Two windows, and the gaps of the report that passed that.
    assert!(resent <= 2 * 128 + 60, "{resent} packets sent again\n{}", world.report());
}
