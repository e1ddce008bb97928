//! Identifiers of connection management with their queue pairs, on two hosts.

use std::net::SocketAddr;
use std::time::Duration;

use roce_netns::Host;
use roce_verbs::cm::{ConnectionParameters, Event, EventChannel, EventKind, Id, PortSpace};
use roce_verbs::{
    AccessFlags, CompletionQueue, CompletionStatus, Device, DeviceConfig, MemoryRegion, QueuePair,
    RecvWr, SendOperation, SendWr, environment,
};

use crate::fixtures::pattern;

/// Far beyond the time of any exchange without loss.
pub const LIMIT: Duration = Duration::from_secs(20);
/// The port of listeners.
pub const PORT: u16 = 7174;

/// A host with a channel.
#[derive(Debug)]
pub struct End<'a> {
    /// The host.
    pub host: &'a Host,
    /// Its channel.
    pub channel: EventChannel,
}

impl<'a> End<'a> {
    /// Makes a channel for devices of a host.
    ///
    /// # Panics
    /// When that fails.
    pub fn on(host: &'a Host) -> Self {
        let shards = environment::shards().expect("a number of shards");
        let config = DeviceConfig { shards, ..DeviceConfig::default() };
        Self { host, channel: EventChannel::new(config).unwrap() }
    }

    /// Listens on [`PORT`] of an address.
    ///
    /// # Panics
    /// When that fails.
    pub fn listen(&self, space: PortSpace, address: &str) -> Id {
        let id = self.channel.create_id(space, 1).unwrap();
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        self.host.run(|| id.bind(address).and_then(|()| id.listen(4))).unwrap();
        id
    }

    /// Returns the next event.
    ///
    /// # Panics
    /// When none comes in time.
    pub fn event(&self) -> Event {
        self.channel.next(Some(LIMIT)).unwrap().expect("an event within the time allowed")
    }

    /// Resolves address and route.
    ///
    /// # Panics
    /// When that fails.
    pub fn resolved(&self, space: PortSpace, address: &str) -> Id {
        let id = self.channel.create_id(space, 2).unwrap();
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        self.host.run(|| id.resolve_addr(None, address, LIMIT)).unwrap();
        let event = self.event();
        assert_eq!((&event.id, &event.kind), (&id, &EventKind::AddressResolved));
        id.resolve_route().unwrap();
        let event = self.event();
        assert_eq!((&event.id, &event.kind), (&id, &EventKind::RouteResolved));
        id
    }

    /// Returns the identifier of a request, and its event.
    ///
    /// # Panics
    /// When the next event is another.
    pub fn request(&self) -> (Id, Event) {
        let event = self.event();
        assert!(matches!(event.kind, EventKind::ConnectRequest(_)), "{event:?}");
        (event.id.clone(), event)
    }
}

/// The queue pair of a connection, with memory.
#[derive(Debug)]
pub struct Side {
    /// The queue pair.
    pub qp: QueuePair,
    /// Its completion queue.
    pub cq: CompletionQueue,
    /// Memory: 4096 bytes to send, and as many for what is received.
    pub region: MemoryRegion,
}

impl Side {
    /// Makes it, in INIT, with a receive posted.
    ///
    /// # Panics
    /// When that fails.
    pub fn of(id: &Id) -> Self {
        let device: Device = id.device().expect("bound to a device");
        let cq = device.create_cq(16, None).unwrap();
        let pd = device.alloc_pd().unwrap();
        let qp = pd.queue_pair(&cq, &cq).build().unwrap();
        let region = pd.register(8192, AccessFlags::LOCAL_WRITE).unwrap();
        id.init_queue_pair(&qp).unwrap();
        qp.post_recv([RecvWr::new(1, [region.sge(4096..).unwrap()])]).unwrap();
        Self { qp, cq, region }
    }

    /// Returns what the peer is told.
    pub fn parameters(&self) -> ConnectionParameters<'static> {
        ConnectionParameters {
            private_data: b"hello",
            ..ConnectionParameters::new(self.qp.number())
        }
    }

    /// Returns the status of the next completion.
    ///
    /// # Panics
    /// When none comes in time.
    pub fn complete(&self) -> CompletionStatus {
        self.cq.spin_wait(LIMIT).expect("a completion within the time allowed").status
    }

    /// Sends a message.
    ///
    /// # Panics
    /// When that fails.
    pub fn send(&self, seed: u8) {
        self.region.write(0, &pattern(4096, seed)).unwrap();
        let data = self.region.sge(..4096).unwrap();
        self.qp.post_send([SendWr::new(2, SendOperation::send(), [data]).signaled()]).unwrap();
        assert_eq!(self.complete(), CompletionStatus::Success);
    }

    /// Receives such a message.
    ///
    /// # Panics
    /// When it is another.
    pub fn receive(&self, seed: u8) {
        assert_eq!(self.complete(), CompletionStatus::Success);
        let mut bytes = vec![0; 4096];
        self.region.read(4096, &mut bytes).unwrap();
        assert!(bytes == pattern(4096, seed));
    }
}

/// Connects two identifiers and their queue pairs.
///
/// # Panics
/// When that fails.
pub fn connect(client: &End<'_>, server: &End<'_>, address: &str) -> [(Id, Side); 2] {
    let active = client.resolved(PortSpace::TCP, address);
    let here = Side::of(&active);
    active.connect(&here.parameters()).unwrap();
    let (passive, event) = server.request();
    let EventKind::ConnectRequest(peer) = &event.kind else { unreachable!() };
    assert_eq!((peer.qpn, &peer.private_data[..5]), (Some(here.qp.number()), &b"hello"[..]));
    assert_eq!((peer.private_data.len(), passive.context()), (56, 0));
    assert_eq!(passive.peer_address(), active.local_address());
    assert_eq!(event.listener.map(|it| it.context()), Some(1));
    let there = Side::of(&passive);
    passive.ready_queue_pair(&there.qp).unwrap();
    passive.accept(&there.parameters()).unwrap();
    let event = client.event();
    let EventKind::ConnectResponse(peer) = &event.kind else { panic!("{event:?}") };
    assert_eq!((peer.qpn, peer.private_data.len()), (Some(there.qp.number()), 196));
    active.ready_queue_pair(&here.qp).unwrap();
    active.establish().unwrap();
    let event = server.event();
    assert!(event.id == passive && matches!(event.kind, EventKind::Established(_)), "{event:?}");
    [(active, here), (passive, there)]
}
