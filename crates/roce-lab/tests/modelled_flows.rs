//! Modelled flows behave as engines do: the same senders over the same switch, both in virtual time.

use std::time::Duration;

use roce_fabric::{CLASSES, EcnMarking, FabricConfig, PfcConfig, SwitchConfig, Topology};
use roce_lab::{
    ConnectOptions, Connection, End, FabricWorld, Region, World, WorldConfig, default_options,
};
use roce_simnet::traffic::{CongestionModel, Simulation, SimulationConfig, incast};
use roce_transport::congestion::{
    CongestionAlgorithm, CongestionConfig, EcnParameters, SwiftParameters,
};
use roce_transport::{
    AccessFlags, AckTimeout, CompletionStatus, EndpointConfig, RemoteAddr, SendOperation, SendWr,
};
use roce_wire::PathMtu;

const RATE: u64 = 1_000_000_000;
const DELAY: Duration = Duration::from_micros(5);
const SENDERS: usize = 4;
const PAYLOAD: u32 = 1024;
const MESSAGE: u32 = 64 << 10;
/// Unfinished messages of a sender.
const OUTSTANDING: u64 = 2;
/// Node of the switch; its first link is the receiver's.
const SWITCH: usize = 0;
/// DSCP 26, ECT(0); class 3.
const TRAFFIC_CLASS: u8 = 106;
const DATA_CLASS: usize = 3;
/// DSCP of CNPs, and their class.
const CNP_CLASS: (u8, usize) = (48, 6);
const SAMPLE: Duration = Duration::from_micros(100);
const WARM_UP: Duration = Duration::from_millis(200);
const END: Duration = Duration::from_millis(500);

/// What the senders of one kind have reached since the warm-up.
#[derive(Debug)]
struct Reached {
    /// Payload in bits per second.
    goodput: f64,
    /// Median of the receiver's queue, in bytes.
    queue: f64,
}

fn switch(is_lossless: bool) -> SwitchConfig {
    let marking = EcnMarking { kmin: 20_000, kmax: 80_000, pmax: 0.2 };
    let pfc = PfcConfig::for_link(DATA_CLASS, RATE, DELAY, 1100);
    SwitchConfig {
        buffer_bytes: 300_000,
        alpha: 1.0,
        marking: [Some(marking); CLASSES],
        pfc: is_lossless.then_some(pfc),
        ..SwitchConfig::default()
    }
}

fn modelled(congestion: &CongestionConfig, is_lossless: bool) -> Reached {
    let window = OUTSTANDING * u64::from(MESSAGE);
    let packet = u64::from(PAYLOAD);
    let model = match congestion.algorithm {
        CongestionAlgorithm::Loss => CongestionModel::None,
        CongestionAlgorithm::Dcqcn => CongestionModel::Dcqcn(congestion.dcqcn),
        // The window, and the smallest one, of the engine.
        CongestionAlgorithm::Ecn => CongestionModel::Ecn(EcnParameters {
            packet,
            max_window: window,
            min_window: packet / 16,
            ..EcnParameters::default()
        }),
        CongestionAlgorithm::Swift => CongestionModel::Swift(SwiftParameters {
            base_target: congestion.swift_base_target,
            flow_scaling: congestion.swift_base_target,
            windows: [1.0 / 16.0, (window / packet) as f64],
            packet,
            ..SwiftParameters::default()
        }),
    };
    let cnp_interval = Duration::from_micros(congestion.np_min_time_between_cnps.into());
    let config = SimulationConfig {
        fabric: FabricConfig { switch: switch(is_lossless), ..FabricConfig::default() },
        congestion: model,
        payload: PAYLOAD,
        headers: 58,
        cnp_interval,
        recovery: roce_lab::Recovery::Keep,
        window,
        sample: SAMPLE,
        warm_up: WARM_UP,
        ..SimulationConfig::default()
    };
    let topology = Topology::star(SENDERS + 1, RATE, DELAY);
    let mut simulation = Simulation::new(topology, config, incast(SENDERS, u64::MAX));
    let delivered = |results: &roce_simnet::traffic::Results| -> u64 {
        results.flows.iter().map(|flow| flow.delivered).sum()
    };
    let before = delivered(&simulation.run(WARM_UP));
    let results = simulation.run(END);
    let bits = (delivered(&results) - before) as f64 * 8.0;
    Reached { goodput: bits / (END - WARM_UP).as_secs_f64(), queue: results.queue.p50 as f64 }
}

struct Sender {
    ends: [End; 2],
    source: Region,
    target: Region,
}

