//! What an agent keeps is bounded, and what exceeds it is counted.

use std::time::Duration;

use roce_wire::management::{
    CmDatagram, CmMessage, CmaHeader, CommunicationId, Drep, Dreq, PortSpace, Req, ServiceId,
    SidrReq,
};
use roce_wire::{Instant, Qpn};

use crate::{
    AcceptParameters, Agent, AgentConfig, AgentUsage, COUNTED_ID_BITS, DatagramAddresses,
    Disposition, DropReason, Event, KEPT_ANSWER_TIME, ListenParameters, MAX_KEPT_REPLIES,
    MAX_REQUESTS, MAX_STRAYS_AT_ONCE, MAX_STRAYS_HELD, MAX_TIMEWAITS, MAX_TRANSMITS,
    RejectParameters, STRAY_INTERVAL, ServiceAnswer,
};

const NOW: Instant = Instant::START;

fn addresses() -> DatagramAddresses {
    DatagramAddresses { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() }
}

fn agent(backlog: u32) -> Agent {
    let local = addresses().local;
    let mut agent = Agent::new(AgentConfig::new(1, 1, vec![local]));
    for space in [PortSpace::TCP, PortSpace::UDP] {
        let listen = ListenParameters { space, port: 7, address: local, backlog };
        agent.listen(&listen).unwrap();
    }
    agent
}

fn header() -> [u8; 36] {
    CmaHeader::new(9, addresses().remote, addresses().local).unwrap().to_bytes()
}

/// The REQ with this number, each of another device.
fn req(number: u32) -> CmMessage {
    let mut req = Req {
        local_id: CommunicationId(number),
        service_id: ServiceId::from_port(PortSpace::TCP, 7),
        local_ca_guid: u64::from(number) + 2,
        local_qpn: Qpn::new(0x22).unwrap(),
        path_mtu: 3,
        ..Req::default()
    };
    req.private_data[..36].copy_from_slice(&header());
    CmMessage::Req(req)
}

fn sidr_req(number: u32) -> CmMessage {
    let mut req = SidrReq {
        request_id: CommunicationId(number),
        service_id: ServiceId::from_port(PortSpace::UDP, 7),
        ..SidrReq::default()
    };
    req.private_data[..36].copy_from_slice(&header());
    CmMessage::SidrReq(req)
}

fn handle(agent: &mut Agent, message: CmMessage) -> Disposition {
    let datagram = CmDatagram { transaction: 1, message }.encode();
    agent.handle_datagram(NOW, addresses(), &datagram)
}

#[test]
fn a_full_backlog_drops_requests_until_the_program_takes_one() {
    for make in [req, sidr_req] {
        let mut agent = agent(2);
        let answers = [1, 2, 3].map(|number| handle(&mut agent, make(number)));
        let full = Disposition::Dropped(DropReason::BacklogFull);
        assert_eq!(answers, [Disposition::Handled, Disposition::Handled, full]);
        agent.poll_event().unwrap();
        assert_eq!(handle(&mut agent, make(3)), Disposition::Handled);
        assert_eq!(handle(&mut agent, make(4)), full);
        assert_eq!(agent.counters().dropped(DropReason::BacklogFull), 2);
    }
}

#[test]
fn a_request_that_is_kept_for_the_program_stays_in_the_backlog_until_the_program_has_it() {
    for make in [req, sidr_req] {
        let mut agent = agent(1);
        let full = Disposition::Dropped(DropReason::BacklogFull);
        handle(&mut agent, make(1));
        let event = agent.take_event().unwrap();
        assert_eq!(handle(&mut agent, make(2)), full);
        agent.note_reported(&event);
        // Once is enough.
        agent.note_reported(&event);
        assert_eq!(handle(&mut agent, make(2)), Disposition::Handled);
        assert_eq!(handle(&mut agent, make(3)), full);
        // The request of the listener that ends is refused, though it was taken from the agent.
        agent.take_event().unwrap();
        agent.close_listener(NOW, crate::ListenerHandle(0));
        agent.close_listener(NOW, crate::ListenerHandle(1));
        let usage = agent.usage();
        assert_eq!((usage.connections + usage.resolutions, usage.unanswered_requests), (1, 1));
    }
}

