//! What an event says.

use roce_abi::ib_uverbs_ah_attr;
use roce_abi::rdma_cm::{
    Plain, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE,
    rdma_ucm_conn_param, rdma_ucm_event_resp, rdma_ucm_ud_param,
};
use roce_verbs::Gid;
use roce_verbs::cm::{Event, EventKind, Id, PeerParameters, PortSpace, Unreachable};

use super::channel::RaisedEvent;

/// Returns true for an identifier that resolves queue pairs of datagrams.
pub(super) fn is_datagram(id: &Id) -> bool {
    [PortSpace::UDP, PortSpace::IPOIB].contains(&id.space())
}

/// Returns what an event of the connection manager says, without its identifier; `None` for one that has
/// no number.
pub(super) fn of_manager(event: &Event) -> Option<rdma_ucm_event_resp> {
    let is_datagram = is_datagram(&event.id);
    let with = |peer: &PeerParameters| match is_datagram {
        true => datagram_of(peer).to_vec(),
        false => connection_of(peer).to_vec(),
    };
    let refusal = |private_data: &[u8]| {
        let private_data = private_data.into();
        with(&PeerParameters { private_data, ..PeerParameters::default() })
    };
    let (number, parameters) = match &event.kind {
        EventKind::AddressResolved => (RDMA_CM_EVENT_ADDR_RESOLVED, Vec::new()),
        EventKind::AddressError { .. } => (RDMA_CM_EVENT_ADDR_ERROR, Vec::new()),
        EventKind::RouteResolved => (RDMA_CM_EVENT_ROUTE_RESOLVED, Vec::new()),
        EventKind::ConnectRequest(peer) => (RDMA_CM_EVENT_CONNECT_REQUEST, with(peer)),
        EventKind::ConnectResponse(peer) => (RDMA_CM_EVENT_CONNECT_RESPONSE, with(peer)),
        EventKind::Established(peer) => (RDMA_CM_EVENT_ESTABLISHED, with(peer)),
        EventKind::Unreachable(Unreachable::Service { private_data, .. }) => {
            (RDMA_CM_EVENT_UNREACHABLE, refusal(private_data))
        }
        EventKind::Unreachable(Unreachable::TimedOut) => (RDMA_CM_EVENT_UNREACHABLE, Vec::new()),
        EventKind::Rejected { private_data, .. } => (RDMA_CM_EVENT_REJECTED, refusal(private_data)),
        EventKind::MulticastJoin(group) => {
            let members =
                PeerParameters { datagram: Some(group.members), ..PeerParameters::default() };
            (RDMA_CM_EVENT_MULTICAST_JOIN, datagram_of(&members).to_vec())
        }
        EventKind::MulticastError { .. } => (RDMA_CM_EVENT_MULTICAST_ERROR, Vec::new()),
        EventKind::Disconnected => (RDMA_CM_EVENT_DISCONNECTED, Vec::new()),
        EventKind::TimewaitExit => (RDMA_CM_EVENT_TIMEWAIT_EXIT, Vec::new()),
        _ => return None,
    };
    let (status, param) = (event.status().cast_unsigned(), Plain::read(&parameters));
    Some(rdma_ucm_event_resp { event: number, status, param, ..rdma_ucm_event_resp::default() })
}

/// Returns the number that the program's join has, of an event about a multicast group.
pub(super) fn join_of(event: &Event) -> Option<u64> {
    match event.kind {
        EventKind::MulticastJoin(group) => Some(group.context),
        EventKind::MulticastError { context, .. } => Some(context),
        _ => None,
    }
}

/// Returns what an event of the program's own says.
pub(super) fn of_program(uid: u64, raised: RaisedEvent) -> rdma_ucm_event_resp {
    let RaisedEvent { id, event, status, argument } = raised;
    let param = Plain::read(&argument.to_vec());
    rdma_ucm_event_resp { uid, id, event, status, param, ..rdma_ucm_event_resp::default() }
}

fn private_data_of(bytes: &[u8]) -> ([u8; 256], u8) {
    // The longest has 196 bytes.
    (Plain::read(bytes), u8::try_from(bytes.len()).unwrap_or(u8::MAX))
}

fn connection_of(peer: &PeerParameters) -> rdma_ucm_conn_param {
    let (private_data, private_data_len) = private_data_of(&peer.private_data);
    rdma_ucm_conn_param {
        qp_num: peer.qpn.map_or(0, |qpn| qpn.get()),
        qkey: 0,
        private_data,
        private_data_len,
        srq: u8::from(peer.srq),
        responder_resources: peer.responder_resources,
        initiator_depth: peer.initiator_depth,
        flow_control: u8::from(peer.flow_control),
        retry_count: peer.retry_count,
        rnr_retry_count: peer.rnr_retry_count,
        valid: 0,
    }
}

