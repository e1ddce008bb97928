//! Gap reports: what they make of a lossy path, and how little is sent for them.

use std::time::Duration;

use roce_simnet::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig};
use roce_transport::{EndpointConfig, PeerWindowConfig, WindowConfig};
use roce_wire::{GapReport, GapRun, Headers, MAX_GAP_REPORT_LEN, PathMtu, opcode};

use crate::common::connection::{FIRST_PSN, Options, connect, connect_each};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig};

/// 10 Gb/s, and as long a way there and back as 250 frames of 1082 bytes take.
const LINK: LinkConfig = LinkConfig {
    latency: Duration::from_micros(108),
    bits_per_sec: Some(10_000_000_000),
    queue_frames: usize::MAX,
};

/// The part of the link that payload can have: 1024 of 1082 bytes.
const LINK_GBITS: f64 = 10.0 * 1024.0 / 1082.0;

const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ack_timeout: 14, ..Options::DEFAULT };

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
    let mut world = World::new(2, WorldConfig { link: LINK, endpoint, ..WorldConfig::default() });
    let rates = ImpairmentRates { drop, ..ImpairmentRates::default() };
    world.set_impairment(0, Impairment::random(seed, rates));
    world.set_impairment(1, Impairment::random(!seed, rates));
    world
}

/// Sends 32 MiB in WRITEs. Returns the part of the link that they take, and the packets sent for each
/// that is needed.
fn run(endpoint: EndpointConfig, drop: f64, seed: u64) -> (f64, f64, World) {
    const LEN: usize = 32 << 20;
    let mut world = lossy_world(endpoint, drop, seed);
    let ends = connect(&mut world, [0, 1], OPTIONS);
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
    for seed in 0..4 {
        let (share, packets, world) = run(bounded(), 0.01, seed);
        assert!(share > 0.9 && packets < 1.02, "{share} {packets}\n{}", world.report());
        let reports = world.counter(1, "gap_report_sent");
        assert!(reports < 32768 / 6, "{reports} reports");
    }
    // The default window ignores rare losses, but halves with the first, before it knows of the reports.
    let window = WindowConfig::default();
    let (default, _, world) = run(EndpointConfig { window, ..bounded() }, 0.01, 0);
    assert!(default > 0.7, "{default}\n{}", world.report());
    // Without reports each round trip shows one gap; without kept packets each loss costs a window.
    let (kept, _, _) = run(EndpointConfig { gap_reports: false, ..bounded() }, 0.01, 0);
    let (go_back_n, _, _) = run(EndpointConfig { max_reorder_bytes: 0, ..bounded() }, 0.01, 0);
    assert!(kept < 0.3 && go_back_n < 0.3, "{kept} {go_back_n}");
}

#[test]
fn a_connection_without_loss_hears_of_no_reports() {
    let (_, _, world) = run(bounded(), 0.0, 1);
    for node in 0..2 {
        assert_eq!(world.counter(node, "gap_report_sent"), 0);
        assert_eq!(world.counter(node, "gap_report_ignored"), 0);
    }
}

/// What node 0 and node 1 sent with the opcode of reports: whether it has runs.
fn sent(world: &World) -> [Vec<bool>; 2] {
    [0, 1].map(|node| {
        let packets = world.nodes[node].sent.iter();
        let reports = packets.filter(|it| it.opcode() == opcode::GAP_REPORT);
        let has_runs = reports.map(|it| {
            let (headers, rest) = Headers::parse(&it.packet).unwrap();
            let report = GapReport::parse(headers.split_payload(rest).unwrap());
            report.expect("a report").packets() > 0
        });
        has_runs.collect()
    })
}

#[test]
fn peers_that_keep_nothing_or_know_no_reports_never_get_one() {
    for (max_reorder_bytes, announcements) in [(0, 0), (4 << 20, 4)] {
        let mut world = lossy_world(bounded(), 0.01, 3);
        let config =
            EndpointConfig { max_reorder_bytes, gap_reports: false, ..EndpointConfig::default() };
        world.nodes[1].endpoint =
            roce_transport::Endpoint::with_observer(config, Default::default());
        world.nodes.iter_mut().for_each(|node| node.keep_sent = true);
        let ends = connect_each(&mut world, [0, 1], [OPTIONS; 2]);
        let exchange = Exchange::post(&mut world, ends, Kind::Write, 1 << 20, 4);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
        let [said, reported] = sent(&world);
        assert_eq!(said, vec![false; announcements], "a few, since the path may lose one");
        assert!(reported.is_empty());
    }
}

#[test]
fn forged_reports_complete_nothing_and_repeat_two_windows_of_packets_at_most() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], Options { ack_timeout: 20, ..Options::DEFAULT });
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
    let _exchange = Exchange::post(&mut world, ends, Kind::Write, 60 * 256, 1);
    for i in 0..1000u32 {
        let run =
            |seed: u32| GapRun { missing: (seed % 5 + 1) as u16, kept: (seed % 7) as u16 + 1 };
        let mut payload = [0; MAX_GAP_REPORT_LEN];
        let len = GapReport::write((0..i % 40).map(|it| run(i + it)), &mut payload);
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
