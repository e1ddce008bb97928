//! Connection management in a round: queue pair 1 belongs to the engine.
//!
//! After a batch of received packets the [`Agent`] takes the management datagrams of the batch, fires its
//! timers, and hands out datagrams and events. Its datagrams go out as frames of the engine's own: they
//! belong to no queue pair, and those to this host leave over `lo`, where every process gets one.
//!
//! A datagram to an address whose path is not known waits while the owner of the engine resolves
//! it, without blocking a round: the [`ManagementPort`] takes the request, and
//! [`Engine::set_management_path`](crate::Engine::set_management_path) brings the answer. The agent
//! repeats what is dropped meanwhile.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use roce_cm::{
    Agent, Change, DatagramAddresses, Disposition, Event, MAX_REQUESTS_IN_FLIGHT, StrayDatagram,
    Transmit,
};
use roce_io::TxFrame;
use roce_transport::{Endpoint, Instant, Observer, PathHandle};
use roce_wire::management::CommunicationId;
use roce_wire::{Bth, Deth, GSI_Q_KEY, Headers, ICRC_LEN, Psn, Qpn, UdpChecksum, opcode};

use super::devices::Devices;
use super::drops::Drops;
use super::frame_sealer::IDENTIFICATION;
use super::source_ports::SourcePorts;
use super::transmit_queues::{LocalFrame, MAX_LOCAL_FRAMES, transmit_queue};
use crate::path_table::{PathEntry, PathTable, Via};

/// Most datagrams that wait for the path to one destination: what an agent sends at once.
const MAX_WAITING: usize = MAX_REQUESTS_IN_FLIGHT;
/// Most datagrams that wait for paths.
const MAX_ALL_WAITING: usize = 512;
/// Most paths that are kept.
const MAX_PATHS: usize = 1024;
/// Most datagrams of one round, and most frames that wait for the interface.
const TRANSMIT_BUDGET: usize = 64;

/// What the connection management of an engine needs of its owner. The calls come in a round, with
/// whatever lock is held around it: they never wait.
pub trait ManagementPort: Send {
    /// Takes an event of the agent. Once the program has it, [`Agent::note_reported`] is due.
    fn push_event(&mut self, event: Event);

    /// Takes a changed connection of an agent that keeps records, before any datagram of the change
    /// leaves. The default ignores it.
    fn note_change(&mut self, change: Change) {
        let _ = change;
    }

    /// Takes a datagram that no connection and no listener of the agent takes, and that may be for
    /// another process. If it is not, [`Engine::answer_stray`](crate::Engine::answer_stray) is due.
    /// Returns false if there are too many.
    fn push_stray(&mut self, stray: StrayDatagram) -> bool;

    /// Asks for a path, which [`Engine::set_management_path`](crate::Engine::set_management_path) brings.
    fn resolve(&mut self, destination: ManagementDestination);
}

/// What the path of a management datagram follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ManagementDestination {
    /// The own address.
    pub local: IpAddr,
    /// The address of the peer.
    pub remote: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
}

impl ManagementDestination {
    fn of(transmit: &Transmit) -> Self {
        let DatagramAddresses { local, remote } = transmit.addresses;
        Self { local, remote, traffic_class: transmit.traffic_class }
    }
}

/// The connection management of an engine.
pub(super) struct Management {
    pub(super) agent: Agent,
    port: Box<dyn ManagementPort>,
    paths: HashMap<ManagementDestination, ManagementPath>,
    /// Datagrams that wait for a path.
    waiting: usize,
    /// Requests whose answers have no path yet, and further events of their connections, by these: as many as
    /// there are requests that the program has not answered.
    held_events: BTreeMap<CommunicationId, (ManagementDestination, Vec<Event>)>,
    /// Frames for the interface.
    frames: VecDeque<LocalFrame>,
    psn: Psn,
    /// Datagrams sent, by which uses of paths are ordered.
    sent: u64,
}

/// The path to a destination.
enum ManagementPath {
    /// It is being resolved.
    Awaited(VecDeque<Transmit>),
    Known {
        handle: PathHandle,
        /// Number of the last datagram over it.
        used: u64,
    },
}

/// The parts of the engine that its connection management needs.
pub(super) struct ManagementParts<'a, O: Observer> {
    pub(super) endpoint: &'a mut Endpoint<O>,
    pub(super) paths: &'a PathTable,
    pub(super) devices: &'a mut Devices,
    pub(super) drops: &'a mut Drops,
    pub(super) source_ports: &'a SourcePorts,
}

impl Management {
    pub(super) fn new(agent: Agent, port: Box<dyn ManagementPort>) -> Self {
        Self {
            agent,
            port,
            paths: HashMap::new(),
            waiting: 0,
            held_events: BTreeMap::new(),
            frames: VecDeque::new(),
            psn: Psn::ZERO,
            sent: 0,
        }
    }