fn datagram_of(peer: &PeerParameters) -> rdma_ucm_ud_param {
    let (private_data, private_data_len) = private_data_of(&peer.private_data);
    let without_peer =
        rdma_ucm_ud_param { private_data, private_data_len, ..rdma_ucm_ud_param::default() };
    let Some(to) = &peer.datagram else { return without_peer };
    let ah_attr = ib_uverbs_ah_attr {
        dgid: Gid::from(to.remote).0,
        flow_label: to.flow_label,
        sgid_index: to.gid_index,
        hop_limit: to.hop_limit,
        traffic_class: to.traffic_class,
        is_global: 1,
        port_num: 1,
        ..ib_uverbs_ah_attr::default()
    };
    rdma_ucm_ud_param { qp_num: to.qpn.get(), qkey: to.q_key, ah_attr, ..without_peer }
}

#[cfg(test)]
mod tests {
    use roce_verbs::Qpn;
    use roce_verbs::cm::{DatagramPeer, EventChannel, RejectReason};

    use super::*;

    fn told(space: PortSpace, kind: EventKind) -> rdma_ucm_event_resp {
        let opener = |_: &str, _| Err(roce_verbs::Error::Forked);
        let channel = EventChannel::with_opener(opener).unwrap();
        let id = channel.create_id(space, 0).unwrap();
        of_manager(&Event { id, listener: None, kind }).unwrap()
    }

    #[test]
    fn a_request_carries_the_peers_queue_pair_resources_and_private_data() {
        let peer = PeerParameters {
            qpn: Qpn::new(0x11),
            responder_resources: 1,
            initiator_depth: 2,
            rnr_retry_count: 6,
            retry_count: 7,
            srq: true,
            private_data: Box::new([9; 56]),
            ..PeerParameters::default()
        };
        let event = told(PortSpace::TCP, EventKind::ConnectRequest(peer));
        assert_eq!((event.event, event.status), (RDMA_CM_EVENT_CONNECT_REQUEST, 0));
        let it = rdma_ucm_conn_param::read(&event.param);
        assert_eq!((it.qp_num, it.srq, it.private_data()), (0x11, 1, &[9; 56][..]));
        assert_eq!((it.responder_resources, it.initiator_depth), (1, 2));
        assert_eq!((it.retry_count, it.rnr_retry_count), (7, 6));
    }

    #[test]
    fn a_refusal_carries_its_reason_and_an_error_its_negative_number() {
        let refusal = EventKind::Rejected {
            reason: RejectReason::CONSUMER,
            private_data: Box::new([3; 148]),
        };
        let event = told(PortSpace::TCP, refusal);
        assert_eq!((event.event, event.status), (RDMA_CM_EVENT_REJECTED, 28));
        assert_eq!(rdma_ucm_conn_param::read(&event.param).private_data(), [3; 148]);
        let event = told(PortSpace::TCP, EventKind::AddressError { errno: libc::ENETUNREACH });
        assert_eq!((event.event, event.status.cast_signed()), (RDMA_CM_EVENT_ADDR_ERROR, -101));
    }

    #[test]
    fn a_datagram_service_is_told_with_its_address_vector() {
        let datagram = DatagramPeer {
            qpn: Qpn::new(0x22).unwrap(),
            q_key: 0x0123_4567,
            gid_index: 1,
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            traffic_class: 8,
            flow_label: 0,
            hop_limit: 64,
        };
        let peer = PeerParameters {
            datagram: Some(datagram),
            private_data: Box::new([5; 136]),
            ..PeerParameters::default()
        };
        let event = told(PortSpace::UDP, EventKind::Established(peer));
        let it = rdma_ucm_ud_param::read(&event.param);
        assert_eq!(
            (event.event, it.qp_num, it.qkey),
            (RDMA_CM_EVENT_ESTABLISHED, 0x22, 0x0123_4567)
        );
        assert_eq!((it.private_data_len, it.private_data[135]), (136, 5));
        let vector = it.ah_attr;
        assert_eq!(vector.dgid[10..], [0xff, 0xff, 10, 0, 0, 2]);
        assert_eq!((vector.is_global, vector.port_num, vector.sgid_index), (1, 1, 1));
        assert_eq!((vector.hop_limit, vector.traffic_class), (64, 8));
    }
}
