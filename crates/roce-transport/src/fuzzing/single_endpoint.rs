//! One engine, alone with a script: whatever comes, from the way, the clock or its own
//! application.

use core::time::Duration;

use allocation_counter::measure;
use roce_wire::{
    Frame, GapReport, Operation, OuterHeaders, Psn, Service, UdpChecksum, Verified, seal,
};

use super::memory::Guarded;
use super::packet::{Kind, Target, packet, sealed};
use super::settings::{LOCAL, PATH, PD, PEER, Q_KEY, QPN, RECV_CQ, REMOTE, SEND_CQ, Settings};
use super::work;
use super::wr_tracker::{WrTracker, is_receive};
use crate::{
    AccessFlags, Destination, Endpoint, Instant, PdHandle, QpAttributes, QpInfo, QpState,
    SrqHandle, SrqInit, TransmitLimits,
};
use roce_fuzz_support::Script;

/// What most of the packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bias {
    Requests,
    Answers,
}

/// One engine with one queue pair, and what is known of it from outside.
pub(super) struct Lone<'a> {
    script: Script<'a>,
    bias: Bias,
    endpoint: Endpoint,
    memory: Guarded,
    tracker: WrTracker,
    settings: Settings,
    srq: Option<SrqHandle>,
    now: Instant,
    next_id: u64,
    floods: u32,
    /// Sequence numbers that the peer has used since the engine last had nothing to say.
    asked: u64,
    /// Bytes of heap that the engine holds.
    held: i64,
    buffer: Vec<u8>,
}

/// One step of a script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Packet(Kind),
    Mangled,
    Raw,
    PostSend,
    PostReceive,
    Wait,
    Timeout,
    Modify,
    Memory,
    Transmit,
    Other,
}

const REQUESTS: [Step; 16] = [
    Step::Packet(Kind::Request),
    Step::Packet(Kind::Request),
    Step::Packet(Kind::Request),
    Step::Packet(Kind::Request),
    Step::Packet(Kind::Request),
    Step::Packet(Kind::Any),
    Step::Mangled,
    Step::Raw,
    Step::PostReceive,
    Step::PostReceive,
    Step::PostSend,
    Step::Wait,
    Step::Modify,
    Step::Memory,
    Step::Transmit,
    Step::Other,
];

const ANSWERS: [Step; 16] = [
    Step::Packet(Kind::Answer),
    Step::Packet(Kind::Answer),
    Step::Packet(Kind::Answer),
    Step::Packet(Kind::Answer),
    Step::Packet(Kind::Request),
    Step::Packet(Kind::Any),
    Step::Mangled,
    Step::Raw,
    Step::PostSend,
    Step::PostSend,
    Step::PostSend,
    Step::Wait,
    Step::Timeout,
    Step::Modify,
    Step::Memory,
    Step::Other,
];

/// Steps of one run: more find nothing that a shorter script does not.
const MAX_STEPS: usize = 256;
/// Trains polled at once: the response of a READ of 2^31 bytes is long.
const MAX_TRAINS: usize = 48;
/// Repetitions of a packet in a flood: responses to it must not pile up.
const FLOOD: usize = 1100;
/// How often that may be in one script, for it takes long.
const MAX_FLOODS: u32 = 2;
/// From so many sequence numbers on, one may as well lie ahead as behind.
const HALF_THE_CIRCLE: u64 = Psn::MODULUS as u64 / 2 - 1;
/// Bytes that an engine with one queue pair of these capacities may ever hold, beside kept packets.
const MAX_HELD: i64 = 64 << 10;
/// A packet of an unreliable connection so far behind the expected one is late.
const LATE: i32 = 1 << 16;

