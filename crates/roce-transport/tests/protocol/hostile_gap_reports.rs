//! Gap reports with damage behind a right ICRC: they are dropped and counted, or taken for what they
//! say. They complete nothing beyond their PSN, and repair nothing that was not sent.

use std::ops::Range;
use std::time::Duration;

use roce_fabric::{Fate, Impairment};
use roce_wire::{
    BTH_LEN, GapReport, GapRun, Headers, MAX_GAP_REPORT_LEN, MAX_GAP_RUNS, Psn, Qpn, opcode,
};

use crate::common::connection::{DEFAULT, End, FIRST_PSN, Options, connect, rnr_timer};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{Sent, World};

const AGREED: Options = Options { gap_reports: true, ..DEFAULT };
const MTU: usize = 256;
/// Packets of the message, more than its windows admit at once.
const PACKETS: usize = 200;
/// Packets that arrive before all others are lost.
const ARRIVED: u64 = 2;
/// What the undamaged report says of the packets behind them.
const RUNS: [GapRun; 3] = [
    GapRun { missing: 1, kept: 3 },
    GapRun { missing: 2, kept: 4 },
    GapRun { missing: 1, kept: 1 },
];

fn psn(seq: u64) -> Psn {
    Psn::new(FIRST_PSN).unwrap().advanced_by(u32::try_from(seq).unwrap())
}

/// Returns the sequence number of `psn`; `None` before the first.
fn seq(psn: Psn) -> Option<u64> {
    u64::try_from(psn.distance_from(Psn::new(FIRST_PSN).unwrap())).ok()
}

fn report(to: Qpn, psn: Psn, runs: &[GapRun]) -> Vec<u8> {
    let mut payload = [0; MAX_GAP_REPORT_LEN];
    let len = GapReport::write(runs.iter().copied(), &mut payload);
    forge::packet(&forge::headers(opcode::GAP_REPORT, to, psn), &payload[..len])
}

/// `packet` with each bit flipped in turn, and each of its prefixes that has a BTH.
fn damaged(packet: &[u8]) -> Vec<Vec<u8>> {
    let flips = (0..packet.len() * 8).map(|bit| {
        let mut flipped = packet.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    flips.chain((BTH_LEN..=packet.len()).map(|len| packet[..len].to_vec())).collect()
}

/// The node that sends the data of such a message.
const fn data_from(kind: Kind) -> usize {
    matches!(kind, Kind::Read) as usize
}

/// Node 0 has sent the front of a message, or requested it, and only the first packets of it arrive.
fn sender(kind: Kind) -> (World, [End; 2], Exchange) {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], AGREED);
    let fates = (0..10_000).map(|i| if i < ARRIVED { Fate::Pass } else { Fate::Drop });
    world.set_impairment(data_from(kind), Impairment::scripted(fates));
    let exchange = Exchange::post(&mut world, ends, kind, PACKETS * MTU, 1);
    world.run_for(Duration::from_micros(50));
    world.keep_timeline(true);
    (world, ends, exchange)
}

/// First sequence number that node 0 has not sent.
fn max_sent(world: &World, end: End) -> u64 {
    let info = world.hosts[0].endpoint.query_qp(end.qpn).unwrap();
    seq(info.attributes.sq_psn.unwrap()).unwrap()
}

/// Sequence numbers of the requests that node 0 sent again, which began before `max_sent`. Those that
/// it sent for the first time follow `max_sent` without a gap.
#[track_caller]
fn sent_again(world: &World, max_sent: u64) -> Vec<Range<u64>> {
    let (mut again, mut next) = (vec![], max_sent);
    for headers in world.sent(0).iter().map(Sent::headers) {
        let start = seq(headers.bth.psn).expect("nothing before the first packet");
        let len = headers.reth.filter(|_| headers.bth.opcode == opcode::RC_READ_REQUEST);
        let end = start + len.map_or(1, |it| u64::from(it.len).div_ceil(MTU as u64).max(1));
        if start == next {
            next = end;
        } else {
            assert!(end <= max_sent, "{start}..{end} of {max_sent} sent\n{}", world.report());
            again.push(start..end);
        }
    }
    again
}

