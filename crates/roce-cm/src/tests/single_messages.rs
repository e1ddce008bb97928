//! What an agent answers to single messages.

use std::time::Duration;

use roce_wire::management::{
    AnsweredMessage, CmDatagram, CmMessage, CmTimeout, CommunicationId, Drep, Dreq, Lap, Mra,
    PortSpace, Rej, RejectReason, Rep, Req, SidrStatus, TransportService,
};
use roce_wire::{Instant, PathMtu, Psn, Qpn};

use crate::fuzzing::{Act, Fate, Pair, Plan, Seen};
use crate::{
    AcceptParameters, Agent, AgentConfig, AgentError, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, DropReason, Event, ListenParameters, RejectParameters,
    ResolveParameters, ServiceAnswer, UDP_Q_KEY,
};

pub(super) const NOW: Instant = Instant::START;
const PEER: CommunicationId = CommunicationId(0x77);
const TRANSACTION: u64 = 0xabcd;

pub(super) fn ends() -> ConnectionAddresses {
    ConnectionAddresses { local: ([10, 0, 0, 1], 40_000).into(), remote: ([10, 0, 0, 2], 7).into() }
}

fn addresses() -> DatagramAddresses {
    DatagramAddresses { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() }
}

pub(super) fn qpn(number: u32) -> Qpn {
    Qpn::new(number).unwrap()
}

/// An agent of 10.0.0.1 with a listener for connections and one for datagrams, at port 7.
pub(super) fn agent() -> Agent {
    let local = addresses().local;
    let mut agent = Agent::new(AgentConfig::new(1, 1, vec![local]));
    for space in [PortSpace::TCP, PortSpace::UDP] {
        let listen = ListenParameters { space, port: 7, address: local, backlog: 2 };
        agent.listen(&listen).unwrap();
    }
    agent
}

pub(super) fn handle(agent: &mut Agent, message: CmMessage) -> Disposition {
    let datagram = CmDatagram { transaction: TRANSACTION, message };
    agent.handle_datagram(NOW, addresses(), &datagram.encode())
}

/// The messages that wait to be sent.
pub(super) fn sent(agent: &mut Agent) -> Vec<CmMessage> {
    let take = || agent.poll_transmit();
    std::iter::from_fn(take)
        .map(|it| CmDatagram::decode(&it.datagram[..]).unwrap().message)
        .collect()
}

/// A REQ of another agent, from its queue pair 0x22.
pub(super) fn req() -> Req {
    let mut peer = Agent::new(AgentConfig::new(2, 2, vec![]));
    let there = ConnectionAddresses { local: ends().remote, remote: ([10, 0, 0, 1], 7).into() };
    let parameters = ConnectParameters {
        responder_resources: 2,
        initiator_depth: 4,
        retry_count: 5,
        rnr_retry_count: 3,
        ..ConnectParameters::new(there, qpn(0x22))
    };
    peer.connect(NOW, &parameters).unwrap();
    match sent(&mut peer)[..] {
        [CmMessage::Req(req)] => Req { local_id: PEER, ..req },
        _ => panic!("no REQ"),
    }
}

pub(super) fn requested(agent: &mut Agent, req: Req) -> CommunicationId {
    assert_eq!(handle(agent, CmMessage::Req(req)), Disposition::Handled);
    match agent.poll_event() {
        Some(Event::ConnectRequest { id, .. }) => id,
        other => panic!("no request but {other:?}"),
    }
}

/// An established connection of the passive side.
fn established(agent: &mut Agent, req: Req) -> CommunicationId {
    let id = requested(agent, req);
    agent.accept(NOW, id, &AcceptParameters::new(qpn(0x11))).unwrap();
    agent.communication_established(id).unwrap();
    assert_eq!(agent.poll_event(), Some(Event::Established { id }));
    sent(agent);
    id
}

