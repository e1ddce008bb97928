//! Properties of the fabric under random workloads.

use std::time::Duration;

use super::*;
use crate::test_frame::TestFrame;

const RATE: u64 = 10_000_000_000;
const DELAY: Duration = Duration::from_micros(1);
const MAX_FRAME: u64 = 4000;
const END: Instant = Instant::from_nanos(20_000_000);

fn lossless(buffer_bytes: u64) -> FabricConfig {
    let pfc = PfcConfig::for_link(3, RATE, DELAY, MAX_FRAME);
    FabricConfig {
        switch: SwitchConfig { buffer_bytes, pfc: Some(pfc), ..SwitchConfig::default() },
        ..FabricConfig::default()
    }
}

struct Run {
    fabric: Fabric<TestFrame>,
    delivered: Vec<(Instant, TestFrame)>,
}

impl Run {
    fn new(topology: Topology, config: FabricConfig) -> Self {
        Self { fabric: Fabric::new(topology, config), delivered: Vec::new() }
    }

    fn step(&mut self, until: Instant) -> Option<usize> {
        match self.fabric.step(until)? {
            FabricEvent::Arrived { host, frame } => {
                assert_eq!(host, frame.to);
                self.delivered.push((self.fabric.now(), frame));
                Some(usize::MAX)
            }
            FabricEvent::Ready { host } => Some(host),
            FabricEvent::Paused { .. } => Some(usize::MAX),
        }
    }

    /// Lets every host send frames to destinations of `next` until `stop`, then drains.
    fn saturate(&mut self, stop: Instant, mut next: impl FnMut(usize, u64) -> Option<TestFrame>) {
        let hosts = self.fabric.topology().hosts().len();
        let mut number = 0;
        let mut send = |fabric: &mut Fabric<TestFrame>, host: usize| {
            if let Some(frame) = next(host, number)
                && fabric.can_send(host, frame.class)
            {
                number += 1;
                fabric.send(host, TestFrame { number, ..frame });
            }
        };
        for host in 0..hosts {
            send(&mut self.fabric, host);
        }
        while let Some(host) = self.step(END) {
            if host < hosts && self.fabric.now() < stop {
                send(&mut self.fabric, host);
            }
        }
    }

    /// Asserts that every byte is delivered, lost under a counter, or in a queue.
    fn assert_conserved(&self, seed: u64) {
        let ends = self.fabric.counters();
        let inside = self.fabric.switch_counters();
        let mut queued = 0;
        for node in 0..self.fabric.topology().nodes() {
            if self.fabric.topology().is_switch(node) {
                let switch = self.fabric.switch(node);
                for port in 0..switch.ports() {
                    queued += (0..CLASSES).map(|it| switch.queue_bytes(port, it)).sum::<u64>();
                }
            }
        }
        let out = inside.tx_bytes + inside.dropped_bytes + inside.discarded_bytes + queued;
        assert_eq!(inside.rx_bytes, out, "seed {seed}");
        let gone = ends.lost_bytes + ends.unroutable_bytes;
        let gone = gone + inside.dropped_bytes + inside.discarded_bytes + queued;
        assert_eq!(ends.sent_bytes, ends.delivered_bytes + gone, "seed {seed}");
    }
}

fn random_frame(rng: &mut SplitMix64, host: usize, hosts: usize, class: usize) -> TestFrame {
    let other = rng.below(hosts as u64 - 1) as usize;
    // Half of all frames go to host 0, so that it is congested.
    let to = if rng.random_bool(0.5) || other == host { 0 } else { other };
    let to = if to == host { hosts - 1 } else { to };
    let len = 64 + rng.below(MAX_FRAME - 63);
    TestFrame { to, flow: rng.below(40), ..TestFrame::new(class, len) }
}

fn random_topology(rng: &mut SplitMix64) -> Topology {
    match rng.below(3) {
        0 => Topology::star(2 + rng.below(10) as usize, RATE, DELAY),
        1 => Topology::dumbbell(1 + rng.below(6) as usize, RATE, DELAY),
        _ => Topology::leaf_spine(2 + rng.below(3) as usize, 2, 3, RATE, DELAY),
    }
}

