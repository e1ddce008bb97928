//! Agents whose connection or resolution is at a certain stage, and what a peer may send there.

use roce_wire::management::{
    AnsweredMessage, Apr, CmDatagram, CmMessage, CmaHeader, CommunicationId, Drep, Dreq, Lap, Mra,
    PortSpace, Rej, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq,
};
use roce_wire::{Instant, Qpn};

use crate::{
    AcceptParameters, Agent, AgentConfig, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, ListenParameters, ResolveParameters, ServiceAnswer,
};

pub(super) const NOW: Instant = Instant::START;
/// What the peer calls its end, the GUID of its device, and its queue pair.
pub(super) const PEER: CommunicationId = CommunicationId(0x77);
pub(super) const GUID: u64 = 2;
pub(super) const THEIR_QPN: u32 = 0x22;
pub(super) const OUR_QPN: u32 = 0x11;
pub(super) const TRANSACTION: u64 = 0xabcd;
/// How far the connection or resolution is that the datagrams name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Nothing,
    ReqSent,
    RepReceived,
    EstablishedAsActive,
    ReqReceived,
    RepSent,
    EstablishedAsPassive,
    DreqSent,
    DreqReceived,
    Timewait,
    ServiceAsked,
    ServiceRequested,
    ServiceAnswered,
}

impl Stage {
    pub(super) const ALL: [Self; 13] = [
        Self::Nothing,
        Self::ReqSent,
        Self::RepReceived,
        Self::EstablishedAsActive,
        Self::ReqReceived,
        Self::RepSent,
        Self::EstablishedAsPassive,
        Self::DreqSent,
        Self::DreqReceived,
        Self::Timewait,
        Self::ServiceAsked,
        Self::ServiceRequested,
        Self::ServiceAnswered,
    ];

    pub(super) fn is_established(self) -> bool {
        matches!(self, Self::EstablishedAsActive | Self::EstablishedAsPassive)
    }
}

pub(super) fn addresses() -> DatagramAddresses {
    DatagramAddresses { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() }
}

pub(super) fn qpn(number: u32) -> Qpn {
    Qpn::new(number).unwrap()
}

pub(super) fn encoded(message: CmMessage) -> [u8; 256] {
    CmDatagram { transaction: TRANSACTION, message }.encode()
}

pub(super) fn header() -> [u8; 36] {
    CmaHeader::new(9, addresses().remote, addresses().local).unwrap().to_bytes()
}

pub(super) fn req() -> Req {
    let mut req = Req {
        local_id: PEER,
        service_id: ServiceId::from_port(PortSpace::TCP, 7),
        local_ca_guid: GUID,
        local_qpn: qpn(THEIR_QPN),
        path_mtu: 3,
        ..Req::default()
    };
    req.private_data[..36].copy_from_slice(&header());
    req
}

pub(super) fn sidr_req() -> SidrReq {
    let mut req = SidrReq {
        request_id: PEER,
        service_id: ServiceId::from_port(PortSpace::UDP, 7),
        ..SidrReq::default()
    };
    req.private_data[..36].copy_from_slice(&header());
    req
}

pub(super) fn rep(id: CommunicationId) -> Rep {
    Rep {
        local_id: PEER,
        remote_id: id,
        local_qpn: qpn(THEIR_QPN),
        local_ca_guid: GUID,
        ..Rep::default()
    }
}

/// Every message that a peer may send to the connection or resolution `id`.
pub(super) fn messages(id: CommunicationId) -> Vec<(&'static str, CmMessage)> {
    let (local_id, remote_id) = (PEER, id);
    let rej = Rej { local_id, remote_id, reason: RejectReason::CONSUMER, ..Rej::default() };
    let mut timeout = Rej { local_id, reason: RejectReason::TIMEOUT, ..Rej::default() };
    timeout.info[..8].copy_from_slice(&GUID.to_be_bytes());
    let mra =
        |acknowledged| CmMessage::Mra(Mra { local_id, remote_id, acknowledged, ..Mra::default() });
    vec![
        ("REQ", CmMessage::Req(req())),
        ("REP", CmMessage::Rep(rep(id))),
        ("RTU", CmMessage::Rtu(Rtu { local_id, remote_id, ..Rtu::default() })),
        ("REJ", CmMessage::Rej(rej)),
        ("REJ of reason 4", CmMessage::Rej(timeout)),
        ("MRA of REQ", mra(AnsweredMessage::Req)),
        ("MRA of REP", mra(AnsweredMessage::Rep)),
        ("DREQ", CmMessage::Dreq(dreq(id))),
        ("DREP", CmMessage::Drep(Drep { local_id, remote_id, ..Drep::default() })),
        ("SIDR_REQ", CmMessage::SidrReq(sidr_req())),
        ("SIDR_REP", CmMessage::SidrRep(SidrRep { request_id: id, ..SidrRep::default() })),
        ("LAP", CmMessage::Lap(Lap { local_id, remote_id, ..Lap::default() })),
        ("APR", CmMessage::Apr(Apr { local_id, remote_id, ..Apr::default() })),
    ]
}

