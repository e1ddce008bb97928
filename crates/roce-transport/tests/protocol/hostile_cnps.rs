//! Floods of CNPs and damaged ones: those of strangers change nothing, and those of the peer slow a
//! sender down to its minimum at most, from which it recovers.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use roce_fabric::LinkConfig;
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig, DcqcnParameters};
use roce_transport::{EndpointConfig, QpState, WindowConfig};
use roce_wire::{BTH_LEN, Headers, PathMtu, Psn, Qpn, opcode};

use crate::common::connection::{DEFAULT, End, Options, connect, create, receive_only, reconnect};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, seal_one, test_config};

const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ..DEFAULT };
/// Packets.
const WINDOW: u32 = 64;
/// The largest of DCQCN in bits per second.
const LINE_RATE: u64 = 1_000_000_000;

fn world(algorithm: CongestionAlgorithm) -> World {
    world_of(CongestionConfig { algorithm, line_rate: LINE_RATE, ..CongestionConfig::default() })
}

/// 10 Gbit/s, 40 µs there and back, and room for all that is in flight.
fn world_of(congestion: CongestionConfig) -> World {
    // A window that is full again after few round trips.
    let window =
        WindowConfig { initial_packets: WINDOW, max_packets: WINDOW, ..WindowConfig::default() };
    let endpoint = EndpointConfig { congestion, window, ..EndpointConfig::default() };
    let latency = Duration::from_micros(20);
    let rate = Some(10_000_000_000);
    let link = LinkConfig { latency, bits_per_sec: rate, queue_frames: usize::MAX };
    World::new(3, WorldConfig { link, endpoint, keep_timeline: true, ..test_config() })
}

fn cnp(to: Qpn) -> Vec<u8> {
    forge::packet(&forge::headers(opcode::CNP, to, Psn::ZERO), &[])
}

/// Sends 20 messages of 100 000 bytes from node 0; returns the time that they took.
fn exchange(world: &mut World, ends: [End; 2]) -> Duration {
    let start = world.now();
    let exchange = Exchange::post(world, ends, Kind::Write, 100_000, 20);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(world);
    world.now().saturating_since(start)
}

fn rate(world: &World, end: End) -> Option<u64> {
    world.hosts[0].endpoint.rate_limit(end.qpn)
}

/// Latest size of the send window of node 0, in packets; `None` before it changed.
fn window(world: &World) -> Option<u32> {
    world.windows(0).last().copied()
}

/// Runs `act` and returns the counters of node 0 that changed, and by how much, but for those of
/// packets that its answers are.
fn counted(world: &mut World, act: impl FnOnce(&mut World)) -> Vec<(&'static str, u64)> {
    let before: Vec<_> = world.hosts[0].endpoint.counters().iter().collect();
    act(world);
    let now = world.hosts[0].endpoint.counters().iter();
    let changes = now.zip(before).map(|((name, now), (_, then))| (name, now - then));
    changes.filter(|(name, count)| *count > 0 && *name != "sent_pkts").collect()
}

const FLOOD: u64 = 500;

/// A flood of CNPs that are not for the sender, or not of its peer; the counter that it draws.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    Host,
    Destination,
    Qpn,
    Pkey,
}

impl Stranger {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Host, "wrong_source"),
        (Self::Destination, "wrong_destination"),
        (Self::Qpn, "unknown_qp"),
        (Self::Pkey, "bad_pkey"),
    ];

    fn flood(self, world: &mut World, end: End) {
        for i in 0..FLOOD {
            let mut headers = forge::headers(opcode::CNP, end.qpn, Psn::ZERO);
            let mut outer = world.outer(1, 0);
            match self {
                Self::Host => outer = world.outer(2, 0),
                Self::Destination => outer.destination = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 77)),
                Self::Qpn => {
                    headers.bth.dest_qp = Qpn::new(end.qpn.get() ^ (i as u32 + 1)).unwrap()
                }
                Self::Pkey => headers.bth.partition_key = i as u16,
            }
            let frame = seal_one(&outer, 1, &forge::packet(&headers, &[]));
            world.inject(0, [&frame]);
        }
    }
}