pub(super) fn rep(id: CommunicationId) -> Rep {
    Rep {
        local_id: PEER,
        remote_id: id,
        local_qpn: qpn(0x22),
        starting_psn: Psn::new(5).unwrap(),
        responder_resources: 2,
        initiator_depth: 4,
        rnr_retry_count: 3,
        target_ack_delay: CmTimeout::from_code(15),
        local_ca_guid: 2,
        ..Rep::default()
    }
}

pub(super) fn connecting(agent: &mut Agent) -> CommunicationId {
    let parameters = ConnectParameters {
        responder_resources: 9,
        retry_count: 6,
        ..ConnectParameters::new(ends(), qpn(0x11))
    };
    let id = agent.connect(NOW, &parameters).unwrap();
    assert_eq!(sent(agent).len(), 1);
    id
}

/// The reason of the only REJ that waits to be sent.
fn reject_reason(agent: &mut Agent) -> RejectReason {
    match sent(agent)[..] {
        [CmMessage::Rej(rej)] => rej.reason,
        ref other => panic!("no REJ but {other:?}"),
    }
}

//= test cm-request-addresses
//= test cm-no-alternate-path
#[test]
fn requests_that_name_other_hosts_or_paths_are_rejected_with_a_reason() {
    let with_addresses = |source: [u8; 4], destination: [u8; 4]| {
        let mut it = req();
        it.private_data[16..20].copy_from_slice(&source);
        it.private_data[32..36].copy_from_slice(&destination);
        it
    };
    let with_byte = |at: usize, value| {
        let mut it = req();
        it.private_data[at] = value;
        it
    };
    let refused = [
        (with_byte(0, 1), RejectReason::CONSUMER),
        (with_byte(1, 0x50), RejectReason::CONSUMER),
        (with_addresses([0; 4], [10, 0, 0, 1]), RejectReason::CONSUMER),
        (with_addresses([224, 0, 0, 1], [10, 0, 0, 1]), RejectReason::CONSUMER),
        (with_addresses([255; 4], [10, 0, 0, 1]), RejectReason::CONSUMER),
        (with_addresses([127, 0, 0, 1], [10, 0, 0, 1]), RejectReason::CONSUMER),
        (with_addresses([10, 0, 0, 2], [10, 0, 0, 9]), RejectReason::CONSUMER),
        (Req { alternate_local_lid: 1, ..req() }, RejectReason::CONSUMER),
        (Req { path_mtu: PathMtu::B2048.code(), ..req() }, RejectReason::INVALID_MTU),
        (Req { path_mtu: 0, ..req() }, RejectReason::INVALID_MTU),
        (Req { transport_service: TransportService::Rd, ..req() }, RejectReason::INVALID_TRANSPORT),
        (
            Req { transport_service: TransportService::Extended, ..req() },
            RejectReason::INVALID_TRANSPORT,
        ),
    ];
    for (at, (req, reason)) in refused.into_iter().enumerate() {
        let mut agent = agent();
        assert_eq!(handle(&mut agent, CmMessage::Req(req)), Disposition::Handled);
        assert_eq!(reject_reason(&mut agent), reason, "request {at}");
        assert_eq!((agent.poll_event(), agent.counters().refused), (None, 1));
        assert_eq!(agent.usage().connections, 0);
    }
}

//= test cm-repeated-req
#[test]
fn a_repeated_request_is_answered_with_mra_once_the_program_has_it() {
    let mut agent = agent();
    handle(&mut agent, CmMessage::Req(req()));
    let duplicate = Disposition::Dropped(DropReason::Duplicate);
    assert_eq!(handle(&mut agent, CmMessage::Req(req())), duplicate);
    let Some(Event::ConnectRequest { id, .. }) = agent.poll_event() else { panic!() };
    assert_eq!(handle(&mut agent, CmMessage::Req(req())), Disposition::Handled);
    let [CmMessage::Mra(mra)] = sent(&mut agent)[..] else { panic!("no MRA") };
    assert_eq!((mra.local_id, mra.remote_id), (id, PEER));
    assert_eq!(mra.acknowledged, AnsweredMessage::Req);
    assert_eq!(mra.service_timeout.code(), 24);
    agent.accept(NOW, id, &AcceptParameters::new(qpn(0x11))).unwrap();
    sent(&mut agent);
    assert_eq!(handle(&mut agent, CmMessage::Req(req())), duplicate);
    // Ended by the peer's REJ as stale: timewait.
    let (local_id, remote_id) = (PEER, id);
    let reason = RejectReason::STALE_CONNECTION;
    let rejected = AnsweredMessage::Rep;
    let rej = Rej { local_id, remote_id, reason, rejected, ..Rej::default() };
    assert_eq!(handle(&mut agent, CmMessage::Rej(rej)), Disposition::Handled);
    assert_eq!(agent.usage().timewaits, 1);
    handle(&mut agent, CmMessage::Req(req()));
    assert_eq!(reject_reason(&mut agent), RejectReason::STALE_CONNECTION);
}

