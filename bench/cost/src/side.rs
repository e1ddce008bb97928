//! A side without the engine of a device: an endpoint, its memory and its driver.

use roce_transport::{
    CompletionStatus, Endpoint, EndpointConfig, Instant, PacketSealer, PathAttributes, PathHandle,
    RecvWr, SendWr, TransmitLimits,
};
use roce_wire::{
    Frame, OuterHeaders, ParseOptions, PathMtu, PayloadCrc, Qpn, Sealer, Sealing, UdpChecksum,
    source_port_for,
};

use crate::drive::{ADDRESSES, Drive, NUMBERS, bring_up};
use crate::{Bytes, Wire};

/// An endpoint with one connected queue pair, its memory and the state of its driver.
///
/// ```
/// use roce_cost::{Bytes, Drive, Side, Wire};
/// use roce_transport::{Instant, RemoteAddr, SendOperation, SendWr, Sge};
/// use roce_wire::PathMtu;
///
/// let [mut here, mut there] = Side::pair(PathMtu::B1024, 64);
/// here.fill(b"hello");
/// let operation = SendOperation::write(RemoteAddr { addr: 8, rkey: Bytes::KEY });
/// let piece = Sge { lkey: Bytes::KEY, addr: 0, len: 5 };
/// here.post_send(Instant::default(), SendWr::new(1, operation, [piece]));
///
/// let mut wire = Wire::new();
/// here.transmit(Instant::default(), &mut wire);
/// there.receive(Instant::default(), &mut wire);
/// assert_eq!(&there.bytes()[8..13], b"hello");
/// ```
#[derive(Debug)]
pub struct Side {
    endpoint: Endpoint,
    memory: Bytes,
    qpn: Qpn,
    sealer: Sealer,
    seals: Seals,
    source_port: u16,
    identification: u16,
    /// Packets sent.
    sent: u64,
}

impl Drive for Side {
    fn pair(path_mtu: PathMtu, memory: usize) -> [Self; 2] {
        [(0, 1), (1, 0)].map(|(mine, theirs)| {
            let (local, remote) = (ADDRESSES[mine], ADDRESSES[theirs]);
            let outer = OuterHeaders::new(local, remote);
            let sealer = Sealer::new(&outer).expect("two addresses of one family");
            let mut endpoint = Endpoint::new(EndpointConfig::default());
            let path = PathAttributes { handle: PathHandle(1), local, remote, max_rate: None };
            bring_up(&mut endpoint, mine, path, path_mtu);
            Self {
                endpoint,
                memory: Bytes::new(memory),
                qpn: NUMBERS[mine],
                seals: Seals(sealer.begin(0, 0)),
                sealer,
                source_port: source_port_for(NUMBERS[mine], NUMBERS[theirs], 0),
                identification: 0,
                sent: 0,
            }
        })
    }

    fn post_send(&mut self, now: Instant, work: SendWr) {
        self.endpoint.post_send(now, self.qpn, work).expect("room in the send queue");
    }

    fn post_recv(&mut self, now: Instant, work: RecvWr) {
        self.endpoint.post_recv(now, self.qpn, work).expect("room in the receive queue");
    }

    fn receive(&mut self, now: Instant, wire: &mut Wire) {
        let options = ParseOptions { udp_checksum_offloaded: true };
        for (bytes, segment_len) in wire.frames() {
            let frame = Frame::parse_with(bytes, options).expect("a sound frame");
            for packet in frame.packets(segment_len) {
                let packet = packet.expect("a sound packet");
                let packet = packet.verify_icrc().expect("a right ICRC");
                self.endpoint.handle_packet(now, &packet, &mut self.memory);
            }
        }
        wire.clear();
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
    }

    fn transmit(&mut self, now: Instant, wire: &mut Wire) {
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

    fn take_completions(&mut self) -> u64 {
        let mut count = 0;
        while let Some((_, completion)) = self.endpoint.poll_completion() {
            assert_eq!(completion.status, CompletionStatus::Success);
            count += 1;
        }
        count
    }

    fn counter(&self, name: &str) -> u64 {
        let found = self.endpoint.counters().iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, count)| count)
    }

    fn fill(&mut self, bytes: &[u8]) {
        self.memory.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.as_slice().to_vec()
    }

    fn sent(&self) -> u64 {
        self.sent
    }
}

/// Seals packets while they are written, as the driver of `roce-verbs` does.
#[derive(Debug)]
struct Seals(Sealing);

impl PacketSealer for Seals {
    /// There is one path, whose frames [`Drive::transmit`] begins.
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}

    fn seal(&mut self, packet: &mut [u8], payload: Option<PayloadCrc>) {
        let sealed = match payload {
            Some(payload) => self.0.seal_around(packet, payload),
            None => self.0.seal(packet),
        };
        sealed.expect("a sound packet");
    }
}
