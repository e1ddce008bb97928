//! Senders with DCQCN into one link of a fabric, as theory has them: packets of one length without bytes,
//! no losses, no ACKs, and receivers that send CNPs at times which the engine does not have.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use roce_fabric::{Fabric, FabricConfig, FabricEvent, FabricFrame, Instant, SwitchFrame, Topology};
use roce_transport::congestion::{CongestionControl, Dcqcn, DcqcnParameters};

/// Bytes of a packet, which is all payload.
const PACKET_BYTES: u32 = 1000;
const CNP_BYTES: u32 = 78;
const DATA_CLASS: usize = 3;
const CNP_CLASS: usize = 6;
/// Smallest time between two CNPs of a flow.
const CNP_INTERVAL: Duration = Duration::from_micros(50);
/// Distance of the samples.
const SAMPLE: Duration = Duration::from_micros(5);

/// Time at which a receiver answers a marked packet by a CNP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CnpTiming {
    /// At once, unless a CNP left within the interval before: as the engine and network cards do.
    AtOnce,
    /// As `AtOnce`; marks within the interval cause the next CNP at its end, as in the DCQCN paper.
    Remembered,
    /// At once, unless a CNP left in the same slot of a clock that ticks once in each interval. The
    /// clocks of the flows differ. The rate of CNPs is then what fluid models of DCQCN assume:
    /// 1 − (1 − p)^n per interval for n packets that are marked with probability p.
    Slots,
}

/// Lengths of the receiver's queue in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueStats {
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

#[derive(Debug)]
struct Packet {
    /// Sending host of the flow.
    flow: usize,
    is_cnp: bool,
    is_marked: bool,
}

impl SwitchFrame for Packet {
    fn len(&self) -> u64 {
        u64::from(if self.is_cnp { CNP_BYTES } else { PACKET_BYTES })
    }

    fn class(&self) -> usize {
        if self.is_cnp { CNP_CLASS } else { DATA_CLASS }
    }

    fn is_ecn_capable(&self) -> bool {
        !self.is_cnp
    }

    fn mark_ce(&mut self) {
        self.is_marked = true;
    }
}

impl FabricFrame for Packet {
    fn destination(&self) -> usize {
        if self.is_cnp { self.flow } else { 0 }
    }

    fn flow_hash(&self) -> u64 {
        self.flow as u64
    }
}

/// A flow from a host to host 0, without end.
struct Flow {
    control: Dcqcn,
    /// Time in ns at which the last packet was due.
    last_send: Option<f64>,
    wakes_at: Option<Instant>,
    last_cnp: Option<Instant>,
    /// A packet was marked since the last CNP.
    is_marked: bool,
    cnp_slot: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Send(usize),
    Notify(usize),
    Sample,
}

/// Runs `flows` senders at line rate into host 0 and returns the mean rate of each in bits per second and
/// the lengths of the queue, both in the second half of `limit`.
pub(crate) fn run(
    flows: usize,
    bits_per_sec: u64,
    delay: Duration,
    config: FabricConfig,
    parameters: DcqcnParameters,
    cnp_timing: CnpTiming,
    limit: Duration,
) -> (Vec<f64>, QueueStats) {
    let topology = Topology::star(flows + 1, bits_per_sec, delay);
    let switch = (0..topology.nodes()).find(|node| topology.is_switch(*node)).expect("a switch");
    let fabric = Fabric::new(topology, FabricConfig { wire_overhead: 0, ..config });
    let flow = |_| Flow {
        control: Dcqcn::new(parameters, bits_per_sec),
        last_send: None,
        wakes_at: None,
        last_cnp: None,
        is_marked: false,
        cnp_slot: 0,
    };
    let mut model = Model {
        fabric,
        flows: (0..=flows).map(flow).collect(),
        timers: BinaryHeap::new(),
        bits_per_sec,
        cnp_timing,
    };
    model.timers.push(Reverse((Instant::START, Timer::Sample)));
    (1..=flows).for_each(|host| model.transmit(host));
    let (limit, half) = (Instant::START + limit, Instant::START + limit / 2);
    let (mut rates, mut lengths) = (vec![0.0; flows], Vec::new());
    while model.fabric.now() < limit {
        let until = model.timers.peek().map_or(limit, |Reverse((at, _))| limit.min(*at));
        if let Some(event) = model.fabric.step(until) {
            model.handle(event);
            continue;
        }
        let now = model.fabric.now();
        while let Some(Reverse((_, timer))) = model.timers.pop_if_due(now) {
            match timer {
                Timer::Send(host) => {
                    if model.flows[host].wakes_at.is_some_and(|at| at <= now) {
                        model.flows[host].wakes_at = None;
                        model.transmit(host);
                    }
                }
                Timer::Notify(host) => model.notify(host),
                Timer::Sample => {
                    model.timers.push(Reverse((now + SAMPLE, Timer::Sample)));
                    if now >= half {
                        let port = model.fabric.port(switch, 0);
                        lengths.push(model.fabric.switch(switch).queue_bytes(port, DATA_CLASS));
                        for (rate, flow) in rates.iter_mut().zip(&model.flows[1..]) {
                            *rate += flow.rate(bits_per_sec);
                        }
                    }
                }
            }
        }
    }
    let count = lengths.len() as f64;
    let mean = lengths.iter().sum::<u64>() as f64 / count;
    let squares: f64 = lengths.iter().map(|it| (*it as f64 - mean).powi(2)).sum();
    let rates = rates.into_iter().map(|rate| rate / count).collect();
    (rates, QueueStats { mean, deviation: (squares / count).sqrt() })
}