#[test]
fn pfc_with_headroom_loses_no_frame_under_random_workloads() {
    let mut pauses = 0;
    for seed in 0..30 {
        let mut rng = SplitMix64::new(seed);
        let topology = random_topology(&mut rng);
        let hosts = topology.hosts().len();
        let mut config = lossless(50_000 + rng.below(400_000));
        config.seed = seed;
        config.routing = if rng.random_bool(0.5) { Routing::Ecmp } else { Routing::Spray };
        let mut run = Run::new(topology, config);
        run.saturate(Instant::from_nanos(2_000_000), |host, _| {
            Some(random_frame(&mut rng, host, hosts, 3))
        });
        let counters = run.fabric.counters();
        assert_eq!(run.fabric.switch_counters().dropped_frames, 0, "seed {seed}");
        assert_eq!(counters.delivered_frames, counters.sent_frames, "seed {seed}");
        assert!(counters.delivered_frames > 100, "seed {seed}");
        run.assert_conserved(seed);
        pauses += counters.pause_frames;
    }
    assert!(pauses > 1000, "{pauses} pauses");
}

#[test]
fn the_headroom_of_a_link_is_needed_up_to_a_few_frames() {
    let loses = |headroom: u64| {
        let mut config = lossless(100_000);
        if let Some(pfc) = &mut config.switch.pfc {
            pfc.headroom = headroom;
        }
        let mut run = Run::new(Topology::star(5, RATE, DELAY), config);
        run.saturate(Instant::from_nanos(2_000_000), |host, _| {
            let len = if host == 0 { 64 } else { MAX_FRAME };
            Some(TestFrame { to: usize::from(host == 0), ..TestFrame::new(3, len) })
        });
        run.fabric.switch_counters().dropped_frames > 0
    };
    let wanted = PfcConfig::headroom_for(RATE, DELAY, MAX_FRAME);
    assert!(!loses(wanted));
    assert!(loses(wanted / 4));
}

#[test]
fn every_pause_ends_once_the_hosts_stop() {
    for seed in 0..10 {
        let mut rng = SplitMix64::new(seed);
        let topology = random_topology(&mut rng);
        let hosts = topology.hosts().len();
        let mut run = Run::new(topology, lossless(100_000));
        run.saturate(Instant::from_nanos(1_000_000), |host, _| {
            Some(random_frame(&mut rng, host, hosts, 3))
        });
        let now = run.fabric.now();
        for node in 0..run.fabric.topology().nodes() {
            if run.fabric.topology().is_switch(node) {
                let switch = run.fabric.switch(node);
                for port in 0..switch.ports() {
                    assert!(!switch.is_paused(now, port, 3), "seed {seed}");
                    assert!(!switch.pauses_peer(port, 3), "seed {seed}");
                }
            }
        }
        assert!((0..hosts).all(|host| run.fabric.can_send(host, 3)), "seed {seed}");
        let counters = run.fabric.switch_counters();
        assert!(counters.xon_sent <= counters.xoff_sent, "seed {seed}");
    }
}

#[test]
fn bytes_are_conserved_with_drops_losses_and_failing_links() {
    let mut dropped = 0;
    for seed in 0..20 {
        let mut rng = SplitMix64::new(seed);
        let topology = Topology::leaf_spine(3, 2, 3, RATE, DELAY);
        let config = FabricConfig {
            switch: SwitchConfig { buffer_bytes: 60_000, ..SwitchConfig::default() },
            routing: Routing::Spray,
            loss: 0.01,
            seed,
            ..FabricConfig::default()
        };
        let mut run = Run::new(topology, config);
        for phase in 0..6 {
            let until = Instant::from_nanos((phase + 1) * 200_000);
            for host in 0..9 {
                for _ in 0..40 {
                    run.fabric.send(host, random_frame(&mut rng, host, 9, 0));
                }
            }
            while run.step(until).is_some() {}
            run.fabric.set_link((phase / 2) as usize, phase % 2 == 1);
        }
        while run.step(END).is_some() {}
        run.assert_conserved(seed);
        assert!(run.fabric.counters().lost_frames > 0, "seed {seed}");
        dropped += run.fabric.switch_counters().dropped_frames;
    }
    assert!(dropped > 0);
}

