//! Two endpoints with real tables of memory, packets carried by hand.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use roce_engine::{MemoryTable, PlainRegion, Region, Registration, WindowType};
use roce_simnet::ConnectOptions;
use roce_transport::{
    AccessFlags, Completion, CompletionStatus, CqHandle, Endpoint, EndpointConfig, Instant,
    PathAttributes, PathHandle, PdHandle, QpInit, QpState, RecvWr, RemoteAddr, SendOperation,
    SendWr, Service, Sge, TransmitLimits, WindowBinding,
};
use roce_wire::{Frame, ICRC_LEN, OuterHeaders, PathMtu, Psn, Qpn, UdpChecksum, seal};

pub(crate) const PD: PdHandle = PdHandle(1);
pub(crate) const OTHER_PD: PdHandle = PdHandle(2);
/// Where regions begin for peers.
pub(crate) const FIRST: u64 = 0x10_0000;
pub(crate) const LEN: usize = 4096;
const NOW: Instant = Instant::from_nanos(1);
const SEND_CQ: CqHandle = CqHandle(1);

/// A queue pair of each side, of this number on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) Qpn);

/// One host.
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: MemoryTable<Rc<PlainRegion>>,
    address: IpAddr,
    next_number: u32,
}

/// The requester (0) and the responder (1), whose windows are tested.
pub(crate) struct World {
    pub(crate) sides: [Side; 2],
}

/// A region of a side.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub(crate) key: u32,
    pub(crate) bytes: Rc<PlainRegion>,
}

impl World {
    pub(crate) fn new() -> Self {
        let side = |last| Side {
            endpoint: Endpoint::new(EndpointConfig::default()),
            memory: MemoryTable::default(),
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
            next_number: 0x1234_5678,
        };
        Self { sides: [side(1), side(2)] }
    }

    /// A world with one connected pair in [`PD`].
    pub(crate) fn connected() -> (Self, Pair) {
        let mut world = Self::new();
        let pair = world.connect(Service::Rc, PD);
        (world, pair)
    }

    /// Connects another pair of queue pairs, of this domain at the responder.
    pub(crate) fn connect(&mut self, service: Service, pd: PdHandle) -> Pair {
        let qpn = (0x11..).filter_map(Qpn::new);
        let qpn = { qpn }.find(|it| self.sides[0].endpoint.query_qp(*it).is_none()).unwrap();
        let addresses = [0, 1].map(|it: usize| self.sides[it].address);
        let options = ConnectOptions {
            service,
            path_mtu: PathMtu::B256,
            first_psn: [Psn::wrapping(0xff_fffe); 2],
            signal_all: true,
            ..ConnectOptions::default()
        };
        for (it, pd) in [PD, pd].into_iter().enumerate() {
            let init = QpInit { pd, ..options.init(SEND_CQ, CqHandle(2)) };
            let (local, remote) = (addresses[it], addresses[1 - it]);
            let path = PathAttributes { handle: PathHandle(5), local, remote, max_rate: None };
            let endpoint = &mut self.sides[it].endpoint;
            endpoint.create_qp(qpn, init).unwrap();
            for step in options.transitions(it, path, qpn) {
                endpoint.modify_qp(NOW, qpn, &step).unwrap();
            }
        }
        Pair(qpn)
    }

    /// Registers zeros at one side.
    pub(crate) fn register(
        &mut self,
        side: usize,
        pd: PdHandle,
        access: AccessFlags,
    ) -> Registered {
        let bytes = Rc::new(PlainRegion::new(LEN));
        let how = Registration { pd, access, iova: FIRST, invalidatable: true, on_demand: false };
        let side = &mut self.sides[side];
        let next = &mut side.next_number;
        let key = side.memory.insert(Rc::clone(&bytes), how, || draw(next));
        Registered { key, bytes }
    }

    /// Registers a region of the responder that windows may be bound to and peers may not access.
    pub(crate) fn bindable(&mut self) -> Registered {
        self.register(1, PD, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)
    }

    /// Makes a window of the responder, and returns the number of it.
    pub(crate) fn window(&mut self, pd: PdHandle, window_type: WindowType) -> u32 {
        let side = &mut self.sides[1];
        let next = &mut side.next_number;
        side.memory.alloc_window(pd, window_type, || draw(next)).unwrap() >> 8
    }

