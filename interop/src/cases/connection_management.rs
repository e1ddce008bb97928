//! Connections that `roce_verbs::cm` here and librdmacm over the kernel's rdma_cm in the guest make
//! with each other.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use roce_guest::{GuestError, GuestProcess};
use roce_verbs::cm::{
    ConnectionParameters, Error, Event, EventChannel, EventKind, Id, PortSpace, RejectReason,
};
use roce_verbs::{
    AccessFlags, AddressVector, CompletionQueue, CompletionStatus, DeviceConfig, GRH_LEN, Gid,
    MemoryRegion, ProtectionDomain, QueuePair, RecvWr, SendOperation, SendWr, Service,
};

use crate::fault::{Fault, expect};
use crate::pair::Server;
use crate::params::Family;
use crate::rdma_cm_peer::PROGRAM;
use crate::world::{GUEST_ADDRESS, GUEST_ADDRESS_V6, OUR_ADDRESS, OUR_ADDRESS_V6, World};

/// What happens on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// A message in both directions; the client disconnects.
    ClientEnds,
    /// The same; the server disconnects.
    ServerEnds,
    /// The server's program refuses: REJ 28.
    Rejected,
    /// Nothing listens: REJ 8.
    NoListener,
    /// The guest's program is killed: its kernel disconnects.
    Killed,
    /// The client asks for a datagram service, and sends a datagram there.
    Datagram,
}

impl Script {
    /// Every script.
    pub const ALL: [Self; 6] = [
        Self::ClientEnds,
        Self::ServerEnds,
        Self::Rejected,
        Self::NoListener,
        Self::Killed,
        Self::Datagram,
    ];

    /// Returns its name, which is the guest's program's too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientEnds => "client-ends",
            Self::ServerEnds => "server-ends",
            Self::Rejected => "reject",
            Self::NoListener => "no-listener",
            Self::Killed => "killed",
            Self::Datagram => "datagram",
        }
    }
}

impl Script {
    const fn space(self) -> PortSpace {
        match self {
            Self::Datagram => PortSpace::UDP,
            _ => PortSpace::TCP,
        }
    }
}

const PORT: u16 = 7471;
/// Where nothing listens.
const OTHER_PORT: u16 = 7472;
const LIMIT: Duration = Duration::from_secs(30);
const MESSAGE: usize = 4096;

/// Runs a script, with the server on one side.
///
/// # Errors
/// When an end fails, or ends otherwise than the script says.
pub fn run(world: &World, server: Server, script: Script, family: Family) -> Result<(), Fault> {
    let [our_address, their_address] = match family {
        Family::V4 => [OUR_ADDRESS, GUEST_ADDRESS],
        Family::V6 => [OUR_ADDRESS_V6, GUEST_ADDRESS_V6],
    };
    let port = if script == Script::NoListener { OTHER_PORT } else { PORT };
    let name = script.name();
    let theirs = |role: &str, address: &str| {
        Ok::<_, Fault>(world.guest.spawn(&format!("{PROGRAM} {role} {address} {port} {name}"))?)
    };
    let channel =
        EventChannel::new(DeviceConfig::default()).map_err(Fault::ours("make a channel"))?;
    let wrong = |error: Error| Fault::Wrong(format!("ours: {error}"));
    match server {
        Server::Ours => {
            let address = SocketAddr::new(parsed(our_address), PORT);
            let listener = world.host.run(|| listen(&channel, address, script.space()));
            let listener = listener.map_err(wrong)?;
            let mut client = theirs("client", our_address)?;
            let served = match script {
                // The guest's end is done before ours has anything to do.
                Script::NoListener => drive_until_done(&channel, &mut client),
                Script::Killed => serve(&channel, script, || client.kill(9)),
                Script::Datagram => serve_datagrams(&channel).and_then(|()| done(&mut client, &[])),
                Script::Rejected => serve(&channel, script, || Ok(()))
                    .and_then(|()| done(&mut client, &["rejected 28"])),
                _ => serve(&channel, script, || Ok(())).and_then(|()| done(&mut client, &[])),
            };
            listener.destroy();
            served
        }
        Server::Theirs => {
            let mut server = match script {
                Script::NoListener => None,
                _ => Some(theirs("server", their_address)?),
            };
            if let Some(server) = &mut server {
                line(server, "listening")?;
            }
            let address = SocketAddr::new(parsed(their_address), port);
            if script == Script::Datagram {
                send_datagram(world, &channel, address)?;
            } else {
                let kill = || server.as_ref().map_or(Ok(()), |server| server.kill(9));
                connect(world, &channel, address, script, kill)?;
            }
            match script {
                Script::Killed => Ok(()),
                _ => server.as_mut().map_or(Ok(()), |server| done(server, &[])),
            }
        }
    }
}