#[test]
fn traffic_takes_the_remaining_paths_after_a_link_fails() {
    let topology = Topology::leaf_spine(2, 2, 1, RATE, DELAY);
    let mut run = Run::new(topology, FabricConfig::default());
    run.fabric.set_link(0, false); // leaf 0 to spine 0
    for flow in 0..100 {
        run.fabric.send(0, TestFrame { to: 1, flow, ..TestFrame::new(0, 1000) });
    }
    while run.step(END).is_some() {}
    assert_eq!(run.delivered.len(), 100);
    run.fabric.set_link(1, false);
    run.fabric.send(0, TestFrame { to: 1, ..TestFrame::new(0, 1000) });
    while run.step(Instant::from_nanos(END.as_nanos() * 2)).is_some() {}
    assert_eq!(run.fabric.counters().unroutable_frames, 1);
}

#[test]
fn ecmp_keeps_the_order_of_a_flow_and_spraying_uses_all_paths() {
    let reordered = |routing| {
        let topology = Topology::leaf_spine(2, 4, 4, RATE, DELAY);
        let config = FabricConfig { routing, ..FabricConfig::default() };
        let mut run = Run::new(topology, config);
        let mut rng = SplitMix64::new(5);
        for number in 0..400 {
            for host in 0..4 {
                let len = 64 + rng.below(MAX_FRAME);
                let to = 4 + host;
                let frame = TestFrame { to, flow: host as u64, number, ..TestFrame::new(0, len) };
                run.fabric.send(host, frame);
            }
        }
        while run.step(END).is_some() {}
        let spines_used = (2..6)
            .filter(|spine| {
                let switch = run.fabric.switch(*spine);
                (0..switch.ports()).any(|port| switch.counters(port).rx_frames > 0)
            })
            .count();
        let flow: Vec<_> =
            run.delivered.iter().filter(|it| it.1.to == 4).map(|it| it.1.number).collect();
        assert_eq!(flow.len(), 400);
        (flow.windows(2).filter(|pair| pair[0] > pair[1]).count(), spines_used)
    };
    assert_eq!(reordered(Routing::Ecmp).0, 0);
    let (reordered, spines_used) = reordered(Routing::Spray);
    assert!(reordered > 0);
    assert_eq!(spines_used, 4);
}

#[test]
fn only_frames_of_ecn_capable_flows_are_marked() {
    let marking = EcnMarking { kmin: 5_000, kmax: 50_000, pmax: 0.5 };
    let switch = SwitchConfig { marking: [Some(marking); CLASSES], ..SwitchConfig::default() };
    let config = FabricConfig { switch, ..FabricConfig::default() };
    let mut run = Run::new(Topology::star(4, RATE, DELAY), config);
    for host in 1..4 {
        for number in 0..300 {
            let frame = TestFrame { ecn_capable: host == 1, number, ..TestFrame::new(0, 1000) };
            run.fabric.send(host, TestFrame { flow: host as u64, ..frame });
        }
    }
    while run.step(END).is_some() {}
    let marked = |flow| run.delivered.iter().filter(|it| it.1.flow == flow && it.1.ce).count();
    assert_eq!(run.delivered.len(), 900);
    assert!(marked(1) > 100, "{} of 300", marked(1));
    assert_eq!((marked(2), marked(3)), (0, 0));
    assert_eq!(run.fabric.switch_counters().marked_frames, marked(1) as u64);
}

