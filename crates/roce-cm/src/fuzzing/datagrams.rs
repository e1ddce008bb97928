//! Datagrams that an agent may receive, right and wrong.

use roce_fuzz_support::Script;
use roce_wire::management::{
    AnsweredMessage, CmDatagram, CmMessage, CmTimeout, CmaHeader, CommunicationId, Drep, Dreq, Mra,
    PortSpace, Rej, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, TransportService,
};
use roce_wire::{PathMtu, Qpn};

use crate::DatagramAddresses;

/// Reads a datagram: mostly one that means something to an agent with the given ids and queue pair.
pub(super) fn read(
    script: &mut Script<'_>,
    addresses: DatagramAddresses,
    ids: &[CommunicationId],
    qpn: Qpn,
) -> Vec<u8> {
    let known = |script: &mut Script<'_>| match ids {
        [] => CommunicationId(script.number::<u8>().into()),
        _ => script.pick(ids),
    };
    let ours = known(script);
    let theirs = CommunicationId(u32::from(script.byte() % 8));
    let guid = u64::from(script.byte() % 3);
    let remote_qpn = Qpn::new(u32::from(script.byte() % 4) + 2).unwrap_or(qpn);
    let timeout = CmTimeout::from_code(script.pick(&[0, 8, 19, 20, 31]));
    let answered = AnsweredMessage::from_code(script.byte());
    let service_id = ServiceId::from_port(
        script.pick(&[PortSpace::TCP, PortSpace::TCP, PortSpace::UDP]),
        script.pick(&[7, 7, 8]),
    );
    let header = CmaHeader::new(9, addresses.remote, addresses.local).map(CmaHeader::to_bytes);
    let header = header.unwrap_or([0; 36]);
    let mut message = match script.byte() % 10 {
        0 | 1 => {
            let mut req = Req {
                local_id: theirs,
                service_id,
                local_ca_guid: guid,
                local_qpn: remote_qpn,
                local_response_timeout: timeout,
                max_cm_retries: script.byte() % 16,
                transport_service: TransportService::from_code(script.pick(&[0, 0, 0, 1, 2])),
                path_mtu: script.pick(&[PathMtu::B256.code(), PathMtu::B1024.code(), 5, 0]),
                primary_ack_timeout: timeout,
                ..Req::default()
            };
            req.private_data[..36].copy_from_slice(&header);
            CmMessage::Req(req)
        }
        2 => CmMessage::Rep(Rep {
            local_id: theirs,
            remote_id: ours,
            local_qpn: remote_qpn,
            local_ca_guid: guid,
            target_ack_delay: timeout,
            ..Rep::default()
        }),
        3 => CmMessage::Rtu(Rtu { local_id: theirs, remote_id: ours, ..Rtu::default() }),
        4 => CmMessage::Mra(Mra {
            local_id: theirs,
            remote_id: ours,
            acknowledged: answered,
            service_timeout: timeout,
            ..Mra::default()
        }),
        5 => {
            let mut rej = Rej {
                local_id: theirs,
                remote_id: ours,
                rejected: answered,
                reason: RejectReason(script.pick(&[4, 8, 10, 28])),
                ..Rej::default()
            };
            rej.info[..8].copy_from_slice(&guid.to_be_bytes());
            CmMessage::Rej(rej)
        }
        6 => {
            let (local_id, remote_id) = (theirs, ours);
            CmMessage::Dreq(Dreq { local_id, remote_id, remote_qpn: qpn, ..Dreq::default() })
        }
        7 => CmMessage::Drep(Drep { local_id: theirs, remote_id: ours, ..Drep::default() }),
        8 => {
            let request_id = theirs;
            let mut req = SidrReq { request_id, service_id, ..SidrReq::default() };
            req.private_data[..36].copy_from_slice(&header);
            CmMessage::SidrReq(req)
        }
        _ => CmMessage::SidrRep(SidrRep { request_id: ours, service_id, ..SidrRep::default() }),
    };
    if script.byte() % 16 == 15
        && let CmMessage::Req(req) = &mut message
    {
        req.alternate_local_lid = 1;
    }
    let transaction = u64::from(script.byte() % 4);
    let mut bytes = CmDatagram { transaction, message }.encode().to_vec();
    for _ in 0..script.pick(&[0, 0, 0, 1, 3]) {
        let at = usize::from(script.byte());
        bytes[at] ^= script.byte();
    }
    if script.byte() == 255 {
        bytes.truncate(usize::from(script.byte()));
    }
    bytes
}
