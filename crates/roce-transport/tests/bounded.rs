//! Memory: what an endpoint holds does not grow with what strangers send it.

// This binary needs only some of the helpers that the other one uses.
#[allow(dead_code)]
mod protocol {
    pub(crate) mod common;
}

use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig};
use roce_transport::{EndpointConfig, QpCap, TransmitLimits};
use roce_wire::{
    Frame, GapReport, GapRun, KnownOpcode, MAX_GAP_REPORT_LEN, Psn, Qpn, Reth, Service, opcode,
};

use protocol::common::connection::{DEFAULT, End, FIRST_PSN, Options, PD, connect, of_service};
use protocol::common::exchange::{Exchange, Kind};
use protocol::common::forge;
use protocol::common::world::{World, WorldConfig, test_config};
use roce_simnet::Rights;

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

fn held() -> usize {
    dhat::HeapStats::get().curr_bytes
}

/// Gives node 1 a frame and throws its answers away; allocates nothing by itself.
fn feed(world: &mut World, frame: &[u8], answer: bool, room: &mut [u8]) {
    let now = world.now();
    let node = &mut world.hosts[1];
    let frame = Frame::parse(frame).expect("a sound frame");
    for packet in frame.packets(None) {
        let packet = packet.expect("a sound packet").verify_icrc().expect("a right ICRC");
        node.endpoint.handle_packet(now, &packet, &mut node.memory);
    }
    if answer {
        let limits = TransmitLimits { max_packets: 8 };
        // A READ of 2^31 bytes has a long response: the test does not wait for its end.
        for _ in 0..16 {
            if node.endpoint.poll_transmit(now, &mut node.memory, limits, room).is_none() {
                break;
            }
        }
    }
    while node.endpoint.poll_completion().is_some() {}
    while node.endpoint.poll_event().is_some() {}
}

/// One test for all, because the heap is one for all threads.
#[test]
fn an_endpoint_holds_little_and_no_stranger_makes_it_hold_more() {
    let _profiler = dhat::Profiler::builder().testing().build();
    an_idle_connection_is_small();
    a_flood_is_not_kept();
    packets_behind_a_gap_are_kept_within_their_limit();
    reports_of_gaps_are_not_kept();
    cnps_after_the_first_take_nothing();
}

/// At most 4 KiB for a connected queue pair, without its queues.
fn an_idle_connection_is_small() {
    let mut world = World::pair();
    let capacities = QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() };
    let options = Options { cap: capacities, ..DEFAULT };
    connect(&mut world, [0, 1], options);
    let before = held();
    let count = 500;
    for _ in 0..count {
        connect(&mut world, [0, 1], options);
    }
    let each = (held() - before) / (2 * count);
    assert!(each <= 4096, "{each} bytes for each queue pair");
}

/// Every kind of packet, to right and wrong numbers, in and out of order, answered or not.
fn a_flood_is_not_kept() {
    let services = [Service::Rc, Service::Uc, Service::Ud];
    for (service, answer) in services.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let mut world = World::pair();
        // The Q_Key of forged datagrams.
        let options = Options { q_key: 0, ..of_service(service) };
        let ends = connect(&mut world, [0, 1], options);
        let frames = flood(&mut world, ends[1]);
        let mut room = vec![0; 8 * 5000];
        let before = held();
        let mut most = before;
        for frame in &frames {
            feed(&mut world, frame, answer, &mut room);
            most = most.max(held());
        }
        let grown = most - before;
        assert!(grown <= 64 * 1024, "{grown} bytes more after {} packets", frames.len());
    }
}

/// Packets of all lengths, and never the first.
fn packets_behind_a_gap_are_kept_within_their_limit() {
    const LIMIT: usize = 256 << 10;
    for len in [0, 4, 64, 256] {
        let endpoint = EndpointConfig { max_reorder_bytes: LIMIT, ..EndpointConfig::default() };
        let mut world = World::new(2, WorldConfig { endpoint, ..test_config() });
        let expected = Psn::new(FIRST_PSN).unwrap();
        let mut frames = vec![];
        for _ in 0..4 {
            let [_, to] = connect(&mut world, [0, 1], DEFAULT);
            let packets = (1..2000u32)
                .map(|ahead| forge::send_only(to.qpn, expected.advanced_by(ahead), &vec![7; len]));
            frames.extend(packets.map(|packet| world.frame(0, 1, &packet)));
        }
        let mut room = vec![0; 8 * 5000];
        let before = held();
        frames.iter().for_each(|frame| feed(&mut world, frame, true, &mut room));
        let grown = held() - before;
        assert!(grown <= LIMIT, "{grown} bytes for packets of {len} bytes");
        assert!(world.hosts[1].endpoint.reorder_bytes() > LIMIT / 2);
    }
}