/// Two hosts per switch, each sends two switches further: every link of the ring carries twice
/// what it can.
fn saturate_ring(watchdog: Option<Duration>) -> Run {
    let mut config = lossless(60_000);
    config.switch.watchdog = watchdog;
    let mut run = Run::new(Topology::switch_ring(3, 2, RATE, DELAY), config);
    run.saturate(Instant::from_nanos(10_000_000), |host, _| {
        Some(TestFrame { to: (host + 4) % 6, ..TestFrame::new(3, 1000) })
    });
    run
}

#[test]
fn a_cycle_of_three_switches_deadlocks_and_the_watchdog_breaks_it() {
    let stuck = saturate_ring(None);
    let last = stuck.delivered.last().expect("some frames arrive").0;
    assert!(last < Instant::from_nanos(5_000_000), "the ring still moved at {last:?}");
    let now = stuck.fabric.now();
    for switch in 0..3 {
        let towards_next = stuck.fabric.port(switch, switch);
        assert!(stuck.fabric.switch(switch).is_paused(now, towards_next, 3), "switch {switch}");
    }
    assert_eq!(stuck.fabric.switch_counters().dropped_frames, 0);
    stuck.assert_conserved(0);

    let limit = Duration::from_micros(500);
    let broken = saturate_ring(Some(limit));
    let counters = broken.fabric.switch_counters();
    let moments: Vec<_> = broken.delivered.iter().map(|it| it.0).collect();
    // The cycle closes again under this load, and is broken again.
    assert!(moments.windows(2).all(|pair| pair[1] - pair[0] < 2 * limit));
    assert!(moments.last().is_some_and(|last| *last > Instant::from_nanos(9_000_000)));
    assert!(moments.len() > 5 * stuck.delivered.len());
    assert!(counters.watchdog_expiries > 1);
    let gone = counters.discarded_frames + counters.dropped_frames;
    assert_eq!(moments.len() as u64 + gone, broken.fabric.counters().sent_frames);
    broken.assert_conserved(0);
}

#[test]
fn a_host_that_pauses_forever_stops_a_victim_until_the_watchdog_expires() {
    let victims = |watchdog| {
        let mut config = lossless(100_000);
        config.switch.watchdog = watchdog;
        let mut run = Run::new(Topology::dumbbell(2, RATE, DELAY), config);
        let storm = roce_wire::PfcFrame::new(roce_wire::MacAddr::default()).with(3, u16::MAX);
        let mut number = 0;
        // Hosts 0 and 1 send to 2, which is stuck, and 3, the victim.
        for period in 0..20 {
            run.fabric.send_pause(2, storm);
            let until = Instant::from_nanos((period + 1) * 500_000);
            for host in [0, 1] {
                if run.fabric.can_send(host, 3) {
                    run.fabric.send(host, TestFrame { to: 2 + host, ..TestFrame::new(3, 1000) });
                }
            }
            while let Some(host) = run.step(until) {
                if host < 2 && run.fabric.can_send(host, 3) {
                    number += 1;
                    let frame = TestFrame::new(3, 1000);
                    run.fabric.send(host, TestFrame { to: 2 + host, number, ..frame });
                }
            }
        }
        run.delivered.iter().filter(|it| it.1.to == 3).count()
    };
    let (without, with) = (victims(None), victims(Some(Duration::from_micros(500))));
    assert!(without < 100, "the victim got {without} frames");
    assert!(with > 5000, "the victim got {with} frames");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let marking = EcnMarking { kmin: 5_000, kmax: 50_000, pmax: 0.5 };
        let mut config = lossless(200_000);
        config.switch.marking = [Some(marking); CLASSES];
        config.seed = seed;
        config.loss = 0.001;
        config.routing = Routing::Spray;
        let mut run = Run::new(Topology::leaf_spine(3, 2, 3, RATE, DELAY), config);
        let mut rng = SplitMix64::new(9);
        run.saturate(Instant::from_nanos(1_000_000), |host, _| {
            Some(TestFrame { ecn_capable: true, ..random_frame(&mut rng, host, 9, 3) })
        });
        (run.delivered, run.fabric.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