impl<'a> Lone<'a> {
    pub(super) fn new(mut script: Script<'a>, bias: Bias) -> Self {
        let (settings, config) = Settings::read(&mut script, bias == Bias::Answers);
        let mut lone = Self {
            script,
            bias,
            endpoint: Endpoint::new(config),
            memory: memory(),
            tracker: WrTracker::default(),
            settings,
            srq: None,
            now: Instant::default(),
            next_id: 0,
            floods: 0,
            asked: 0,
            held: 0,
            buffer: vec![0; 16 << 10],
        };
        if settings.is_shared {
            let init = SrqInit { pd: PD, max_wr: 16, max_sge: 8 };
            let srq = lone.call(|endpoint, _, _| endpoint.create_srq(init));
            lone.srq = Some(srq.expect("a small queue"));
        }
        lone.create();
        lone
    }

    pub(super) fn run(mut self) {
        for _ in 0..MAX_STEPS {
            if self.script.is_over() {
                break;
            }
            let code = self.script.byte();
            self.step(code);
            let batch_goes_on = code & 0x80 != 0;
            if !batch_goes_on {
                self.drain();
                self.validate();
            }
        }
        self.finish();
    }

    fn step(&mut self, code: u8) {
        let steps = if self.bias == Bias::Requests { &REQUESTS } else { &ANSWERS };
        match steps[usize::from(code & 0xf)] {
            Step::Packet(kind) => {
                let packet = self.packet(kind);
                let traffic_class = if code & 0x70 == 0x50 { 0b11 } else { 0 };
                let outer = OuterHeaders { traffic_class, ..outer(code & 0x70 == 0x70) };
                let frame = sealed(&outer, &packet);
                let times = if code & 0x70 == 0x60 { self.flood() } else { 1 };
                (0..times).for_each(|_| self.deliver(frame.as_deref()));
            }
            Step::Mangled => {
                let packet = self.packet(Kind::Any);
                let bit = usize::from(self.script.number::<u16>());
                let mut frame = sealed(&outer(false), &packet);
                if let Some(frame) = &mut frame {
                    let at = bit / 8 % frame.len();
                    frame[at] ^= 1 << (bit % 8);
                }
                self.deliver(frame.as_deref());
            }
            Step::Raw => {
                let len = usize::from(self.script.byte());
                let frame = sealed(&outer(false), self.script.bytes(len));
                self.deliver(frame.as_deref());
            }
            Step::PostSend => self.post_send(),
            Step::PostReceive => self.post_receive(),
            Step::Wait => {
                let code = self.script.byte();
                let nanos = u64::from(code & 0xf) << (code >> 4 << 1);
                self.now += Duration::from_nanos(nanos);
                self.timeout();
            }
            Step::Timeout => {
                self.now = self.endpoint.poll_timeout().unwrap_or(self.now).max(self.now);
                self.timeout();
            }
            Step::Modify => self.modify(),
            Step::Memory => self.change_memory(),
            Step::Transmit => {
                let code = self.script.byte();
                let room = usize::from(code >> 4) << 8;
                self.transmit(usize::from(code & 3), room);
            }
            Step::Other => match self.script.byte() % 4 {
                0 => {
                    let cq = if self.script.byte() & 1 == 0 { SEND_CQ } else { RECV_CQ };
                    self.call(|endpoint, _, now| endpoint.handle_cq_overflow(now, cq));
                }
                1 => {
                    let was_there = self.info().is_some();
                    let done = self.call(|endpoint, _, _| endpoint.destroy_qp(QPN));
                    assert_eq!(done, was_there);
                    // What it has completed is still told.
                    self.drain();
                    self.tracker.clear();
                }
                _ => {
                    if self.info().is_none() {
                        self.create();
                    }
                }
            },
        }
    }

    /// One call into the engine: its permissions live as long, and what it allocates is its.
    fn call<T>(&mut self, call: impl FnOnce(&mut Endpoint, &mut Guarded, Instant) -> T) -> T {
        let Self { endpoint, memory, now, .. } = self;
        memory.calls += 1;
        let mut result = None;
        let used = measure(|| result = Some(call(endpoint, memory, *now)));
        self.held += used.bytes_current;
        result.expect("it was called")
    }

    fn info(&self) -> Option<QpInfo> {
        self.endpoint.query_qp(QPN)
    }