fn parsed(address: &str) -> IpAddr {
    address.parse().expect("an address of the world")
}

fn line(process: &mut GuestProcess, expected: &str) -> Result<(), Fault> {
    let line = process.read_line(LIMIT)?;
    expect(line.as_deref() == Some(expected), || {
        format!("the guest printed {line:?} in place of {expected:?}: {}", process.stderr())
    })
}

/// Expects these lines and then the end of the guest's program.
fn done(process: &mut GuestProcess, before: &[&str]) -> Result<(), Fault> {
    before.iter().try_for_each(|expected| line(process, expected))?;
    line(process, "done")
}

fn listen(channel: &EventChannel, address: SocketAddr, space: PortSpace) -> Result<Id, Error> {
    let id = channel.create_id(space, 0)?;
    id.bind(address)?;
    id.listen(4)?;
    Ok(id)
}

/// Drives our device until the guest's program was refused for want of a listener.
fn drive_until_done(channel: &EventChannel, client: &mut GuestProcess) -> Result<(), Fault> {
    // Our device's own thread answers; an event would be wrong.
    done(client, &["rejected 8"])?;
    expect(channel.poll().is_none(), || "an event without a request".to_owned())
}

fn event(channel: &EventChannel) -> Result<Event, Fault> {
    let event = channel.next(Some(LIMIT)).map_err(Fault::ours("wait for an event"))?;
    event.ok_or(Fault::Silent { end: "rxe", limit: LIMIT })
}

/// Takes an event of this kind.
fn await_kind(channel: &EventChannel, kind: &EventKind) -> Result<(), Fault> {
    let event = event(channel)?;
    let is_expected = std::mem::discriminant(&event.kind) == std::mem::discriminant(kind);
    expect(is_expected, || format!("{:?} in place of {kind:?}", event.kind))
}

/// The queue pair of a connection, with its memory.
struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl Side {
    fn of(id: &Id) -> Result<Self, Fault> {
        let make = || {
            let device = id.device().ok_or(Error::Destroyed)?;
            let cq = device.create_cq(16, None)?;
            let pd = device.alloc_pd()?;
            let qp = pd.queue_pair(&cq, &cq).build()?;
            let region = pd.register(2 * MESSAGE, AccessFlags::LOCAL_WRITE)?;
            id.init_queue_pair(&qp)?;
            Ok::<_, Error>(Self { qp, cq, region })
        };
        let made = make().map_err(Fault::ours("make a queue pair"))?;
        let receive = RecvWr::new(1, [made.region.sge(MESSAGE..).expect("in range")]);
        made.qp.post_recv([receive]).map_err(Fault::ours("post a receive"))?;
        Ok(made)
    }

    fn parameters(&self) -> ConnectionParameters<'static> {
        ConnectionParameters {
            private_data: b"hello",
            ..ConnectionParameters::new(self.qp.number())
        }
    }

    fn complete(&self) -> Result<(), Fault> {
        let completion = self.cq.spin_wait(LIMIT);
        let completion =
            completion.ok_or(Fault::TooFew { end: "ours", seen: 0, wanted: 1, limit: LIMIT })?;
        let is_success = completion.status == CompletionStatus::Success;
        expect(is_success, || format!("{completion:?}"))
    }

    fn send(&self, message: &[u8]) -> Result<(), Fault> {
        self.region.write(0, message).map_err(Fault::ours("write"))?;
        let data = self.region.sge(..MESSAGE).expect("in range");
        let work = SendWr::new(2, SendOperation::send(), [data]).signaled();
        self.qp.post_send([work]).map_err(Fault::ours("post a send"))?;
        self.complete()
    }

    fn receive(&self) -> Result<Vec<u8>, Fault> {
        self.complete()?;
        let mut message = vec![0; MESSAGE];
        self.region.read(MESSAGE, &mut message).map_err(Fault::ours("read"))?;
        Ok(message)
    }
}