#[test]
fn a_request_whose_answer_has_no_path_gives_up_its_place_in_a_full_backlog_to_a_newer_one() {
    for make in [req, sidr_req] {
        let mut agent = agent(2);
        let ids = [1, 2].map(|number| {
            handle(&mut agent, make(number));
            agent.take_event().unwrap().id()
        });
        ids.into_iter().for_each(|id| agent.await_path(id));
        agent.path_is_known(ids[0]);
        assert_eq!(handle(&mut agent, make(3)), Disposition::Handled);
        assert_eq!((agent.poll_forgotten(), agent.poll_forgotten()), (Some(ids[1]), None));
        // The paths of the others are known, as far as the agent is told.
        let full = Disposition::Dropped(DropReason::BacklogFull);
        assert_eq!(handle(&mut agent, make(4)), full);
        let usage = agent.usage();
        assert_eq!((usage.connections + usage.resolutions, usage.unanswered_requests), (2, 2));
        assert_eq!((usage.kept_replies, agent.counters().request_forgotten), (0, 1));
        assert_eq!(agent.poll_timeout(), None);
        // The peer asks again, which is a new request, and it is refused as any other.
        let third = agent.take_event().unwrap();
        agent.note_reported(&third);
        assert_eq!(handle(&mut agent, make(2)), Disposition::Handled);
        agent.destroy_all(NOW);
        let listeners = AgentUsage { listeners: 2, ..AgentUsage::default() };
        let left = AgentUsage { kept_replies: 3, ..listeners };
        assert_eq!(agent.usage(), left);
    }
}

#[test]
fn a_request_that_the_program_has_taken_is_not_in_the_backlog() {
    let mut agent = agent(1);
    let full = Disposition::Dropped(DropReason::BacklogFull);
    handle(&mut agent, req(1));
    let taken = agent.poll_event().unwrap().id();
    handle(&mut agent, req(2));
    agent.destroy(NOW, taken).unwrap();
    assert_eq!(handle(&mut agent, req(3)), full);
    let taken = agent.poll_event().unwrap().id();
    handle(&mut agent, req(3));
    agent.close_listener(NOW, crate::ListenerHandle(0));
    assert_eq!(agent.usage().connections, 1);
    agent.accept(NOW, taken, &AcceptParameters::new(Qpn::new(0x11).unwrap())).unwrap();
}

#[test]
fn the_peer_of_every_connection_is_told_when_the_program_ends() {
    let mut agent = agent(0);
    for number in [1, 2, 3] {
        handle(&mut agent, req(number));
        handle(&mut agent, sidr_req(number));
    }
    let ids: Vec<_> = std::iter::from_fn(|| agent.poll_event()).map(|event| event.id()).collect();
    agent.accept(NOW, ids[0], &AcceptParameters::new(Qpn::new(0x11).unwrap())).unwrap();
    agent.destroy(NOW, ids[2]).unwrap();
    while agent.poll_transmit().is_some() {}
    agent.destroy_all(NOW);
    // A REJ of the two requests that are left; what was destroyed before is not told again.
    assert_eq!(std::iter::from_fn(|| agent.poll_transmit()).count(), 2 + 3);
    let usage = agent.usage();
    assert_eq!((usage.resolutions, usage.unanswered_requests, agent.poll_event()), (0, 0, None));
}

#[test]
fn requests_without_answer_are_bounded() {
    let mut agent = agent(0);
    let mut ids = Vec::new();
    for number in 0..MAX_REQUESTS as u32 {
        assert_eq!(
            handle(&mut agent, [req, sidr_req][number as usize % 2](number)),
            Disposition::Handled
        );
        ids.push(agent.poll_event().unwrap().id());
    }
    assert_eq!(agent.usage().unanswered_requests, MAX_REQUESTS);
    let full = Disposition::Dropped(DropReason::RequestsFull);
    assert_eq!([req, sidr_req].map(|make| handle(&mut agent, make(1 << 20))), [full; 2]);
    agent.accept(NOW, ids[0], &AcceptParameters::new(Qpn::new(0x11).unwrap())).unwrap();
    assert_eq!(handle(&mut agent, req(1 << 20)), Disposition::Handled);
    assert_eq!(handle(&mut agent, sidr_req(1 << 20)), full);
    agent.answer(NOW, ids[1], &ServiceAnswer::rejected()).unwrap();
    assert_eq!(handle(&mut agent, sidr_req(1 << 20)), Disposition::Handled);
    assert_eq!(agent.usage().unanswered_requests, MAX_REQUESTS);
}