//= test cm-mra
//= test cm-mra-time
#[test]
fn an_mra_puts_off_the_next_repetition_once() {
    let mut agent = agent();
    let id = connecting(&mut agent);
    let first = Duration::from_millis(6144);
    assert_eq!(agent.poll_timeout(), Some(NOW + first));
    let service_timeout = CmTimeout::from_code(24);
    let mra = Mra { local_id: PEER, remote_id: id, service_timeout, ..Mra::default() };
    assert_eq!(handle(&mut agent, CmMessage::Mra(mra)), Disposition::Handled);
    let later = NOW + first + Duration::from_millis(65_536);
    assert_eq!(agent.poll_timeout(), Some(later));
    let wrong_state = Disposition::Dropped(DropReason::WrongState);
    assert_eq!(handle(&mut agent, CmMessage::Mra(mra)), wrong_state);
    assert_eq!(agent.poll_timeout(), Some(later));
    agent.handle_timeout(later);
    assert_eq!(agent.poll_timeout(), Some(later + first));
    assert_eq!(handle(&mut agent, CmMessage::Mra(mra)), Disposition::Handled);
}

//= test cm-stale
#[test]
fn a_request_of_a_connected_queue_pair_is_stale_and_ends_the_old_connection() {
    let mut agent = agent();
    let id = established(&mut agent, req());
    let again = Req { local_id: CommunicationId(0x78), ..req() };
    assert_eq!(handle(&mut agent, CmMessage::Req(again)), Disposition::Handled);
    let [CmMessage::Rej(rej), CmMessage::Dreq(dreq)] = sent(&mut agent)[..] else { panic!() };
    assert_eq!((rej.reason, rej.remote_id), (RejectReason::STALE_CONNECTION, again.local_id));
    assert_eq!((dreq.local_id, dreq.remote_id, dreq.remote_qpn), (id, PEER, qpn(0x22)));
    // The old end is gone at the peer, which answers so. Then the queue pair is free.
    let drep = Drep { local_id: PEER, remote_id: id, ..Drep::default() };
    handle(&mut agent, CmMessage::Drep(drep));
    assert_eq!(agent.poll_event(), Some(Event::Disconnected { id }));
    requested(&mut agent, again);
    assert_eq!(agent.counters().stale, 1);
}

//= test cm-stale-rep
#[test]
fn a_response_of_a_connected_queue_pair_is_stale_and_ends_the_old_connection() {
    let mut agent = agent();
    established(&mut agent, req());
    let id = connecting(&mut agent);
    let other = Rep { local_id: CommunicationId(0x78), ..rep(id) };
    assert_eq!(handle(&mut agent, CmMessage::Rep(other)), Disposition::Handled);
    let [CmMessage::Rej(rej), CmMessage::Dreq(_)] = sent(&mut agent)[..] else { panic!() };
    assert_eq!(rej.rejected, AnsweredMessage::Rep);
    assert_eq!((rej.reason, rej.local_id), (RejectReason::STALE_CONNECTION, id));
    assert_eq!(agent.poll_event(), None);
}

