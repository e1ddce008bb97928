//! Floods of datagrams to queue pair 1: what an engine keeps of them is bounded, everything is counted,
//! and a connection beside them stands.

use std::net::IpAddr;
use std::time::Duration;

use roce_cm::{
    ListenParameters, MAX_BACKLOG, MAX_KEPT_REPLIES, MAX_REQUESTS, MAX_STRAYS_AT_ONCE,
    MAX_STRAYS_HELD, STRAY_INTERVAL,
};
use roce_wire::management::{
    CmMessage, CommunicationId, Drep, Dreq, PortSpace, Rej, RejectReason, Req, ServiceId, SidrReq,
};

use super::forged::{ForgedPacket, GUID, Victim, dreq, encoded, peer, req, sidr_req};
use super::host::MAX_STRAYS_OF_OWNER;

const DATAGRAMS: u32 = 40_000;
/// Datagrams of a round, and time between rounds: 320 000 a second.
const BATCH: u32 = 32;
const ROUND: Duration = Duration::from_micros(100);
/// Paths that are kept, and destinations that datagrams wait for.
const MAX_PATHS: usize = 1024 + 512;

/// A victim whose program does not refuse requests for want of a backlog.
fn victim() -> Victim {
    let mut victim = Victim::new();
    let address = victim.host.address;
    for (space, port) in [(PortSpace::UDP, 7), (PortSpace::TCP, 9)] {
        let listen = ListenParameters { space, port, address, backlog: 0 };
        victim.host.engine.agent().unwrap().listen(&listen).unwrap();
    }
    victim
}

/// What becomes of the datagrams of a flood.
struct Flood {
    victim: Victim,
    /// Strays that the engine's owner was asked about.
    strays: u64,
    /// Those of them that it had no room for.
    refused: u64,
    sent: usize,
}

/// Passes datagrams to a victim; of `sources` hosts, to none of which there is a path if `is_mute`.
fn flood(sources: u32, is_mute: bool, message: impl Fn(IpAddr, u32) -> CmMessage) -> Flood {
    let mut victim = victim();
    let before = victim.counters();
    let (mut strays, mut refused, mut sent) = (0, 0, 0);
    for first in (0..DATAGRAMS).step_by(BATCH as usize) {
        for number in first..first + BATCH {
            let source = IpAddr::from((0x0a01_0000 + number % sources).to_be_bytes());
            let payload = encoded(message(source, number));
            victim.push(ForgedPacket::new(source, &payload).sealed());
        }
        victim.now += ROUND;
        victim.run();
        // The program takes every event, and answers none.
        while victim.host.event().is_some() {}
        if !is_mute {
            victim.host.resolve_wanted();
        }
        let new = victim.host.port.strays.lock().unwrap().drain(..).count();
        strays += new as u64;
        refused += new.saturating_sub(MAX_STRAYS_OF_OWNER) as u64;
        sent += victim.sent().len();
        let agent = victim.host.engine.agent().unwrap();
        let usage = agent.usage();
        assert!(usage.unanswered_requests <= MAX_REQUESTS, "{usage:?}");
        assert!(usage.connections + usage.resolutions <= MAX_REQUESTS + 1, "{usage:?}");
        assert!(usage.kept_replies <= MAX_KEPT_REPLIES, "{usage:?}");
        assert!(usage.timewaits + usage.timers == 0, "{usage:?}");
        assert!(victim.host.engine.paths().iter().count() <= MAX_PATHS);
        assert!(victim.host.port.wanted.lock().unwrap().len() <= MAX_PATHS);
    }
    let counted = victim.counted(&before);
    let count = |name| counted.get(name).copied().unwrap_or(0);
    assert_eq!(count("cm_received") + count("management_full"), u64::from(DATAGRAMS));
    Flood { victim, strays, refused, sent }
}

impl Flood {
    fn count(&self, name: &str) -> u64 {
        self.victim.host.counter(name)
    }

    /// Checks that the connection stands, and that its peer can end it.
    fn end(mut self) {
        assert!(self.victim.is_connected());
        let id = self.victim.id;
        self.victim.receive(ForgedPacket::new(peer(), &encoded(dreq(id))).sealed());
        assert!(!self.victim.is_connected());
    }
}

#[test]
fn requests_are_kept_up_to_the_limit_and_the_rest_is_counted() {
    type Make = fn(IpAddr, u32) -> CmMessage;
    let to_port_9 = |source, number: u32| match req(source, number + 1000) {
        CmMessage::Req(req) => {
            let service_id = ServiceId::from_port(PortSpace::TCP, 9);
            CmMessage::Req(Req { service_id, ..req })
        }
        _ => unreachable!(),
    };
    for message in [to_port_9 as Make, sidr_req as Make] {
        for (sources, is_mute) in [(1, false), (3000, false), (3000, true)] {
            let mut flood = flood(sources, is_mute, message);
            let usage = flood.victim.host.engine.agent().unwrap().usage();
            let kept = usage.unanswered_requests;
            // Requests without a path for their answer stay in the backlog, or make room.
            assert!(is_mute && kept >= MAX_BACKLOG as usize || kept == MAX_REQUESTS, "{kept} kept");
            let counted =
                ["cm_drop_requests_full", "cm_request_forgotten"].map(|it| flood.count(it));
            assert!(is_mute || counted[1] == 0, "{counted:?}");
            assert_eq!(counted.iter().sum::<u64>(), u64::from(DATAGRAMS) - kept as u64);
            assert_eq!((flood.strays, flood.sent), (0, 0), "nothing is answered");
            flood.end();
        }
    }
}

