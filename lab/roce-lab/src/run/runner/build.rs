//! Builds the world of a lesson.

use std::collections::{BTreeMap, HashMap};

use roce_ring::{DataType, Operation, ReduceOp, RingConfig};
use roce_transport::{AccessFlags, AckTimeout, EndpointConfig, WindowConfig};
use roce_wire::{PathMtu, Psn, RnrTimer, Service};

use super::{Runner, out_of_range, place_of};
use crate::lesson::{
    ConnectionData, Lesson, LessonError, RegionData, Right, RingData, ServiceName, WorldData,
};
use crate::ring::{Ring, RingOptions};
use roce_fabric::LinkConfig;
use roce_simnet::{ConnectOptions, Connection, Region, World, WorldConfig, default_options};

impl Runner {
    pub(super) fn build(lesson: &Lesson, lost: &[usize]) -> Result<Self, LessonError> {
        let WorldData { hosts, delay, rate, window, ect } = &lesson.world;
        if !(2..=64).contains(&hosts.len()) {
            return Err(out_of_range("the number of hosts", hosts.len()));
        }
        // The lessons show go-back-N, which every responder understands.
        let mut endpoint = EndpointConfig { max_reorder_bytes: 0, ..EndpointConfig::default() };
        if let Some(packets) = *window {
            endpoint.window =
                WindowConfig { initial_packets: packets, max_packets: packets, ..endpoint.window };
        }
        let bits_per_sec = rate.map(|rate| rate.bits_per_sec());
        let config = WorldConfig {
            link: LinkConfig { bits_per_sec, ..LinkConfig::with_latency(delay.duration()) },
            endpoint,
            lost_packets: lost.to_vec(),
            traffic_class: if *ect { 0b10 } else { 0 },
            ..WorldConfig::default()
        };
        let mut world = World::new(hosts, config);
        let mut regions = HashMap::new();
        for data in &lesson.region {
            let host = place_of(&world, &data.host, 0)?;
            let region = register(&mut world, host, data);
            regions.insert(data.name.clone(), (host, region));
        }
        let ConnectionData { queue_pairs, shared_receives, open, .. } = lesson.connection;
        let srq = shared_receives.then(|| world.create_srq(1));
        if !(1..=16).contains(&queue_pairs) {
            return Err(out_of_range("queue-pairs", queue_pairs));
        }
        let mut connections = Vec::new();
        let count = if lesson.ring.is_some() { 0 } else { queue_pairs };
        for _ in 0..count {
            let options = options(&lesson.connection)?;
            let connection = Connection::create_sharing(&mut world, [0, 1], options, srq);
            if open {
                connection.bring_up(&mut world);
            }
            connections.push(connection);
        }
        let mut ring = None;
        let elements = lesson.ring.map_or(0, |data| data.elements);
        if let Some(data) = lesson.ring {
            ring = Some(build_ring(&mut world, &data, options(&lesson.connection)?)?);
        }
        let chunks = Vec::new();
        let mut runner = Self {
            world,
            connections,
            srq,
            ring,
            elements,
            chunks,
            regions,
            fabric: lesson.fabric.clone(),
            section_fabric: toml::Table::new(),
            trials: BTreeMap::new(),
            section_trials: Vec::new(),
            work: 0,
            section: 0,
        };
        runner.record_chunks();
        Ok(runner)
    }
}

/// Builds a ring in which rank r contributes 10^r to every element.
fn build_ring(
    world: &mut World,
    data: &RingData,
    connection: ConnectOptions,
) -> Result<Ring, LessonError> {
    let refused = |why: crate::RingError| LessonError::Refused { section: 0, why: why.to_string() };
    if data.elements < world.hosts.len() as u64 || data.elements > 1 << 20 {
        return Err(out_of_range("the number of elements", data.elements));
    }
    // Ring steps even for small vectors, and few slots, so that credits are visible.
    let ring_config = RingConfig { small_message_max: 0, slots: 4, ..RingConfig::default() };
    let options = RingOptions { ring_config, connection, keep_data: true };
    let operation = Operation::all_reduce(DataType::F32, ReduceOp::Sum, data.elements);
    let ring = Ring::build(world, operation, options).map_err(refused)?;
    for rank in 0..world.hosts.len() {
        let contribution = 10f32.powi(rank as i32).to_ne_bytes();
        let bytes = world.hosts[rank].memory.bytes_mut(ring.buffer(rank));
        for element in bytes.chunks_exact_mut(4) {
            element.copy_from_slice(&contribution);
        }
    }
    Ok(ring)
}

fn register(world: &mut World, host: usize, data: &RegionData) -> Region {
    let rights = data.rights.iter().fold(AccessFlags::empty(), |rights, right| {
        rights
            | match right {
                Right::LocalWrite => AccessFlags::LOCAL_WRITE,
                Right::RemoteRead => AccessFlags::REMOTE_READ,
                Right::RemoteWrite => AccessFlags::REMOTE_WRITE,
                Right::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
            }
    });
    let memory = &mut world.hosts[host].memory;
    let region = memory.register(data.bytes, rights);
    let bytes = memory.bytes_mut(region);
    if data.pattern {
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = (offset / 251 + offset) as u8;
        }
    }
    let number = data.number.map(u64::to_ne_bytes);
    for (byte, value) in bytes.iter_mut().zip(number.iter().flatten()) {
        *byte = *value;
    }
    for (byte, value) in bytes.iter_mut().zip(data.text.as_bytes()) {
        *byte = *value;
    }
    region
}

fn options(data: &ConnectionData) -> Result<ConnectOptions, LessonError> {
    let path_mtu = PathMtu::from_bytes(data.path_mtu);
    let ack_timeout = AckTimeout::new(data.ack_timeout);
    let min_rnr_timer = RnrTimer::new(data.rnr_timer);
    Ok(ConnectOptions {
        service: match data.service {
            ServiceName::Rc => Service::Rc,
            ServiceName::Uc => Service::Uc,
            ServiceName::Ud => Service::Ud,
        },
        path_mtu: path_mtu.ok_or_else(|| out_of_range("path-mtu", data.path_mtu))?,
        first_psn: data.first_psn.map(Psn::wrapping),
        ack_timeout: ack_timeout.ok_or_else(|| out_of_range("ack-timeout", data.ack_timeout))?,
        retry_count: data.retry_count.min(7),
        rnr_retry: data.rnr_retry.min(7),
        min_rnr_timer: min_rnr_timer.ok_or_else(|| out_of_range("rnr-timer", data.rnr_timer))?,
        ..default_options()
    })
}
