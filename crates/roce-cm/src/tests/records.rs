//! Records of connections whose process has died, right and wrong.

use std::time::Duration;

use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, Drep, Rej, RejectReason, Rep};
use roce_wire::{Instant, Qpn};

use crate::connection::State;
use crate::duplicates::RemoteKey;
use crate::limits::{MAX_REQUESTS_IN_FLIGHT, REQUEST_FLIGHT_TIME};
use crate::{
    Agent, AgentConfig, AgentUsage, Change, ConnectParameters, ConnectionAddresses,
    ConnectionRecord, DatagramAddresses, Disposition, RECORD_LEN,
};

const NOW: Instant = Instant::START;
const BLOCK: u32 = 0x123 << 20;

fn addresses() -> DatagramAddresses {
    DatagramAddresses { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() }
}

fn agent() -> Agent {
    let config = AgentConfig::new(1, 1, vec![addresses().local]);
    Agent::new(AgentConfig { id_prefix: 5, keeps_records: true, ..config })
}

fn record(state: State) -> ConnectionRecord {
    let remote = RemoteKey { ca_guid: 0x0102_0304, id: CommunicationId(77) };
    ConnectionRecord {
        id: CommunicationId(BLOCK | 1),
        state,
        addresses: addresses(),
        traffic_class: 0x28,
        transaction: 0xabcd,
        remote: (state != State::ReqSent).then_some(remote),
        local_qpn: Qpn::new(0x11).unwrap(),
        remote_qpn: (state != State::ReqSent).then_some(Qpn::new(0x22).unwrap()),
    }
}

fn sent(agent: &mut Agent) -> Vec<CmMessage> {
    std::iter::from_fn(|| agent.poll_transmit())
        .map(|it| CmDatagram::decode(&it.datagram[..]).unwrap().message)
        .collect()
}

const STATES: [State; 7] = [
    State::ReqSent,
    State::ReqReceived,
    State::RepSent,
    State::RepReceived,
    State::Established,
    State::DreqSent,
    State::DreqReceived,
];

#[test]
fn a_record_keeps_what_it_says() {
    for state in STATES {
        for addresses in [
            addresses(),
            DatagramAddresses {
                local: "fd00::1".parse().unwrap(),
                remote: "fe80::2".parse().unwrap(),
            },
        ] {
            let record = ConnectionRecord { addresses, ..record(state) };
            assert_eq!(ConnectionRecord::from_bytes(&record.to_bytes()), Some(record));
        }
    }
}

#[test]
fn the_peer_is_told_by_the_message_of_its_state() {
    let told = STATES.map(|state| {
        let mut agent = agent();
        agent.end_orphan(NOW, &record(state));
        let names = sent(&mut agent).into_iter().map(|it| match it {
            CmMessage::Rej(Rej { reason, .. }) => format!("REJ {}", reason.0),
            CmMessage::Dreq(it) => format!("DREQ {}", it.remote_qpn.get()),
            CmMessage::Drep(it) => format!("DREP {}", it.remote_id.0),
            other => format!("{other:?}"),
        });
        names.collect::<Vec<_>>().join(", ")
    });
    // A process whose REP was sent may have a peer that holds the connection for established.
    let expected = ["REJ 4", "REJ 28", "REJ 28", "REJ 28", "DREQ 34", "DREQ 34", "DREP 77"];
    assert_eq!(told, expected);
}

#[test]
fn a_dreq_is_repeated_every_quarter_of_a_second_until_its_answer_and_a_rej_when_it_is_asked_for() {
    for state in [State::RepSent, State::Established, State::DreqSent] {
        let mut agent = agent();
        let record = record(state);
        agent.end_orphan(NOW, &record);
        sent(&mut agent);
        assert!(agent.is_disconnecting(record.id()));
        assert_eq!(record.is_half_open(), state == State::RepSent);
        assert_eq!(record.is_disconnecting(), state == State::DreqSent);
        for tick in 1..=4 {
            let at = NOW + Duration::from_millis(250 * tick);
            assert_eq!(agent.poll_timeout(), Some(at));
            agent.handle_timeout(at);
            assert!(matches!(sent(&mut agent)[..], [CmMessage::Dreq(_)]));
        }
        // Under way: nothing begins anew.
        agent.end_orphan(NOW, &record);
        assert!(sent(&mut agent).iter().all(|it| matches!(it, CmMessage::Rej(_))));
        let (local_id, remote_id) = (CommunicationId(77), record.id());
        let message = CmMessage::Drep(Drep { local_id, remote_id, ..Drep::default() });
        let drep = CmDatagram { transaction: 1, message }.encode();
        assert_eq!(agent.handle_datagram(NOW, addresses(), &drep), Disposition::Handled);
        assert!(!agent.is_disconnecting(record.id()));
        for seconds in [200, 400] {
            agent.handle_timeout(Instant::START + Duration::from_secs(seconds));
        }
        assert_eq!(agent.usage(), AgentUsage::default());
    }
    let mut agent = agent();
    for _ in 0..3 {
        agent.end_orphan(NOW, &record(State::RepReceived));
        assert!(matches!(sent(&mut agent)[..], [CmMessage::Rej(_)]));
    }
}