    /// Posts to a side, carries all packets, and returns what became of the requests.
    pub(crate) fn post(
        &mut self,
        side: usize,
        pair: Pair,
        work: impl IntoIterator<Item = SendWr>,
    ) -> Vec<CompletionStatus> {
        for work in work {
            self.sides[side].endpoint.post_send(NOW, pair.0, work).unwrap();
        }
        self.settle();
        let completions = self.sides[side].completions();
        completions.iter().filter(|it| it.0 == SEND_CQ).map(|it| it.1.status).collect()
    }

    /// Binds a window through the responder's queue pair, and returns what became of that.
    pub(crate) fn bind(&mut self, pair: Pair, to: WindowBinding) -> CompletionStatus {
        let done = self.post(1, pair, [bind(to)]);
        let [status] = done[..] else { panic!("{done:?}") };
        status
    }

    /// Posts a receive of 64 bytes to the responder, in a region of its own.
    pub(crate) fn receive(&mut self, pair: Pair) {
        let region = self.register(1, PD, AccessFlags::LOCAL_WRITE);
        let place = Sge { lkey: region.key, addr: FIRST, len: 64 };
        self.sides[1].endpoint.post_recv(NOW, pair.0, RecvWr::new(7, place)).unwrap();
    }

    /// Writes one byte through a key of the responder.
    pub(crate) fn write(&mut self, pair: Pair, rkey: u32, addr: u64) -> CompletionStatus {
        let operation = SendOperation::write(RemoteAddr { addr, rkey });
        let done = self.post(0, pair, [SendWr::inline(1, operation, b"w")]);
        let [status] = done[..] else { panic!("{done:?}") };
        status
    }

    pub(crate) fn state(&self, side: usize, pair: Pair) -> QpState {
        self.sides[side].endpoint.query_qp(pair.0).unwrap().state
    }

    /// Carries packets until none is left.
    fn settle(&mut self) {
        for _round in 0..100 {
            let mut carried = 0;
            for from in [0, 1] {
                let [from, to] = self.sides.get_disjoint_mut([from, 1 - from]).unwrap();
                for packet in from.sends() {
                    to.takes(from.address, &packet);
                    carried += 1;
                }
            }
            if carried == 0 {
                return;
            }
        }
        panic!("they never come to an end");
    }
}

impl Side {
    /// Takes the completions so far.
    pub(crate) fn completions(&mut self) -> Vec<(CqHandle, Completion)> {
        std::iter::from_fn(|| self.endpoint.poll_completion()).collect()
    }

    fn sends(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buf = vec![0; 65_536];
        let limits = TransmitLimits { max_packets: 64 };
        while let Some(train) = self.endpoint.poll_transmit(NOW, &mut self.memory, limits, &mut buf)
        {
            let segments = buf[..train.len].chunks(train.segment_len);
            packets.extend(segments.map(|it| it[..it.len() - ICRC_LEN].to_vec()));
        }
        packets
    }

    fn takes(&mut self, from: IpAddr, packet: &[u8]) {
        let outer = OuterHeaders::new(from, self.address);
        let segment_len = packet.len() + ICRC_LEN;
        let mut frame = vec![0; outer.len() + segment_len];
        frame[outer.len()..][..packet.len()].copy_from_slice(packet);
        seal(&outer, 0, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
        for packet in Frame::parse(&frame).unwrap().packets(None) {
            let packet = packet.unwrap().verify_icrc().unwrap();
            self.endpoint.handle_packet(NOW, &packet, &mut self.memory);
        }
    }
}

/// A binding of 64 bytes from the 128th on, with these rights.
pub(crate) fn binding(window: u32, region: &Registered, access: AccessFlags) -> WindowBinding {
    let (lkey, addr, len) = (region.key, FIRST + 128, 64);
    WindowBinding { window, tag: 7, lkey, addr, len, access }
}

pub(crate) fn bind(to: WindowBinding) -> SendWr {
    SendWr::new(3, SendOperation::BindWindow(to), [])
}

/// Returns a byte of a region.
pub(crate) fn byte(region: &Registered, offset: usize) -> u8 {
    let mut byte = [0];
    region.bytes.read(offset, &mut byte).unwrap();
    byte[0]
}

/// Numbers that are different and look random.
fn draw(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
    *state
}
