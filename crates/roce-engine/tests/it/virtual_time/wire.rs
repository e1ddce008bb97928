//! A link between two hosts in virtual time, with faults.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_io::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame};
use roce_transport::Instant;
use roce_wire::{Opcode, opcode};

/// Bytes of the headers in front of the first BTH of a frame: Ethernet, IPv4, UDP.
const OUTER_LEN: usize = 42;
/// Time that a frame is under way.
const LATENCY: Duration = Duration::from_micros(2);
/// Frames that a device holds while its interface takes none.
const SLOTS: usize = 8;
/// Time after which such frames are dropped.
const MAX_STALL: Duration = Duration::from_millis(100);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_micros(200);

/// The virtual time, which all parts of a world share.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<AtomicU64>, std::time::Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000)), std::time::Instant::now())
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, now: Instant) {
        assert!(now >= self.now(), "the world's time goes back");
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Returns an instant of the system's clock that stands for `at`.
    fn to_system(&self, at: Instant) -> std::time::Instant {
        self.1 + Duration::from_nanos(at.as_nanos())
    }

    /// Returns what an instant of the system's clock stands for.
    pub(crate) fn of_system(&self, at: std::time::Instant) -> Instant {
        Instant::from_nanos(at.duration_since(self.1).as_nanos() as u64)
    }
}

struct Frame {
    arrival: Instant,
    bytes: Vec<u8>,
    segment_len: Option<usize>,
}

/// What an interface does to the frames of its host, for the script to change, and has done.
pub(crate) struct Faults {
    pub(crate) loss: f64,
    /// It takes no frame.
    pub(crate) is_full: bool,
    /// Its device gives frames up that it does not take, as that of a real interface does.
    pub(crate) gives_up: bool,
    /// Trains of a message and an ACK that it has sent.
    pub(crate) joined_acks: u64,
}

type Queue = Arc<Mutex<VecDeque<Frame>>>;

/// One host's interface.
pub(crate) struct Wire {
    clock: Clock,
    incoming: Queue,
    outgoing: Queue,
    faults: Arc<Mutex<Faults>>,
    dice: StdRng,
    slots: VecDeque<Frame>,
    refused_since: Option<Instant>,
    next_attempt: Instant,
    buffer: Vec<u8>,
    max_train_packets: usize,
}

/// What a script sees of a host's interface.
pub(crate) struct WireHandle {
    incoming: Queue,
    faults: Arc<Mutex<Faults>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("one thread")
}

/// Makes the interfaces of two hosts.
pub(crate) fn link(clock: &Clock, seed: u64, max_train_packets: usize) -> [(Wire, WireHandle); 2] {
    let queues: [Queue; 2] = Default::default();
    [0, 1].map(|host| {
        let faults = Faults { loss: 0.0, is_full: false, gives_up: true, joined_acks: 0 };
        let faults = Arc::new(Mutex::new(faults));
        let handle =
            WireHandle { incoming: Arc::clone(&queues[host]), faults: Arc::clone(&faults) };
        let wire = Wire {
            clock: clock.clone(),
            incoming: Arc::clone(&queues[host]),
            outgoing: Arc::clone(&queues[1 - host]),
            faults,
            dice: StdRng::seed_from_u64(seed ^ host as u64),
            slots: VecDeque::new(),
            refused_since: None,
            next_attempt: Instant::default(),
            buffer: vec![0; 65_600],
            max_train_packets,
        };
        (wire, handle)
    })
}

impl WireHandle {
    /// Returns the arrival of the first frame that the host has not received.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        lock(&self.incoming).front().map(|frame| frame.arrival)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }
}

impl Wire {
    fn send(&mut self, frame: Frame) {
        if !self.dice.random_bool(lock(&self.faults).loss) {
            lock(&self.outgoing).push_back(frame);
        }
    }

    fn fill(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>) -> Option<Frame> {
        let outgoing = fill(&mut self.buffer)?;
        let bytes = self.buffer[..outgoing.len].to_vec();
        let arrival = self.clock.now() + LATENCY;
        if let Some(segment_len) = outgoing.segment_len {
            let mut packets = bytes[OUTER_LEN..].chunks(segment_len).map(|it| Opcode(it[0]));
            // Trains of responses end with an ACK, too.
            let is_request =
                packets.next().and_then(Opcode::info).is_some_and(|it| it.is_request());
            let is_ack = packets.next_back() == Some(opcode::RC_ACKNOWLEDGE.code());
            lock(&self.faults).joined_acks += u64::from(is_request && is_ack);
        }
        Some(Frame { arrival, bytes, segment_len: outgoing.segment_len })
    }
}

impl FrameDevice for Wire {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < budget {
            let now = self.clock.now();
            let next = lock(&self.incoming).pop_front_if(|frame| frame.arrival <= now);
            let Some(frame) = next else { break };
            on_frame(RxFrame {
                bytes: &frame.bytes,
                segment_len: frame.segment_len,
                udp_checksum_partial: true,
                vlan_tag: None,
            });
            count += 1;
        }
        Ok(count)
    }

    fn may_receive(&self) -> bool {
        lock(&self.incoming).front().is_some_and(|frame| frame.arrival <= self.clock.now())
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let now = self.clock.now();
        let (is_full, gives_up) = {
            let faults = lock(&self.faults);
            (faults.is_full, faults.gives_up)
        };
        if !is_full {
            self.refused_since = None;
            let mut sent = 0;
            while let Some(frame) = self.slots.pop_front().or_else(|| self.fill(fill)) {
                self.send(Frame { arrival: now + LATENCY, ..frame });
                sent += 1;
            }
            return Ok(sent);
        }
        self.next_attempt = now + PAUSE;
        let since = *self.refused_since.get_or_insert(now);
        if gives_up && now.saturating_since(since) > MAX_STALL {
            self.slots.clear();
            while self.fill(fill).is_some() {}
            return Ok(0);
        }
        while self.slots.len() < SLOTS {
            let Some(frame) = self.fill(fill) else { break };
            self.slots.push_back(frame);
        }
        Ok(0)
    }

    fn has_unsent(&self) -> bool {
        !self.slots.is_empty()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let max_train_packets = self.max_train_packets;
        DeviceCapabilities { max_frame_len: self.buffer.len(), mtu: 4300, max_train_packets }
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn wake_at(&self) -> Option<std::time::Instant> {
        self.has_unsent().then(|| self.clock.to_system(self.next_attempt))
    }
}
