//! The same scenarios in virtual time: the same engines over the same switch.

use std::time::Duration;

use roce_fabric::{FabricConfig, Topology};
use roce_lab::{Connection, End, FabricWorld, World, WorldConfig, default_options};
use roce_simnet::{ConnectOptions, Region};
use roce_transport::congestion::CongestionConfig;
use roce_transport::{
    AccessFlags, AckTimeout, CompletionStatus, EndpointConfig, Instant, RemoteAddr, SendOperation,
    SendWr,
};
use roce_wire::PathMtu;

use super::network::{DATA_CLASS, DELAY, Failure, switch_of};
use super::outcome::percentile;
use super::{Outcome, Packets, Scenario};

/// Distance of the samples of the queue.
const SAMPLE: Duration = Duration::from_micros(100);
/// DSCP of CNPs, and their class in the switch.
const CNP_CLASS: (u8, usize) = (48, 6);

/// A flow of WRITEs.
struct Flow {
    ends: [End; 2],
    source: Region,
    target: Region,
    /// When the WRITEs under way were posted, by their number.
    posted: Vec<Option<Instant>>,
    bytes: u64,
    latencies: Vec<Duration>,
    failed: u64,
}

impl Flow {
    fn new(world: &mut World, hosts: [usize; 2], options: ConnectOptions) -> Self {
        let ends = Connection::open(world, hosts, options).ends;
        let length = Scenario::MESSAGE_BYTES as u64;
        let [source, target] =
            hosts.map(|host| world.hosts[host].memory.register_unkept(length, AccessFlags::ALL));
        let posted = vec![None; Scenario::OUTSTANDING];
        Self { ends, source, target, posted, bytes: 0, latencies: Vec::new(), failed: 0 }
    }

    fn post(&mut self, world: &mut World, number: usize) -> Result<(), Failure> {
        let to = RemoteAddr { addr: self.target.addr, rkey: self.target.key };
        let data = [self.source.piece(0, Scenario::MESSAGE_BYTES as u32)];
        let work = SendWr::new(number as u64, SendOperation::write(to), data).signaled();
        self.posted[number] = Some(world.now());
        world.post_send(self.ends[0], work).map_err(Failure::from)
    }
}

impl Scenario {
    /// Runs it in virtual time. The victim's messages leave at equal intervals.
    ///
    /// # Errors
    /// For [`Fabric::Tbf`](super::Fabric::Tbf), which is not simulated.
    pub fn simulate(&self) -> Result<Outcome, Failure> {
        if !self.fabric.is_simulated() {
            return Err("tbf is not simulated".into());
        }
        let mut world = self.world();
        // As of roce-verbs.
        let ack_timeout = AckTimeout::new(14).unwrap_or(default_options().ack_timeout);
        let options = ConnectOptions { path_mtu: PathMtu::B1024, ack_timeout, ..default_options() };
        let mut flows: Vec<Flow> =
            (0..self.senders).map(|n| Flow::new(&mut world, [2 + n, 0], options)).collect();
        let victim = flows.len();
        flows.push(Flow::new(&mut world, [2, 1], options));
        let (from, to) = (world.now() + self.warm_up, world.now() + self.warm_up + self.time);
        let bits = Self::MESSAGE_BYTES as f64 * 8.0;
        let interval = Duration::from_secs_f64(bits / (self.rate as f64 * Self::VICTIM_SHARE));
        for flow in &mut flows[..victim] {
            (0..Self::OUTSTANDING).try_for_each(|number| flow.post(&mut world, number))?;
        }
        let (mut victim_at, mut sample_at) = (world.now(), world.now());
        let mut queue = Vec::new();
        while world.now() < to {
            if victim_at <= world.now() && flows[victim].posted[0].is_none() {
                flows[victim].post(&mut world, 0)?;
                victim_at = (victim_at + interval).max(world.now());
            }
            if sample_at <= world.now() {
                sample_at += SAMPLE;
                queue.push(Duration::from_nanos(queue_bytes(&mut world)));
            }
            let due = [Some(sample_at), world.next_event()].into_iter().flatten().min();
            world.run_until(due.unwrap_or(to).min(to));
            for host in 0..world.hosts.len() {
                while let Some((_, completion)) = world.hosts[host].poll_completion() {
                    let place =
                        flows.iter().position(|it| it.ends[0] == End { host, qpn: completion.qpn });
                    let Some(place) = place else { continue };
                    let (flow, number) = (&mut flows[place], completion.wr_id as usize);
                    let Some(posted) = flow.posted[number].take() else { continue };
                    if completion.status != CompletionStatus::Success {
                        flow.failed += 1;
                        continue;
                    }
                    let now = world.now();
                    if now >= from {
                        flow.bytes += Self::MESSAGE_BYTES as u64;
                        flow.latencies.push(now.saturating_since(posted));
                    }
                    if place != victim {
                        flow.post(&mut world, number)?;
                    }
                }
            }
        }
        let outcome = self.outcome_of(&mut world, &flows, queue);
        Ok(Outcome { packets: packets_at_rest(&mut world), ..outcome })
    }