//= test cm-repeated-rep
#[test]
fn a_repeated_response_is_answered_with_mra_and_then_with_rtu() {
    let mut agent = agent();
    let id = connecting(&mut agent);
    let message = CmMessage::Rep(rep(id));
    assert_eq!(handle(&mut agent, message), Disposition::Handled);
    assert_eq!(handle(&mut agent, message), Disposition::Dropped(DropReason::Duplicate));
    assert!(matches!(agent.poll_event(), Some(Event::ConnectResponse { .. })));
    handle(&mut agent, message);
    let [CmMessage::Mra(mra)] = sent(&mut agent)[..] else { panic!("no MRA") };
    assert_eq!(mra.acknowledged, AnsweredMessage::Rep);
    agent.establish(id, b"data").unwrap();
    handle(&mut agent, message);
    let [CmMessage::Rtu(first), CmMessage::Rtu(second)] = sent(&mut agent)[..] else { panic!() };
    assert_eq!(first, second);
    assert_eq!(first.private_data[..5], *b"data\0");
}

#[test]
fn a_repeated_request_is_rejected_as_before_although_the_program_has_destroyed_its_identifier() {
    let mut agent = agent();
    let id = requested(&mut agent, req());
    let reason = RejectReason::CONSUMER;
    agent.reject(NOW, id, &RejectParameters { reason, private_data: b"go away" }).unwrap();
    let rejected = sent(&mut agent);
    assert!(matches!(&rejected[..], [CmMessage::Rej(rej)] if rej.reason == reason), "{rejected:?}");
    agent.destroy(NOW, id).unwrap();
    assert_eq!(handle(&mut agent, CmMessage::Req(req())), Disposition::Handled);
    assert_eq!(sent(&mut agent), rejected);
}

//= test cm-dreq-queue-pair
//= test cm-unknown-dreq
#[test]
fn a_dreq_counts_for_its_queue_pair_only_and_unknown_ones_are_answered() {
    let mut agent = agent();
    let id = established(&mut agent, req());
    let (local_id, remote_id) = (PEER, id);
    let dreq =
        |remote_qpn| CmMessage::Dreq(Dreq { local_id, remote_id, remote_qpn, ..Dreq::default() });
    let wrong = Disposition::Dropped(DropReason::WrongQueuePair);
    assert_eq!(handle(&mut agent, dreq(qpn(0x12))), wrong);
    assert_eq!(handle(&mut agent, dreq(qpn(0x11))), Disposition::Handled);
    assert_eq!(agent.poll_event(), Some(Event::Disconnected { id }));
    assert_eq!(sent(&mut agent), []);
    agent.disconnect(NOW, id).unwrap();
    let drep = CmMessage::Drep(Drep { local_id: id, remote_id: PEER, ..Drep::default() });
    assert_eq!(sent(&mut agent), [drep]);
    // In timewait, and when it is over.
    for _ in 0..2 {
        assert_eq!(handle(&mut agent, dreq(qpn(0x11))), Disposition::Handled);
        assert_eq!(sent(&mut agent), [drep]);
        agent.handle_timeout(Instant::START + Duration::from_secs(3));
    }
    assert_eq!(agent.poll_event(), Some(Event::TimewaitExit { id }));
}

#[test]
fn both_sides_that_disconnect_at_once_answer_each_other_without_a_repetition() {
    let mut plan = Plan::connect();
    plan.on_response.push((1, Act::Disconnect));
    plan.on_established.push((0, Act::Disconnect));
    let mut pair = Pair::new(plan, Vec::new());
    pair.settle();
    let names: Vec<&str> = pair.log.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, ["REQ", "REP", "RTU", "DREQ", "DREQ", "DREP", "DREP"]);
    pair.finish();
}

