//! The switch without clock and I/O.

use std::time::Duration;

use roce_fabric::{CLASSES, Fabric, FabricConfig, FabricEvent, Instant, PortCounters, Topology};
use roce_wire::{MacAddr, PfcFrame};

use crate::ethernet_frame::{ETHERNET_LEN, EthernetFrame, class_of};
use crate::histogram::Histogram;
use crate::mac_table::MacTable;
use crate::{ClassReport, LoopReport, PortReport, SwitchReport, SwitchSettings};

/// A switch that learns addresses, with the queues and lines of a [`Fabric`], without clock and I/O.
///
/// Time is the time since the start, and an argument. A frame from a host waits for the host's line,
/// which has the rate of the port and honours the pauses of the switch, as a network card does. The
/// class of a frame is the upper three bits of its DSCP; frames that are not IP have class 0. VLAN tags
/// are kept and decide nothing.
///
/// See the [crate's example](crate).
#[derive(Debug)]
pub struct Forwarder {
    fabric: Fabric<EthernetFrame>,
    addresses: MacTable,
    ports: Vec<Port>,
    longest_queue: Histogram,
    next_sample: Instant,
    /// Frames that hosts had received at the last sample.
    delivered: u64,
    lateness: Histogram,
    rounds: u64,
    given_up: Duration,
}

#[derive(Debug, Default)]
struct Port {
    dropped: u64,
    queues: [Histogram; CLASSES],
}

impl Forwarder {
    /// Creates a switch with so many ports, at time zero.
    pub fn new(settings: &SwitchSettings, ports: usize) -> Self {
        let topology = Topology::star(ports, settings.bits_per_sec, settings.delay);
        let config = FabricConfig {
            switch: settings.queues.clone(),
            seed: settings.seed,
            ..FabricConfig::default()
        };
        Self {
            fabric: Fabric::new(topology, config),
            addresses: MacTable::default(),
            ports: (0..ports).map(|_| Port::default()).collect(),
            longest_queue: Histogram::default(),
            next_sample: Instant::START + SAMPLE_INTERVAL,
            delivered: 0,
            lateness: Histogram::default(),
            rounds: 0,
            given_up: Duration::ZERO,
        }
    }

    /// Takes a frame from the host behind `port`, at the time of the last
    /// [`advance`](Self::advance). A frame with its VLAN tags, checksums completed.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn receive(&mut self, port: usize, frame: &[u8]) {
        if let Ok(pause) = PfcFrame::parse(frame) {
            self.fabric.send_pause(port, pause);
            return;
        }
        let Some(([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5])) = addresses(frame) else {
            return;
        };
        let (destination, source) =
            (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        if is_for_one_link(destination) {
            return;
        }
        let now = self.fabric.now();
        self.addresses.learn(now, source, port);
        let waiting = self.fabric.host_queue_bytes(port, class_of(frame));
        if waiting + frame.len() as u64 > MAX_HOST_QUEUE_BYTES {
            self.ports[port].dropped += 1;
            return;
        }
        match self.addresses.port(now, destination) {
            Some(to) if to == port => {}
            Some(to) => self.fabric.send(port, EthernetFrame::new(frame, to)),
            None => {
                for to in (0..self.ports.len()).filter(|to| *to != port) {
                    self.fabric.send(port, EthernetFrame::new(frame, to));
                }
            }
        }
    }