    /// Returns true if the next round has work of the agent's: events, changes, or datagrams that wait
    /// neither for the interface nor for a path.
    pub(super) fn needs_round(&self) -> bool {
        let may_send = self.frames.len() < TRANSMIT_BUDGET && self.agent.has_transmit();
        may_send || self.agent.has_news()
    }

    /// Takes the answer about a path, and sends what waits for it. Returns a path that is not used
    /// any more.
    pub(super) fn set_path<O: Observer>(
        &mut self,
        destination: ManagementDestination,
        path: Option<PathHandle>,
        parts: &mut ManagementParts<'_, O>,
    ) -> Option<PathHandle> {
        let waiting = match self.paths.remove(&destination) {
            Some(ManagementPath::Awaited(waiting)) => waiting,
            // The path follows the kernel's routes: it is as good as the new one.
            Some(known) => {
                self.paths.insert(destination, known);
                return path;
            }
            None => VecDeque::new(),
        };
        self.waiting -= waiting.len();
        self.release_events(destination);
        let Some(handle) = path else {
            parts.drops.add("cm_no_path", waiting.len() as u64);
            return None;
        };
        self.paths.insert(destination, ManagementPath::Known { handle, used: self.sent });
        for transmit in waiting {
            self.send(transmit, parts);
        }
        self.flush(parts);
        if self.paths.len() > MAX_PATHS { self.forget_oldest() } else { None }
    }

    /// Passes the datagrams of a batch to the agent, fires its timers, and takes what it hands out.
    #[cold]
    pub(super) fn run<O: Observer>(&mut self, now: Instant, parts: &mut ManagementParts<'_, O>) {
        let mut ready = Vec::new();
        self.pass_on_strays(now);
        while let Some(datagram) = parts.endpoint.poll_management() {
            let addresses = DatagramAddresses { local: datagram.local, remote: datagram.remote };
            // The agent counts what it drops.
            let disposition = self.agent.handle_datagram(now, addresses, &datagram.payload[..]);
            if disposition == Disposition::Stray {
                self.pass_on(StrayDatagram { addresses, datagram: datagram.payload });
            }
            // The next request may take the place of one whose answer has no path.
            self.take_events(&mut ready);
        }
        if self.agent.poll_timeout().is_some_and(|at| at <= now) {
            self.agent.handle_timeout(now);
        }
        while let Some(change) = self.agent.poll_change() {
            self.port.note_change(change);
        }
        self.transmit(parts);
        self.take_events(&mut ready);
        ready.into_iter().for_each(|event| self.port.push_event(event));
    }

    /// Passes on the strays whose turn has come.
    fn pass_on_strays(&mut self, now: Instant) {
        while let Some(stray) = self.agent.poll_stray(now) {
            self.pass_on(stray);
        }
    }

    fn pass_on(&mut self, stray: StrayDatagram) {
        if !self.port.push_stray(stray) {
            self.agent.drop_stray();
        }
    }

    /// Takes the events of the agent, and holds those that wait for a path.
    fn take_events(&mut self, ready: &mut Vec<Event>) {
        while let Some(id) = self.agent.poll_forgotten() {
            self.held_events.remove(&id);
        }
        while let Some(event) = self.agent.take_event() {
            let id = event.id();
            if let Some((_, held)) = self.held_events.get_mut(&id) {
                held.push(event);
            } else if let Some(destination) = self.awaited_path(&event) {
                self.agent.await_path(id);
                self.held_events.insert(id, (destination, vec![event]));
            } else {
                ready.push(event);
            }
        }
    }

    /// Returns the destination for whose path an event waits: a request does for that of its answer. A
    /// program that refuses a request and ends at once would otherwise take its answer with it, which waits
    /// for the path.
    fn awaited_path(&mut self, event: &Event) -> Option<ManagementDestination> {
        if !matches!(event, Event::ConnectRequest { .. } | Event::ServiceRequest { .. }) {
            return None;
        }
        let (DatagramAddresses { local, remote }, traffic_class) =
            self.agent.route_of(event.id())?;
        let destination = ManagementDestination { local, remote, traffic_class };
        match self.paths.get(&destination) {
            Some(ManagementPath::Known { .. }) => return None,
            Some(ManagementPath::Awaited(_)) => {}
            None if self.paths.len() >= MAX_PATHS => return None,
            None => {
                self.paths.insert(destination, ManagementPath::Awaited(VecDeque::new()));
                self.port.resolve(destination);
            }
        }
        Some(destination)
    }

    /// Passes on the events that wait for a path, which is known now, or will not be.
    fn release_events(&mut self, destination: ManagementDestination) {
        let Self { held_events, agent, port, .. } = self;
        held_events.retain(|id, (awaited, events)| {
            let is_held = *awaited != destination;
            if !is_held {
                agent.path_is_known(*id);
                events.drain(..).for_each(|event| port.push_event(event));
            }
            is_held
        });
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.frames.is_empty() || self.agent.has_unsent()
    }