    fn world(&self) -> World {
        let mut topology = Topology::new();
        let hosts = self.senders + 2;
        (0..hosts).for_each(|_| _ = topology.add_host());
        let switch = topology.add_switch();
        for host in 0..hosts {
            topology.connect(switch, host, self.rate, DELAY);
        }
        let congestion = CongestionConfig { line_rate: self.rate, ..self.control.config() };
        let names: Vec<String> = (0..hosts).map(|host| format!("host {host}")).collect();
        let config = WorldConfig {
            keep_timeline: false,
            train_packets: 1,
            traffic_class: self.traffic_class,
            endpoint: EndpointConfig { congestion, ..EndpointConfig::default() },
            fabric: Some(FabricWorld {
                topology,
                config: FabricConfig { switch: switch_of(self), ..FabricConfig::default() },
                class_of_dscp: vec![(self.traffic_class >> 2, DATA_CLASS), CNP_CLASS],
            }),
            ..WorldConfig::default()
        };
        World::new(&names, config)
    }

    fn outcome_of(&self, world: &mut World, flows: &[Flow], mut queue: Vec<Duration>) -> Outcome {
        let (senders, victim) = flows.split_at(self.senders);
        let seconds = self.time.as_secs_f64();
        let rate = |flow: &Flow| flow.bytes as f64 * 8.0 / seconds / 1e6;
        let rates: Vec<f64> = senders.iter().map(rate).collect();
        let mut latencies: Vec<Duration> =
            senders.iter().flat_map(|it| &it.latencies).copied().collect();
        latencies.sort_unstable();
        queue.sort_unstable();
        let millis = |share| percentile(&latencies, share).as_secs_f64() * 1e3;
        let kilobytes = |share| percentile(&queue, share).as_nanos() as f64 / 1e3;
        let count = |host, name| count(world, host, name);
        let of_senders = |name| (0..self.senders).map(|n| count(2 + n, name)).sum::<u64>() as f64;
        let (resent, sent) = (of_senders("resent_pkts"), of_senders("sent_pkts"));
        let (marks, cnps) = (count(0, "np_ecn_marked_roce_packets"), count(0, "np_cnp_sent"));
        let switches = world.fabric_mut().map(|it| it.switch_counters()).unwrap_or_default();
        Outcome {
            goodput: rates.iter().sum(),
            fairness: super::scenario::fairness(&rates),
            latency_p50: millis(0.5),
            latency_p99: millis(0.99),
            resent: 100.0 * resent / sent.max(1.0),
            marks: marks as f64,
            cnps: cnps as f64,
            drops: switches.dropped_frames as f64,
            pauses: switches.xoff_sent as f64,
            queue_p50: kilobytes(0.5),
            queue_p99: kilobytes(0.99),
            victim: rate(&victim[0]),
            failed: flows.iter().map(|it| it.failed).sum::<u64>() as f64,
            packets: Packets::default(),
        }
    }
}

/// Runs until no packet is under way and no request is outstanding, for a bounded time. Returns what
/// became of the packets.
fn packets_at_rest(world: &mut World) -> Packets {
    let deadline = world.now() + MAX_FINISH;
    while !world.is_at_rest() && world.now() < deadline && world.step() {}
    let hosts = 0..world.hosts.len();
    let of_all = |name| hosts.clone().map(|host| count(world, host, name)).sum::<u64>() as f64;
    let (sent, delivered) = (of_all("sent_pkts"), of_all("rcvd_pkts"));
    let switches = world.fabric_mut().map(|it| it.switch_counters()).unwrap_or_default();
    let dropped = switches.dropped_frames + switches.discarded_frames;
    let queued = switches.rx_frames.saturating_sub(switches.tx_frames + dropped);
    Packets { sent, delivered, dropped: dropped as f64, queued: queued as f64 }
}

