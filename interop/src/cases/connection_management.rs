//! Connections that `roce_verbs::cm` here and librdmacm over the kernel's rdma_cm in the guest make
//! with each other.

mod datagrams;
mod events;
mod exchange;
mod side;

use std::net::{IpAddr, SocketAddr};

use roce_guest::GuestProcess;
use roce_verbs::Device;
use roce_verbs::cm::{Error, EventChannel, EventKind, Id, PortSpace, RejectReason};

use self::events::{LIMIT, await_established, await_kind, end, event, resolved};
pub use self::exchange::{Exchange, Script};
use self::side::{MESSAGE, Side};
use crate::fault::{Fault, expect, expect_equal};
use crate::pair::Server;
use crate::params::Family;
use crate::rdma_cm_peer::PROGRAM;
use crate::world::{
    GUEST_ADDRESS, GUEST_ADDRESS_V6, INTERFACE, OUR_ADDRESS, OUR_ADDRESS_V6, World,
};

const PORT: u16 = 7471;
/// Where nothing listens.
const OTHER_PORT: u16 = 7472;

/// Runs an exchange, with the server on one side.
///
/// # Errors
/// When an end fails, or ends otherwise than the script says, or a fault does not happen.
pub fn run(world: &World, server: Server, exchange: &Exchange) -> Result<(), Fault> {
    let script = exchange.script;
    let [our_address, their_address] = match exchange.family {
        Family::V4 => [OUR_ADDRESS, GUEST_ADDRESS],
        Family::V6 => [OUR_ADDRESS_V6, GUEST_ADDRESS_V6],
    };
    let port = if script == Script::NoListener { OTHER_PORT } else { PORT };
    let (name, mtu) = (script.name(), exchange.path_mtu);
    let theirs = |role: &str, address: &str| {
        let line = format!("{PROGRAM} {role} {address} {port} {name} {mtu}");
        Ok::<_, Fault>(world.guest.spawn(&line)?)
    };
    let config = exchange.config()?;
    let channel = EventChannel::new(config.clone()).map_err(Fault::ours("make a channel"))?;
    // It is that of the channel's identifiers.
    let device = world.host.run(|| Device::open(INTERFACE, config));
    let device = device.map_err(Fault::ours("open the device"))?;
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
                Script::Killed => serve(&channel, exchange, &mut client),
                Script::Datagram => {
                    datagrams::serve(&channel).and_then(|()| done(&mut client, &[]))
                }
                Script::Rejected => serve(&channel, exchange, &mut client)
                    .and_then(|()| done(&mut client, &["rejected 28"])),
                _ => serve(&channel, exchange, &mut client).and_then(|()| done(&mut client, &[])),
            };
            listener.destroy();
            served?;
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
                datagrams::send(world, &channel, address)?;
            } else {
                connect(world, &channel, address, exchange, server.as_mut())?;
            }
            if script != Script::Killed
                && let Some(server) = &mut server
            {
                done(server, &[])?;
            }
        }
    }
    expect(channel.poll().is_none(), || "an event more than there should be".to_owned())?;
    exchange.expect_faults(&device)
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

/// Checks the path MTU of a connection, and makes its queue pair ready.
fn make_ready(id: &Id, side: &Side, exchange: &Exchange) -> Result<(), Fault> {
    let attributes = id.rtr_attributes().map_err(Fault::ours("read the path MTU"))?;
    expect_equal("the path MTU", attributes.path_mtu.bytes(), exchange.path_mtu)?;
    id.ready_queue_pair(&side.qp).map_err(Fault::ours("make the queue pair ready"))
}