#[test]
fn a_queue_pair_that_is_connected_again_in_timewait_stays_known_after_it() {
    let mut agent = agent();
    let old = established(&mut agent, req());
    agent.disconnect(NOW, old).unwrap();
    let drep = Drep { local_id: PEER, remote_id: old, ..Drep::default() };
    handle(&mut agent, CmMessage::Drep(drep));
    established_next(&mut agent, Req { local_id: CommunicationId(0x78), ..req() });
    agent.handle_timeout(Instant::START + Duration::from_secs(3));
    assert_eq!(agent.usage().timewaits, 0);
    handle(&mut agent, CmMessage::Req(Req { local_id: CommunicationId(0x79), ..req() }));
    assert_eq!(agent.counters().stale, 1);
}

/// Establishes another connection, whose event follows that of the end of the one before.
fn established_next(agent: &mut Agent, req: Req) {
    assert!(matches!(agent.poll_event(), Some(Event::Disconnected { .. })));
    established(agent, req);
}

#[test]
fn a_rej_that_crosses_a_dreq_ends_the_connection() {
    let mut agent = agent();
    let id = established(&mut agent, req());
    agent.disconnect(NOW, id).unwrap();
    let (local_id, rejected) = (PEER, AnsweredMessage::Other);
    let rej = Rej { local_id, remote_id: id, rejected, ..Rej::default() };
    assert_eq!(handle(&mut agent, CmMessage::Rej(rej)), Disposition::Handled);
    assert_eq!(agent.poll_event(), Some(Event::Disconnected { id }));
    assert_eq!(agent.usage().timewaits, 1);
}

#[test]
fn a_peer_that_is_destroyed_after_its_lost_rep_rejects_the_request_at_once() {
    let mut plan = Plan::connect();
    plan.on_request.push((1, Act::Destroy));
    // REQ, REP, REJ.
    let mut pair = Pair::new(plan, vec![Fate::Pass, Fate::Drop, Fate::Pass]);
    pair.settle();
    let seen: Vec<&Seen> = pair.sides[0].seen.0.values().flatten().collect();
    assert_eq!(seen, [&Seen::Rejected(RejectReason::CONSUMER)]);
    assert_eq!(pair.log.iter().filter(|(_, name)| *name == "REQ").count(), 1);
    pair.finish();
}

//= test cm-timewait
#[test]
fn a_timewait_takes_the_ack_timeout() {
    let mut agent = agent();
    let id = established(&mut agent, req());
    agent.disconnect(NOW, id).unwrap();
    sent(&mut agent);
    let drep = Drep { local_id: PEER, remote_id: id, ..Drep::default() };
    handle(&mut agent, CmMessage::Drep(drep));
    assert_eq!(agent.poll_timeout(), Some(Instant::START + Duration::from_millis(2048)));
}

//= test cm-rej-timeout
#[test]
fn a_rej_of_reason_4_finds_the_connection_by_the_guid_of_its_sender() {
    let mut agent = agent();
    let id = requested(&mut agent, req());
    let mut rej = Rej { local_id: PEER, reason: RejectReason::TIMEOUT, ..Rej::default() };
    // Another device's connection of the same number.
    rej.info[..8].copy_from_slice(&3_u64.to_be_bytes());
    assert_eq!(handle(&mut agent, CmMessage::Rej(rej)), Disposition::Foreign);
    rej.info[..8].copy_from_slice(&2_u64.to_be_bytes());
    assert_eq!(handle(&mut agent, CmMessage::Rej(rej)), Disposition::Handled);
    let Some(Event::Rejected { id: rejected, reason, .. }) = agent.poll_event() else { panic!() };
    assert_eq!((rejected, reason), (id, RejectReason::TIMEOUT));
    // And the active side sends it so.
    let active = connecting(&mut agent);
    agent.destroy(NOW, active).unwrap();
    let [CmMessage::Rej(rej)] = sent(&mut agent)[..] else { panic!("no REJ") };
    assert_eq!((rej.local_id, rej.remote_id), (active, CommunicationId(0)));
    assert_eq!((rej.info_length, &rej.info[..8]), (8, &1_u64.to_be_bytes()[..]));
}