/// Returns a counter of a host's engine.
fn count(world: &World, host: usize, name: &str) -> u64 {
    let of_name = world.hosts[host].counters().iter().find(|(known, _)| *known == name);
    of_name.map_or(0, |(_, count)| count)
}

/// Longest wait for the WRITEs under way at the end.
const MAX_FINISH: Duration = Duration::from_secs(5);

/// Returns the bytes that wait for the receiver.
fn queue_bytes(world: &mut World) -> u64 {
    let switch = world.hosts.len();
    let Some(fabric) = world.fabric_mut() else { return 0 };
    fabric.switch(switch).queue_bytes(fabric.port(switch, 0), DATA_CLASS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Control, Fabric};

    fn simulated(senders: usize, control: &str, fabric: Fabric) -> Outcome {
        let control = Control::named(control).unwrap();
        let scenario = Scenario {
            warm_up: Duration::from_millis(300),
            time: Duration::from_millis(700),
            ..Scenario::new(senders, control, fabric)
        };
        scenario.simulate().unwrap()
    }

    #[test]
    fn pauses_replace_drops_and_marks_shorten_the_queue() {
        let lossy = simulated(4, "loss", Fabric::Lossy);
        let lossless = simulated(4, "loss", Fabric::Lossless);
        let marked = simulated(4, "ecn", Fabric::Lossy);
        assert!(lossy.drops > 0.0 && lossy.pauses == 0.0, "{lossy:?}");
        assert!(lossless.drops == 0.0 && lossless.pauses > 0.0, "{lossless:?}");
        assert!(marked.queue_p50 < lossy.queue_p50 / 2.0, "{marked:?} {lossy:?}");
        for outcome in [lossy, lossless, marked] {
            assert!((160.0..200.0).contains(&outcome.goodput), "{outcome:?}");
            assert_eq!(outcome.failed, 0.0);
        }
    }

    #[test]
    fn every_packet_is_delivered_dropped_or_queued() {
        for (control, fabric) in [("loss", Fabric::Lossy), ("dcqcn-scaled", Fabric::Lossless)] {
            let outcome = simulated(8, control, fabric);
            let Packets { sent, delivered, dropped, queued } = outcome.packets;
            assert_eq!(sent, delivered + dropped + queued, "{control}: {outcome:?}");
            assert!(delivered > 10_000.0, "{control}: {outcome:?}");
            assert_eq!(dropped > 0.0, fabric == Fabric::Lossy, "{control}: {outcome:?}");
        }
    }

    #[test]
    fn packets_without_ect_are_not_marked_and_cause_no_cnps() {
        let control = Control::named("ecn").unwrap();
        let scenario = Scenario {
            traffic_class: 104,
            warm_up: Duration::from_millis(100),
            time: Duration::from_millis(300),
            ..Scenario::new(4, control, Fabric::Lossy)
        };
        let outcome = scenario.simulate().unwrap();
        assert!(outcome.drops > 0.0, "{outcome:?}");
        assert_eq!((outcome.marks, outcome.cnps), (0.0, 0.0), "{outcome:?}");
    }

    #[test]
    fn scaled_dcqcn_uses_the_link_and_not_the_buffer_however_many_send() {
        for (mbits, senders) in [(200, 4), (200, 8), (200, 32), (500, 8)] {
            let control = Control::named("dcqcn-scaled").unwrap();
            let scenario = Scenario {
                rate: mbits * 1_000_000,
                time: Duration::from_secs(1),
                ..Scenario::new(senders, control, Fabric::Lossy)
            };
            let outcome = scenario.simulate().unwrap();
            // A packet with 1024 bytes of payload takes 1106 on a line.
            let full = mbits as f64 * 1024.0 / 1106.0;
            assert!(outcome.goodput > 0.9 * full, "{senders} at {mbits} Mbit/s: {outcome:?}");
            let kmax = Scenario::MARKING.1 as f64 / 1e3;
            assert!(outcome.queue_p50 < kmax, "{senders} at {mbits} Mbit/s: {outcome:?}");
        }
    }

    #[test]
    fn the_same_scenario_has_the_same_outcome() {
        let run = || simulated(2, "dcqcn-scaled", Fabric::Lossless);
        assert_eq!(run(), run());
    }
}
