//! Frames with management datagrams that no engine has made.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roce_cm::{AcceptParameters, Event};
use roce_engine::policy::Cause;
use roce_transport::Instant;
use roce_wire::management::{
    CmDatagram, CmMessage, CmaHeader, CommunicationId, Dreq, PortSpace, Rej, RejectReason, Req,
    ServiceId, SidrReq,
};
use roce_wire::{
    Bth, Deth, GSI_Q_KEY, Headers, ICRC_LEN, OuterHeaders, Psn, Qpn, UdpChecksum, opcode, seal,
};

use super::host::{Frames, Host, listen};

/// What the peer calls its end of a connection, the GUID of its device, and its queue pair.
pub(super) const PEER: CommunicationId = CommunicationId(0x77);
pub(super) const GUID: u64 = 2;
pub(super) const THEIR_QPN: u32 = 0x22;
pub(super) const OUR_QPN: u32 = 0x11;
/// Bytes of BTH and DETH.
pub(super) const PACKET_HEADERS: usize = 20;

/// A packet to queue pair 1 of 10.0.0.1, before it is sealed.
pub(super) struct ForgedPacket {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// BTH, DETH, payload with padding.
    pub(super) bytes: Vec<u8>,
}

impl ForgedPacket {
    pub(super) fn new(source: IpAddr, payload: &[u8]) -> Self {
        let deth = Some(Deth { q_key: GSI_Q_KEY, source_qp: Qpn::GSI });
        let bth = Bth::new(opcode::UD_SEND_ONLY, Qpn::GSI, Psn::ZERO);
        let headers = Headers { deth, ..Headers::new(bth) };
        let padded = payload.len().next_multiple_of(4);
        let mut bytes = vec![0; headers.len() + padded + ICRC_LEN];
        bytes[headers.len()..][..payload.len()].copy_from_slice(payload);
        let len = headers.emit_around(&mut bytes, payload.len());
        bytes.truncate(len - ICRC_LEN);
        Self { source, destination: [10, 0, 0, 1].into(), bytes }
    }

    /// Returns the frame, with a right ICRC.
    pub(super) fn sealed(&self) -> Vec<u8> {
        let outer = OuterHeaders::new(self.source, self.destination);
        let mut frame = vec![0; outer.len()];
        frame.extend(&self.bytes);
        frame.extend([0; ICRC_LEN]);
        let len = frame.len() - outer.len();
        seal(&outer, 1, &mut frame, len, UdpChecksum::Zero).unwrap();
        frame
    }
}

pub(super) fn peer() -> IpAddr {
    [10, 0, 0, 2].into()
}

fn header(source: IpAddr) -> [u8; 36] {
    CmaHeader::new(9, source, [10, 0, 0, 1].into()).unwrap().to_bytes()
}

/// The REQ of this number from a host.
pub(super) fn req(source: IpAddr, number: u32) -> CmMessage {
    let mut req = Req {
        local_id: CommunicationId(number),
        service_id: ServiceId::from_port(PortSpace::TCP, 7),
        local_ca_guid: GUID,
        local_qpn: Qpn::new(number & 0xff_ffff).unwrap(),
        path_mtu: 3,
        ..Req::default()
    };
    req.private_data[..36].copy_from_slice(&header(source));
    CmMessage::Req(req)
}

/// The SIDR_REQ of this number from a host.
pub(super) fn sidr_req(source: IpAddr, number: u32) -> CmMessage {
    let mut req = SidrReq {
        request_id: CommunicationId(number),
        service_id: ServiceId::from_port(PortSpace::UDP, 7),
        ..SidrReq::default()
    };
    req.private_data[..36].copy_from_slice(&header(source));
    CmMessage::SidrReq(req)
}

pub(super) fn dreq(id: CommunicationId) -> CmMessage {
    let remote_qpn = Qpn::new(OUR_QPN).unwrap();
    CmMessage::Dreq(Dreq { local_id: PEER, remote_id: id, remote_qpn, ..Dreq::default() })
}

pub(super) fn rej(id: CommunicationId) -> CmMessage {
    let reason = RejectReason::CONSUMER;
    CmMessage::Rej(Rej { local_id: PEER, remote_id: id, reason, ..Rej::default() })
}

/// The REQ of the connection of a [`Victim`].
pub(super) fn req_of_connection() -> CmMessage {
    match req(peer(), PEER.0) {
        CmMessage::Req(req) => {
            CmMessage::Req(Req { local_qpn: Qpn::new(THEIR_QPN).unwrap(), ..req })
        }
        _ => unreachable!(),
    }
}

pub(super) fn encoded(message: CmMessage) -> [u8; 256] {
    CmDatagram { transaction: 1, message }.encode()
}

/// A host with listeners, and with an established connection to [`peer`].
pub(super) struct Victim {
    pub(super) host: Host,
    pub(super) id: CommunicationId,
    pub(super) now: Instant,
    incoming: Frames,
    outgoing: Frames,
}

impl Victim {
    pub(super) fn new() -> Self {
        let (incoming, outgoing) = (Frames::default(), Frames::default());
        let host = Host::new(1, &incoming, &outgoing);
        let (id, now) = (CommunicationId(0), Instant::from_nanos(1000));
        let mut victim = Self { host, id, now, incoming, outgoing };
        listen(&mut victim.host);
        let request = encoded(req_of_connection());
        victim.receive(ForgedPacket::new(peer(), &request).sealed());
        victim.host.resolve_wanted();
        let Some(Event::ConnectRequest { id, .. }) = victim.host.event() else {
            panic!("no request")
        };
        victim.id = id;
        let time = victim.host.engine.last_now();
        let agent = victim.host.engine.agent().unwrap();
        agent.accept(time, id, &AcceptParameters::new(Qpn::new(OUR_QPN).unwrap())).unwrap();
        agent.communication_established(id).unwrap();
        victim.run();
        assert_eq!(victim.host.event(), Some(Event::Established { id }));
        victim.sent();
        victim
    }

    pub(super) fn run(&mut self) {
        self.host.engine.run(self.now, Cause::Call, None);
    }

    /// Lets a frame arrive before the next round.
    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.incoming.lock().unwrap().push_back(frame);
    }

    pub(super) fn receive(&mut self, frame: Vec<u8>) {
        self.push(frame);
        self.run();
    }

    /// Takes the frames that the host has sent.
    pub(super) fn sent(&mut self) -> Vec<Vec<u8>> {
        self.outgoing.lock().unwrap().drain(..).collect()
    }

    /// Takes the events, and returns true if the connection has none and stands.
    pub(super) fn is_connected(&mut self) -> bool {
        let events: Vec<_> = std::iter::from_fn(|| self.host.event()).collect();
        let id = self.id;
        let agent = self.host.engine.agent().unwrap();
        events.iter().all(|event| event.id() != id)
            && agent.rts_attributes(id).is_ok()
            && !agent.is_disconnecting(id)
    }

    pub(super) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = BTreeMap::new();
        for (name, count) in self.host.engine.counters() {
            *counters.entry(name).or_default() += count;
        }
        counters
    }

    /// Returns the counters that have counted since, with how much.
    pub(super) fn counted(
        &self,
        before: &BTreeMap<&'static str, u64>,
    ) -> BTreeMap<&'static str, u64> {
        let mut counters = self.counters();
        counters.iter_mut().for_each(|(name, count)| {
            *count -= before.get(name).copied().unwrap_or(0);
        });
        counters.retain(|_, count| *count > 0);
        counters
    }
}