//= test cm-rej-ids
#[test]
fn a_rej_names_what_it_rejects() {
    let mut agent = agent();
    handle(&mut agent, CmMessage::Req(req()));
    // Not taken by the program, which ends the listener.
    agent.close_listener(NOW, crate::ListenerHandle(0));
    let [CmMessage::Rej(rej)] = sent(&mut agent)[..] else { panic!("no REJ") };
    assert_eq!((rej.local_id, rej.remote_id), (CommunicationId(0), PEER));
    assert_eq!((rej.rejected, rej.reason), (AnsweredMessage::Req, RejectReason::CONSUMER));
    assert_eq!(agent.poll_event(), None);
    // Rejected by the program, with data.
    let id = connecting(&mut agent);
    handle(&mut agent, CmMessage::Rep(rep(id)));
    let reject = RejectParameters { reason: RejectReason(29), private_data: b"no" };
    agent.reject(NOW, id, &reject).unwrap();
    let [CmMessage::Rej(rej)] = sent(&mut agent)[..] else { panic!("no REJ") };
    assert_eq!((rej.local_id, rej.remote_id, rej.rejected), (id, PEER, AnsweredMessage::Rep));
    assert_eq!((rej.reason, &rej.private_data[..3]), (RejectReason(29), &b"no\0"[..]));
}

#[test]
fn what_the_peer_has_not_answered_can_be_taken_back() {
    let mut agent = agent();
    let id = connecting(&mut agent);
    agent.reject(NOW, id, &RejectParameters::new()).unwrap();
    let [CmMessage::Rej(rej)] = sent(&mut agent)[..] else { panic!("no REJ") };
    assert_eq!((rej.local_id, rej.reason), (id, RejectReason::TIMEOUT));
    assert_eq!(agent.poll_timeout(), None);
    assert!(agent.reject(NOW, id, &RejectParameters::new()).is_err());

    let id = requested(&mut agent, req());
    agent.accept(NOW, id, &AcceptParameters::new(qpn(1))).unwrap();
    sent(&mut agent);
    agent.reject(NOW, id, &RejectParameters::new()).unwrap();
    let [CmMessage::Rej(rej)] = sent(&mut agent)[..] else { panic!("no REJ") };
    assert_eq!((rej.local_id, rej.remote_id, rej.rejected), (id, PEER, AnsweredMessage::Other));
    assert_eq!(rej.reason, RejectReason::CONSUMER);
    assert!(agent.reject(NOW, id, &RejectParameters::new()).is_err());
    // The REJ may be lost.
    agent.handle_timeout(agent.poll_timeout().unwrap());
    let [CmMessage::Dreq(dreq)] = sent(&mut agent)[..] else { panic!("no DREQ") };
    assert_eq!((dreq.local_id, dreq.remote_id), (id, PEER));
    let drep = Drep { local_id: PEER, remote_id: id, ..Drep::default() };
    assert_eq!(handle(&mut agent, CmMessage::Drep(drep)), Disposition::Handled);
    agent.handle_timeout(agent.poll_timeout().unwrap());
    assert_eq!((agent.poll_event(), agent.usage().timewaits), (None, 0));
}

#[test]
fn the_queue_pair_of_a_response_that_was_taken_back_may_connect_again_at_once() {
    let mut agent = agent();
    let id = requested(&mut agent, req());
    agent.accept(NOW, id, &AcceptParameters::new(qpn(1))).unwrap();
    agent.destroy(NOW, id).unwrap();
    sent(&mut agent);
    // The peer has the REJ, and not yet the DREQ behind it.
    let again = Req { local_id: CommunicationId(PEER.0 + 1), ..req() };
    let new = requested(&mut agent, again);
    assert_eq!(sent(&mut agent), []);
    assert_ne!(new, id);
}