    fn create(&mut self) {
        let init = self.settings.init(self.srq);
        self.call(|endpoint, _, _| endpoint.create_qp(QPN, init)).expect("a free number");
        self.bring_up();
    }

    fn bring_up(&mut self) {
        self.tracker.clear();
        self.memory.allowed = self.settings.access;
        let steps = self.settings.steps();
        let count = if self.settings.is_sending { 3 } else { 2 };
        for asked in &steps[..count] {
            let done = self.call(|endpoint, _, now| endpoint.modify_qp(now, QPN, asked));
            done.expect("a queue pair can be brought up");
        }
    }

    fn packet(&mut self, kind: Kind) -> Vec<u8> {
        let info = self.info();
        let told = info.map(|it| it.attributes).unwrap_or_default();
        let target = Target {
            qpn: QPN,
            service: self.settings.service,
            q_key: Q_KEY,
            expected: told.rq_psn.unwrap_or_default(),
            last_sent: told.sq_psn.unwrap_or_default().previous(),
            mtu: self.settings.mtu.bytes(),
            regions: &self.memory.regions,
        };
        packet(&mut self.script, kind, &target)
    }

    /// How often the next packet comes.
    fn flood(&mut self) -> usize {
        self.floods += 1;
        if self.floods > MAX_FLOODS { 1 } else { FLOOD }
    }

    /// Gives the engine the packets of a frame.
    fn deliver(&mut self, frame: Option<&[u8]>) {
        let Some(bytes) = frame else { return };
        let Ok(frame) = Frame::parse(bytes) else { return };
        for packet in frame.packets(None) {
            if let Some(packet) = packet.ok().and_then(|it| it.verify_icrc().ok()) {
                self.take(&packet);
            }
        }
    }

    fn take(&mut self, packet: &roce_wire::Packet<'_, Verified>) {
        let before = (self.info(), self.memory.remote_changes, self.memory.local_changes);
        self.call(|endpoint, memory, now| endpoint.handle_packet(now, packet, memory));
        let bth = packet.headers().bth;
        let is_request = bth.opcode.info().is_request();
        let told = before.0.map(|it| it.attributes).unwrap_or_default();
        if let (Some(from), Some(to)) =
            (told.rq_psn, self.info().and_then(|it| it.attributes.rq_psn))
        {
            self.asked += u64::from(to.get().wrapping_sub(from.get()) % Psn::MODULUS);
        }
        if self.memory.remote_changes > before.1 {
            assert!(is_request, "an answer changes nothing for the peer: {bth:?}");
            match self.settings.service {
                Service::Rc => {
                    assert_eq!(Some(bth.psn), told.rq_psn, "only the expected packet is executed");
                }
                Service::Uc => {
                    let ahead = bth.psn.distance_from(told.rq_psn.expect("it receives"));
                    assert!(!(-LATE..0).contains(&ahead), "a late packet is executed: {ahead}");
                }
                _ => panic!("a datagram changes nothing but its receive: {bth:?}"),
            }
        }
        if self.memory.local_changes > before.2 && !is_request {
            let sent = bth.psn.distance_from(told.sq_psn.expect("it sends")) < 0;
            assert!(sent, "an answer to what was never sent: {bth:?}");
        }
    }

    fn post_send(&mut self) {
        self.next_id += 1;
        let work = work::request(&mut self.script, &self.memory.regions, self.next_id);
        let (id, is_signaled) = (work.wr_id, work.signaled || self.settings.signal_all);
        // A copy is made within the call, so that the engine pays for what it keeps.
        let is_datagram = self.settings.service == Service::Ud;
        let q_key = if is_datagram { u32::from(self.script.byte()) << 24 } else { 0 };
        let to = Destination { path: PATH, mtu: self.settings.mtu, qpn: PEER, q_key };
        let post = |endpoint: &mut Endpoint, now| match is_datagram {
            true => endpoint.post_send_to(now, QPN, work.clone(), to),
            false => endpoint.post_send(now, QPN, work.clone()),
        };
        if self.call(|endpoint, _, now| post(endpoint, now)).is_ok() {
            self.tracker.posted_send(id, is_signaled);
        }
    }