    /// Sends the datagrams that the agent hands out, as far as there is room.
    pub(super) fn transmit<O: Observer>(&mut self, parts: &mut ManagementParts<'_, O>) {
        for _ in 0..TRANSMIT_BUDGET {
            if self.frames.len() >= TRANSMIT_BUDGET {
                break;
            }
            let Some(transmit) = self.agent.poll_transmit() else { break };
            self.send(transmit, parts);
        }
        self.flush(parts);
    }

    /// Makes a frame of a datagram if its path is known.
    fn send<O: Observer>(&mut self, transmit: Transmit, parts: &mut ManagementParts<'_, O>) {
        let destination = ManagementDestination::of(&transmit);
        match self.paths.get_mut(&destination) {
            Some(ManagementPath::Known { handle, used }) => {
                *used = self.sent + 1;
                match parts.paths.find(*handle) {
                    Some(entry) => self.send_over(entry, &transmit, parts),
                    // Cannot happen: the engine is a user of the path.
                    None => parts.drops.count("cm_no_path"),
                }
            }
            Some(ManagementPath::Awaited(waiting))
                if waiting.len() < MAX_WAITING && self.waiting < MAX_ALL_WAITING =>
            {
                waiting.push_back(transmit);
                self.waiting += 1;
            }
            None if self.waiting < MAX_ALL_WAITING => {
                let waiting = VecDeque::from([transmit]);
                self.paths.insert(destination, ManagementPath::Awaited(waiting));
                self.waiting += 1;
                self.port.resolve(destination);
            }
            _ => parts.drops.count("cm_no_path"),
        }
    }

    fn send_over<O: Observer>(
        &mut self,
        entry: &PathEntry,
        transmit: &Transmit,
        parts: &mut ManagementParts<'_, O>,
    ) {
        let Some(frame) = self.frame(entry, transmit, parts.source_ports) else {
            return parts.drops.count("drop_unsealable");
        };
        match entry.via {
            Via::Interface | Via::Group => self.frames.push_back(frame),
            Via::ThisHost if parts.devices.lo_queue.len() >= MAX_LOCAL_FRAMES + TRANSMIT_BUDGET => {
                parts.drops.count("drop_no_room");
            }
            Via::ThisHost if parts.devices.lo.is_some() => parts.devices.lo_queue.push_back(frame),
            Via::ThisHost => parts.drops.count("drop_no_loopback_interface"),
            Via::NoRoute => parts.drops.count("drop_no_route"),
        }
    }

    /// Sends the frames for the interface, as far as it takes them.
    fn flush<O: Observer>(&mut self, parts: &mut ManagementParts<'_, O>) {
        let result = transmit_queue(&mut *parts.devices.wire, &mut self.frames);
        parts.drops.note_error_of(result, "wire_transmit_error");
    }

    /// Returns the frame of a datagram.
    //= rule gsi-sent-datagrams: InfiniBand, clause not known; rxe_resp.c: send_data_in
    //# A packet from queue pair 1 has 256 bytes, always: rxe's own queue pair 1 fails of a longer one.
    fn frame(
        &mut self,
        entry: &PathEntry,
        transmit: &Transmit,
        source_ports: &SourcePorts,
    ) -> Option<LocalFrame> {
        let bth = Bth::new(opcode::UD_SEND_ONLY, Qpn::GSI, self.psn);
        let deth = Some(Deth { q_key: GSI_Q_KEY, source_qp: Qpn::GSI });
        let headers = Headers { deth, ..Headers::new(bth) };
        let headroom = entry.sealer.len();
        let payload = &transmit.datagram[..];
        let at = headroom + headers.len();
        let len = at + payload.len() + ICRC_LEN;
        let mut frame = vec![0; len];
        frame[at..at + payload.len()].copy_from_slice(payload);
        let segment_len = headers.emit_around(&mut frame[headroom..], payload.len());
        let source_port = source_ports.port_for(Qpn::GSI, Qpn::GSI, entry.flow_label());
        let sealer = &entry.sealer;
        sealer
            .seal(source_port, IDENTIFICATION, &mut frame, segment_len, UdpChecksum::Zero)
            .ok()?;
        self.psn = self.psn.advanced_by(1);
        self.sent += 1;
        Some((frame, TxFrame::single(len)))
    }

    /// Removes the path that was not used for the longest time.
    fn forget_oldest(&mut self) -> Option<PathHandle> {
        let known = self.paths.iter().filter_map(|(destination, path)| match path {
            ManagementPath::Known { handle, used } => Some((*used, *destination, *handle)),
            ManagementPath::Awaited(_) => None,
        });
        let (_, destination, handle) = known.min_by_key(|(used, ..)| *used)?;
        self.paths.remove(&destination);
        Some(handle)
    }
}
