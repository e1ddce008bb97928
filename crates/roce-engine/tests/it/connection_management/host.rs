//! Engines that are joined by wires in memory.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use roce_cm::{
    Agent, AgentConfig, ConnectParameters, ConnectionAddresses, Event, ListenParameters,
    StrayDatagram,
};
use roce_engine::policy::Cause;
use roce_engine::{
    Engine, EngineParts, GidTable, ManagementDestination, ManagementPort, NextHop, PathEntry,
};
use roce_io::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame};
use roce_transport::{Endpoint, EndpointConfig, Instant};
use roce_wire::management::PortSpace;
use roce_wire::{MacAddr, OuterHeaders, Qpn};

use crate::virtual_time::queues::Queues;

pub(super) type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// An interface on queues in memory. Unlike `roce_io::memory_pair` it delivers frames that no device sends.
pub(super) struct Interface {
    pub(super) incoming: Frames,
    pub(super) outgoing: Frames,
}

impl FrameDevice for Interface {
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { max_frame_len: 2048, mtu: 1500, max_train_packets: 1 }
    }
    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        for received in 0..budget {
            let Some(frame) = self.incoming.lock().unwrap().pop_front() else {
                return Ok(received);
            };
            each(RxFrame {
                bytes: &frame,
                segment_len: None,
                udp_checksum_partial: false,
                vlan_tag: None,
            });
        }
        Ok(budget)
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let (mut slot, mut sent) = ([0; 2048], 0);
        while let Some(frame) = fill(&mut slot) {
            self.outgoing.lock().unwrap().push_back(slot[..frame.len].to_vec());
            sent += 1;
        }
        Ok(sent)
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// Strays that the owner of an engine has room for.
pub(super) const MAX_STRAYS_OF_OWNER: usize = 4;

/// What an engine has told its owner.
#[derive(Clone, Default)]
pub(super) struct Port {
    pub(super) events: Arc<Mutex<VecDeque<Event>>>,
    pub(super) wanted: Arc<Mutex<VecDeque<ManagementDestination>>>,
    pub(super) strays: Arc<Mutex<VecDeque<StrayDatagram>>>,
}

impl ManagementPort for Port {
    fn push_event(&mut self, event: Event) {
        self.events.lock().unwrap().push_back(event);
    }
    fn push_stray(&mut self, stray: StrayDatagram) -> bool {
        let mut strays = self.strays.lock().unwrap();
        strays.push_back(stray);
        strays.len() <= MAX_STRAYS_OF_OWNER
    }
    fn resolve(&mut self, destination: ManagementDestination) {
        self.wanted.lock().unwrap().push_back(destination);
    }
}

/// A host: its engine, and what that has told.
pub(super) struct Host {
    pub(super) engine: Engine<Queues>,
    pub(super) port: Port,
    pub(super) address: IpAddr,
}

pub(super) fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

impl Host {
    pub(super) fn new(last: u8, incoming: &Frames, outgoing: &Frames) -> Self {
        let address = IpAddr::from([10, 0, 0, last]);
        let (incoming, outgoing) = (Arc::clone(incoming), Arc::clone(outgoing));
        let mut engine = Engine::new(EngineParts {
            endpoint: Endpoint::new(EndpointConfig::default()),
            wire: Box::new(Interface { incoming, outgoing }),
            lo: None,
            loopback: None,
            gids: GidTable::of(mac(last), &[address]),
            consumer: Queues::default(),
            source_ports: Vec::new(),
        });
        let port = Port::default();
        let agent = Agent::new(AgentConfig::new(last.into(), last.into(), vec![address]));
        engine.manage_connections(agent, Box::new(port.clone())).unwrap();
        Self { engine, port, address }
    }

    /// Resolves the paths that the engine asks for. Returns how many.
    pub(super) fn resolve_wanted(&mut self) -> usize {
        let mut resolved = 0;
        while let Some(it) = self.port.wanted.lock().unwrap().pop_front() {
            let entry = PathEntry::new(OuterHeaders::new(it.local, it.remote)).unwrap();
            let hop = Some(NextHop::Neighbour(mac(9)));
            let handle = self.engine.paths_mut().insert(entry.with_next_hop(hop, mac(1)));
            if let Some(old) = self.engine.set_management_path(it, Some(handle)) {
                self.engine.paths_mut().release(old);
            }
            resolved += 1;
        }
        resolved
    }

    pub(super) fn connect(&mut self, now: Instant, remote: IpAddr, port: u16) {
        self.connect_as(Qpn::new(0x11).unwrap(), now, remote, port);
    }

    /// Asks for a connection of a certain queue pair.
    pub(super) fn connect_as(&mut self, qpn: Qpn, now: Instant, remote: IpAddr, port: u16) {
        let addresses = ConnectionAddresses {
            local: (self.address, 40_000).into(),
            remote: (remote, port).into(),
        };
        let parameters = ConnectParameters::new(addresses, qpn);
        self.engine.set_now(now);
        let time = self.engine.last_now();
        self.engine.agent().unwrap().connect(time, &parameters).unwrap();
    }

    pub(super) fn event(&mut self) -> Option<Event> {
        let event = self.port.events.lock().unwrap().pop_front()?;
        self.engine.agent().unwrap().note_reported(&event);
        Some(event)
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        self.engine.counters().iter().filter(|(known, _)| *known == name).map(|(_, n)| n).sum()
    }
}

pub(super) fn pair() -> [Host; 2] {
    let (there, back) = (Frames::default(), Frames::default());
    [Host::new(1, &back, &there), Host::new(2, &there, &back)]
}

/// Runs rounds until all that was due has arrived: an exchange has four datagrams at most, and two paths.
pub(super) fn settle(now: Instant, hosts: &mut [Host; 2]) {
    for _ in 0..8 {
        for host in &mut *hosts {
            host.engine.run(now, Cause::Call, None);
            host.resolve_wanted();
        }
    }
}

pub(super) fn listen(host: &mut Host) {
    let address = host.address;
    let listen = ListenParameters { space: PortSpace::TCP, port: 7, address, backlog: 8 };
    host.engine.agent().unwrap().listen(&listen).unwrap();
}