#[test]
fn a_dreq_that_waits_behind_others_is_recorded_when_it_leaves() {
    let mut agent = agent();
    for number in 0..=MAX_REQUESTS_IN_FLIGHT as u32 {
        let id = CommunicationId(BLOCK | number);
        let remote = RemoteKey { ca_guid: 1, id: CommunicationId(number) };
        let established = record(State::Established);
        agent.end_orphan(NOW, &ConnectionRecord { id, remote: Some(remote), ..established });
    }
    let recorded = |agent: &mut Agent| -> Vec<bool> {
        let changes = std::iter::from_fn(|| agent.poll_change());
        changes.map(|change| change.record.unwrap().is_disconnecting()).collect()
    };
    let first = recorded(&mut agent);
    assert_eq!(first.iter().filter(|is_told| **is_told).count(), MAX_REQUESTS_IN_FLIGHT);
    assert_eq!(first.len(), MAX_REQUESTS_IN_FLIGHT + 1);
    assert_eq!(sent(&mut agent).len(), MAX_REQUESTS_IN_FLIGHT);
    assert!(agent.has_unsent());
    agent.handle_timeout(NOW + REQUEST_FLIGHT_TIME);
    assert_eq!(recorded(&mut agent), [true]);
    assert_eq!(sent(&mut agent).len(), 1);
    assert!(!agent.has_unsent());
}

#[test]
fn bytes_that_are_no_record_of_ours_end_nothing_that_lives_and_send_only_what_agents_read() {
    for state in STATES {
        let bytes = record(state).to_bytes();
        for bit in 0..8 * RECORD_LEN {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Some(record) = ConnectionRecord::from_bytes(&bytes) else { continue };
            let mut agent = agent();
            let live = ConnectionAddresses {
                local: (addresses().local, 9).into(),
                remote: (addresses().remote, 7).into(),
            };
            let qpn = Qpn::new(0x33).unwrap();
            let id = agent.connect(NOW, &ConnectParameters::new(live, qpn)).unwrap();
            sent(&mut agent);
            agent.end_orphan(NOW, &record);
            sent(&mut agent);
            let rep = Rep { local_id: CommunicationId(3), remote_id: id, ..Rep::default() };
            let message = CmMessage::Rep(rep);
            let rep = CmDatagram { transaction: 1, message }.encode();
            agent.handle_datagram(NOW, addresses(), &rep);
            agent.establish(id, &[]).unwrap();
            agent.destroy(NOW, id).unwrap();
            agent.handle_timeout(Instant::START + Duration::from_secs(1000));
            sent(&mut agent);
        }
    }
}

#[test]
fn an_agent_without_records_tells_of_no_change() {
    let config = AgentConfig::new(1, 1, vec![addresses().local]);
    for keeps_records in [false, true] {
        let mut agent = Agent::new(AgentConfig { keeps_records, ..config.clone() });
        let ends = ConnectionAddresses {
            local: (addresses().local, 9).into(),
            remote: (addresses().remote, 7).into(),
        };
        let qpn = Qpn::new(0x33).unwrap();
        let id = agent.connect(NOW, &ConnectParameters::new(ends, qpn)).unwrap();
        assert_eq!(
            agent.poll_change().map(|it| it.record.is_some()),
            keeps_records.then_some(true)
        );
        let (local_id, remote_id) = (CommunicationId(0), id);
        let reason = RejectReason::CONSUMER;
        let message = CmMessage::Rej(Rej { local_id, remote_id, reason, ..Rej::default() });
        let rej = CmDatagram { transaction: 1, message }.encode();
        assert_eq!(agent.handle_datagram(NOW, addresses(), &rej), Disposition::Handled);
        assert_eq!(agent.poll_change(), keeps_records.then_some(Change { id, record: None }));
        assert_eq!(agent.poll_change(), None);
    }
}
