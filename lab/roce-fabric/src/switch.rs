//! The model of a switch: frames in, frames and pauses out, with time as an argument.

use std::time::Duration;

use roce_wire::{MacAddr, PfcFrame};

use crate::output_port::OutputPort;
use crate::shared_buffer::SharedBuffer;
use crate::{CLASSES, ClassScheduling, EcnMarking, SwitchFrame};
use crate::{Instant, SplitMix64};

/// Parameters of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// Address of the switch, the source of its pause frames.
    pub address: MacAddr,
    /// Bytes of the buffer that all ports share, without headroom.
    pub buffer_bytes: u64,
    /// Factor of the dynamic threshold: a queue of a lossy class, or the frames of a lossless class
    /// from one port, may hold this times the free bytes of the shared buffer.
    pub alpha: f64,
    /// ECN marking of each class.
    pub marking: [Option<EcnMarking>; CLASSES],
    /// Queue length that decides about a mark.
    pub marking_point: MarkingPoint,
    /// Flow control of lossless classes.
    pub pfc: Option<PfcConfig>,
    /// Order of the classes at each output.
    pub scheduling: [ClassScheduling; CLASSES],
    /// Longest pause of a queue with waiting frames. Then the watchdog drops the queue, and ignores
    /// pauses of the class until the other end resumes it or its last pause is over.
    pub watchdog: Option<Duration>,
}

impl Default for SwitchConfig {
    /// 32 MB, an eighth of the free bytes, no marking, no PFC, classes 6 and 7 strict.
    fn default() -> Self {
        Self {
            address: MacAddr([0x02, 0, 0, 0, 0, 1]),
            buffer_bytes: 32_000_000,
            alpha: 0.125,
            marking: [None; CLASSES],
            marking_point: MarkingPoint::Enqueue,
            pfc: None,
            scheduling: ClassScheduling::DEFAULT,
            watchdog: None,
        }
    }
}

/// Moment at which a switch decides about a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkingPoint {
    /// When the frame is queued: the mark reaches the receiver after the queueing delay.
    Enqueue,
    /// When the frame leaves: the mark tells of the present queue.
    Dequeue,
}

/// Priority-based flow control of a switch.
///
/// A frame of a lossless class that exceeds the threshold of its port and class goes to the
/// headroom, and the port sends XOFF. It sends XON once the headroom is empty and the shared bytes
/// are `xon_offset` below the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcConfig {
    /// Lossless classes, a bit each.
    pub classes: u8,
    /// Fixed threshold in bytes below the dynamic one, if any.
    pub xoff: Option<u64>,
    /// Distance of XON below the threshold, in bytes.
    pub xon_offset: u64,
    /// Headroom of each port and lossless class, in bytes; see
    /// [`headroom_for`](Self::headroom_for).
    pub headroom: u64,
}

impl PfcConfig {
    /// Returns a configuration that makes one class lossless, with the headroom of a link.
    pub fn for_link(class: usize, bits_per_sec: u64, delay: Duration, max_frame: u64) -> Self {
        Self {
            classes: 1 << (class % CLASSES),
            xoff: None,
            xon_offset: 2 * max_frame,
            headroom: Self::headroom_for(bits_per_sec, delay, max_frame),
        }
    }

    /// Returns the headroom in bytes that a link needs, so that no frame is lost after XOFF: what
    /// arrives during a round trip of the link, the frame that the pause frame waits for, the frame
    /// that the other end is sending, the frame that exceeds the threshold, and the pause frame.
    pub fn headroom_for(bits_per_sec: u64, delay: Duration, max_frame: u64) -> u64 {
        let round_trip_bits = 2.0 * delay.as_secs_f64() * bits_per_sec as f64;
        (round_trip_bits / 8.0).ceil() as u64 + 3 * (max_frame + FRAME_OVERHEAD) + MIN_FRAME
    }

    const fn is_lossless(&self, class: usize) -> bool {
        self.classes & 1 << class != 0
    }
}

/// Bytes of preamble, FCS and gap around a frame.
const FRAME_OVERHEAD: u64 = 24;
/// Bytes of the smallest frame with its overhead.
const MIN_FRAME: u64 = 84;