    fn post_receive(&mut self) {
        self.next_id += 1;
        let work = work::receive(&mut self.script, &self.memory.regions, self.next_id);
        if let Some(srq) = self.srq {
            let post =
                |endpoint: &mut Endpoint, now| endpoint.post_srq_recv(now, srq, work.clone());
            // Which queue pair takes it is not known, so the tracker does not count it.
            let _is_full = self.call(|endpoint, _, now| post(endpoint, now)).is_err();
            return;
        }
        let post = |endpoint: &mut Endpoint, now| endpoint.post_recv(now, QPN, work.clone());
        if self.call(|endpoint, _, now| post(endpoint, now)).is_ok() {
            self.tracker.posted_receive(work.wr_id);
        }
    }

    fn timeout(&mut self) {
        self.call(|endpoint, _, now| endpoint.handle_timeout(now));
        let next = self.endpoint.poll_timeout();
        assert!(next.is_none_or(|at| at > self.now), "{next:?} is over, it is {:?}", self.now);
    }

    fn modify(&mut self) {
        let code = self.script.byte();
        let state = QpState::ALL[usize::from(code & 7) % QpState::ALL.len()];
        let with = if code & 8 == 0 { 0 } else { self.script.number() };
        let asked = self.settings.attributes(&mut self.script, state, with);
        let before = self.info().map(|info| info.state);
        let done = self.call(|endpoint, _, now| endpoint.modify_qp(now, QPN, &asked));
        if done.is_err() {
            return;
        }
        if before == Some(QpState::SendQueueError) {
            self.drain_completions();
            self.tracker.resume();
        }
        self.memory.allowed |= asked.access.unwrap_or_default();
        if asked.state == Some(QpState::Reset) {
            // What it has completed before is still told.
            self.drain();
            self.bring_up();
        }
    }

    fn change_memory(&mut self) {
        let code = self.script.byte();
        let index = usize::from(code & 0xf) % self.memory.regions.len();
        let region = &mut self.memory.regions[index];
        match code >> 4 {
            0..8 => region.is_alive ^= true,
            rights => region.rights ^= AccessFlags::from_bits_truncate(rights.into()),
        }
    }

    /// Takes everything that the engine has to say, in the order that its documentation asks
    /// for.
    fn drain(&mut self) {
        if self.transmit(MAX_TRAINS, self.buffer.len()) {
            self.asked = 0;
        }
        self.drain_completions();
        while self.call(|endpoint, _, _| endpoint.poll_event()).is_some() {}
        let kept = self.endpoint.reorder_bytes();
        assert!(self.held <= MAX_HELD + kept as i64, "{} bytes held, {kept} kept", self.held);
    }

    fn drain_completions(&mut self) {
        while let Some((cq, completion)) = self.call(|endpoint, _, _| endpoint.poll_completion()) {
            assert!(cq == SEND_CQ || cq == RECV_CQ);
            if !is_receive(&completion) || self.srq.is_none() {
                self.tracker.completed(&completion, self.settings.service);
            }
        }
    }

    /// Takes so many trains at most; true if there were fewer.
    fn transmit(&mut self, trains: usize, room: usize) -> bool {
        let limits = TransmitLimits { max_packets: self.settings.max_packets };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut is_all = false;
        for _ in 0..trains {
            let space = &mut buffer[42..][..room.saturating_sub(42)];
            let train = self
                .call(|endpoint, memory, now| endpoint.poll_transmit(now, memory, limits, space));
            let Some(train) = train else {
                is_all = true;
                break;
            };
            assert_eq!((train.qpn, train.path), (QPN, PATH.handle));
            assert!((1..=limits.max_packets).contains(&train.packets));
            assert_eq!(train.packets, train.len.div_ceil(train.segment_len));
            let frame = &mut buffer[..42 + train.len];
            seal(&outer(false), 0, frame, train.segment_len, UdpChecksum::Zero).expect("a train");
            self.look_at(frame, train.segment_len);
        }
        self.buffer = buffer;
        is_all
    }

