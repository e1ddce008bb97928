//! Drops, duplicates, delays, reorders, corrupts and marks packets.

mod activity;
mod clock;
mod direction;
mod log;
mod report;
mod script;
mod text;

use std::{fmt, io, path::PathBuf, time::Duration, time::Instant};

use roce_faults::{DeviceRule, FaultRule, FaultSentence, LinkRule, VerbRule};

pub use self::activity::{Activity, ActivityKind, ActivityLog};
pub use self::clock::monotonic;
use self::direction::FaultedDirection;
pub use self::log::FaultLog;
pub use self::report::{FaultEvent, FaultEventOf};
pub use self::script::FaultScript;
pub use self::text::FaultTextError;
use crate::{
    SegmentChecksum, Segmenter,
    device::{Direction, FrameDevice, RxFrame, TxFrame, forward},
    error::DeviceError,
};

/// Probability of each fault, 0.0 to 1.0, drawn independently for each packet. Values outside that
/// range count as the nearer bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// The packet is lost.
    pub drop: f64,
    /// It arrives twice.
    pub duplicate: f64,
    /// It is delayed by up to [`FaultConfig::max_delay`]; later packets overtake it.
    pub delay: f64,
    /// Up to [`FaultConfig::max_reorder`] later packets overtake it, or as many as follow within
    /// [`FaultConfig::reorder_hold`].
    pub reorder: f64,
    /// One bit behind the Ethernet header is flipped.
    pub corrupt: f64,
    /// It gets a congestion mark (CE), if its sender set ECT: see [`roce_wire::mark_congestion`].
    pub mark: f64,
}

/// Which faults occur, and how often. The default is none.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultConfig {
    /// Random seed.
    pub seed: u64,
    /// Rates for received packets.
    pub inbound: FaultRates,
    /// Rates for sent packets.
    pub outbound: FaultRates,
    /// Scripted faults. A packet that meets rules gets their faults, in their order, and no random
    /// ones.
    pub script: Vec<FaultRule>,
    /// Scripted faults of verbs, which the layer above the devices injects.
    pub verbs: Vec<VerbRule>,
    /// Scripted faults of links: what this end sends while its link is down is lost. Whether the interface loses
    /// its carrier is the work of the link's owner.
    pub links: Vec<LinkRule>,
    /// What devices lack, which is the work of the layer above them.
    pub devices: Vec<DeviceRule>,
    /// When the run began, on `CLOCK_MONOTONIC`: times of the script count from there. Default: when the script is
    /// made.
    pub began: Option<Duration>,
    /// Rank that sends, for the script.
    pub rank: Option<u32>,
    /// Rank that sends what is received, where there are two, for the script.
    pub peer_rank: Option<u32>,
    /// File that exists, to which each [`FaultEvent`] is appended as a line.
    pub log: Option<PathBuf>,
    /// File that exists, to which [`Activity`] of this end is appended, that of completions by the layer above the
    /// devices.
    pub activity: Option<PathBuf>,
    /// Maximum random delay. Default 5 ms.
    pub max_delay: Duration,
    /// Maximum number of packets that overtake a randomly reordered one. Default 3.
    pub max_reorder: u32,
    /// Time for which a reordered packet is held for packets to overtake it. Default 5 ms.
    pub reorder_hold: Duration,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            inbound: FaultRates::default(),
            outbound: FaultRates::default(),
            script: Vec::new(),
            verbs: Vec::new(),
            links: Vec::new(),
            devices: Vec::new(),
            began: None,
            rank: None,
            peer_rank: None,
            log: None,
            activity: None,
            max_delay: Duration::from_millis(5),
            max_reorder: 3,
            reorder_hold: Duration::from_millis(5),
        }
    }
}

impl FaultConfig {
    /// Returns true if packets may meet faults, or are noted.
    pub fn has_packet_faults(&self) -> bool {
        let none = FaultRates::default();
        let is_scripted = !self.script.is_empty() || !self.links.is_empty();
        is_scripted || self.activity.is_some() || self.inbound != none || self.outbound != none
    }