/// Counters of a port, or of one class of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that came in.
    pub rx_frames: u64,
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Frames that left.
    pub tx_frames: u64,
    /// Bytes that left.
    pub tx_bytes: u64,
    /// Frames that came in by this port and found no room.
    pub dropped_frames: u64,
    /// Bytes of those.
    pub dropped_bytes: u64,
    /// Frames that were to leave by this port and that the watchdog or a failed link discarded.
    pub discarded_frames: u64,
    /// Bytes of those.
    pub discarded_bytes: u64,
    /// Frames marked CE on the way to this port.
    pub marked_frames: u64,
    /// XOFF frames sent, with refreshes.
    pub xoff_sent: u64,
    /// XON frames sent.
    pub xon_sent: u64,
    /// Transitions of a class to paused.
    pub paused: u64,
    /// Times that the watchdog ended a pause.
    pub watchdog_expiries: u64,
}

impl std::ops::AddAssign for PortCounters {
    fn add_assign(&mut self, other: Self) {
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.dropped_frames += other.dropped_frames;
        self.dropped_bytes += other.dropped_bytes;
        self.discarded_frames += other.discarded_frames;
        self.discarded_bytes += other.discarded_bytes;
        self.marked_frames += other.marked_frames;
        self.xoff_sent += other.xoff_sent;
        self.xon_sent += other.xon_sent;
        self.paused += other.paused;
        self.watchdog_expiries += other.watchdog_expiries;
    }
}

/// What a port sends next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<F> {
    /// A frame.
    Frame(F),
    /// A pause frame.
    Pause(PfcFrame),
}

/// A switch with shared buffer, classes, ECN marking and PFC, without clock, links or routes.
///
/// The caller decides the port that a frame leaves by, and calls [`transmit`](Self::transmit) when
/// that port is free. A simulator and a switch between real interfaces drive the same type. `now`
/// must not go backwards.
///
/// # Example
/// A port that a frame of 1000 bytes overfills tells its other end to pause class 3.
/// ```
/// use roce_fabric::Instant;
/// use roce_fabric::{Output, PfcConfig, Switch, SwitchConfig, SwitchFrame};
///
/// struct Frame;
/// impl SwitchFrame for Frame {
///     fn len(&self) -> u64 { 1000 }
///     fn class(&self) -> usize { 3 }
///     fn is_ecn_capable(&self) -> bool { false }
///     fn mark_ce(&mut self) {}
/// }
///
/// let pfc = PfcConfig { classes: 1 << 3, xoff: Some(500), xon_offset: 0, headroom: 4000 };
/// let config = SwitchConfig { pfc: Some(pfc), ..SwitchConfig::default() };
/// let mut switch = Switch::new(config, &[1_000_000_000; 2], 1);
/// assert!(switch.receive(Instant::START, 0, 1, Frame));
/// let Some(Output::Pause(xoff)) = switch.transmit(Instant::START, 0) else { panic!() };
/// assert_eq!(xoff.quanta(3), Some(u16::MAX));
/// assert!(matches!(switch.transmit(Instant::START, 1), Some(Output::Frame(_))));
/// let Some(Output::Pause(xon)) = switch.transmit(Instant::START, 0) else { panic!() };
/// assert_eq!(xon.quanta(3), Some(0));
/// ```
#[derive(Debug)]
pub struct Switch<F> {
    config: SwitchConfig,
    buffer: SharedBuffer,
    ports: Vec<Port<F>>,
    /// Ports with a pause frame to send, until the caller asks.
    pausing: Vec<usize>,
    random: SplitMix64,
}

#[derive(Debug)]
struct Port<F> {
    output: OutputPort<F>,
    counters: [PortCounters; CLASSES],
    /// Time after which XOFF is sent again, for each class that the other end was told to pause.
    refresh_at: [Option<Instant>; CLASSES],
    /// Pause frame to send.
    pause: Option<PfcFrame>,
    /// Half of the longest pause.
    refresh: Duration,
}

impl<F: SwitchFrame> Switch<F> {
    /// Creates a switch with a port for each of these rates in bits per second. The marks follow
    /// from `seed`.
    pub fn new(config: SwitchConfig, bits_per_sec: &[u64], seed: u64) -> Self {
        let port = |rate: &u64| Port {
            output: OutputPort::new(*rate, config.scheduling),
            counters: Default::default(),
            refresh_at: [None; CLASSES],
            pause: None,
            refresh: PfcFrame::duration(u16::MAX / 2, *rate),
        };
        Self {
            buffer: SharedBuffer::new(config.buffer_bytes, config.alpha, bits_per_sec.len()),
            ports: bits_per_sec.iter().map(port).collect(),
            pausing: Vec::new(),
            random: SplitMix64::new(seed),
            config,
        }
    }

