//! The peer of all processes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use roce_netns::Host;
use roce_verbs::cm::{ConnectionParameters, Event, EventChannel, EventKind, Id, PortSpace};
use roce_verbs::{Device, DeviceConfig, Qpn};

use super::LIMIT;
use super::process::Process;

/// Where it listens.
pub(crate) const PEER: &str = "10.1.0.2:7174";

/// The peer: this process, on the other host.
pub(crate) struct Peer<'a> {
    host: &'a Host,
    channel: EventChannel,
    _listener: Id,
    next_qpn: u32,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        let channel = EventChannel::new(DeviceConfig::default()).unwrap();
        let listener = channel.create_id(PortSpace::TCP, 0).unwrap();
        host.run(|| listener.bind(PEER.parse().unwrap()).and_then(|()| listener.listen(64)))
            .unwrap();
        Self { host, channel, _listener: listener, next_qpn: 0x1000 }
    }

    pub(crate) fn event(&self, limit: Duration) -> Option<Event> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self.channel.next(Some(left)).unwrap()?;
            if event.kind != EventKind::TimewaitExit {
                return Some(event);
            }
        }
    }

    pub(crate) fn next(&self) -> Event {
        self.event(LIMIT).expect("an event within the time allowed")
    }

    pub(crate) fn parameters(&mut self) -> ConnectionParameters<'static> {
        self.next_qpn += 1;
        ConnectionParameters::new(Qpn::new(self.next_qpn).unwrap())
    }

    pub(crate) fn connect(&mut self, port: u16) -> Id {
        let id = self.channel.create_id(PortSpace::TCP, 0).unwrap();
        let address = SocketAddr::from(([10, 1, 0, 1], port));
        self.host.run(|| id.resolve_addr(None, address, LIMIT)).unwrap();
        assert_eq!(self.next().kind, EventKind::AddressResolved);
        id.resolve_route().unwrap();
        assert_eq!(self.next().kind, EventKind::RouteResolved);
        let parameters = self.parameters();
        id.connect(&parameters).unwrap();
        id
    }

    pub(crate) fn request(&self) -> Id {
        let event = self.next();
        assert!(matches!(event.kind, EventKind::ConnectRequest(_)), "{event:?}");
        event.id
    }

    /// Connects to the port of a process.
    pub(crate) fn connect_to(&mut self, process: &mut Process, port: u16) -> Id {
        let id = self.connect(port);
        process.expect("request");
        process.tell("accept");
        let event = self.next();
        assert!(matches!(event.kind, EventKind::ConnectResponse(_)), "{event:?}");
        id.establish().unwrap();
        process.expect("established");
        id
    }

    /// Returns how many datagrams its device has dropped.
    pub(crate) fn dropped(&self) -> u64 {
        let device: Device = self.channel.devices().pop().expect("a device");
        let counters = device.counters().unwrap();
        counters
            .iter()
            .filter(|(name, _)| name.starts_with("cm_drop_"))
            .map(|(_, count)| count)
            .sum()
    }

    /// Looks at nothing but further events of `ids`, of which there is none.
    pub(crate) fn expect_silence(&self, time: Duration) {
        if let Some(event) = self.event(time) {
            panic!("told again: {event:?}");
        }
    }
}