#[test]
fn calls_that_the_state_does_not_allow_are_refused_without_effect() {
    let mut agent = agent();
    let id = connecting(&mut agent);
    let state = "waiting for the peer's answer";
    let wrong = Err(AgentError::WrongState { id, state });
    assert_eq!(agent.accept(NOW, id, &AcceptParameters::new(qpn(1))), wrong);
    assert_eq!(agent.establish(id, &[]), wrong);
    assert_eq!(agent.disconnect(NOW, id), wrong);
    assert_eq!(agent.communication_established(id), wrong);
    assert_eq!(agent.answer(NOW, id, &ServiceAnswer::rejected()), Err(AgentError::UnknownId(id)));
    assert_eq!(sent(&mut agent), []);
    agent.destroy(NOW, id).unwrap();
    assert_eq!(agent.destroy(NOW, id), Err(AgentError::UnknownId(id)));

    let id = established(&mut agent, req());
    assert_eq!(agent.communication_established(id), Err(AgentError::Established(id)));
}

#[test]
fn private_data_that_does_not_fit_is_refused_without_effect() {
    let mut agent = agent();
    let too_much = |max| Err(AgentError::PrivateData { len: max + 1, max });
    let data = [1; 256];
    let connect =
        ConnectParameters { private_data: &data[..57], ..ConnectParameters::new(ends(), qpn(1)) };
    assert_eq!(agent.connect(NOW, &connect).map(drop), too_much(56));
    let resolve =
        ResolveParameters { private_data: &data[..181], ..ResolveParameters::new(ends()) };
    assert_eq!(agent.resolve(NOW, &resolve).map(drop), too_much(180));
    let id = requested(&mut agent, req());
    let accept = AcceptParameters { private_data: &data[..197], ..AcceptParameters::new(qpn(1)) };
    assert_eq!(agent.accept(NOW, id, &accept), too_much(196));
    let reject = RejectParameters { private_data: &data[..149], ..RejectParameters::new() };
    assert_eq!(agent.reject(NOW, id, &reject), too_much(148));
    assert_eq!(sent(&mut agent), []);
    assert_eq!(agent.usage().connections, 1);
    let mixed = ConnectionAddresses { remote: "[fe80::1]:7".parse().unwrap(), ..ends() };
    let refused = agent.connect(NOW, &ConnectParameters::new(mixed, qpn(1)));
    assert_eq!(refused, Err(AgentError::MixedAddresses));
}

#[test]
fn messages_of_other_hosts_other_agents_and_alternate_paths_are_dropped() {
    let mut agent = agent();
    let id = connecting(&mut agent);
    let datagram = CmDatagram { transaction: 1, message: CmMessage::Rep(rep(id)) }.encode();
    let other = DatagramAddresses { remote: [10, 0, 0, 3].into(), ..addresses() };
    let dropped = agent.handle_datagram(NOW, other, &datagram);
    assert_eq!(dropped, Disposition::Dropped(DropReason::WrongSource));
    let foreign = rep(CommunicationId(id.0 | 1 << 31));
    assert_eq!(handle(&mut agent, CmMessage::Rep(foreign)), Disposition::Foreign);
    let unknown = rep(CommunicationId(id.0 ^ 1));
    let dropped = Disposition::Dropped(DropReason::UnknownId);
    assert_eq!(handle(&mut agent, CmMessage::Rep(unknown)), dropped);
    let dropped = Disposition::Dropped(DropReason::AlternatePath);
    assert_eq!(handle(&mut agent, CmMessage::Lap(Lap::default())), dropped);
    let dropped = agent.handle_datagram(NOW, addresses(), &[0; 255]);
    assert_eq!(dropped, Disposition::Dropped(DropReason::Length));
    let names = ["cm_drop_wrong_source", "cm_drop_unknown_id", "cm_drop_length", "cm_foreign"];
    for name in names {
        assert!(agent.counters().iter().any(|it| it == (name, 1)), "{name}");
    }
    assert_eq!((sent(&mut agent), agent.poll_event()), (vec![], None));
}