#[test]
fn a_flood_of_cnps_of_strangers_is_counted_and_changes_neither_rate_nor_window() {
    for algorithm in CongestionAlgorithm::ALL {
        for (stranger, counter) in Stranger::ALL {
            // A sender that nothing limits, and one that its peer's CNPs have slowed down.
            for is_limited in [false, true] {
                let run = |is_flooded: bool| {
                    let mut world = world(algorithm);
                    let ends = connect(&mut world, [0, 1], OPTIONS);
                    let first = exchange(&mut world, ends);
                    for _ in 0..if is_limited { 3 } else { 0 } {
                        world.forge(1, 0, &cnp(ends[0].qpn));
                    }
                    let before = (rate(&world, ends[0]), window(&world));
                    if is_flooded {
                        let changes = counted(&mut world, |it| stranger.flood(it, ends[0]));
                        assert_eq!(changes, [(counter, FLOOD)], "{algorithm:?} {stranger:?}");
                        assert_eq!((rate(&world, ends[0]), window(&world)), before);
                    }
                    (first, exchange(&mut world, ends), window(&world), rate(&world, ends[0]))
                };
                assert_eq!(run(true), run(false), "{algorithm:?} {stranger:?} {is_limited}");
            }
        }
    }
}

#[test]
fn a_flood_of_cnps_for_a_queue_pair_that_does_not_send_is_counted_and_slows_nothing_later() {
    for algorithm in CongestionAlgorithm::ALL {
        let run = |state: Option<QpState>| {
            let mut world = world(algorithm);
            let qpns = [0x0105, 0x0106].map(|it| Qpn::new(it).unwrap());
            let ends = [0, 1].map(|node| End { node, qpn: qpns[node] });
            ends.iter().for_each(|it| create(&mut world, it.node, it.qpn, &OPTIONS));
            match state {
                Some(QpState::ReadyToReceive) => {
                    receive_only(&mut world, [ends[1], ends[0]], OPTIONS);
                }
                Some(QpState::Error) => {
                    reconnect(&mut world, ends, OPTIONS);
                    ends[0].move_to(&mut world, QpState::Error);
                }
                _ => {}
            }
            if let Some(state) = state {
                assert_eq!(ends[0].state(&world), state);
                let changes = counted(&mut world, |world| {
                    (0..FLOOD).for_each(|_| world.forge(1, 0, &cnp(ends[0].qpn)));
                });
                assert_eq!(changes, [("wrong_state", FLOOD)], "{algorithm:?} {state:?}");
            }
            for end in ends {
                end.move_to(&mut world, QpState::Reset);
            }
            reconnect(&mut world, ends, OPTIONS);
            (rate(&world, ends[0]), exchange(&mut world, ends), window(&world))
        };
        for state in [QpState::Reset, QpState::ReadyToReceive, QpState::Error] {
            assert_eq!(run(Some(state)), run(None), "{algorithm:?} {state:?}");
        }
    }
}

/// What a flood did to its victim.
#[derive(Debug)]
struct Flooded {
    /// Smallest rate in bits per second.
    min_rate: u64,
    /// Smallest send window in packets.
    min_window: u32,
    /// From the last CNP until nothing limited the sender.
    recovery: Duration,
}