    /// Adds a scripted fault.
    pub fn add(&mut self, sentence: FaultSentence) {
        match sentence {
            FaultSentence::Packets(rule) => self.script.push(rule),
            FaultSentence::Verbs(rule) => self.verbs.push(rule),
            FaultSentence::Links(rule) => self.links.push(rule),
            FaultSentence::Devices(rule) => self.devices.push(rule),
        }
    }
}

/// A device around a device that injects faults. Trains are segmented first, so each packet of a
/// train has its own faults. A partial UDP checksum becomes zero, so that the ICRC and not the UDP
/// checksum detects corruption.
///
/// Held packets are due at [`FrameDevice::wake_at`]; [`FrameDevice::receive`] releases them in both
/// directions.
///
/// ```
/// use roce_io::{
///     FaultConfig, FaultInjector, FrameDevice, MemoryConfig, TxFrame, memory_pair,
/// };
/// use roce_faults::FaultRule;
///
/// let (here, mut there) = memory_pair(&MemoryConfig::default());
/// let lose_first = FaultRule::parse("drop sent packet 1").unwrap();
/// let config = FaultConfig { script: vec![lose_first], ..FaultConfig::default() };
/// let mut here = FaultInjector::new(here, &config);
/// let mut packets = [[1u8; 60], [2; 60]].into_iter();
/// here.transmit(&mut |slot| {
///     slot[..60].copy_from_slice(&packets.next()?);
///     Some(TxFrame::single(60))
/// })?;
/// there.receive(8, &mut |frame| assert_eq!(frame.bytes, [2; 60]))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FaultInjector<D> {
    inner: D,
    inbound: FaultedDirection,
    outbound: FaultedDirection,
    segmenter: Segmenter,
    slot: Vec<u8>,
    clock: Box<dyn FnMut() -> Instant + Send>,
    faults_received: bool,
}

impl<D: FrameDevice> FaultInjector<D> {
    /// Wraps `inner`, with a script of its own.
    pub fn new(inner: D, config: &FaultConfig) -> Self {
        Self::with_script(inner, config, FaultScript::new(config))
    }

    /// Wraps `inner`; its packets are counted in `script` with those of other devices.
    pub fn with_script(inner: D, config: &FaultConfig, script: FaultScript) -> Self {
        Self {
            inbound: FaultedDirection::new(config, Direction::In, script.clone()),
            outbound: FaultedDirection::new(config, Direction::Out, script),
            segmenter: Segmenter::default(),
            slot: vec![0; inner.capabilities().max_frame_len],
            clock: Box::new(Instant::now),
            faults_received: true,
            inner,
        }
    }

    /// Leaves received packets alone: their senders have injected the faults.
    #[must_use]
    pub fn of_sent(self) -> Self {
        Self { faults_received: false, ..self }
    }

    /// As this device, on a rail: rules that name another one leave its packets alone.
    #[must_use]
    pub fn on_rail(mut self, rail: Option<u32>) -> Self {
        self.inbound.set_rail(rail);
        self.outbound.set_rail(rail);
        self
    }

    /// As this device, with `clock` instead of the system's.
    #[must_use]
    pub fn with_clock(self, clock: impl FnMut() -> Instant + Send + 'static) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Lets the inner device record the next packets that are lost.
    fn record_lost(&mut self, direction: Direction) {
        let faulted = match direction {
            Direction::In => &mut self.inbound,
            Direction::Out => &mut self.outbound,
        };
        let inner = &mut self.inner;
        while faulted.pop_lost(|packet, comment| inner.record(direction, packet, comment)) {}
    }

    /// Sends the ready packets, as far as the inner device takes them.
    fn send_ready(&mut self) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            self.record_lost(Direction::Out);
            let ready = &mut self.outbound;
            // One call sends packets with the same comment.
            let comment = ready.next_comment();
            self.inner.set_comment(&comment);
            sent += self
                .inner
                .transmit(&mut |slot| ready.pop_into(slot, &comment).map(TxFrame::single))?;
            if !self.outbound.has_ready() || self.inner.has_unsent() {
                return Ok(sent);
            }
        }
    }
}

