//! Loses, doubles, delays, reorders and spoils packets on purpose.

use std::{io, os::fd::BorrowedFd, time::Duration, time::Instant};

use crate::{
    Filter,
    device::{Direction, FrameDevice, Limits, Outgoing, Received},
};

/// What may happen to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It vanishes.
    Drop,
    /// It comes twice.
    Duplicate,
    /// It comes later by this much; packets behind it overtake it.
    Delay(Duration),
    /// It comes after this many packets that followed it (or after
    /// [`FaultConfig::reorder_hold`] when fewer follow).
    Reorder(u32),
    /// One bit of it, behind the Ethernet header, is turned over.
    Corrupt,
}

/// How likely each fault is, each from 0 (never) to 1 (always), thrown for each packet alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Odds {
    /// [`Fault::Drop`].
    pub drop: f64,
    /// [`Fault::Duplicate`].
    pub duplicate: f64,
    /// [`Fault::Delay`], by up to [`FaultConfig::max_delay`].
    pub delay: f64,
    /// [`Fault::Reorder`], behind up to [`FaultConfig::max_reorder`] packets.
    pub reorder: f64,
    /// [`Fault::Corrupt`].
    pub corrupt: f64,
}

/// A fault for one packet, named by its place: it replaces the dice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptedFault {
    /// Which way the packet goes.
    pub direction: Direction,
    /// Its number among the packets that way, from 0.
    pub packet: u64,
    /// What happens to it.
    pub fault: Fault,
}

/// What goes wrong, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultConfig {
    /// Makes the dice repeatable.
    pub seed: u64,
    /// For packets received.
    pub inbound: Odds,
    /// For packets sent.
    pub outbound: Odds,
    /// Faults by script.
    pub script: Vec<ScriptedFault>,
    /// The longest delay by dice.
    pub max_delay: Duration,
    /// The most packets that overtake one reordered by dice.
    pub max_reorder: u32,
    /// How long a reordered packet waits for packets to overtake it.
    pub reorder_hold: Duration,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            inbound: Odds::default(),
            outbound: Odds::default(),
            script: Vec::new(),
            max_delay: Duration::from_millis(5),
            max_reorder: 3,
            reorder_hold: Duration::from_millis(5),
        }
    }
}

/// A device around a device that does harm to packets. Trains are cut first, so each packet of a
/// train has its own fate.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    _config: FaultConfig,
}

impl<D: FrameDevice> Faulty<D> {
    /// Harms what `inner` carries.
    pub fn new(inner: D, config: FaultConfig) -> Self {
        Self { inner, _config: config }
    }
}

impl<D: FrameDevice> FrameDevice for Faulty<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(Received<'_>),
    ) -> io::Result<usize> {
        self.inner.receive(budget, on_frame)
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Outgoing>,
    ) -> io::Result<usize> {
        self.inner.transmit(fill)
    }
    fn has_unsent(&self) -> bool {
        self.inner.has_unsent()
    }
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.wait_fds()
    }
    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.inner.set_filter(filter)
    }
    fn refresh_limits(&mut self) -> io::Result<Limits> {
        self.inner.refresh_limits()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}