/// Floods node 0, which sends messages all the time, with CNPs of its peer for 40 ms, one `every`
/// so often.
fn flood(config: CongestionConfig, every: Duration) -> Flooded {
    let mut world = world_of(config);
    let ends = connect(&mut world, [0, 1], OPTIONS);
    let before = exchange(&mut world, ends);
    let (mut min_rate, mut min_window, mut sent) = (u64::MAX, WINDOW, 0);
    let message = |world: &mut World| Exchange::post(world, ends, Kind::Write, 8 << 10, 16);
    let end = world.now() + Duration::from_millis(40);
    let mut messages = message(&mut world);
    while world.now() < end {
        world.run_for(every);
        world.forge(1, 0, &cnp(ends[0].qpn));
        sent += 1;
        min_rate = min_rate.min(rate(&world, ends[0]).unwrap_or(u64::MAX));
        min_window = min_window.min(window(&world).unwrap_or(WINDOW));
        if messages.is_done(&world) {
            messages.check(&world);
            messages = message(&mut world);
        }
    }
    assert_eq!(world.counter(0, "rp_cnp_handled"), sent);
    let start = world.now();
    // The window ends a packet below the full one, and grows further only if it is used up.
    let is_over = |world: &World| {
        rate(world, ends[0]).is_none() && window(world).is_none_or(|it| it + 1 >= WINDOW)
    };
    while !is_over(&world) {
        world.run_until(|world| messages.is_done(world) || is_over(world));
        assert!(world.now() < start + Duration::from_secs(1), "{}", world.report());
        if messages.is_done(&world) {
            messages.check(&world);
            messages = message(&mut world);
        }
    }
    let recovery = world.now().saturating_since(start);
    world.run_until(|world| messages.is_done(world));
    let after = exchange(&mut world, ends);
    assert!(after <= before + before / 50, "{before:?} before, {after:?} after");
    assert_eq!(world.counter(0, "ack_timeout"), 0, "it never stopped");
    Flooded { min_rate, min_window, recovery }
}

#[test]
fn under_dcqcn_a_flood_of_cnps_of_the_peer_ends_at_the_smallest_rate_and_recovers_in_time() {
    // The first stages go half of the way to the target each. CNPs that come sooner than the first stage
    // leave CONNECTX the line rate as the target; for PAPER it rises by `rp_ai_rate` each stage.
    let halves = 10;
    for (dcqcn, stages) in [
        (DcqcnParameters::CONNECTX, halves + 1),
        (DcqcnParameters::PAPER, DcqcnParameters::PAPER.rp_threshold + 1_000 / 40 + halves + 1),
    ] {
        let algorithm = CongestionAlgorithm::Dcqcn;
        let config = CongestionConfig {
            algorithm,
            line_rate: LINE_RATE,
            dcqcn,
            ..CongestionConfig::default()
        };
        for micros in [2, 10, 50] {
            let flooded = flood(config, Duration::from_micros(micros));
            assert_eq!(flooded.min_rate, 1_000_000, "every {micros} µs: {flooded:?}");
            assert_eq!(flooded.min_window, WINDOW, "every {micros} µs: {flooded:?}");
            // A packet waits for a quarter of the ACK timeout at most, and shows the new rate.
            let longest = Duration::from_micros(u64::from(stages * dcqcn.rp_time_reset) + 262);
            assert!(flooded.recovery <= longest, "every {micros} µs: {flooded:?}, {longest:?}");
        }
    }
}

#[test]
fn under_ecn_a_flood_of_cnps_of_the_peer_ends_at_the_smallest_window_and_recovers_in_time() {
    for micros in [2, 10, 50] {
        let flooded = flood(CongestionConfig::default(), Duration::from_micros(micros));
        // A 16th of a packet each round trip, which takes 40 µs, and the time of the packets before it.
        let rates = [100, 40].map(|round_trip| 64 * 8 * 1_000_000 / round_trip);
        assert!((rates[0]..rates[1]).contains(&flooded.min_rate), "every {micros} µs: {flooded:?}");
        assert_eq!(flooded.min_window, 1, "every {micros} µs: {flooded:?}");
        // A packet more each round trip; at first it takes 16 of them.
        let longest = Duration::from_micros(100) * (WINDOW + 16);
        assert!(flooded.recovery <= longest, "every {micros} µs: {flooded:?}");
    }
}

