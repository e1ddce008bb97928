//! One of the two sides: an engine, its memory and its driver.

use std::net::IpAddr;

use roce_simnet::ConnectOptions;
use roce_transport::{
    CompletionStatus, CqHandle, Endpoint, EndpointConfig, Instant, PacketSealer, PathAttributes,
    PathHandle, QpCap, RecvWr, SendWr, TransmitLimits,
};
use roce_wire::{
    Frame, OuterHeaders, ParseOptions, PathMtu, PayloadCrc, Qpn, Sealer, Sealing, UdpChecksum,
    source_port_for,
};

use crate::{Bytes, Wire};

/// An engine with one connected queue pair, its memory and the state of its driver.
#[derive(Debug)]
pub struct Side {
    /// The engine.
    pub endpoint: Endpoint,
    /// Registered memory.
    pub memory: Bytes,
    /// Queue pair of the engine.
    pub qpn: Qpn,
    sealer: Sealer,
    seals: Seals,
    source_port: u16,
    identification: u16,
    /// Packets sent, and packets with payload received.
    pub(crate) sent: u64,
    pub(crate) arrived_with_data: u64,
}

/// Returns two sides with connected queue pairs and `len` bytes of memory each.
///
/// ```
/// use roce_cost::{Bytes, Wire, connected_pair};
/// use roce_transport::{Instant, RemoteAddr, SendOperation, SendWr, Sge};
/// use roce_wire::PathMtu;
///
/// let [mut here, mut there] = connected_pair(PathMtu::B1024, 64);
/// here.memory.as_mut_slice()[..5].copy_from_slice(b"hello");
/// let operation = SendOperation::write(RemoteAddr { addr: 8, rkey: Bytes::KEY });
/// let piece = Sge { lkey: Bytes::KEY, addr: 0, len: 5 };
/// here.post_send(Instant::default(), SendWr::new(1, operation, [piece]));
///
/// let mut wire = Wire::new();
/// here.transmit(Instant::default(), &mut wire);
/// there.receive(Instant::default(), &wire);
/// assert_eq!(&there.memory.as_slice()[8..13], b"hello");
/// ```
pub fn connected_pair(path_mtu: PathMtu, memory: usize) -> [Side; 2] {
    let numbers = [0x12_0305, 0x23_0416].map(|number| Qpn::new(number).expect("24 bits"));
    let addresses = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
    [(0, 1), (1, 0)].map(|(mine, theirs)| {
        let (qpn, peer) = (numbers[mine], numbers[theirs]);
        let outer = OuterHeaders::new(addresses[mine], addresses[theirs]);
        let sealer = Sealer::new(&outer).expect("two addresses of one family");
        let mut side = Side {
            endpoint: Endpoint::new(EndpointConfig::default()),
            memory: Bytes::new(memory),
            qpn,
            seals: Seals(sealer.begin(0, 0)),
            sealer,
            source_port: source_port_for(qpn, peer, 0),
            identification: 0,
            sent: 0,
            arrived_with_data: 0,
        };
        let (local, remote) = (addresses[mine], addresses[theirs]);
        side.bring_up(
            peer,
            PathAttributes { handle: PathHandle(1), local, remote, max_rate: None },
            path_mtu,
        );
        side
    })
}

impl Side {
    fn bring_up(&mut self, peer: Qpn, path: PathAttributes, path_mtu: PathMtu) {
        let cap = QpCap { max_send_wr: 4096, max_recv_wr: 4096, ..QpCap::default() };
        let options = ConnectOptions { path_mtu, cap, ..ConnectOptions::default() };
        let init = options.init(CqHandle(1), CqHandle(2));
        self.endpoint.create_qp(self.qpn, init).expect("the first of its number");
        for step in &options.transitions(0, path, peer) {
            let moved = self.endpoint.modify_qp(Instant::default(), self.qpn, step);
            moved.expect("a transition of the standard's table");
        }
    }

    /// Posts a request.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn post_send(&mut self, now: Instant, work: SendWr) {
        self.endpoint.post_send(now, self.qpn, work).expect("room in the send queue");
    }

    /// Posts a receive.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn post_recv(&mut self, now: Instant, work: RecvWr) {
        self.endpoint.post_recv(now, self.qpn, work).expect("room in the receive queue");
    }

    /// Receives all frames: parses them, checks each ICRC, passes packets to the engine.
    ///
    /// # Panics
    /// If a frame is invalid.
    pub fn receive(&mut self, now: Instant, wire: &Wire) {
        let options = ParseOptions { udp_checksum_offloaded: true };
        for (bytes, segment_len) in wire.frames() {
            let frame = Frame::parse_with(bytes, options).expect("a sound frame");
            for packet in frame.packets(segment_len) {
                let packet = packet.expect("a sound packet");
                let packet = packet.verify_icrc().expect("a right ICRC");
                self.arrived_with_data += u64::from(!packet.payload().is_empty());
                self.endpoint.handle_packet(now, &packet, &mut self.memory);
            }
        }
    }

    /// Handles due timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
    }

    /// Transmits packets of the engine, sealed, while slots are free.
    ///
    /// # Panics
    /// If a packet cannot be sealed.
    pub fn transmit(&mut self, now: Instant, wire: &mut Wire) {
        let limits = TransmitLimits { max_packets: 64 };
        let (start, port) = (self.sealer.len(), self.source_port);
        while let Some(slot) = wire.slot() {
            let room = &mut slot[start..];
            self.sealer.resume(&mut self.seals.0, port, self.identification);
            let (endpoint, memory) = (&mut self.endpoint, &mut self.memory);
            let Some(transmit) =
                endpoint.poll_transmit_sealed(now, memory, limits, room, &mut self.seals)
            else {
                return;
            };
            let (len, is_train) = (start + transmit.len, transmit.packets > 1);
            let checksum =
                if is_train { UdpChecksum::PartialForOffload } else { UdpChecksum::Zero };
            let frame = &mut slot[..len];
            let put = self.sealer.put_headers(port, self.identification, frame, checksum);
            put.expect("a sound train");
            self.identification = self.identification.wrapping_add(transmit.packets as u16);
            self.sent += transmit.packets as u64;
            wire.send(len, is_train.then_some(transmit.segment_len));
        }
    }

    /// Takes the completions and returns their number.
    ///
    /// # Panics
    /// If a completion has an error.
    pub fn take_completions(&mut self) -> u64 {
        let mut count = 0;
        while let Some((_, completion)) = self.endpoint.poll_completion() {
            assert_eq!(completion.status, CompletionStatus::Success);
            count += 1;
        }
        count
    }

    /// Returns the counter with this name; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.endpoint.counters().iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, count)| count)
    }
}

/// Seals packets while they are written, as the driver of `roce-verbs` does.
#[derive(Debug)]
struct Seals(Sealing);

impl PacketSealer for Seals {
    /// There is one path, whose frames [`Side::transmit`] begins.
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}

    fn seal(&mut self, packet: &mut [u8], payload: Option<PayloadCrc>) {
        let sealed = match payload {
            Some(payload) => self.0.seal_around(packet, payload),
            None => self.0.seal(packet),
        };
        sealed.expect("a sound packet");
    }
}