/// Reports of as many gaps as fit, never the same twice, of packets and responses in flight.
fn reports_of_gaps_are_not_kept() {
    for kind in [Kind::Write, Kind::Read] {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], Options { gap_reports: true, ..DEFAULT });
        Exchange::post(&mut world, [ends[1], ends[0]], kind, 128 * 256, 4);
        let first = DEFAULT.first_psn[1];
        let frames = (0..5000u32).map(|i| {
            let runs = (0..32).map(|run| GapRun {
                missing: (i.wrapping_mul(7 + run) % 3 + 1) as u16,
                kept: (i.wrapping_mul(11 + run) % 2 + 1) as u16,
            });
            let mut payload = [0; MAX_GAP_REPORT_LEN];
            let len = GapReport::write(runs.take(1 + i as usize % 32), &mut payload);
            // The first packet stays missing, and no request completes.
            let psn = first.advanced_by(i % 3);
            let headers = forge::headers(opcode::GAP_REPORT, ends[1].qpn, psn);
            world.frame(0, 1, &forge::packet(&headers, &payload[..len]))
        });
        let frames: Vec<_> = frames.collect();
        let mut room = vec![0; 8 * 5000];
        let (before, taken) = (held(), world.counter(1, "gap_report_rcvd"));
        let mut most = before;
        for (i, frame) in frames.iter().enumerate() {
            // Repairs leave now and then only, or what is reported would soon be ignored.
            feed(&mut world, frame, i % 500 == 0, &mut room);
            most = most.max(held());
        }
        let taken = world.counter(1, "gap_report_rcvd") - taken;
        let grown = most - before;
        assert!(taken > 100, "{taken} of {} reports were taken", frames.len());
        assert!(grown <= 8 * 1024, "{kind:?}: {grown} bytes more after {taken} reports");
    }
}

/// The first may make the state of congestion control.
fn cnps_after_the_first_take_nothing() {
    for algorithm in CongestionAlgorithm::ALL {
        let congestion = CongestionConfig { algorithm, ..CongestionConfig::default() };
        let endpoint = EndpointConfig { congestion, ..EndpointConfig::default() };
        let mut world = World::new(2, WorldConfig { endpoint, ..test_config() });
        let ends = connect(&mut world, [0, 1], DEFAULT);
        let frame = |qpn, world: &World| {
            let cnp = forge::packet(&forge::headers(opcode::CNP, qpn, Psn::ZERO), &[]);
            world.frame(0, 1, &cnp)
        };
        let stranger = Qpn::new(ends[1].qpn.get() ^ 1).unwrap();
        let frames = [ends[1].qpn, stranger].map(|qpn| frame(qpn, &world));
        let mut room = vec![0; 8 * 5000];
        let before = held();
        feed(&mut world, &frames[0], true, &mut room);
        let first = held();
        assert!(first - before <= 1024, "{algorithm:?}: {} bytes", first - before);
        for i in 0..20_000 {
            feed(&mut world, &frames[i % 2], true, &mut room);
            assert_eq!(held(), first, "{algorithm:?}: after {i} more");
        }
    }
}

fn flood(world: &mut World, target: End) -> Vec<Vec<u8>> {
    let region = world.hosts[1].memory.register_synthetic(PD, 1 << 31, Rights::ALL, 1);
    let whole = Reth { addr: region.addr, rkey: region.key, len: 1 << 31 };
    let mut packets = vec![];
    let expected = Psn::new(FIRST_PSN).unwrap();
    // READs of everything there is, one after the other and all over again.
    let span = (1u32 << 31) / 256;
    for i in 0..500u32 {
        for psn in [expected, expected.advanced_by(i), expected.advanced_by(i.wrapping_mul(span))] {
            packets.push(forge::read_request(target.qpn, psn, whole));
        }
    }
    for opcode in KnownOpcode::all() {
        for i in 0..100u32 {
            let jump = i.wrapping_mul(0x01_0101);
            let stranger = Qpn::new(jump & 0xff_ffff).unwrap();
            packets.push(forge::packet(&forge::headers(opcode, stranger, expected), &[]));
            let psn = expected.advanced_by(jump & 0xff_ffff);
            packets.push(forge::packet(&forge::headers(opcode, target.qpn, psn), &[]));
        }
    }
    packets.iter().map(|packet| world.frame(0, 1, packet)).collect()
}