impl<D: FrameDevice> FrameDevice for FaultInjector<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let now = (self.clock)();
        self.outbound.release_due(now);
        if self.outbound.has_ready() {
            self.send_ready()?;
        }
        if !self.faults_received {
            return self.inner.receive(budget, on_frame);
        }
        self.inbound.release_due(now);
        if !self.inbound.has_ready() {
            let (direction, segmenter) = (&mut self.inbound, &mut self.segmenter);
            self.inner.receive(budget, &mut |frame| {
                segmenter.segment(frame, SegmentChecksum::Zero, &mut |packet| {
                    direction.admit(packet, now)
                });
            })?;
        }
        let mut count = 0;
        loop {
            self.record_lost(Direction::In);
            let inner = &mut self.inner;
            let is_lent = count < budget
                && self.inbound.pop_with(|packet, comment| {
                    inner.record(Direction::In, packet, comment);
                    on_frame(RxFrame::packet(packet));
                });
            if !is_lent {
                return Ok(count);
            }
            count += 1;
        }
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let now = (self.clock)();
        self.outbound.release_due(now);
        let mut sent = self.send_ready()?;
        // As a real device with a full queue: no frame is taken while packets are ready.
        while !self.outbound.has_ready() {
            let Some(tx_frame) = fill(&mut self.slot) else { break };
            let Some(frame) = RxFrame::from_tx(&self.slot, &tx_frame) else {
                return Err(DeviceError::BadFrame { what: "it is longer than its slot" }.into());
            };
            let direction = &mut self.outbound;
            self.segmenter
                .segment(frame, SegmentChecksum::Zero, &mut |packet| direction.admit(packet, now));
            sent += self.send_ready()?;
        }
        Ok(sent)
    }

    fn abandon_held(&mut self) {
        self.inbound.abandon_held();
        self.outbound.abandon_held();
        self.record_lost(Direction::In);
        self.record_lost(Direction::Out);
        self.inner.abandon_held();
    }

    fn has_unsent(&self) -> bool {
        self.outbound.has_ready() || self.inner.has_unsent()
    }

    fn wake_at(&self) -> Option<Instant> {
        // While the inner device's queue is full, ready packets wait for that device.
        let is_stuck = self.outbound.has_ready() && self.inner.has_unsent();
        let outbound = self.outbound.next_due().filter(|_| !is_stuck);
        [self.inbound.next_due(), outbound, self.inner.wake_at()].into_iter().flatten().min()
    }

    forward!(self, self.inner; capabilities, wait_fds, set_filter, set_mtu, set_addresses);

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.inner.counters();
        all.extend(INBOUND_NAMES.into_iter().zip(self.inbound.counters()));
        all.extend(OUTBOUND_NAMES.into_iter().zip(self.outbound.counters()));
        all
    }
}

impl<D: fmt::Debug> fmt::Debug for FaultInjector<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultInjector").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// In the order of [`FaultDirection::counters`].
const INBOUND_NAMES: [&str; 6] = [
    "fault_rcvd_dropped",
    "fault_rcvd_duplicated",
    "fault_rcvd_delayed",
    "fault_rcvd_reordered",
    "fault_rcvd_corrupted",
    "fault_rcvd_marked",
];
const OUTBOUND_NAMES: [&str; 6] = [
    "fault_sent_dropped",
    "fault_sent_duplicated",
    "fault_sent_delayed",
    "fault_sent_reordered",
    "fault_sent_corrupted",
    "fault_sent_marked",
];

#[cfg(test)]
mod tests;