/// What must become of a packet.
#[derive(Debug, PartialEq)]
enum Fault {
    /// Counted as this and dropped.
    Dropped(&'static str),
    /// A packet of the peer that is no report, or one that cannot be.
    Ignored,
    /// Dropped before the endpoint.
    Refused,
    /// Taken: the oldest packet missing, and all of them.
    Report(u64, Vec<u64>),
}

/// Decides from the bytes alone what must become of them.
fn judge(packet: &[u8], to: Qpn, max_sent: u64) -> Fault {
    let Ok((headers, rest)) = Headers::parse(packet) else { return Fault::Refused };
    let Ok(payload) = headers.split_payload(rest) else { return Fault::Refused };
    if headers.bth.dest_qp != to {
        return Fault::Dropped("unknown_qp");
    }
    if headers.bth.opcode != opcode::GAP_REPORT {
        return Fault::Dropped("wrong_service");
    }
    if headers.bth.partition_key & 0x7fff != 0x7fff {
        return Fault::Dropped("bad_pkey");
    }
    let Some(report) = GapReport::parse(payload) else {
        return Fault::Ignored;
    };
    let Some(start) = seq(headers.bth.psn) else { return Fault::Ignored };
    let (mut at, mut missing) = (start, vec![]);
    for run in report.runs() {
        missing.extend(at..at + u64::from(run.missing));
        at += u64::from(run.missing) + u64::from(run.kept);
    }
    match at <= max_sent {
        true => Fault::Report(start, missing),
        false => Fault::Ignored,
    }
}

/// Counters of node 0 that changed, and by how much, but for those of any packet.
fn changed(world: &World, before: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let now = world.hosts[0].endpoint.counters().iter();
    let changes = now.zip(before).map(|((name, now), (_, then))| (name, now - then));
    changes.filter(|(name, count)| *count > 0 && *name != "sent_pkts").collect()
}

#[test]
fn every_bit_flip_and_every_prefix_of_a_report_is_dropped_by_name_or_taken_for_what_it_says() {
    let mut taken = [0; 2];
    for kind in [Kind::Write, Kind::Send] {
        let count = damaged(&report(Qpn::GSI, psn(ARRIVED), &RUNS)).len();
        for i in 0..count {
            let (mut world, ends, _exchange) = sender(kind);
            let packet = &damaged(&report(ends[0].qpn, psn(ARRIVED), &RUNS))[i];
            let max_sent = max_sent(&world, ends[0]);
            let before: Vec<_> = world.hosts[0].endpoint.counters().iter().collect();
            let refused = world.hosts[0].refused_packets;
            world.forge(1, 0, packet);
            // Once a round trip is measured a gap waits for packets that are late.
            world.run_for(Duration::from_micros(120));
            let again = sent_again(&world, max_sent);
            let changes = changed(&world, &before);
            let named = format!("{kind:?}, variant {i}, {packet:02x?}\n{}", world.report());
            let is_refused = world.hosts[0].refused_packets > refused;
            match judge(packet, ends[0].qpn, max_sent) {
                Fault::Refused => assert!(is_refused && changes.is_empty(), "{named}"),
                Fault::Dropped(name) => assert_eq!(changes, [(name, 1)], "{named}"),
                Fault::Ignored => {
                    let counters = [("rcvd_pkts", 1), ("gap_report_ignored", 1)];
                    assert_eq!(changes, counters, "{named}");
                }
                Fault::Report(start, missing) => {
                    let again: Vec<u64> = again.iter().cloned().flatten().collect();
                    assert_eq!(again, missing, "{named}");
                    let count = |name| changes.iter().find(|it| it.0 == name).map(|it| it.1);
                    assert_eq!(count("gap_report_rcvd"), Some(1), "{named}");
                    assert_eq!(count("resent_pkts"), Some(missing.len() as u64), "{named}");
                    taken[usize::from(start > ARRIVED)] += 1;
                    continue;
                }
            }
            assert!(world.sent(0).is_empty(), "{named}");
        }
    }
    assert!(taken[0] > 40 && taken[1] > 4, "taken at the PSN of the gap and behind it: {taken:?}");
}

#[test]
fn no_damaged_report_completes_the_request_and_all_are_repaired_in_the_end() {
    for kind in [Kind::Write, Kind::Send, Kind::Read] {
        let count = damaged(&report(Qpn::GSI, psn(ARRIVED), &RUNS)).len();
        for i in 0..count {
            let (mut world, ends, exchange) = sender(kind);
            let packet = &damaged(&report(ends[0].qpn, psn(ARRIVED), &RUNS))[i];
            let max_sent = max_sent(&world, ends[0]);
            world.forge(1, 0, packet);
            sent_again(&world, max_sent);
            assert_eq!(ends[0].sent(&world), [], "{kind:?} {packet:02x?}\n{}", world.report());
            let start = Headers::parse(packet).ok().and_then(|(it, _)| seq(it.bth.psn));
            world.set_impairment(data_from(kind), Impairment::default());
            world.settle();
            assert_eq!(ends[0].sent(&world).len(), 1, "{kind:?} {packet:02x?}");
            // A report that begins further behind says that the packets before it have arrived.
            if start.is_none_or(|it| it <= ARRIVED) || kind == Kind::Read {
                exchange.check(&world);
            }
        }
    }
}

#[test]
fn a_report_completes_the_requests_before_its_psn_as_an_ack_does_and_no_other() {
    for (start, completed) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (28, 2), (29, 0), (30, 0)]
    {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], AGREED);
        world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
        let _exchange = Exchange::post(&mut world, ends, Kind::Write, 10 * MTU, 3);
        // Its last packet is the last one sent, or one never sent.
        let kept = 29_u64.saturating_sub(start).max(1) as u16;
        let runs = [GapRun { missing: 1, kept }];
        world.forge(1, 0, &report(ends[0].qpn, psn(start), &runs));
        assert_eq!(ends[0].sent(&world).len(), completed, "from {start} on\n{}", world.report());
        let is_taken = u64::from(start < 29);
        assert_eq!(ends[0].counter(&world, "gap_report_rcvd"), is_taken, "from {start} on");
        assert_eq!(ends[0].counter(&world, "gap_report_ignored"), 1 - is_taken, "from {start} on");
    }
}

