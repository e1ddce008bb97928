//! The connection of a ping-pong with `--cm`: the ends find each other by address and port over the RDMA
//! network, without TCP.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use roce_verbs::cm::{
    ConnectionParameters, Event, EventChannel, EventKind, Id, PeerParameters, PortSpace,
};
use roce_verbs::exchange::QpDest;
use roce_verbs::{Device, DeviceConfig, QueuePair};

use crate::error::{CliError, Result};

/// A connection that connection management has made.
#[derive(Debug)]
pub(super) struct Connection {
    channel: EventChannel,
    id: Id,
    /// What the peer's program has sent with its request or response.
    pub(super) private_data: String,
}

/// Longest time for the kernel to resolve an address.
const RESOLUTION: Duration = Duration::from_secs(4);

impl Connection {
    /// Waits for the request of a client at an address of the device, and accepts it. `listening` is
    /// called when the server listens.
    pub(super) fn accept(
        device: &Device,
        gid_index: Option<u8>,
        port: u16,
        queue_pair: &QueuePair,
        private_data: &str,
        listening: impl FnOnce(SocketAddr) -> Result,
    ) -> Result<Self> {
        let channel = EventChannel::new(DeviceConfig::default())?;
        let listener = channel.create_id(PortSpace::TCP, 0)?;
        let address = SocketAddr::new(own_address(device, gid_index)?, port);
        let cannot = |error| CliError::context(format!("cannot listen on {address}"), error);
        listener.bind(address).map_err(cannot)?;
        listener.listen(1).map_err(cannot)?;
        listening(address)?;
        let request = next(&channel)?;
        let id = request.id.clone();
        let EventKind::ConnectRequest(peer) = request.kind else {
            return Err(unexpected(&request.kind, "a request"));
        };
        id.ready_queue_pair(queue_pair)?;
        id.accept(&parameters(queue_pair, private_data))?;
        let event = next(&channel)?;
        match event.kind {
            EventKind::Established(_) => Ok(Self::of(channel, id, &peer)),
            other => Err(unexpected(&other, "the client's confirmation")),
        }
    }

    /// Connects to a server.
    pub(super) fn connect(
        device: &Device,
        gid_index: Option<u8>,
        (host, port): (&str, u16),
        queue_pair: &QueuePair,
        private_data: &str,
    ) -> Result<Self> {
        let own = own_address(device, gid_index)?;
        let is_like = |address: &SocketAddr| address.is_ipv4() == own.is_ipv4();
        let found = (host, port).to_socket_addrs();
        let found = found.map_err(|error| CliError::context(host, error))?;
        let address = found.into_iter().find(is_like).ok_or_else(|| {
            CliError::new(format!("{host} has no address like {own}: choose another row with -g"))
        })?;
        let channel = EventChannel::new(DeviceConfig::default())?;
        let id = channel.create_id(PortSpace::TCP, 0)?;
        let at = |error| CliError::context(address.to_string(), error);
        id.resolve_addr(Some(SocketAddr::new(own, 0)), address, RESOLUTION).map_err(at)?;
        expect(&channel, address, &EventKind::AddressResolved)?;
        id.resolve_route()?;
        expect(&channel, address, &EventKind::RouteResolved)?;
        id.connect(&parameters(queue_pair, private_data))?;
        let answer = next(&channel)?;
        let EventKind::ConnectResponse(peer) = answer.kind else {
            return Err(unexpected(&answer.kind, &format!("the response of {address}")));
        };
        id.ready_queue_pair(queue_pair)?;
        id.establish()?;
        Ok(Self::of(channel, id, &peer))
    }

    fn of(channel: EventChannel, id: Id, peer: &PeerParameters) -> Self {
        let text = String::from_utf8_lossy(&peer.private_data);
        let private_data = text.trim_end_matches('\0').to_owned();
        Self { channel, id, private_data }
    }

    /// Returns both ends, ours first.
    pub(super) fn ends(&self, own: &QueuePair) -> Result<[QpDest; 2]> {
        let (rtr, rts) = (self.id.rtr_attributes()?, self.id.rts_attributes()?);
        Ok([
            QpDest { qpn: own.number(), psn: rts.sq_psn, gid: rtr.local.into() },
            QpDest { qpn: rtr.dest_qpn, psn: rtr.rq_psn, gid: rtr.remote.into() },
        ])
    }

    /// Fails if the peer has ended the connection.
    pub(super) fn check(&self) -> Result {
        match self.channel.try_next() {
            Some(Event { kind, .. }) => Err(unexpected(&kind, "more messages")),
            None => Ok(()),
        }
    }

    /// Ends the connection: the end that `begins` tells the other, which waits for that.
    pub(super) fn end(&self, begins: bool) -> Result {
        if begins {
            self.id.disconnect()?;
        }
        let event = next(&self.channel)?;
        if event.kind != EventKind::Disconnected {
            return Err(unexpected(&event.kind, "the end of the connection"));
        }
        if !begins {
            self.id.disconnect()?;
        }
        Ok(())
    }
}

fn parameters<'a>(queue_pair: &QueuePair, private_data: &'a str) -> ConnectionParameters<'a> {
    ConnectionParameters {
        responder_resources: 1,
        initiator_depth: 1,
        private_data: private_data.as_bytes(),
        ..ConnectionParameters::new(queue_pair.number())
    }
}

fn own_address(device: &Device, gid_index: Option<u8>) -> Result<std::net::IpAddr> {
    let index = gid_index.or(device.default_gid_index()?);
    let rows = device.gid_table()?;
    let row = rows.iter().find(|row| row.usable && Some(row.index) == index);
    let interface = device.interface();
    let row = row.ok_or_else(|| CliError::new(format!("{interface} has no usable address")))?;
    Ok(row.gid.ip())
}

fn next(channel: &EventChannel) -> Result<Event> {
    // Without a timeout there is an event.
    channel.next(None)?.ok_or_else(|| CliError::new("no event of connection management"))
}

fn expect(channel: &EventChannel, address: SocketAddr, expected: &EventKind) -> Result {
    let event = next(channel)?;
    match event.kind == *expected {
        true => Ok(()),
        false => Err(CliError::new(format!("{address}: {}", meaning(&event.kind, "a path")))),
    }
}

fn unexpected(kind: &EventKind, wanted: &str) -> CliError {
    CliError::new(meaning(kind, wanted))
}

/// Returns what an event in place of another one means.
fn meaning(kind: &EventKind, wanted: &str) -> String {
    match kind {
        EventKind::Rejected { reason, .. } => {
            format!("the peer has refused the connection: {reason} (reason {})", reason.0)
        }
        EventKind::Unreachable(_) => "the peer does not answer".to_owned(),
        EventKind::AddressError { .. } => {
            "the address cannot be resolved; check that the peer is up and on this network".into()
        }
        EventKind::Disconnected => "the peer has ended the connection".to_owned(),
        other => format!("{other:?} came in place of {wanted}"),
    }
}