    /// Is what leaves what a receiver takes for a packet of ours?
    fn look_at(&self, frame: &[u8], segment_len: usize) {
        let told = self.info().map(|info| info.attributes).unwrap_or_default();
        let frame = Frame::parse(frame).expect("a sealed frame");
        for packet in frame.packets(Some(segment_len)) {
            let packet = packet.expect("a sound packet");
            let bth = packet.headers().bth;
            if bth.opcode == roce_wire::opcode::GAP_REPORT {
                let report = GapReport::parse(packet.payload());
                assert!(report.is_some() && self.settings.service == Service::Rc);
                continue;
            }
            if bth.opcode.info().service == Service::Cnp {
                assert!(bth.becn && self.settings.service != Service::Ud);
                continue;
            }
            assert_eq!(bth.opcode.info().service, self.settings.service);
            if self.settings.service == Service::Ud {
                let deth = packet.headers().deth.expect("a datagram has one");
                assert_eq!((bth.dest_qp, deth.source_qp), (PEER, QPN));
                assert!(deth.q_key >> 31 == 0, "the top bit stands for the own Q_Key");
            } else if told.dest_qpn.is_none() {
                // A queue pair that was reset or destroyed has nothing more to say than this.
                assert_eq!(bth.opcode.info().operation, Operation::Acknowledge);
                continue;
            } else {
                assert_eq!(Some(bth.dest_qp), told.dest_qpn);
            }
            assert!(packet.payload().len() <= self.settings.mtu.bytes());
            let (next, what) = match bth.opcode.info().is_request() {
                true => (told.sq_psn, "sent"),
                false => (told.rq_psn, "answered"),
            };
            // Requests for half the PSN circle at once make responses ambiguous.
            if what == "answered" && self.asked >= HALF_THE_CIRCLE {
                continue;
            }
            // A sequence NAK names the one that is missing, an RNR NAK the one to come again.
            let limit = next.expect("known since RTR").advanced_by(u32::from(what == "answered"));
            assert!(bth.psn.distance_from(limit) < 0, "{what} out of nowhere: {bth:?}, {next:?}");
        }
    }

    fn validate(&self) {
        if let Some(info) = self.info() {
            self.tracker.validate(&info);
        }
    }

    /// Whatever is left is flushed.
    fn finish(mut self) {
        self.drain();
        self.validate();
        let down = QpAttributes { state: Some(QpState::Error), ..QpAttributes::default() };
        if self.info().is_some() {
            self.call(|endpoint, _, now| endpoint.modify_qp(now, QPN, &down)).expect("always");
        }
        self.drain();
        self.validate();
        assert_eq!(self.endpoint.poll_event(), None);
    }
}

fn outer(is_from_a_stranger: bool) -> OuterHeaders {
    OuterHeaders::new(if is_from_a_stranger { LOCAL } else { REMOTE }, LOCAL)
}

/// Regions of every kind.
fn memory() -> Guarded {
    let mut memory = Guarded::new(PD);
    memory.add(0x7f00_0000_1000, 8 << 10, AccessFlags::ALL);
    memory.add(0x1_0000, 4 << 10, AccessFlags::REMOTE_READ);
    // All that a message can hold, and nothing stored.
    let promise = memory.add(1 << 40, 0, AccessFlags::ALL);
    promise.len = 1 << 31;
    memory.add(0x2_0000, 256, AccessFlags::ALL).pd = PdHandle(2);
    memory.add(0x3_0000, 256, AccessFlags::ALL).is_invalidatable = true;
    // Up to the end of the address space but one byte, and not aligned.
    memory.add(u64::MAX - 1001, 1001, AccessFlags::ALL);
    memory.add(0x4_0003, 0, AccessFlags::ALL);
    memory
}