/// A REQ, or the REJ by which its sender gives it up.
fn request_or_its_end(source: IpAddr, number: u32) -> CmMessage {
    match (number % 2, req(source, number / 2 + 1000)) {
        (1, CmMessage::Req(Req { local_id, .. })) => {
            let mut rej = Rej { local_id, reason: RejectReason::TIMEOUT, ..Rej::default() };
            rej.info[..8].copy_from_slice(&GUID.to_be_bytes());
            CmMessage::Rej(rej)
        }
        (_, request) => request,
    }
}

#[test]
fn a_flood_of_requests_without_a_path_keeps_no_place_from_hosts_that_answer() {
    type Make = fn(IpAddr, u32) -> CmMessage;
    let only_requests = |source, number: u32| req(source, number + 1000);
    for (message, requests) in
        [(only_requests as Make, DATAGRAMS), (request_or_its_end, DATAGRAMS / 2)]
    {
        // Port 7 has a backlog of 8; the path of the answers is not known, and the program hears of none.
        let mut flood = flood(1, true, message);
        assert_eq!(flood.count("cm_request_forgotten"), u64::from(requests) - 8);
        assert_eq!(flood.count("cm_drop_backlog_full"), 0);
        flood.victim.host.port.wanted.lock().unwrap().clear();
        // A host that is new, and one whose path is known.
        for (source, number) in [(IpAddr::from([10, 0, 0, 77]), 1), (peer(), 2)] {
            let payload = encoded(req(source, number));
            flood.victim.push(ForgedPacket::new(source, &payload).sealed());
            flood.victim.run();
            flood.victim.host.resolve_wanted();
            let event = flood.victim.host.event().expect("the program is told");
            let route = flood.victim.host.engine.agent().unwrap().route_of(event.id());
            assert_eq!(route.unwrap().0.remote, source);
            assert_eq!(flood.victim.host.event(), None);
        }
        flood.end();
    }
}

#[test]
fn strays_are_passed_on_at_the_limit_and_the_rest_is_counted() {
    let to_port_8 = |source, number| match req(source, number) {
        CmMessage::Req(req) => {
            let service_id = ServiceId::from_port(PortSpace::TCP, 8);
            CmMessage::Req(Req { service_id, ..req })
        }
        _ => unreachable!(),
    };
    let to_service_8 = |source, number| match sidr_req(source, number) {
        CmMessage::SidrReq(req) => {
            let service_id = ServiceId::from_port(PortSpace::UDP, 8);
            CmMessage::SidrReq(SidrReq { service_id, ..req })
        }
        _ => unreachable!(),
    };
    let of_other_process = |_, number| {
        let remote_id = CommunicationId(0xabc0_0000 | number);
        CmMessage::Dreq(Dreq { remote_id, ..Dreq::default() })
    };
    type Make = fn(IpAddr, u32) -> CmMessage;
    for message in [to_port_8 as Make, to_service_8, of_other_process] {
        let flood = flood(3000, false, message);
        let time = ROUND * DATAGRAMS.div_ceil(BATCH);
        let most = time.as_micros() / STRAY_INTERVAL.as_micros() + u128::from(MAX_STRAYS_AT_ONCE);
        assert!(u128::from(flood.strays) <= most, "{} strays", flood.strays);
        assert!(u128::from(flood.strays) >= most - 1, "{} strays", flood.strays);
        let taken = flood.count("cm_stray");
        assert!((flood.strays..=flood.strays + MAX_STRAYS_HELD as u64).contains(&taken), "{taken}");
        let beyond_limit = u64::from(DATAGRAMS) - taken;
        assert!(flood.refused > 0, "the owner had no room for the first");
        assert_eq!(flood.count("cm_stray_dropped"), beyond_limit + flood.refused);
        flood.end();
    }
}

#[test]
fn messages_of_unknown_connections_leave_nothing_and_draw_one_answer_at_most() {
    let no_prefix = |_, number| {
        let remote_id = CommunicationId(number | 1);
        CmMessage::Dreq(Dreq { remote_id, ..Dreq::default() })
    };
    let flood_of_dreqs = flood(100, false, no_prefix);
    let answered = flood_of_dreqs.count("cm_received") - flood_of_dreqs.count("cm_stray_dropped");
    let time = ROUND * DATAGRAMS.div_ceil(BATCH);
    let most = time.as_micros() / STRAY_INTERVAL.as_micros() + u128::from(MAX_STRAYS_AT_ONCE);
    assert!(flood_of_dreqs.sent as u128 <= most && u128::from(answered) <= most + 2, "{answered}");
    // Some find no path in time.
    let unsent = flood_of_dreqs.count("cm_no_path") + flood_of_dreqs.count("cm_transmit_dropped");
    assert_eq!(flood_of_dreqs.count("cm_sent"), flood_of_dreqs.sent as u64 + unsent + 1);
    flood_of_dreqs.end();

    let foreign = |_, number| {
        let remote_id = CommunicationId(0xabc0_0000 | number);
        CmMessage::Drep(Drep { remote_id, ..Drep::default() })
    };
    let flood = flood(3000, false, foreign);
    assert_eq!((flood.count("cm_foreign"), flood.strays, flood.sent), (u64::from(DATAGRAMS), 0, 0));
    flood.end();
}