fn serve(
    channel: &EventChannel,
    exchange: &Exchange,
    client: &mut GuestProcess,
) -> Result<(), Fault> {
    let script = exchange.script;
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
    make_ready(&id, &side, exchange)?;
    id.accept(&side.parameters()).map_err(Fault::ours("accept"))?;
    if script != Script::DataFirst {
        await_established(channel)?;
    }
    if script == Script::Killed {
        client.kill(9)?;
        return end(channel, &id, false);
    }
    let message = side.receive()?;
    if script == Script::DataFirst {
        expect(channel.poll().is_none(), || "an event before the RTU".to_owned())?;
        id.notify_established().map_err(Fault::ours("take the connection for established"))?;
        await_established(channel)?;
    }
    side.send(&message)?;
    if script == Script::Stale {
        // Our end disconnects by itself, and the client asks for nothing more.
        await_kind(channel, &EventKind::Disconnected)?;
        return await_kind(channel, &EventKind::TimewaitExit);
    }
    end(channel, &id, matches!(script, Script::ServerEnds | Script::BothEnd))
}

fn connect(
    world: &World,
    channel: &EventChannel,
    address: SocketAddr,
    exchange: &Exchange,
    server: Option<&mut GuestProcess>,
) -> Result<(), Fault> {
    let script = exchange.script;
    let id = resolved(world, channel, address, PortSpace::TCP)?;
    let side = Side::of(&id)?;
    id.connect(&side.parameters()).map_err(Fault::ours("connect"))?;
    let answer = event(channel)?;
    let expected = match script {
        Script::Rejected | Script::RejectedAgain => Some(RejectReason::CONSUMER),
        Script::NoListener => Some(RejectReason::INVALID_SERVICE_ID),
        _ => None,
    };
    match (&answer.kind, expected) {
        (EventKind::Rejected { reason, private_data }, Some(expected)) => {
            let is_told = script == Script::NoListener || private_data.starts_with(b"go away");
            return expect(*reason == expected && is_told, || format!("{answer:?}"));
        }
        (EventKind::ConnectResponse(peer), None) if peer.private_data.starts_with(b"hello") => {}
        _ => return Err(Fault::Wrong(format!("the answer is {:?}", answer.kind))),
    }
    make_ready(&id, &side, exchange)?;
    id.establish().map_err(Fault::ours("establish"))?;
    if script == Script::Killed {
        server.map_or(Ok(()), |server| server.kill(9))?;
        return end(channel, &id, false);
    }
    let message: Vec<u8> = (0..MESSAGE).map(|i| (i * 7 + i / 251) as u8).collect();
    side.send(&message)?;
    let echoed = side.receive()?;
    expect(echoed == message, || "the message came back changed".to_owned())?;
    match script {
        Script::Stale => return connect_again(world, channel, address, &id, &side),
        Script::DataFirst => {
            let device = id.device().ok_or_else(|| Fault::Wrong("no device".to_owned()))?;
            let again = device.counter("cm_answered_again");
            let again = again.map_err(Fault::ours("read counters"))?;
            expect_equal("RTUs repeated before the data came back", again, 0)?;
            server.map_or(Ok(()), |server| line(server, "established"))?;
        }
        _ => {}
    }
    end(channel, &id, script != Script::ServerEnds)
}

/// Asks for a second connection of a connected queue pair. The peer takes the first for forgotten: it
/// refuses the second with the reason 10, and disconnects the first.
fn connect_again(
    world: &World,
    channel: &EventChannel,
    address: SocketAddr,
    first: &Id,
    side: &Side,
) -> Result<(), Fault> {
    let second = resolved(world, channel, address, PortSpace::TCP)?;
    second.connect(&side.parameters()).map_err(Fault::ours("connect again"))?;
    let (mut is_refused, mut is_disconnected) = (false, false);
    while !(is_refused && is_disconnected) {
        let event = event(channel)?;
        let is_of = |id: &Id| event.id.number() == id.number();
        match &event.kind {
            EventKind::Rejected { reason: RejectReason::STALE_CONNECTION, .. }
                if is_of(&second) && !is_refused =>
            {
                is_refused = true;
            }
            EventKind::Disconnected if is_of(first) && !is_disconnected => is_disconnected = true,
            _ => return Err(Fault::Wrong(format!("{event:?} of a stale connection"))),
        }
    }
    first.disconnect().map_err(Fault::ours("disconnect"))?;
    await_kind(channel, &EventKind::TimewaitExit)
}