struct Model {
    fabric: Fabric<Packet>,
    /// By sending host; that of host 0 is not used.
    flows: Vec<Flow>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    bits_per_sec: u64,
    cnp_timing: CnpTiming,
}

trait PopIfDue {
    fn pop_if_due(&mut self, now: Instant) -> Option<Reverse<(Instant, Timer)>>;
}

impl PopIfDue for BinaryHeap<Reverse<(Instant, Timer)>> {
    fn pop_if_due(&mut self, now: Instant) -> Option<Reverse<(Instant, Timer)>> {
        self.peek().is_some_and(|Reverse((at, _))| *at <= now).then(|| self.pop()).flatten()
    }
}

impl Flow {
    fn rate(&self, line_rate: u64) -> f64 {
        self.control.rate().unwrap_or(line_rate) as f64
    }
}

impl Model {
    fn handle(&mut self, event: FabricEvent<Packet>) {
        match event {
            FabricEvent::Ready { host } => self.transmit(host),
            FabricEvent::Arrived { frame: Packet { flow, is_cnp: true, .. }, .. } => {
                let now = self.instant();
                self.flows[flow].control.on_cnp(now);
            }
            FabricEvent::Arrived { frame: Packet { flow, is_marked: true, .. }, .. } => {
                self.receive_marked(flow);
            }
            FabricEvent::Arrived { .. } | FabricEvent::Paused { .. } => {}
        }
    }

    fn instant(&self) -> Instant {
        self.fabric.now()
    }

    /// Sends the flow's next packet if it is due and the link is free.
    fn transmit(&mut self, host: usize) {
        if host == 0 || !self.fabric.can_send(host, DATA_CLASS) {
            return;
        }
        let (now, instant) = (self.fabric.now(), self.instant());
        let nanos = now.as_nanos() as f64;
        let flow = &mut self.flows[host];
        flow.control.on_timer(instant);
        let interval = f64::from(PACKET_BYTES) * 8e9 / flow.rate(self.bits_per_sec);
        let due = flow.last_send.map_or(nanos, |last| last + interval);
        if due > nanos {
            let due = Instant::from_nanos(due.ceil() as u64);
            let change = flow.control.next_timer();
            let wake = change.map_or(due, |at| at.min(due));
            if flow.wakes_at.is_none_or(|before| before > wake) {
                flow.wakes_at = Some(wake);
                self.timers.push(Reverse((wake, Timer::Send(host))));
            }
            return;
        }
        // A flow that could not send catches up one packet at most.
        flow.last_send = Some(due.max(nanos - interval));
        flow.control.on_sent(instant, PACKET_BYTES.into());
        self.fabric.send(host, Packet { flow: host, is_cnp: false, is_marked: false });
    }

    fn receive_marked(&mut self, host: usize) {
        let now = self.fabric.now();
        let flow = &mut self.flows[host];
        let is_late = flow.last_cnp.is_none_or(|at| now >= at + CNP_INTERVAL);
        let is_due = match self.cnp_timing {
            CnpTiming::Slots => {
                let length = CNP_INTERVAL.as_nanos() as u64;
                // The multiples of the golden ratio spread evenly, however many there are.
                let phase = ((host - 1) as f64 * 0.618_034).fract() * length as f64;
                let slot = (now.as_nanos() + phase as u64) / length + 1;
                std::mem::replace(&mut flow.cnp_slot, slot) != slot
            }
            _ => !flow.is_marked && is_late,
        };
        if is_due {
            self.send_cnp(host);
        } else if self.cnp_timing == CnpTiming::Remembered && !flow.is_marked {
            flow.is_marked = true;
            let at = flow.last_cnp.map_or(now, |at| at + CNP_INTERVAL);
            self.timers.push(Reverse((at, Timer::Notify(host))));
        }
    }

    /// Sends the CNP for the marks since the last one.
    fn notify(&mut self, host: usize) {
        self.flows[host].is_marked = false;
        self.send_cnp(host);
    }

    fn send_cnp(&mut self, host: usize) {
        self.flows[host].last_cnp = Some(self.fabric.now());
        self.fabric.send(0, Packet { flow: host, is_cnp: true, is_marked: false });
    }
}
