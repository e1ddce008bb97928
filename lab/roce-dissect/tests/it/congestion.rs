//! Findings about marks, CNPs and BECN.

use std::time::Duration;

use crate::common::*;
use roce_dissect::{Connection, Dissector, Finding, Options, RawFrame, Severity, Timestamp};
use roce_wire::{Bth, Ecn, Headers, OuterHeaders, Qpn, Syndrome, opcode};

const NOT_ECT: u8 = 0b00;
const ECT: u8 = 0b10;
const CE: u8 = 0b11;

/// A SEND of one packet with this ECN code point.
fn data(psn: u32, traffic_class: u8) -> Vec<u8> {
    let outer = OuterHeaders { traffic_class, ..there(Ip::V4) };
    frame(&outer, &asking(opcode::RC_SEND_ONLY, psn), b"ping")
}

fn tell(headers: Headers, traffic_class: u8) -> Vec<u8> {
    frame(&OuterHeaders { traffic_class, ..back(Ip::V4) }, &headers, &[])
}

/// A CNP for the sender of [`data`].
fn cnp() -> Vec<u8> {
    cnp_with(NOT_ECT)
}

fn cnp_with(traffic_class: u8) -> Vec<u8> {
    let mut headers = full_headers(opcode::CNP);
    headers.bth.dest_qp = Qpn::new(REQUESTER).unwrap();
    tell(headers, traffic_class)
}

/// Connection management that names the PSN 1 as the first of [`data`].
fn setup() -> [Vec<u8>; 2] {
    [management(Ip::V4, 0x10, &cm_req(500), false), management(Ip::V4, 0x13, &cm_rep(1), true)]
}

/// Findings about congestion, and the last connection. Times are in nanoseconds.
fn follow_timed(frames: &[(u64, Vec<u8>)]) -> (Vec<Vec<&'static str>>, Connection) {
    let mut found = Vec::new();
    let mut dissector = Dissector::new(Options::default());
    for (i, (nanos, bytes)) in frames.iter().enumerate() {
        let time = Timestamp(1_000_000_000 + nanos);
        let raw = RawFrame { time, ..RawFrame::ethernet(i as u64 + 1, bytes) };
        dissector.handle_frame(raw, |packet| {
            let is_about = |finding: &&Finding| {
                let name = finding.name();
                name == "mark_without_ect" || name.starts_with("cnp_")
            };
            found.push(packet.findings.iter().filter(is_about).map(Finding::name).collect());
        });
    }
    let connection = dissector.connections().last().unwrap();
    (found, connection)
}

/// The names of the findings about congestion of frames a microsecond apart.
fn found(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<&'static str>> {
    let timed: Vec<_> = (0..).map(|i| 1_000 * i).zip(frames).collect();
    follow_timed(&timed).0
}

/// Data and its ACK, so that the dissector knows both directions; then data and a CNP.
fn late(cnp_after: u64) -> Vec<(u64, Vec<u8>)> {
    let frames = vec![data(1, ECT), tell(ack(1), ECT), data(2, ECT), cnp()];
    [0, 1_000, 2_000, cnp_after].into_iter().zip(frames).collect()
}

#[test]
fn a_first_cnp_without_a_mark_is_reported_if_the_capture_has_the_first_request() {
    let from_start = [setup().to_vec(), vec![data(1, ECT), cnp()]].concat();
    assert_eq!(found(from_start).last().unwrap(), &["cnp_without_mark"]);
    let marked = [setup().to_vec(), vec![data(1, CE), cnp()]].concat();
    assert!(found(marked).concat().is_empty());
    let began_later = vec![data(1, ECT), tell(ack(1), ECT), data(2, ECT), cnp()];
    assert!(found(began_later).concat().is_empty());
}

#[test]
fn a_capture_that_began_later_reports_it_once_no_earlier_mark_can_be_the_cause() {
    let without = |after| follow_timed(&late(after)).0.concat();
    assert_eq!(without(9_999_999), [""; 0]);
    assert_eq!(without(10_000_000), ["cnp_without_mark"]);
    let mut again = late(10_000_000);
    again.push((20_000_000, cnp()));
    assert_eq!(follow_timed(&again).0.concat(), ["cnp_without_mark"], "the first CNP only");
}

#[test]
fn a_capture_that_lacks_packets_may_lack_the_marked_one() {
    // The capture lacks PSN 2, but not its ACK.
    let frames = [data(1, ECT), tell(ack(1), ECT), data(3, ECT), tell(ack(3), ECT), cnp()];
    let frames = [setup().to_vec(), frames.to_vec()].concat();
    assert!(found(frames).concat().is_empty());
}

#[test]
fn a_cnp_for_a_sender_of_not_ect_packets_says_that_no_switch_marks_them() {
    for (traffic_class, words) in [(ECT, "was marked before"), (NOT_ECT, "no switch marks them")] {
        let frames = [setup().to_vec(), vec![data(1, traffic_class), cnp()]].concat();
        let last = follow(&frames).pop().unwrap();
        assert!(last.summary.contains(words), "{}", last.summary);
        let is_capable = traffic_class == ECT;
        assert!(last.findings.contains(&Finding::CnpWithoutMark { is_capable }));
    }
}

/// Data and its ACK, then CNPs that far apart.
fn many(cnps: u64, interval: u64) -> Vec<(u64, Vec<u8>)> {
    let mut frames = vec![(0, data(1, CE)), (1_000, tell(ack(1), ECT))];
    frames.extend((0..cnps).map(|i| (2_000 + i * interval, cnp())));
    frames
}

