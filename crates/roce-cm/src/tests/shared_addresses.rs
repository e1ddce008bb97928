//! Agents of one address: one that connects to itself, and two that receive the same datagrams.

use std::time::Duration;

use roce_wire::management::{CmDatagram, CommunicationId, PortSpace};
use roce_wire::{Instant, Qpn};

use crate::{
    AcceptParameters, Agent, AgentConfig, AgentUsage, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, Event, ListenParameters, Transmit,
};

const NOW: Instant = Instant::START;

fn qpn(number: u32) -> Qpn {
    Qpn::new(number).unwrap()
}

fn listen(agent: &mut Agent) {
    let address = "::".parse().unwrap();
    let listen = ListenParameters { space: PortSpace::TCP, port: 7, address, backlog: 1 };
    agent.listen(&listen).unwrap();
}

fn arriving(transmit: &Transmit) -> DatagramAddresses {
    let DatagramAddresses { local, remote } = transmit.addresses;
    DatagramAddresses { local: remote, remote: local }
}

#[test]
fn an_agent_connects_to_itself() {
    let local = [10, 0, 0, 1].into();
    let mut agent = Agent::new(AgentConfig::new(1, 1, vec![local]));
    listen(&mut agent);
    let deliver = |agent: &mut Agent| {
        while let Some(transmit) = agent.poll_transmit() {
            let handled = agent.handle_datagram(NOW, arriving(&transmit), &transmit.datagram[..]);
            assert_eq!(handled, Disposition::Handled);
        }
    };
    let addresses = ConnectionAddresses { local: (local, 9).into(), remote: (local, 7).into() };
    let active = agent.connect(NOW, &ConnectParameters::new(addresses, qpn(0x11))).unwrap();
    deliver(&mut agent);
    let Some(Event::ConnectRequest { id: passive, .. }) = agent.poll_event() else { panic!() };
    agent.accept(NOW, passive, &AcceptParameters::new(qpn(0x22))).unwrap();
    deliver(&mut agent);
    assert!(matches!(agent.poll_event(), Some(Event::ConnectResponse { id, .. }) if id == active));
    agent.establish(active, &[]).unwrap();
    deliver(&mut agent);
    assert_eq!(agent.poll_event(), Some(Event::Established { id: passive }));
    assert_eq!(agent.rtr_attributes(active).unwrap().dest_qpn, qpn(0x22));
    assert_eq!(agent.rtr_attributes(passive).unwrap().dest_qpn, qpn(0x11));
    agent.disconnect(NOW, active).unwrap();
    deliver(&mut agent);
    assert_eq!(agent.poll_event(), Some(Event::Disconnected { id: passive }));
    agent.disconnect(NOW, passive).unwrap();
    deliver(&mut agent);
    assert_eq!(agent.poll_event(), Some(Event::Disconnected { id: active }));
    for id in [active, passive] {
        agent.destroy(NOW, id).unwrap();
    }
    agent.handle_timeout(Instant::START + Duration::from_secs(3));
    assert_eq!(agent.usage(), AgentUsage { listeners: 1, ..AgentUsage::default() });
}

/// Two processes of 10.0.0.2, of which the first listens, and their peer.
struct Shared {
    peer: Agent,
    here: [Agent; 2],
}

impl Shared {
    /// Delivers what waits; what is for 10.0.0.2 reaches both processes. Returns how many datagrams were
    /// strays for each of them.
    fn deliver(&mut self) -> [usize; 2] {
        let mut strays = [0; 2];
        loop {
            if let Some(transmit) = self.peer.poll_transmit() {
                for (agent, strays) in self.here.iter_mut().zip(&mut strays) {
                    let bytes = &transmit.datagram[..];
                    match agent.handle_datagram(NOW, arriving(&transmit), bytes) {
                        Disposition::Handled => {}
                        Disposition::Stray | Disposition::HeldStray | Disposition::Foreign => {
                            *strays += 1
                        }
                        Disposition::Dropped(reason) => panic!("{reason:?}"),
                    }
                }
            } else if let Some(transmit) = self.here[0].poll_transmit() {
                let bytes = &transmit.datagram[..];
                self.peer.handle_datagram(NOW, arriving(&transmit), bytes);
            } else {
                let other = self.here[1].poll_transmit();
                assert_eq!(other.map(|it| CmDatagram::decode(&it.datagram[..])), None);
                return strays;
            }
        }
    }
}

#[test]
fn of_two_agents_that_receive_the_same_datagrams_the_one_concerned_answers() {
    let [local, remote] = [1, 2].map(|last| std::net::IpAddr::from([10, 0, 0, last]));
    let here = [0xabc, 0xabd].map(|id_prefix| {
        let config = AgentConfig::new(2, id_prefix.into(), vec![remote]);
        Agent::new(AgentConfig { id_prefix, ..config })
    });
    let peer = Agent::new(AgentConfig::new(1, 1, vec![local]));
    let mut shared = Shared { peer, here };
    listen(&mut shared.here[0]);
    let addresses = ConnectionAddresses { local: (local, 9).into(), remote: (remote, 7).into() };
    let connect = ConnectParameters::new(addresses, qpn(0x11));
    let active = shared.peer.connect(NOW, &connect).unwrap();
    assert_eq!(shared.deliver(), [0, 1], "REQ");
    let Some(Event::ConnectRequest { id, .. }) = shared.here[0].poll_event() else { panic!() };
    assert_eq!(id.0 >> crate::COUNTED_ID_BITS, 0xabc);
    shared.here[0].accept(NOW, id, &AcceptParameters::new(qpn(0x22))).unwrap();
    shared.deliver();
    shared.peer.establish(active, &[]).unwrap();
    assert_eq!(shared.deliver(), [0, 1], "RTU");
    shared.peer.disconnect(NOW, active).unwrap();
    assert_eq!(shared.deliver(), [0, 1], "DREQ");
    // One that gives up before the answer: the REJ names no id of ours.
    let active =
        shared.peer.connect(NOW, &ConnectParameters { qpn: qpn(0x12), ..connect }).unwrap();
    assert_eq!(shared.deliver(), [0, 1], "REQ");
    shared.peer.destroy(NOW, active).unwrap();
    assert_eq!(shared.deliver(), [0, 1], "REJ");
    let events: Vec<CommunicationId> =
        std::iter::from_fn(|| shared.here[0].poll_event()).map(|it| it.id()).collect();
    assert_eq!(events.len(), 4, "established, disconnected, requested, rejected");
    assert_eq!(shared.here[1].usage(), AgentUsage::default());
    assert_eq!(shared.here[1].poll_event(), None);
}
