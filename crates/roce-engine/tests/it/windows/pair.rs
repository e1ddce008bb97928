//! Two hosts with real tables of memory, in virtual time.

use std::rc::Rc;

use roce_engine::{MemoryTable, PlainRegion, Region, Registration, WindowType};
use roce_simnet::{ConnectOptions, Connection, End, RECV_CQ, SEND_CQ, WorldConfig};
use roce_transport::{
    AccessFlags, Completion, CompletionStatus, CqHandle, PdHandle, QpInit, QpState, RecvWr,
    RemoteAddr, SendOperation, SendWr, Service, Sge, WindowBinding,
};
use roce_wire::{PathMtu, Psn, Qpn};

pub(crate) use roce_simnet::PD;
pub(crate) const OTHER_PD: PdHandle = PdHandle(2);
/// Where regions begin for peers.
pub(crate) const FIRST: u64 = 0x10_0000;
pub(crate) const LEN: usize = 4096;
/// Steps after which all packets have arrived.
const MAX_STEPS: usize = 1000;

/// A queue pair of each host, of this number on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) Qpn);

/// The requester (0) and the responder (1), whose windows are tested.
pub(crate) struct World {
    pub(crate) net: roce_simnet::World<MemoryTable<Rc<PlainRegion>>>,
    next_number: u32,
}

/// A region of a host.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub(crate) key: u32,
    pub(crate) bytes: Rc<PlainRegion>,
}

impl World {
    pub(crate) fn new() -> Self {
        let config = WorldConfig { keep_timeline: false, ..WorldConfig::default() };
        let names = ["requester", "responder"];
        let net = roce_simnet::World::with_memory(&names, config, MemoryTable::default);
        Self { net, next_number: 0x1234_5678 }
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
        let qpn = { qpn }.find(|it| self.net.hosts[0].query_qp(*it).is_none()).unwrap();
        let options = ConnectOptions {
            service,
            path_mtu: PathMtu::B256,
            first_psn: [Psn::wrapping(0xff_fffe); 2],
            signal_all: true,
            ..ConnectOptions::default()
        };
        for (host, pd) in [PD, pd].into_iter().enumerate() {
            let init = QpInit { pd, ..options.init(SEND_CQ, RECV_CQ) };
            self.net.hosts[host].endpoint.create_qp(qpn, init).unwrap();
        }
        Connection { ends: [0, 1].map(|host| End { host, qpn }), options }.bring_up(&mut self.net);
        Pair(qpn)
    }

    /// Registers zeros at one host.
    pub(crate) fn register(
        &mut self,
        host: usize,
        pd: PdHandle,
        access: AccessFlags,
    ) -> Registered {
        let bytes = Rc::new(PlainRegion::new(LEN));
        let how = Registration { pd, access, iova: FIRST, invalidatable: true, on_demand: false };
        let Self { net, next_number } = self;
        let memory = &mut net.hosts[host].memory;
        let key = memory.insert(Rc::clone(&bytes), how, || draw(next_number));
        Registered { key, bytes }
    }

    /// Registers a region of the responder that windows may be bound to and peers may not access.
    pub(crate) fn bindable(&mut self) -> Registered {
        self.register(1, PD, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)
    }

    /// Makes a window of the responder, and returns the number of it.
    pub(crate) fn window(&mut self, pd: PdHandle, window_type: WindowType) -> u32 {
        let Self { net, next_number } = self;
        let memory = &mut net.hosts[1].memory;
        memory.alloc_window(pd, window_type, || draw(next_number)).unwrap() >> 8
    }

    /// Posts to a host, carries all packets, and returns what became of the requests.
    pub(crate) fn post(
        &mut self,
        host: usize,
        pair: Pair,
        work: impl IntoIterator<Item = SendWr>,
    ) -> Vec<CompletionStatus> {
        self.net.with(host, |host, now| {
            for work in work {
                host.endpoint.post_send(now, pair.0, work).unwrap();
            }
        });
        let steps = (0..MAX_STEPS).take_while(|_| self.net.step()).count();
        assert!(steps < MAX_STEPS, "they never come to an end");
        let completions = self.completions(host);
        completions.iter().filter(|it| it.0 == SEND_CQ).map(|it| it.1.status).collect()
    }

    /// Takes the completions of a host so far.
    pub(crate) fn completions(&mut self, host: usize) -> Vec<(CqHandle, Completion)> {
        self.net.hosts[host].completions.drain(..).collect()
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
        self.net.post_recv(End { host: 1, qpn: pair.0 }, RecvWr::new(7, place)).unwrap();
    }

    /// Writes one byte through a key of the responder.
    pub(crate) fn write(&mut self, pair: Pair, rkey: u32, addr: u64) -> CompletionStatus {
        let operation = SendOperation::write(RemoteAddr { addr, rkey });
        let done = self.post(0, pair, [SendWr::inline(1, operation, b"w")]);
        let [status] = done[..] else { panic!("{done:?}") };
        status
    }

    pub(crate) fn state(&self, host: usize, pair: Pair) -> QpState {
        self.net.hosts[host].query_qp(pair.0).unwrap().state
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
