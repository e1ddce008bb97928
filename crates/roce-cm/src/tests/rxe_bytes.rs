//! The bytes that this agent sends where a kernel with rxe sends its own.

use insta::assert_snapshot;
use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, PortSpace};
use roce_wire::{Instant, Qpn};

use crate::{
    AcceptParameters, Agent, AgentConfig, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, Event, ListenParameters, Transmit,
};

const NOW: Instant = Instant::START;

/// The message of a datagram in words of 32 bits, without zeros at its end.
fn body(transmit: &Transmit) -> String {
    let words: Vec<u32> =
        transmit.datagram[24..].as_chunks().0.iter().map(|it| u32::from_be_bytes(*it)).collect();
    let end = words.iter().rposition(|it| *it != 0).map_or(0, |at| at + 1);
    let words: Vec<String> = words[..end].iter().map(|it| format!("{it:08x}")).collect();
    words.chunks(8).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n")
}

/// The agents of the two hosts whose exchange was captured, with the client's message.
fn captured() -> (Agent, Agent, CommunicationId, Transmit) {
    let mut client =
        Agent::new(AgentConfig::new(0x0000_00ff_fe00_0002, 2, vec![[10, 9, 0, 2].into()]));
    let mut server =
        Agent::new(AgentConfig::new(0x0000_00ff_fe00_0001, 1, vec![[10, 9, 0, 1].into()]));
    let listen = ListenParameters {
        space: PortSpace::TCP,
        port: 7174,
        address: [0, 0, 0, 0].into(),
        backlog: 0,
    };
    server.listen(&listen).unwrap();
    let addresses = ConnectionAddresses {
        local: ([10, 9, 0, 2], 0xd7c6).into(),
        remote: ([10, 9, 0, 1], 7174).into(),
    };
    let parameters = ConnectParameters {
        responder_resources: 1,
        initiator_depth: 1,
        ..ConnectParameters::new(addresses, Qpn::new(0x14).unwrap())
    };
    let id = client.connect(NOW, &parameters).unwrap();
    let req = client.poll_transmit().unwrap();
    (client, server, id, req)
}

/// Gives `to` a datagram of its peer, and returns its answer.
fn answer(to: &mut Agent, transmit: &Transmit) -> Option<Transmit> {
    let DatagramAddresses { local, remote } = transmit.addresses;
    let addresses = DatagramAddresses { local: remote, remote: local };
    if to.handle_datagram(NOW, addresses, &transmit.datagram[..]) == Disposition::Stray {
        to.answer_stray(addresses, &transmit.datagram[..]);
    }
    to.poll_transmit()
}

fn decoded(transmit: &Transmit) -> CmMessage {
    CmDatagram::decode(&transmit.datagram[..]).unwrap().message
}

//= test cm-flow-label
//= test cm-timeouts
//= test cm-resources
#[test]
fn the_exchange_has_the_bytes_of_rxe_but_for_random_numbers() {
    let (mut client, mut server, client_id, req) = captured();
    // rxe: 194b7b0b 00000000 00000000 01061c06 000000ff fe000002 … 000014 01 000000 01 000000 a0
    // c7b33c a7 ffff 37 f0 ffff ffff …, flow label a3d00, 0040 0098.
    assert_snapshot!("req", body(&req));
    assert_eq!(answer(&mut server, &req), None);
    let Some(Event::ConnectRequest { id: server_id, .. }) = server.poll_event() else {
        panic!("no request");
    };
    let accept = AcceptParameters {
        responder_resources: 1,
        initiator_depth: 1,
        ..AcceptParameters::new(Qpn::new(0x14).unwrap())
    };
    server.accept(NOW, server_id, &accept).unwrap();
    let rep = server.poll_transmit().unwrap();
    // rxe: 07745d5b 194b7b0b 00000000 00001400 00000000 f9c73c00 010178e0 000000ff fe000001.
    assert_snapshot!("rep", body(&rep));
    assert_eq!(answer(&mut client, &rep), None);
    client.establish(client_id, &[]).unwrap();
    let rtu = client.poll_transmit().unwrap();
    assert_snapshot!("rtu", body(&rtu));
    assert_eq!(answer(&mut server, &rtu), None);
    client.disconnect(NOW, client_id).unwrap();
    let dreq = client.poll_transmit().unwrap();
    assert_snapshot!("dreq", body(&dreq));
    assert_eq!(answer(&mut server, &dreq), None);
    server.disconnect(NOW, server_id).unwrap();
    let drep = server.poll_transmit().unwrap();
    assert_snapshot!("drep", body(&drep));
    assert_eq!(answer(&mut client, &drep), None);

    // The numbers that are the agents' own.
    let (CmMessage::Req(req), CmMessage::Rep(rep)) = (decoded(&req), decoded(&rep)) else {
        panic!("neither REQ nor REP");
    };
    assert_eq!((req.local_id, rep.remote_id, rep.local_id), (client_id, client_id, server_id));
}

//= test cm-no-listener
#[test]
fn a_request_to_no_listener_is_refused_with_the_bytes_of_rxe() {
    let (_, _, client_id, req) = captured();
    let mut empty = Agent::new(AgentConfig::new(3, 3, vec![[10, 9, 0, 1].into()]));
    let rej = answer(&mut empty, &req).unwrap();
    // rxe: 00000000 1b4b7b0b 00000008.
    assert_eq!(body(&rej), format!("00000000 {:08x} 00000008", client_id.0));
    let transaction = |it: &Transmit| CmDatagram::decode(&it.datagram[..]).unwrap().transaction;
    assert_eq!(transaction(&rej), transaction(&req));
}