    /// Moves to the time `elapsed`, and hands each frame that leaves by a port to `send`, pause frames
    /// too. Time that would be more than [`MAX_CATCH_UP`](Self::MAX_CATCH_UP) after the next event
    /// is given up: the switch stands still for it, so that it never exceeds its rate for longer.
    pub fn advance(&mut self, elapsed: Duration, send: &mut dyn FnMut(usize, &[u8])) {
        self.rounds += 1;
        let mut until = Instant::START + elapsed.saturating_sub(self.given_up);
        if let Some(due) = self.fabric.next_event().filter(|due| *due < until) {
            self.lateness.add(nanos(until - due));
            let latest = due + Self::MAX_CATCH_UP;
            if until > latest {
                self.given_up += until - latest;
                until = latest;
            }
        }
        loop {
            let next = until.min(self.next_sample);
            while let Some(event) = self.fabric.step(next) {
                match event {
                    FabricEvent::Arrived { host, frame } => send(host, &frame.bytes),
                    FabricEvent::Paused { host, pause } => send(host, &pause.to_bytes()),
                    FabricEvent::Ready { .. } => {}
                }
            }
            if next < self.next_sample {
                return;
            }
            self.sample();
            self.next_sample = next + SAMPLE_INTERVAL;
            if self.fabric.next_event().is_none() && until > self.next_sample {
                // Nothing happens: no sample is lost.
                self.next_sample = until + SAMPLE_INTERVAL;
            }
        }
    }

    /// Longest time that the switch catches up after a late call.
    pub const MAX_CATCH_UP: Duration = Duration::from_millis(4);

    /// Returns the time of the next event; `None` if nothing happens before the next frame comes in.
    pub fn next_event(&self) -> Option<Duration> {
        self.fabric.next_event().map(|at| at - Instant::START + self.given_up)
    }

    /// Returns what the switch has done. The interfaces have no names yet.
    pub fn report(&self) -> SwitchReport {
        let switch = self.fabric.switch(SWITCH);
        let ports = self.ports.iter().enumerate().map(|(number, port)| PortReport {
            counters: switch.counters(number),
            host_dropped_frames: port.dropped,
            classes: (0..CLASSES)
                .map(|class| ClassReport {
                    class,
                    counters: switch.class_counters(number, class),
                    queue: port.queues[class].summary(),
                })
                .filter(|class| class.counters != PortCounters::default())
                .collect(),
            ..PortReport::default()
        });
        SwitchReport {
            elapsed: self.fabric.now() - Instant::START + self.given_up,
            ports: ports.collect(),
            longest_queue: self.longest_queue.summary(),
            timing: LoopReport {
                rounds: self.rounds,
                late_p99: Duration::from_nanos(self.lateness.percentile(0.99)),
                late_max: Duration::from_nanos(self.lateness.percentile(1.0)),
                given_up: self.given_up,
            },
        }
    }

    /// Notes the lengths of the queues, if frames have passed since the last sample or wait.
    fn sample(&mut self) {
        let switch = self.fabric.switch(SWITCH);
        let bytes = |port| (0..CLASSES).map(move |class| switch.queue_bytes(port, class));
        let longest = (0..self.ports.len()).flat_map(bytes).max().unwrap_or(0);
        let delivered = self.fabric.counters().delivered_frames;
        if longest == 0 && delivered == self.delivered {
            return;
        }
        self.delivered = delivered;
        self.longest_queue.add(longest);
        for (number, port) in self.ports.iter_mut().enumerate() {
            for (class, queue) in port.queues.iter_mut().enumerate() {
                queue.add(switch.queue_bytes(number, class));
            }
        }
    }
}

/// The only switch of a star is its first node, and its ports have the order of the hosts.
const SWITCH: usize = 0;

const SAMPLE_INTERVAL: Duration = Duration::from_micros(100);

/// Bytes that wait for a host's line, in each class. A host that honours pauses keeps far fewer.
const MAX_HOST_QUEUE_BYTES: u64 = 4 << 20;

/// Returns destination and source of a frame with a whole header.
fn addresses(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let [destination, source] = [0, 6].map(|at| frame.get(at..at + 6)?.first_chunk().copied());
    Some((destination?, source?)).filter(|_| frame.len() >= ETHERNET_LEN)
}

/// Returns true for the group addresses that no bridge forwards (01:80:c2:00:00:00 to 0f).
fn is_for_one_link(destination: MacAddr) -> bool {
    matches!(destination.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