impl Sender {
    fn post(&self, world: &mut World) {
        let remote = RemoteAddr { addr: self.target.address, rkey: self.target.key };
        let data = [self.source.piece(0, MESSAGE)];
        let work = SendWr::new(0, SendOperation::write(remote), data).signaled();
        world.post_send(self.ends[0], work).expect("a place in the send queue");
    }
}

/// Engines, of hosts with the numbers that hosts have in [`modelled`]: host 0 receives.
fn engines(congestion: &CongestionConfig, is_lossless: bool) -> Reached {
    let names: Vec<String> = (0..=SENDERS).map(|host| format!("host {host}")).collect();
    let congestion = CongestionConfig { line_rate: RATE, ..*congestion };
    let mut world = World::new(
        &names,
        WorldConfig {
            keep_timeline: false,
            train_packets: 1,
            traffic_class: TRAFFIC_CLASS,
            endpoint: EndpointConfig { congestion, ..EndpointConfig::default() },
            fabric: Some(FabricWorld {
                topology: Topology::star(SENDERS + 1, RATE, DELAY),
                config: FabricConfig { switch: switch(is_lossless), ..FabricConfig::default() },
                class_of_dscp: vec![(TRAFFIC_CLASS >> 2, DATA_CLASS), CNP_CLASS],
            }),
            ..WorldConfig::default()
        },
    );
    let options = ConnectOptions {
        path_mtu: PathMtu::B1024,
        ack_timeout: AckTimeout::new(14).expect("below 32"),
        ..default_options()
    };
    let senders: Vec<Sender> = (1..=SENDERS)
        .map(|host| {
            let ends = Connection::open(&mut world, [host, 0], options).ends;
            let [source, target] = [host, 0].map(|host| {
                let memory = &mut world.host_mut(host).memory;
                memory.register_unkept(MESSAGE.into(), AccessFlags::ALL)
            });
            Sender { ends, source, target }
        })
        .collect();
    for sender in &senders {
        (0..OUTSTANDING).for_each(|_| sender.post(&mut world));
    }
    let began = world.now();
    let arrived = |world: &World| -> u64 {
        senders.iter().map(|it| world.hosts()[0].arrived_bytes(it.ends[1].qpn)).sum()
    };
    let (mut before, mut queue, mut sample_at) = (None, Vec::new(), began);
    while world.now() < began + END {
        if world.now() >= sample_at {
            sample_at = sample_at + SAMPLE;
            if world.now() >= began + WARM_UP {
                before.get_or_insert_with(|| arrived(&world));
                let fabric = world.fabric_mut().expect("the world has a fabric");
                let port = fabric.port(SWITCH, 0);
                queue.push(fabric.switch(SWITCH).queue_bytes(port, DATA_CLASS));
            }
        }
        let due = [Some(sample_at), world.next_event()].into_iter().flatten().min();
        world.run_until(due.expect("a sample is due"));
        for (place, sender) in senders.iter().enumerate() {
            while let Some((_, completion)) = world.host_mut(place + 1).poll_completion() {
                assert_eq!(completion.status, CompletionStatus::Success);
                sender.post(&mut world);
            }
        }
    }
    let bits = (arrived(&world) - before.expect("the warm-up ends")) as f64 * 8.0;
    queue.sort_unstable();
    Reached { goodput: bits / (END - WARM_UP).as_secs_f64(), queue: queue[queue.len() / 2] as f64 }
}

#[test]
fn modelled_flows_have_the_goodput_and_the_queue_of_engines() {
    for (spec, is_lossless) in [
        ("loss", true),
        ("ecn", false),
        ("ecn", true),
        ("dcqcn,paper,rp_ai_rate=5,rp_byte_reset=0,rp_time_reset=300,rp_dce_tcp_rtt=220", true),
        ("swift,swift_base_target=1000", false),
    ] {
        let congestion: CongestionConfig = spec.parse().expect("a spec");
        let (model, engines) =
            (modelled(&congestion, is_lossless), engines(&congestion, is_lossless));
        println!("{spec}: modelled {model:?}, engines {engines:?}");
        let goodput = model.goodput / engines.goodput;
        assert!((0.85..1.15).contains(&goodput), "{spec}: {goodput:.2} of the goodput");
        // Two packets more or less are the grain of a queue.
        let bound = (0.15 * engines.queue).max(2.0 * 1106.0);
        let apart = (model.queue - engines.queue).abs();
        assert!(apart <= bound, "{spec}: queues of {} and {}", model.queue, engines.queue);
    }
}