#[test]
fn kept_replies_are_bounded_and_end() {
    let mut agent = agent(0);
    for number in 0..MAX_KEPT_REPLIES as u32 + 1 {
        handle(&mut agent, sidr_req(number));
        let id = agent.poll_event().unwrap().id();
        agent.answer(NOW, id, &ServiceAnswer::rejected()).unwrap();
        handle(&mut agent, req(number));
        let id = agent.poll_event().unwrap().id();
        agent.reject(NOW, id, &RejectParameters::new()).unwrap();
        agent.destroy(NOW, id).unwrap();
        while agent.poll_transmit().is_some() {}
    }
    assert_eq!(agent.usage().kept_replies, 2 * MAX_KEPT_REPLIES);
    assert_eq!(agent.counters().kept_reply_dropped, 2);
    // The oldest is a new request again, the others are answered without the program.
    for make in [req, sidr_req] {
        handle(&mut agent, make(1));
        assert_eq!(agent.poll_event(), None);
        assert!(agent.poll_transmit().is_some());
        handle(&mut agent, make(0));
        assert!(agent.poll_event().is_some());
    }
    agent.handle_timeout(Instant::START + KEPT_ANSWER_TIME - Duration::from_nanos(1));
    assert_eq!(agent.usage().kept_replies, 2 * MAX_KEPT_REPLIES);
    agent.handle_timeout(Instant::START + KEPT_ANSWER_TIME);
    assert_eq!(agent.usage().kept_replies, MAX_KEPT_REPLIES);
}

#[test]
fn timewaits_are_bounded_and_the_first_ends_early() {
    let mut agent = agent(0);
    let qpn = Qpn::new(0x11).unwrap();
    let mut first = None;
    for number in 0..=MAX_TIMEWAITS as u32 {
        handle(&mut agent, req(number));
        let id = agent.poll_event().unwrap().id();
        first.get_or_insert(id);
        agent.accept(NOW, id, &AcceptParameters::new(qpn)).unwrap();
        let local_id = CommunicationId(number);
        let dreq = Dreq { local_id, remote_id: id, remote_qpn: qpn, ..Dreq::default() };
        handle(&mut agent, CmMessage::Dreq(dreq));
        assert_eq!(agent.poll_event(), Some(Event::Disconnected { id }));
        assert_eq!(agent.usage().timewaits, number as usize);
        agent.disconnect(NOW, id).unwrap();
        while agent.poll_transmit().is_some() {}
    }
    assert_eq!(agent.usage().timewaits, MAX_TIMEWAITS);
    assert_eq!(agent.counters().timewait_dropped, 1);
    assert!(matches!(agent.poll_event(), Some(Event::TimewaitExit { .. })));
}

#[test]
fn datagrams_that_wait_to_be_sent_are_bounded() {
    let mut agent = agent(0);
    // Each REQ is refused, since its private data names no addresses.
    let wrong = |number| match req(number) {
        CmMessage::Req(req) => CmMessage::Req(Req { private_data: [0; 92], ..req }),
        _ => unreachable!(),
    };
    for number in 0..MAX_TRANSMITS as u32 + 5 {
        handle(&mut agent, wrong(number));
    }
    assert_eq!(agent.counters().transmit_dropped, 5);
    assert_eq!(std::iter::from_fn(|| agent.poll_transmit()).count(), MAX_TRANSMITS);
    assert_eq!(agent.counters().sent, MAX_TRANSMITS as u64);
    assert!(!agent.has_transmit());
}