/// Ends a connection, as the end that begins or as the one that follows.
fn end(channel: &EventChannel, id: &Id, begins: bool) -> Result<(), Fault> {
    if !begins {
        await_kind(channel, &EventKind::Disconnected)?;
    }
    id.disconnect().map_err(Fault::ours("disconnect"))?;
    if begins {
        await_kind(channel, &EventKind::Disconnected)?;
    }
    await_kind(channel, &EventKind::TimewaitExit)
}

fn serve(
    channel: &EventChannel,
    script: Script,
    kill: impl Fn() -> Result<(), GuestError>,
) -> Result<(), Fault> {
    let request = event(channel)?;
    let EventKind::ConnectRequest(peer) = &request.kind else {
        return Err(Fault::Wrong(format!("{:?} in place of a request", request.kind)));
    };
    expect(peer.private_data.starts_with(b"hello") && peer.private_data.len() == 56, || {
        format!("the request has the private data {:?}", peer.private_data)
    })?;
    expect((peer.responder_resources, peer.initiator_depth) == (4, 4), || format!("{peer:?}"))?;
    let id = request.id;
    if script == Script::Rejected {
        let refused = id.reject(RejectReason::CONSUMER, b"go away");
        return refused.map_err(Fault::ours("reject"));
    }
    let side = Side::of(&id)?;
    id.ready_queue_pair(&side.qp).map_err(Fault::ours("make the queue pair ready"))?;
    id.accept(&side.parameters()).map_err(Fault::ours("accept"))?;
    await_kind(channel, &EventKind::Established(<_>::default()))?;
    if script == Script::Killed {
        kill()?;
        return end(channel, &id, false);
    }
    let message = side.receive()?;
    side.send(&message)?;
    end(channel, &id, script == Script::ServerEnds)
}

/// Returns an identifier whose address and route are resolved.
fn resolved(
    world: &World,
    channel: &EventChannel,
    address: SocketAddr,
    space: PortSpace,
) -> Result<Id, Fault> {
    let id = channel.create_id(space, 0).map_err(Fault::ours("make an identifier"))?;
    world
        .host
        .run(|| id.resolve_addr(None, address, LIMIT))
        .map_err(Fault::ours("resolve the address"))?;
    await_kind(channel, &EventKind::AddressResolved)?;
    id.resolve_route().map_err(Fault::ours("resolve the route"))?;
    await_kind(channel, &EventKind::RouteResolved)?;
    Ok(id)
}

fn connect(
    world: &World,
    channel: &EventChannel,
    address: SocketAddr,
    script: Script,
    kill: impl Fn() -> Result<(), GuestError>,
) -> Result<(), Fault> {
    let id = resolved(world, channel, address, PortSpace::TCP)?;
    let side = Side::of(&id)?;
    id.connect(&side.parameters()).map_err(Fault::ours("connect"))?;
    let answer = event(channel)?;
    let expected = match script {
        Script::Rejected => Some(RejectReason::CONSUMER),
        Script::NoListener => Some(RejectReason::INVALID_SERVICE_ID),
        _ => None,
    };
    match (&answer.kind, expected) {
        (EventKind::Rejected { reason, private_data }, Some(expected)) => {
            let is_told = script != Script::Rejected || private_data.starts_with(b"go away");
            return expect(*reason == expected && is_told, || format!("{answer:?}"));
        }
        (EventKind::ConnectResponse(peer), None) if peer.private_data.starts_with(b"hello") => {}
        _ => return Err(Fault::Wrong(format!("the answer is {:?}", answer.kind))),
    }
    id.ready_queue_pair(&side.qp).map_err(Fault::ours("make the queue pair ready"))?;
    id.establish().map_err(Fault::ours("establish"))?;
    if script == Script::Killed {
        kill()?;
        return end(channel, &id, false);
    }
    let message: Vec<u8> = (0..MESSAGE).map(|i| (i * 7 + i / 251) as u8).collect();
    side.send(&message)?;
    let echoed = side.receive()?;
    expect(echoed == message, || "the message came back changed".to_owned())?;
    end(channel, &id, script == Script::ClientEnds)
}

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

fn serve_datagrams(channel: &EventChannel) -> Result<(), Fault> {
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

fn send_datagram(world: &World, channel: &EventChannel, address: SocketAddr) -> Result<(), Fault> {
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