//= test cm-resend-times
//= test cm-passive-resend
//= test cm-sidr-resend
#[test]
fn unanswered_messages_are_repeated_fifteen_times_and_given_up() {
    /// The times at which the agent sends, until it gives up.
    fn times(agent: &mut Agent) -> Vec<u128> {
        let mut times = Vec::new();
        while let Some(next) = agent.poll_timeout() {
            agent.handle_timeout(next);
            match sent(agent)[..] {
                [CmMessage::Req(_) | CmMessage::Rep(_) | CmMessage::SidrReq(_)] => {
                    times.push((next - NOW).as_millis());
                }
                [CmMessage::Rej(rej)] => {
                    assert_eq!(rej.reason, RejectReason::TIMEOUT);
                    return times;
                }
                _ => return times,
            }
        }
        times
    }
    let every = |millis: u128| (1..=15).map(|at| at * millis).collect::<Vec<_>>();
    let mut active = agent();
    let id = connecting(&mut active);
    assert_eq!(times(&mut active), every(6144));
    assert_eq!(active.poll_event(), Some(Event::Unreachable { id }));
    let mut passive = agent();
    let id = requested(&mut passive, req());
    passive.accept(NOW, id, &AcceptParameters::new(qpn(0x11))).unwrap();
    sent(&mut passive);
    assert_eq!(times(&mut passive), every(4096));
    assert_eq!(passive.poll_event(), Some(Event::Unreachable { id }));
    let mut asking = agent();
    let id = asking.resolve(NOW, &ResolveParameters::new(ends())).unwrap();
    sent(&mut asking);
    assert_eq!(times(&mut asking), every(4096));
    assert_eq!(asking.poll_event(), Some(Event::Unreachable { id }));
    assert_eq!(asking.counters().unanswered, 1);
}

//= test cm-udp-q-key
#[test]
fn a_service_answers_with_its_queue_pair_and_without_listener_with_status_1() {
    let plan = Plan { is_resolution: true, on_request: vec![(0, Act::Answer)], ..Plan::default() };
    let mut pair = Pair::new(plan, vec![Fate::Pass]);
    pair.settle();
    let response = [Seen::ServiceResponse(SidrStatus::VALID)];
    assert_eq!(pair.sides[0].seen.0.values().next().unwrap()[..], response);
    assert_eq!(ServiceAnswer::new(qpn(3)).q_key, UDP_Q_KEY);
    assert_eq!(UDP_Q_KEY, 0x0123_4567);
    let mut asking = agent();
    asking.resolve(NOW, &ResolveParameters::new(ends())).unwrap();
    let transmit = asking.poll_transmit().unwrap();
    let mut empty = Agent::new(AgentConfig::new(2, 2, vec![[10, 0, 0, 2].into()]));
    let there = DatagramAddresses { local: addresses().remote, remote: addresses().local };
    let datagram = &transmit.datagram[..];
    assert_eq!(empty.handle_datagram(NOW, there, datagram), Disposition::Stray);
    empty.answer_stray(there, datagram);
    let [CmMessage::SidrRep(rep)] = sent(&mut empty)[..] else { panic!("no SIDR_REP") };
    assert_eq!(rep.status, SidrStatus::UNSUPPORTED);
    assert_eq!(handle(&mut asking, CmMessage::SidrRep(rep)), Disposition::Handled);
    assert!(matches!(asking.poll_event(), Some(Event::ServiceResponse { .. })));
}

/// The messages of a connection that is made and ended, without what was lost.
#[test]
fn each_message_may_be_lost_once_and_is_repeated() {
    let mut plan = Plan::connect();
    plan.on_response.push((1, Act::Disconnect));
    plan.on_disconnected[0].clear();
    let names = ["REQ", "REP", "RTU", "DREQ", "DREP"];
    for lost in 0..names.len() {
        let mut fates = vec![Fate::Pass; names.len()];
        fates[lost] = Fate::Drop;
        let mut pair = Pair::new(plan.clone(), fates);
        pair.settle();
        let all: Vec<&str> = pair.log.iter().map(|(_, name)| *name).collect();
        assert_eq!(all[lost], names[lost]);
        // A lost RTU is not repeated: the DREQ takes its place.
        let times = all.iter().filter(|name| **name == names[lost]).count();
        assert_eq!(times, if lost == 2 { 1 } else { 2 }, "{all:?}");
        pair.finish();
    }
}
