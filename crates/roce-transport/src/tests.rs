//! Two endpoints side by side, packets carried by hand. The properties of the whole are in the
//! crate's `tests/`, in virtual time; here is what needs a look at single packets and batches, which a
//! `roce_simnet::World` takes from an endpoint as soon as they are there.

mod congestion;
mod delayed_ack;
mod induced_failure;
mod management;
mod nak_flood;
mod owed_ack;
mod reordering;
mod single_packet;
mod smoke;
mod suspended;

use core::net::{IpAddr, Ipv4Addr};

use roce_wire::{Frame, Headers, ICRC_LEN, Operation, OuterHeaders, PathMtu, Psn, Qpn, RnrTimer};

use crate::fuzzing::packet::sealed;
use crate::*;

const QPN: Qpn = Qpn::GSI;
const PD: PdHandle = PdHandle(1);
const KEY: u32 = 7;
/// Opens memory that is not aligned, whatever its addresses say.
const ODD_KEY: u32 = 11;
const FIRST_PSN: Psn = Psn::wrapping(0xff_fffe);
const NOW: Instant = Instant::from_nanos(0);

/// One region that every queue pair may use, at address 0 under [`KEY`]. [`Regions`] has no bytes that are not aligned,
/// no memory windows, and no key that may be invalidated again and again.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Memory for Bytes {
    type Grant = usize;

    fn check(
        &self,
        _by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<usize, MemoryFault> {
        let end = address.checked_add(len).ok_or(MemoryFault::OutOfBounds)?;
        match key {
            ODD_KEY if access.is_of_word() => Err(MemoryFault::Misaligned),
            KEY if end <= self.0.len() as u64 => Ok(address as usize),
            KEY => Err(MemoryFault::OutOfBounds),
            _ => Err(MemoryFault::UnknownKey),
        }
    }
    fn write(&mut self, grant: usize, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0[grant + offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&self, grant: usize, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        into.copy_from_slice(&self.0[grant + offset as usize..][..into.len()]);
        Ok(())
    }
    fn atomic(&mut self, grant: usize, change: AtomicChange) -> Result<u64, MemoryFault> {
        let word = self.0[grant..].first_chunk_mut().unwrap();
        let original = u64::from_ne_bytes(*word);
        *word = change.apply(original).to_ne_bytes();
        Ok(original)
    }
    fn invalidate(&mut self, _by: Accessor, key: u32) -> Result<(), MemoryFault> {
        if key == 99 { Ok(()) } else { Err(MemoryFault::NotInvalidatable) }
    }
    fn bind_window(&mut self, _by: Accessor, to: &WindowBinding) -> Result<(), MemoryFault> {
        if to.window == 99 { Ok(()) } else { Err(MemoryFault::UnknownKey) }
    }
}

struct Side {
    endpoint: Endpoint,
    memory: Bytes,
    address: IpAddr,
}

/// Both sides connected, their memories filled with 1 and 2.
fn pair() -> [Side; 2] {
    pair_with(|_| ())
}

/// The same, with the last attributes changed.
fn pair_with(change: impl Fn(&mut QpAttributes)) -> [Side; 2] {
    pair_of(&EndpointConfig::default(), change)
}

/// The same, of endpoints that behave like that.
fn pair_of(config: &EndpointConfig, change: impl Fn(&mut QpAttributes)) -> [Side; 2] {
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    [1, 2].map(|it| {
        let mut endpoint = Endpoint::new(config.clone());
        let init = QpInit { recv_cq: CqHandle(2), ..QpInit::new(Service::Rc, PD, CqHandle(1)) };
        endpoint.create_qp(QPN, init).unwrap();
        let mut steps = to_ready_to_send(address(it), address(3 - it));
        change(&mut steps[2]);
        for asked in steps {
            endpoint.modify_qp(NOW, QPN, &asked).unwrap();
        }
        Side { endpoint, memory: Bytes(vec![it; 10_000]), address: address(it) }
    })
}

fn to_ready_to_send(local: IpAddr, remote: IpAddr) -> [QpAttributes; 3] {
    let path = PathAttributes { handle: PathHandle(5), local, remote, max_rate: None };
    [
        QpAttributes::init(AccessFlags::ALL),
        QpAttributes {
            max_dest_rd_atomic: Some(2),
            ..QpAttributes::ready_to_receive(path, PathMtu::B256, QPN, FIRST_PSN)
        },
        QpAttributes { max_rd_atomic: Some(2), ..QpAttributes::ready_to_send(FIRST_PSN) },
    ]
    .map(QpAttributes::with_default_limits)
}

impl Side {
    /// Every packet that it sends now, from the BTH to the last pad byte.
    fn sends(&mut self, max_packets: usize) -> Vec<Vec<u8>> {
        self.sends_at(NOW, max_packets)
    }

    /// The same at another time.
    fn sends_at(&mut self, now: Instant, max_packets: usize) -> Vec<Vec<u8>> {
        self.trains_at(now, max_packets).into_iter().flatten().collect()
    }

    /// The same, by train.
    fn trains_at(&mut self, now: Instant, max_packets: usize) -> Vec<Vec<Vec<u8>>> {
        let mut trains = vec![];
        let mut buf = vec![0; 65_536];
        let limits = TransmitLimits { max_packets };
        while let Some(train) = self.endpoint.poll_transmit(now, &mut self.memory, limits, &mut buf)
        {
            assert_eq!((train.qpn, train.path), (QPN, PathHandle(5)));
            assert!(train.packets <= max_packets);
            let segments = buf[..train.len].chunks(train.segment_len);
            trains.push(segments.map(|it| it[..it.len() - ICRC_LEN].to_vec()).collect());
        }
        trains
    }

    /// Takes a packet that the other side sent.
    fn takes(&mut self, other: IpAddr, packet: &[u8]) {
        self.takes_at(NOW, other, packet, 0);
    }

    /// The same at another time, with this traffic class.
    fn takes_at(&mut self, now: Instant, other: IpAddr, packet: &[u8], traffic_class: u8) {
        let outer = OuterHeaders { traffic_class, ..OuterHeaders::new(other, self.address) };
        let frame = sealed(&outer, packet).unwrap();
        for packet in Frame::parse(&frame).unwrap().packets(None) {
            let packet = packet.unwrap().verify_icrc().unwrap();
            self.endpoint.handle_packet(now, &packet, &mut self.memory);
        }
    }

    /// Takes a packet made by hand.
    fn takes_made(&mut self, other: IpAddr, headers: &Headers, payload: &[u8]) {
        let mut packet = vec![0; headers.len() + payload.len() + 3 + ICRC_LEN];
        packet[headers.len()..][..payload.len()].copy_from_slice(payload);
        let len = headers.emit_around(&mut packet, payload.len());
        self.takes(other, &packet[..len - ICRC_LEN]);
    }

    /// What completed: number and status.
    fn completed(&mut self) -> Vec<(u64, CompletionStatus)> {
        let all = core::iter::from_fn(|| self.endpoint.poll_completion());
        all.map(|(_, it)| (it.wr_id, it.status)).collect()
    }

    fn posts(&mut self, work: SendWr) {
        self.endpoint.post_send(NOW, QPN, work.signaled()).unwrap();
    }
}

/// Carries what one side sends now; returns the number of packets.
fn carry(sides: &mut [Side; 2], from: usize) -> usize {
    let [from, to] = sides.get_disjoint_mut([from, 1 - from]).unwrap();
    let packets = from.sends(64);
    packets.iter().for_each(|packet| to.takes(from.address, packet));
    packets.len()
}

/// Carries packets until none is left; returns the opcode of each.
fn shuttle(sides: &mut [Side; 2]) -> Vec<Operation> {
    let mut carried = vec![];
    for _round in 0..1000 {
        let before = carried.len();
        for from in [0, 1] {
            let [from, to] = sides.get_disjoint_mut([from, 1 - from]).unwrap();
            for packet in from.sends(64) {
                carried.push(headers_of(&packet).bth.opcode.info().operation);
                to.takes(from.address, &packet);
            }
        }
        if carried.len() == before {
            return carried;
        }
    }
    panic!("they never come to an end");
}

fn headers_of(packet: &[u8]) -> Headers {
    Headers::parse(packet).unwrap().0
}

fn piece(address: u64, len: u32) -> Sge {
    Sge { lkey: KEY, addr: address, len }
}

const REMOTE: RemoteAddr = RemoteAddr { addr: 2000, rkey: KEY };