#[test]
fn more_cnps_than_any_receiver_sends_are_reported_and_the_summary_has_their_interval() {
    for (interval, reports) in [(1_000, 3), (4_000, 0), (50_000, 0)] {
        let (found, connection) = follow_timed(&many(1_100, interval));
        let found = found.concat();
        assert_eq!(found, vec!["cnp_rate"; reports], "{interval}");
        let shortest = connection.forward_reaction.unwrap().min_interval;
        assert_eq!(shortest, Some(Duration::from_nanos(interval)));
    }
}

#[test]
fn cnps_that_waited_for_each_other_are_not_reported() {
    assert!(follow_timed(&many(250, 0)).0.concat().is_empty());
}

//= test cc-cnp-not-ect
#[test]
fn a_cnp_that_is_ecn_capable_or_marked_is_reported() {
    let of = |traffic_class| alone(&cnp_with(traffic_class)).findings;
    assert_eq!(of(NOT_ECT), []);
    assert_eq!(of(ECT), [Finding::CnpEcn(Ecn::Capable0)]);
    assert_eq!(of(0b01), [Finding::CnpEcn(Ecn::Capable1)]);
    assert_eq!(of(CE), [Finding::CnpEcn(Ecn::CongestionExperienced)]);
}

//= test wire-ecn-mark
#[test]
fn a_mark_on_packets_that_are_not_ect_otherwise_is_a_problem() {
    let frames = [data(1, NOT_ECT), data(2, CE), data(3, NOT_ECT), data(4, CE)];
    let expected = [vec![], vec!["mark_without_ect"], vec![], vec!["mark_without_ect"]];
    assert_eq!(found(frames), expected);
    assert_eq!(Finding::MarkWithoutEct.severity(), Severity::Problem);
    // The first packet of a capture may be marked, and a sender may change its traffic class.
    assert!(found([data(1, CE), data(2, CE)]).concat().is_empty());
    assert!(found([data(1, NOT_ECT), data(2, ECT), data(3, CE)]).concat().is_empty());
}

#[test]
fn packets_of_another_kind_may_be_not_ect_while_data_is_ect() {
    // An ACK in the direction of the data, as in a connection whose both ends send.
    let answer = ack(7);
    let other =
        Headers { bth: Bth { dest_qp: Qpn::new(RESPONDER).unwrap(), ..answer.bth }, ..answer };
    let frames = [frame(&there(Ip::V4), &other, &[]), data(1, CE)];
    assert!(found(frames).concat().is_empty());
}

#[test]
fn acks_with_becn_are_counted_and_cnps_are_not_among_them() {
    let becn = |psn| {
        let plain = ack(psn);
        Headers { bth: Bth { becn: true, ..plain.bth }, ..plain }
    };
    let frames = [
        data(1, CE),
        tell(becn(1), ECT),
        cnp(),
        data(2, ECT),
        tell(ack(2), ECT),
        data(3, CE),
        tell(becn(3), ECT),
    ];
    let timed: Vec<_> = (0..).map(|i| 1_000 * i).zip(frames).collect();
    let (_, connection) = follow_timed(&timed);
    let counts = [connection.forward, connection.backward].map(|it| (it.becns, it.cnps));
    assert_eq!(counts, [(0, 0), (2, 1)]);
}

#[test]
fn every_finding_about_congestion_is_documented() {
    let page = include_str!("../../../../docs/dissect.md");
    let findings = [
        Finding::CongestionMarked,
        Finding::CongestionNotified,
        Finding::CnpWithoutMark { is_capable: true },
        Finding::CnpRate { cnps: 251, time: Duration::ZERO },
        Finding::CnpEcn(Ecn::Capable0),
        Finding::MarkWithoutEct,
    ];
    for finding in findings {
        let severity = format!("{:?}", finding.severity()).to_lowercase();
        let is_row = |line: &&str| line.contains(&format!("`{}`", finding.name()));
        let row = page.lines().find(|line| line.starts_with("| ") && is_row(line));
        assert!(row.is_some_and(|row| row.contains(&format!("| {severity} |"))), "{finding:?}");
    }
}

#[test]
fn an_explanation_names_what_the_receiver_does_and_where_to_look() {
    let explain = |frames: Vec<Vec<u8>>| {
        let mut last = Vec::new();
        run(&frames, |packet| last = packet.explain().reasons);
        last.join("\n")
    };
    let becn = answer(opcode::RC_ACKNOWLEDGE, 1, Syndrome::from_byte(0x1f));
    let becn = Headers { bth: Bth { becn: true, ..becn.bth }, ..becn };
    let unmarked = |ecn| [setup().to_vec(), vec![data(1, ecn), cnp()]].concat();
    let many = many(334, 1_000).into_iter().map(|(_, frame)| frame).collect();
    let cases = [
        (vec![data(1, CE)], "sends a CNP to the sender's queue pair"),
        (vec![data(1, NOT_ECT), data(2, CE)], "Compare the traffic class"),
        (unmarked(ECT), "Look for marks in a capture at the receiver's port."),
        (unmarked(NOT_ECT), "Look at the traffic class in a capture at the receiver's port."),
        (many, "Rate: 334 CNPs in 333 µs, more than one in 4 µs"),
        (vec![cnp_with(ECT)], "Look at the traffic class that the receiver gives CNPs"),
        (vec![cnp_with(CE)], "this one was even marked"),
        (vec![data(1, CE), tell(becn, ECT)], "BECN: the responder has received marked packets"),
    ];
    for (frames, words) in cases {
        let reasons = explain(frames);
        assert!(reasons.contains(words), "{words}: {reasons}");
    }
}
