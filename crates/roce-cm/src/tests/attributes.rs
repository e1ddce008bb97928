//! The attributes of queue pairs that follow from messages.

use roce_wire::PathMtu;
use roce_wire::management::{CmMessage, CmTimeout, Req, TransportService};

use super::single_messages::{
    NOW, agent, connecting, ends, handle, qpn, rep, req, requested, sent,
};
use crate::{
    AcceptParameters, AgentError, InitAttributes, ReliableRtrAttributes, ReliableRtsAttributes,
};

//= test cm-qp-init
//= test cm-qp-rtr
//= test cm-qp-rts
#[test]
fn the_attributes_of_the_active_queue_pair_follow_from_the_response() {
    let mut agent = agent();
    let id = connecting(&mut agent);
    let init = InitAttributes { remote_write: true, remote_read: true, remote_atomic: true };
    assert_eq!(agent.init_attributes(id), Ok(init));
    assert!(matches!(agent.rtr_attributes(id), Err(AgentError::WrongState { .. })));
    handle(&mut agent, CmMessage::Rep(rep(id)));
    let rtr = agent.rtr_attributes(id).unwrap();
    assert_eq!((rtr.local, rtr.remote), (ends().local.ip(), ends().remote.ip()));
    assert_eq!((rtr.dest_qpn, rtr.path_mtu, rtr.hop_limit), (qpn(0x22), PathMtu::B1024, 64));
    assert_eq!(rtr.flow_label, (31 * 40_000 + 7) & 0xf_ffff);
    let reliable = ReliableRtrAttributes { max_dest_rd_atomic: 4, min_rnr_timer: 0 };
    assert_eq!(rtr.reliable, Some(reliable));
    let rts = agent.rts_attributes(id).unwrap();
    assert_eq!(rts.sq_psn.get(), 5);
    let ack_timeout = CmTimeout::from_code(19);
    let reliable =
        ReliableRtsAttributes { max_rd_atomic: 2, retry_count: 6, rnr_retry: 3, ack_timeout };
    assert_eq!(rts.reliable, Some(reliable));
}

//= test cm-resources
#[test]
fn the_attributes_of_the_passive_queue_pair_follow_from_request_and_answer() {
    let mut agent = agent();
    let id = requested(&mut agent, req());
    let accept = AcceptParameters { responder_resources: 0, ..AcceptParameters::new(qpn(0x11)) };
    let init = agent.init_attributes(id).unwrap();
    assert!(init.remote_read && init.remote_atomic);
    let before = agent.rtr_attributes(id).unwrap();
    assert_eq!(before.reliable.map(|it| it.max_dest_rd_atomic), Some(4));
    let rts = agent.rts_attributes(id).unwrap().reliable.unwrap();
    assert_eq!((rts.max_rd_atomic, rts.retry_count, rts.rnr_retry), (2, 5, 3));
    agent.accept(NOW, id, &accept).unwrap();
    let [CmMessage::Rep(rep)] = sent(&mut agent)[..] else { panic!("no REP") };
    let rtr = agent.rtr_attributes(id).unwrap();
    assert_eq!((rtr.rq_psn, rtr.dest_qpn), (rep.starting_psn, qpn(0x22)));
    assert_eq!(rtr.reliable.map(|it| it.max_dest_rd_atomic), Some(0));
    assert_eq!(agent.rts_attributes(id).unwrap().sq_psn, req().starting_psn);
    assert!(!agent.init_attributes(id).unwrap().remote_read);
}

#[test]
fn an_unreliable_connection_has_only_the_attributes_of_its_service() {
    let mut agent = agent();
    let id = requested(&mut agent, Req { transport_service: TransportService::Uc, ..req() });
    assert_eq!(agent.rtr_attributes(id).unwrap().reliable, None);
    assert_eq!(agent.rts_attributes(id).unwrap().reliable, None);
}
