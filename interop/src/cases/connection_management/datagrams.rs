//! A datagram to the queue pair of a service that the other end has asked for.

use std::net::SocketAddr;

use roce_verbs::cm::{Error, EventChannel, EventKind, Id, PortSpace};
use roce_verbs::{
    AccessFlags, AddressVector, GRH_LEN, Gid, ProtectionDomain, RecvWr, SendOperation, SendWr,
    Service,
};

use super::events::{event, resolved};
use super::side::{MESSAGE, Side};
use crate::fault::{Fault, expect};
use crate::world::World;

/// Bytes of a datagram, without the header in front.
const DATAGRAM: usize = 1000;

/// Makes a queue pair of datagrams with a receive.
fn datagram_side(id: &Id) -> Result<(Side, ProtectionDomain), Fault> {
    let make = || {
        let device = id.device().ok_or(Error::Destroyed)?;
        let cq = device.create_cq(16, None)?;
        let pd = device.alloc_pd()?;
        let qp = pd.queue_pair(&cq, &cq).service(Service::Ud).build()?;
        let region = pd.register(2 * MESSAGE, AccessFlags::LOCAL_WRITE)?;
        qp.ready_for_datagrams(id.q_key().ok_or(Error::Destroyed)?)?;
        Ok::<_, Error>((Side { qp, cq, region }, pd))
    };
    let (side, pd) = make().map_err(Fault::ours("make a queue pair"))?;
    let receive = RecvWr::new(1, [side.region.sge(MESSAGE..).expect("in range")]);
    side.qp.post_recv([receive]).map_err(Fault::ours("post a receive"))?;
    Ok((side, pd))
}

/// The bytes that the guest's program sends and expects.
fn datagram() -> Vec<u8> {
    (0..DATAGRAM).map(|i| (i * 7 + i / 256) as u8).collect()
}

pub(super) fn serve(channel: &EventChannel) -> Result<(), Fault> {
    let request = event(channel)?;
    let EventKind::ConnectRequest(peer) = &request.kind else {
        return Err(Fault::Wrong(format!("{:?} in place of a request", request.kind)));
    };
    expect(peer.private_data.starts_with(b"hello") && peer.private_data.len() == 180, || {
        format!("the request has the private data {:?}", peer.private_data)
    })?;
    let (side, _pd) = datagram_side(&request.id)?;
    request.id.accept(&side.parameters()).map_err(Fault::ours("accept"))?;
    let received = side.receive()?;
    expect(received[GRH_LEN..][..DATAGRAM] == datagram(), || "another datagram came".to_owned())
}

pub(super) fn send(
    world: &World,
    channel: &EventChannel,
    address: SocketAddr,
) -> Result<(), Fault> {
    let id = resolved(world, channel, address, PortSpace::UDP)?;
    let (side, pd) = datagram_side(&id)?;
    id.connect(&side.parameters()).map_err(Fault::ours("connect"))?;
    let answer = event(channel)?;
    let EventKind::Established(peer) = &answer.kind else {
        return Err(Fault::Wrong(format!("the answer is {:?}", answer.kind)));
    };
    let to = peer.datagram.ok_or_else(|| Fault::Wrong(format!("{answer:?}")))?;
    expect(peer.private_data.starts_with(b"hello"), || format!("{answer:?}"))?;
    let vector = AddressVector::new(to.gid_index, Gid::from(to.remote));
    let ah = pd.create_ah(&vector).map_err(Fault::ours("make an address handle"))?;
    side.region.write(0, &datagram()).map_err(Fault::ours("write"))?;
    let data = side.region.sge(..DATAGRAM).expect("in range");
    let work = SendWr::new(2, SendOperation::send(), [data]).signaled();
    let posted = side.qp.post_send_to([work], &ah, to.qpn, to.q_key);
    posted.map_err(Fault::ours("post a datagram"))?;
    side.complete()
}