#[test]
fn a_flood_of_cnps_of_the_peer_changes_nothing_where_no_algorithm_reacts_to_them() {
    for algorithm in [CongestionAlgorithm::Loss, CongestionAlgorithm::Swift] {
        let config = CongestionConfig { algorithm, ..CongestionConfig::default() };
        let run = |is_flooded: bool| {
            let mut world = world_of(config);
            let ends = connect(&mut world, [0, 1], OPTIONS);
            let first = exchange(&mut world, ends);
            for _ in 0..if is_flooded { FLOOD } else { 0 } {
                world.forge(1, 0, &cnp(ends[0].qpn));
            }
            let counted = ["rp_cnp_handled", "rp_cnp_ignored"].map(|it| world.counter(0, it));
            let is_loss = algorithm == CongestionAlgorithm::Loss;
            let expected = if is_loss { [0, FLOOD] } else { [FLOOD, 0] };
            assert!(!is_flooded || counted == expected, "{algorithm:?}: {counted:?}");
            (first, exchange(&mut world, ends), window(&world), rate(&world, ends[0]))
        };
        assert_eq!(run(true), run(false), "{algorithm:?}");
    }
}

/// A CNP with each bit flipped in turn, and each of its prefixes that has a BTH.
fn damaged_cnps(to: Qpn) -> Vec<Vec<u8>> {
    let packet = cnp(to);
    let flips = (0..packet.len() * 8).map(|bit| {
        let mut flipped = packet.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    flips.chain((BTH_LEN..=packet.len()).map(|len| packet[..len].to_vec())).collect()
}

/// Counters of a CNP that slows its sender down.
const CNP_COUNTERS: [&str; 2] = ["rcvd_pkts", "rp_cnp_handled"];

/// Decides from the bytes alone which counters of a packet must grow by 1; `None` if it is dropped
/// before the endpoint.
fn judge(packet: &[u8], to: Qpn) -> Option<&'static [&'static str]> {
    let (headers, rest) = Headers::parse(packet).ok()?;
    headers.split_payload(rest).ok()?;
    Some(match headers.bth {
        bth if bth.dest_qp != to => &["unknown_qp"],
        bth if bth.partition_key & 0x7fff != 0x7fff => &["bad_pkey"],
        bth if bth.opcode == opcode::CNP => &CNP_COUNTERS,
        // A request behind a missing one, with the reserved bytes as its payload.
        bth if bth.opcode == opcode::RC_SEND_MIDDLE => {
            &["rcvd_pkts", "out_of_seq_request", "send_seq_err", "reorder_kept"]
        }
        bth => panic!("no flip of a CNP makes {:?}", bth.opcode),
    })
}

#[test]
fn every_bit_flip_and_every_prefix_of_a_cnp_is_dropped_by_name_or_slows_its_sender_down_once() {
    let (mut handled, mut refused) = (0, 0);
    for i in 0..damaged_cnps(Qpn::GSI).len() {
        let mut world = world(CongestionAlgorithm::Dcqcn);
        let ends = connect(&mut world, [0, 1], OPTIONS);
        let packet = &damaged_cnps(ends[0].qpn)[i];
        let changes = counted(&mut world, |world| world.forge(1, 0, packet));
        let names = judge(packet, ends[0].qpn);
        let expected: Vec<_> = names.unwrap_or(&[]).iter().map(|name| (*name, 1)).collect();
        assert_eq!(changes, expected, "{packet:02x?}");
        assert_eq!(world.hosts[0].refused_packets, u64::from(names.is_none()), "{packet:02x?}");
        let is_cnp = names == Some(&CNP_COUNTERS);
        assert_eq!(rate(&world, ends[0]), is_cnp.then_some(LINE_RATE / 2), "{packet:02x?}");
        assert_eq!(window(&world), None, "{packet:02x?}");
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "{packet:02x?}");
        assert!(world.hosts[0].completions.is_empty(), "{packet:02x?}");
        exchange(&mut world, ends);
        handled += usize::from(is_cnp);
        refused += usize::from(names.is_none());
    }
    // PSN, reserved bits, flags and the whole packet; other opcodes and versions, a pad, and prefixes.
    assert_eq!((handled, refused), (172, 29));
}
