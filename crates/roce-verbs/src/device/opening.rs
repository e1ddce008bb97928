//! Opens the sockets of a device, and makes its engines.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use roce_engine::EngineParts;
use roce_io::{
    AfPacketConfig, FaultConfig, Filter, InterfaceInfo, InterfaceKind, PortReservation,
    PortReservationConfig, QpnBlocks, interfaces, loopback_interface,
};
use roce_transport::{Endpoint, EndpointConfig};

use super::wrapping::{Wrapping, fault_script, open_capture};
use crate::backend::{Backend, Opened, Opener, UdpChoices};
use crate::device_config::{DeviceConfig, PeersInRun};
use crate::device_state::DeviceState;
use crate::driver::{Driver, EngineOpener};
use crate::engine::{Engine, Objects};
use crate::error::Error;
use crate::port::{Port, gids_of};
use crate::process::purpose::Purpose;
use crate::trace::TraceObserver;
use crate::verb_faults::VerbFaults;

/// Opens the sockets of a device and starts its threads.
pub(super) fn open_driver(
    interface: &str,
    config: DeviceConfig,
    verb_faults: Option<VerbFaults>,
    purpose: Purpose,
) -> Result<Driver, Error> {
    let capture = config.capture.as_deref().map(open_capture).transpose()?;
    let of_packets = config.faults.as_ref().filter(|faults| faults.has_packet_faults());
    let script = of_packets.map(|faults| fault_script(faults, &config));
    // Packets and calls that are recorded or counted by rules of faults have one order.
    let is_alone = capture.is_some() || script.is_some() || verb_faults.is_some();
    let limit = if is_alone { 1 } else { config.shards };
    let observer = TraceObserver::new(config.trace.clone());
    let wrapping = Wrapping { config: &config, capture: capture.as_ref(), script };
    let OpenedEngine { mut engine, interface: found, backend, backend_refusal } =
        open_engine(interface, 0, &wrapping, &observer, purpose)?;
    if let Some(faults) = &verb_faults {
        faults.count_openings(&mut engine);
        faults.note_device(&found.name);
        engine.consumer_mut().verb_faults = Some(faults.clone());
    }
    let script = wrapping.script;
    let port_reservation = match backend {
        Backend::Udp => None,
        _ => Some(PortReservation::bind(&PortReservationConfig {
            whole_trains: carries_trains(&found, backend),
            trusts_others: config.trusts_port_holder,
            ..PortReservationConfig::default()
        })?),
    };
    // The AF_XDP sockets of an interface belong to one shard; what is for others takes the way through the
    // kernel.
    let of_further = DeviceConfig {
        backend: if backend == Backend::AfXdp { Backend::AfPacket } else { backend },
        ..config.clone()
    };
    let opener = opener_of_further(found.index, of_further, &observer);
    let port = Port::of(&found, script.clone().zip(config.rail));
    let device = DeviceState {
        config,
        capture,
        script,
        verb_faults,
        next_handle: AtomicU32::new(1),
        observer,
        backend,
        backend_refusal,
        port_holder: port_reservation.map(|it| Arc::new(Mutex::new(it))),
    };
    Driver::new(engine, port, device, limit, opener)
}

/// Returns what opens the engines of further shards on an interface of this index.
fn opener_of_further(index: u32, config: DeviceConfig, observer: &TraceObserver) -> EngineOpener {
    let observer = observer.clone();
    Box::new(move |shard| {
        let found = interfaces()?.into_iter().find(|candidate| candidate.index == index);
        let name = found.map(|found| found.name).unwrap_or_default();
        let wrapping = Wrapping { config: &config, capture: None, script: None };
        open_engine(&name, shard, &wrapping, &observer, Purpose::Traffic)
            .map(|opened| opened.engine)
    })
}

/// An engine, and what it was opened on.
struct OpenedEngine {
    engine: Engine,
    interface: InterfaceInfo,
    backend: Backend,
    backend_refusal: Option<String>,
}

/// Returns true if packet trains pass whole, or cost nothing.
fn carries_trains(interface: &InterfaceInfo, backend: Backend) -> bool {
    interface.kind.segments_in_software() && backend != Backend::AfXdp
}

/// Opens the sockets of a shard, and makes its engine.
fn open_engine(
    interface: &str,
    shard: usize,
    wrapping: &Wrapping<'_>,
    observer: &TraceObserver,
    purpose: Purpose,
) -> Result<OpenedEngine, Error> {
    let config = wrapping.config;
    // The filters pass no packet before the first queue pair.
    let filter = Filter { qpn_blocks: QpnBlocks::Only(Vec::new()), ..Filter::default() };
    let packet_config = |name: &str| AfPacketConfig {
        gso: config.gso,
        receive: config.receive,
        giver: config.socket_giver.clone(),
        filter: filter.clone(),
        may_be_down: config.may_be_down,
        ..AfPacketConfig::new(name)
    };
    let udp = UdpChoices {
        other_identifications: config.other_identifications,
        splits_trains: config.faults.as_ref().is_some_and(FaultConfig::has_packet_faults),
    };
    let (opener, wire) = Opener::open(config.backend, udp, purpose, &packet_config(interface))?;
    let Opened { device: wire, interface: found, successor } = wire;
    let mut successors: Vec<_> = successor.into_iter().collect();
    let wire = wrapping.wrap(wire, &found.name, config.peers == PeersInRun::All);
    let lo = match loopback_interface()?.filter(|lo| lo.flags.up && lo.index != found.index) {
        None => None,
        // Without `lo` only traffic to other shards and processes of this host is lost.
        Some(lo) => match opener.open_next(&packet_config(&lo.name)) {
            Ok(opened) => {
                successors.extend(opened.successor);
                Some(wrapping.wrap(opened.device, &lo.name, config.peers != PeersInRun::None))
            }
            Err(error) => {
                tracing::warn!(%error, "no traffic to other processes of this host");
                None
            }
        },
    };
    let mut behaviour = EndpointConfig {
        congestion: config.congestion,
        max_reorder_bytes: config.max_reorder_bytes,
        ..EndpointConfig::default()
    };
    let speed = found.speed.filter(|mbits| *mbits > 0);
    let link_rate = config.link_rate.or(speed.map(|mbits| u64::from(mbits) * 1_000_000));
    if let Some(bits_per_sec) = link_rate {
        behaviour.congestion.line_rate = bits_per_sec.max(1);
    }
    if !carries_trains(&found, opener.backend()) {
        // Every packet is a frame of its own, and the peer may be a network card, which has no ring
        // that fills: the peer window may grow further.
        behaviour.peer_window.initial_frames = behaviour.window.initial_packets;
        behaviour.peer_window.max_frames = behaviour.window.max_packets;
    }
    let endpoint = Endpoint::with_observer(behaviour, observer.clone());
    let mut engine = Engine::new(EngineParts {
        endpoint,
        wire,
        lo,
        loopback: wrapping.loopback(&found.name),
        gids: gids_of(&found),
        consumer: Objects { successors, ..Objects::of_shard(shard)? },
        source_ports: opener.source_ports(),
    });
    // Other interfaces have made up their speed: a veth says 10 Gbit/s.
    let is_hardware = matches!(found.kind, InterfaceKind::Driver(_));
    engine.set_link_rate(link_rate.filter(|_| is_hardware || config.link_rate.is_some()));
    let (backend, backend_refusal) = (opener.backend(), opener.refusal().map(str::to_owned));
    Ok(OpenedEngine { engine, interface: found, backend, backend_refusal })
}