    /// Queues a frame that came in by port `from` for port `to`. Returns false if the frame found
    /// no room and is lost.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn receive(&mut self, now: Instant, from: usize, to: usize, mut frame: F) -> bool {
        let (len, class) = (frame.len(), frame.class() % CLASSES);
        let counters = &mut self.ports[from].counters[class];
        counters.rx_frames += 1;
        counters.rx_bytes += len;
        let dead = self.ports[to].output.ignores_pauses(class)
            && self.config.pfc.is_some_and(|pfc| pfc.is_lossless(class));
        if dead || !self.admit(now, from, to, class, len) {
            let counters = &mut self.ports[from].counters[class];
            counters.dropped_frames += 1;
            counters.dropped_bytes += len;
            return false;
        }
        if self.config.marking_point == MarkingPoint::Enqueue {
            let queued = self.ports[to].output.bytes(class) + len;
            self.mark(to, class, queued, &mut frame);
        }
        self.ports[to].output.push(now, class, frame, from);
        true
    }

    /// Returns what port `port` sends now; `None` if nothing waits or all that waits is paused.
    /// Pause frames come first.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn transmit(&mut self, now: Instant, port: usize) -> Option<Output<F>> {
        let this = &mut self.ports[port];
        if let Some(pause) = this.pause.take() {
            return Some(Output::Pause(pause));
        }
        let (mut frame, from, class) = this.output.pop(now)?;
        this.counters[class].tx_frames += 1;
        this.counters[class].tx_bytes += frame.len();
        if self.config.marking_point == MarkingPoint::Dequeue {
            let queued = this.output.bytes(class) + frame.len();
            self.mark(port, class, queued, &mut frame);
        }
        self.release(from, class, frame.len());
        Some(Output::Frame(frame))
    }

    /// Returns a port that has got a pause frame to send since the last call; `None` if there is no
    /// other. Each call of another function that takes `now` can add some.
    pub fn next_pausing_port(&mut self) -> Option<usize> {
        self.pausing.pop()
    }

    /// Applies a pause frame that came in by port `port`. Without PFC it changes nothing.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn handle_pause(&mut self, now: Instant, port: usize, pause: &PfcFrame) {
        if self.config.pfc.is_none() {
            return;
        }
        let port = &mut self.ports[port];
        let newly = port.output.pause(now, pause);
        for (class, counters) in port.counters.iter_mut().enumerate() {
            counters.paused += u64::from(newly >> class & 1);
        }
    }

    /// Returns when [`on_timeout`](Self::on_timeout) is due: a pause ends or is sent again, or the
    /// watchdog expires.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.config.pfc?;
        let refreshes = self.ports.iter().flat_map(|port| port.refresh_at).flatten();
        let resumes = self.ports.iter().filter_map(|port| port.output.next_resume());
        let watchdog = self.config.watchdog;
        let expiries = self.ports.iter().filter_map(|port| port.output.next_expiry(watchdog?));
        refreshes.chain(resumes).chain(expiries).min()
    }

    /// Ends pauses, sends them again, and drops queues that the watchdog finds.
    pub fn on_timeout(&mut self, now: Instant) {
        for port in 0..self.ports.len() {
            for class in 0..CLASSES {
                if self.ports[port].refresh_at[class].is_some_and(|at| at <= now) {
                    self.send_xoff(now, port, class);
                }
            }
            if let Some(limit) = self.config.watchdog {
                for class in self.ports[port].output.expire(now, limit) {
                    self.ports[port].counters[class].watchdog_expiries += 1;
                    self.discard_class(port, class);
                }
            }
            self.ports[port].output.end_pauses(now);
        }
    }

    /// Drops all frames that wait for a port, and forgets its pauses: its link failed.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn discard(&mut self, port: usize) {
        let mut resume = PfcFrame::new(self.config.address);
        for class in 0..CLASSES {
            resume = resume.with(class as u8, 0);
            self.discard_class(port, class);
        }
        let port = &mut self.ports[port];
        port.output.pause(Instant::START, &resume);
        port.refresh_at = [None; CLASSES];
        port.pause = None;
    }

    /// Returns the bytes of a class that wait for a port.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn queue_bytes(&self, port: usize, class: usize) -> u64 {
        self.ports[port].output.bytes(class % CLASSES)
    }

    /// Returns true if the other end of a port paused this class.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn is_paused(&self, now: Instant, port: usize, class: usize) -> bool {
        self.ports[port].output.is_paused(now, class % CLASSES)
    }

    /// Returns true if `port` has told its other end to pause this class.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn pauses_peer(&self, port: usize, class: usize) -> bool {
        self.ports[port].refresh_at[class % CLASSES].is_some()
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Returns the counters of a port, the sums over its classes.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn counters(&self, port: usize) -> PortCounters {
        let mut sum = PortCounters::default();
        for counters in self.ports[port].counters {
            sum += counters;
        }
        sum
    }

    /// Returns the counters of one class of a port.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn class_counters(&self, port: usize, class: usize) -> PortCounters {
        self.ports[port].counters[class % CLASSES]
    }

    /// Marks a frame for port `to` with the probability of its queue.
    fn mark(&mut self, to: usize, class: usize, queued: u64, frame: &mut F) {
        let Some(marking) = &self.config.marking[class] else { return };
        let probability = marking.probability(queued);
        if probability > 0.0 && frame.is_ecn_capable() && self.random.fraction() < probability {
            frame.mark_ce();
            self.ports[to].counters[class].marked_frames += 1;
        }
    }

    /// Takes buffer for a frame; false if there is none.
    fn admit(&mut self, now: Instant, from: usize, to: usize, class: usize, len: u64) -> bool {
        let threshold = self.buffer.threshold();
        let Some(pfc) = self.config.pfc.filter(|pfc| pfc.is_lossless(class)) else {
            let queued = self.ports[to].output.bytes(class);
            let room = queued + len <= threshold && len <= self.buffer.free();
            if room {
                self.buffer.take_shared(from, class, len);
            }
            return room;
        };
        let xoff = pfc.xoff.map_or(threshold, |xoff| xoff.min(threshold));
        let account = self.buffer.account(from, class);
        let fits = account.shared + len <= xoff && len <= self.buffer.free();
        if account.headroom == 0 && fits {
            self.buffer.take_shared(from, class, len);
            return true;
        }
        if self.ports[from].refresh_at[class].is_none() {
            self.send_xoff(now, from, class);
        }
        let room = account.headroom + len <= pfc.headroom;
        if room {
            self.buffer.take_headroom(from, class, len);
        }
        room
    }

    fn release(&mut self, from: usize, class: usize, len: u64) {
        self.buffer.release(from, class, len);
        let Some(pfc) = self.config.pfc else { return };
        if self.ports[from].refresh_at[class].is_none() {
            return;
        }
        let threshold = self.buffer.threshold();
        let xoff = pfc.xoff.map_or(threshold, |xoff| xoff.min(threshold));
        let account = self.buffer.account(from, class);
        if account.headroom == 0 && (account.shared == 0 || account.shared + pfc.xon_offset <= xoff)
        {
            let port = &mut self.ports[from];
            port.refresh_at[class] = None;
            port.counters[class].xon_sent += 1;
            self.send_pause(from, class, 0);
        }
    }

    fn send_xoff(&mut self, now: Instant, port: usize, class: usize) {
        let this = &mut self.ports[port];
        this.refresh_at[class] = Some(now + this.refresh);
        this.counters[class].xoff_sent += 1;
        self.send_pause(port, class, u16::MAX);
    }

    /// Adds a class to the pause frame that the port sends next.
    fn send_pause(&mut self, port: usize, class: usize, quanta: u16) {
        let this = &mut self.ports[port];
        let pause = this.pause.unwrap_or_else(|| {
            self.pausing.push(port);
            PfcFrame::new(self.config.address)
        });
        this.pause = Some(pause.with(class as u8, quanta));
    }

    fn discard_class(&mut self, port: usize, class: usize) {
        let frames: Vec<_> = self.ports[port].output.flush(class).collect();
        for (frame, from) in frames {
            let counters = &mut self.ports[port].counters[class];
            counters.discarded_frames += 1;
            counters.discarded_bytes += frame.len();
            self.release(from, class, frame.len());
        }
    }
}