/// A message of this kind that nothing of the agent takes: to another port, or another process's connection.
fn strays(number: u32) -> [CmMessage; 3] {
    let (CmMessage::Req(req), CmMessage::SidrReq(sidr_req)) = (req(number), sidr_req(number))
    else {
        unreachable!()
    };
    let foreign = CommunicationId(0x123 << COUNTED_ID_BITS | number);
    [
        CmMessage::Req(Req { service_id: ServiceId::from_port(PortSpace::TCP, 8), ..req }),
        CmMessage::SidrReq(SidrReq {
            service_id: ServiceId::from_port(PortSpace::UDP, 8),
            ..sidr_req
        }),
        CmMessage::Dreq(Dreq {
            local_id: CommunicationId(number),
            remote_id: foreign,
            ..Dreq::default()
        }),
    ]
}

#[test]
fn a_flood_of_strays_is_answered_at_a_bounded_rate_and_the_rest_is_counted() {
    for kind in 0..3 {
        let mut agent = agent(0);
        let (mut answered, mut dropped) = (0, 0);
        // Five seconds with 4000 a second.
        for number in 0..20_000 {
            let now = Instant::START + Duration::from_micros(250) * number;
            let message = strays(number).into_iter().nth(kind).unwrap();
            let datagram = CmDatagram { transaction: 1, message }.encode();
            while let Some(held) = agent.poll_stray(now) {
                agent.answer_stray(held.addresses, &held.datagram[..]);
            }
            match agent.handle_datagram(now, addresses(), &datagram) {
                Disposition::Stray => agent.answer_stray(addresses(), &datagram),
                Disposition::HeldStray => {}
                Disposition::Dropped(DropReason::Strays) => dropped += 1,
                other => panic!("{other:?}"),
            }
            while agent.poll_transmit().is_some() {
                answered += 1;
            }
        }
        let most = 5 * (Duration::from_secs(1).as_micros() / STRAY_INTERVAL.as_micros()) as u64;
        assert_eq!(answered, most + u64::from(MAX_STRAYS_AT_ONCE) - 1);
        let held = 20_000 - answered - dropped;
        assert!(held <= MAX_STRAYS_HELD as u64, "{held} wait");
        let counters = agent.counters();
        let counted = (counters.stray, counters.dropped(DropReason::Strays));
        assert_eq!(counted, (answered + held, dropped));
        assert!(counters.iter().any(|it| it == ("cm_stray_dropped", dropped)));
        let left = AgentUsage { listeners: 2, ..AgentUsage::default() };
        assert_eq!(agent.usage(), left, "nothing is kept of them");
    }
}

#[test]
fn dreqs_of_unknown_connections_are_answered_within_the_limit_of_strays() {
    let mut agent = agent(0);
    let dreq = |number| {
        let (local_id, remote_id) = (CommunicationId(number), CommunicationId(number));
        CmMessage::Dreq(Dreq { local_id, remote_id, ..Dreq::default() })
    };
    let limited = Disposition::Dropped(DropReason::Strays);
    for number in 0..MAX_STRAYS_AT_ONCE {
        assert_eq!(handle(&mut agent, dreq(number)), Disposition::Handled);
        assert!(agent.poll_transmit().is_some(), "answered with DREP");
    }
    assert_eq!(handle(&mut agent, dreq(1000)), limited);
    let [req, ..] = strays(1);
    let disposition = handle(&mut agent, req);
    assert_eq!(disposition, Disposition::HeldStray, "strays have the same limit");
    assert!(agent.poll_transmit().is_none());
    assert_eq!(agent.counters().dropped(DropReason::Strays), 1);
    assert_eq!(agent.counters().unknown_dreq, u64::from(MAX_STRAYS_AT_ONCE));
}

#[test]
fn what_no_process_answers_counts_apart_and_leaves_the_limit_to_what_may_be_answered() {
    let mut agent = agent(0);
    for number in 0..1000 {
        let remote_id = CommunicationId(0x123 << COUNTED_ID_BITS | number);
        let drep = Drep { remote_id, ..Drep::default() };
        assert_eq!(handle(&mut agent, CmMessage::Drep(drep)), Disposition::Foreign);
    }
    let [req, ..] = strays(1);
    assert_eq!(handle(&mut agent, req), Disposition::Stray);
    assert_eq!((agent.counters().foreign, agent.counters().stray), (1000, 1));
    assert!(agent.poll_transmit().is_none());
}