#[test]
fn in_the_wait_for_a_receive_a_report_repairs_nothing_and_what_it_acknowledges_ends_the_wait() {
    let mut world = World::pair();
    // One that outlasts the test.
    let ends = connect(&mut world, [0, 1], Options { min_rnr_timer: rnr_timer(0), ..AGREED });
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
    let _exchange = Exchange::post(&mut world, ends, Kind::Send, MTU, 10);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(1), forge::rnr(0)));
    assert_eq!(ends[0].sent(&world).len(), 1, "the first is before the one that waits");
    world.keep_timeline(true);
    let runs = [GapRun { missing: 1, kept: 3 }];
    world.forge(1, 0, &report(ends[0].qpn, psn(1), &runs));
    world.run_for(Duration::from_millis(50));
    assert!(world.sent(0).is_empty(), "{}", world.report());
    world.forge(1, 0, &report(ends[0].qpn, psn(4), &runs));
    assert_eq!(ends[0].sent(&world).len(), 4, "{}", world.report());
    assert_eq!(ends[0].counter(&world, "gap_report_rcvd"), 2);
    // As long as a gap waits for packets that are late.
    world.run_for(Duration::from_micros(120));
    let sent: Vec<_> = world.sent(0).iter().map(|it| seq(it.headers().bth.psn)).collect();
    assert_eq!(sent, [Some(4)], "the gap alone");
}

#[test]
fn the_longest_runs_of_a_report_reach_no_packet_that_was_not_sent() {
    let (mut world, ends, _exchange) = sender(Kind::Write);
    let max_sent = max_sent(&world, ends[0]);
    for missing in [1, 2, 100, 0x7fff, 0xffff] {
        for kept in [1, 100, 0x7fff, 0xffff] {
            for count in [1, 2, MAX_GAP_RUNS] {
                let reach = u64::from(missing as u32 + kept as u32) * count as u64;
                if reach <= max_sent {
                    continue;
                }
                for start in [0, 1, 2, 0x7f_ffff, 0x80_0000, 0xff_ffff] {
                    let runs = vec![GapRun { missing, kept }; count];
                    let packet = report(ends[0].qpn, psn(start), &runs);
                    let before = ends[0].counter(&world, "gap_report_ignored");
                    world.forge(1, 0, &packet);
                    assert_eq!(ends[0].counter(&world, "gap_report_ignored"), before + 1);
                }
            }
        }
    }
    assert!(world.sent(0).is_empty(), "{}", world.report());
}