pub(super) fn dreq(id: CommunicationId) -> Dreq {
    Dreq { local_id: PEER, remote_id: id, remote_qpn: qpn(OUR_QPN), ..Dreq::default() }
}

/// An agent with listeners, whose connection or resolution `id` has come to a stage.
pub(super) struct Victim {
    pub(super) agent: Agent,
    pub(super) id: CommunicationId,
}

impl Victim {
    pub(super) fn new(stage: Stage) -> Self {
        let local = addresses().local;
        let mut agent = Agent::new(AgentConfig::new(1, 1, vec![local]));
        for space in [PortSpace::TCP, PortSpace::UDP] {
            agent.listen(&ListenParameters { space, port: 7, address: local, backlog: 4 }).unwrap();
        }
        let mut victim = Self { agent, id: CommunicationId(0) };
        victim.bring_to(stage);
        while victim.agent.poll_transmit().is_some() {}
        while victim.agent.poll_event().is_some() {}
        victim
    }

    pub(super) fn receive(&mut self, message: CmMessage) {
        let datagram = encoded(message);
        assert_eq!(self.agent.handle_datagram(NOW, addresses(), &datagram), Disposition::Handled);
    }

    fn connect(&mut self) {
        let ends = ConnectionAddresses {
            local: (addresses().local, 40_000).into(),
            remote: (addresses().remote, 7).into(),
        };
        let parameters = ConnectParameters::new(ends, qpn(OUR_QPN));
        self.id = self.agent.connect(NOW, &parameters).unwrap();
    }

    /// Receives a request, whose event the program takes.
    fn requested(&mut self, message: CmMessage) {
        self.receive(message);
        self.id = self.agent.poll_event().unwrap().id();
    }

    fn bring_to(&mut self, stage: Stage) {
        match stage {
            Stage::Nothing => {
                // The name of a connection that is gone.
                self.connect();
                self.agent.destroy(NOW, self.id).unwrap();
            }
            Stage::ReqSent => self.connect(),
            Stage::RepReceived => {
                self.connect();
                self.receive(CmMessage::Rep(rep(self.id)));
            }
            Stage::EstablishedAsActive => {
                self.bring_to(Stage::RepReceived);
                self.agent.establish(self.id, &[]).unwrap();
            }
            Stage::ReqReceived => self.requested(CmMessage::Req(req())),
            Stage::RepSent => {
                self.bring_to(Stage::ReqReceived);
                let accept = AcceptParameters::new(qpn(OUR_QPN));
                self.agent.accept(NOW, self.id, &accept).unwrap();
            }
            Stage::EstablishedAsPassive => {
                self.bring_to(Stage::RepSent);
                self.agent.communication_established(self.id).unwrap();
            }
            Stage::DreqSent => {
                self.bring_to(Stage::EstablishedAsPassive);
                self.agent.disconnect(NOW, self.id).unwrap();
            }
            Stage::DreqReceived => {
                self.bring_to(Stage::EstablishedAsPassive);
                self.receive(CmMessage::Dreq(dreq(self.id)));
            }
            Stage::Timewait => {
                self.bring_to(Stage::DreqReceived);
                self.agent.disconnect(NOW, self.id).unwrap();
            }
            Stage::ServiceAsked => {
                let ends = ConnectionAddresses {
                    local: (addresses().local, 40_000).into(),
                    remote: (addresses().remote, 7).into(),
                };
                self.id = self.agent.resolve(NOW, &ResolveParameters::new(ends)).unwrap();
            }
            Stage::ServiceRequested => self.requested(CmMessage::SidrReq(sidr_req())),
            Stage::ServiceAnswered => {
                self.bring_to(Stage::ServiceRequested);
                let answer = ServiceAnswer::new(qpn(OUR_QPN));
                self.agent.answer(NOW, self.id, &answer).unwrap();
            }
        }
    }
}
