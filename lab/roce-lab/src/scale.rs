//! Simulated scale: time of a ring allreduce on a model fabric, compared with the α-β model.

mod plot;

use std::time::Duration;

use roce_fabric::LinkConfig;
use roce_ring::{DataType, Operation, ReduceOp, RingConfig, test_data};
use roce_wire::PathMtu;

use crate::ring::{Ring, RingError, RingOptions};
use roce_simnet::{WIRE_OVERHEAD, World, WorldConfig};

pub use plot::plot;

/// A ring allreduce to simulate: sum of floats, in place, one switch.
///
/// ```
/// use roce_lab::Scale;
///
/// let scale = Scale { ranks: 4, bytes: 64 << 10, ..Scale::default() };
/// let result = scale.simulate().unwrap();
/// assert_eq!(result.wrong, Some(0));
/// assert!(result.time > scale.alpha());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Number of ranks, at least 2, one per host.
    pub ranks: usize,
    /// Size of the vector in bytes, rounded down to whole floats.
    pub bytes: u64,
    /// Bits per second of each link and direction.
    pub bits_per_sec: u64,
    /// Propagation delay of a link.
    pub delay: Duration,
    /// Lanes, slots and limits of the ring.
    pub ring_config: RingConfig,
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// Reduce real data and check the result. Needs memory for all ranks; see
    /// [`memory`](Self::memory).
    pub keep_data: bool,
}

impl Default for Scale {
    /// 8 ranks, 1 MiB, 100 Gbit/s, 1 µs per link, default ring settings, MTU 4096, real data.
    fn default() -> Self {
        Self {
            ranks: 8,
            bytes: 1 << 20,
            bits_per_sec: 100_000_000_000,
            delay: Duration::from_micros(1),
            ring_config: RingConfig::default(),
            path_mtu: PathMtu::B4096,
            keep_data: true,
        }
    }
}

/// Result of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct ScaleResult {
    /// Simulated operation.
    pub scale: Scale,
    /// Virtual time until the last rank is done: it has its result, and its messages are
    /// acknowledged.
    pub time: Duration,
    /// Packets sent by all ranks, with acknowledgements and credits.
    pub packets: u64,
    /// Retransmitted packets; 0 is expected, because the fabric loses no packets.
    pub resent: u64,
    /// Number of wrong elements of all ranks; `None` without data.
    pub wrong: Option<u64>,
}

impl Scale {
    /// Returns the bytes of registered memory of all ranks with data.
    pub const fn memory(&self) -> u64 {
        let staging = self.ring_config.slots as u64 * self.ring_config.slot_bytes as u64;
        let lanes = self.ring_config.lanes as u64;
        self.ranks as u64 * (self.bytes + (lanes + 1) * staging)
    }

    /// Returns α, the time of the smallest message from one rank to the next on an idle fabric:
    /// a WRITE with immediate of 0 bytes, 102 bytes on the cable, over two links and a
    /// store-and-forward switch.
    pub fn alpha(&self) -> Duration {
        2 * (self.delay + self.link().time_on_wire(MIN_FRAME_LEN + WIRE_OVERHEAD))
    }

    fn link(&self) -> LinkConfig {
        let bits_per_sec = Some(self.bits_per_sec);
        LinkConfig { bits_per_sec, ..LinkConfig::with_latency(self.delay) }
    }

    /// Returns the time of the α-β model, 2(N−1)/N · S/B + 2(N−1)·α: a ring without headers and with
    /// sequential steps.
    pub fn model_time(&self) -> Duration {
        let (ranks, bytes) = (self.ranks as f64, self.bytes as f64);
        let moved = 2.0 * (ranks - 1.0) / ranks * bytes * 8.0 / self.bits_per_sec as f64;
        Duration::from_secs_f64(moved + 2.0 * (ranks - 1.0) * self.alpha().as_secs_f64())
    }

    /// Runs the simulation, which takes about two microseconds of real time per packet.
    ///
    /// # Errors
    /// [`RingError`] for invalid settings.
    pub fn simulate(&self) -> Result<ScaleResult, RingError> {
        let names: Vec<_> = (0..self.ranks).map(|rank| format!("rank {rank}")).collect();
        let config = WorldConfig {
            link: self.link(),
            always_switch: true,
            keep_timeline: false,
            ..WorldConfig::default()
        };
        let mut world = World::new(&names, config);
        let (data_type, op) = (DataType::F32, ReduceOp::Sum);
        let operation = Operation::all_reduce(data_type, op, self.bytes / 4);
        let mut options = RingOptions {
            ring_config: self.ring_config,
            keep_data: self.keep_data,
            ..RingOptions::default()
        };
        options.connection.path_mtu = self.path_mtu;
        let mut ring = Ring::build(&mut world, operation, options)?;
        if self.keep_data {
            for rank in 0..self.ranks {
                let buffer = ring.buffer(rank);
                let bytes = world.hosts[rank].memory.bytes_mut(buffer);
                test_data::fill(data_type, op, rank as u32, 0, bytes);
            }
        }
        let start = world.now();
        ring.start(&mut world)?;
        let end = ring.run(&mut world)?;
        let counters = || world.hosts.iter().map(|host| host.counters());
        let size = self.ranks as u32;
        let wrong = self.keep_data.then(|| {
            let wrong = |rank: usize| {
                let bytes = world.hosts[rank].memory.bytes(ring.buffer(rank));
                test_data::wrong_elements(&operation, rank as u32, size, 0, bytes)
            };
            (0..self.ranks).map(wrong).sum()
        });
        Ok(ScaleResult {
            scale: *self,
            time: end.saturating_since(start),
            packets: counters().map(|counters| counters.sent_pkts).sum(),
            resent: counters().map(|counters| counters.resent_pkts).sum(),
            wrong,
        })
    }
}

impl ScaleResult {
    /// Returns the ratio of the time to that of the model.
    pub fn ratio(&self) -> f64 {
        self.time.as_secs_f64() / self.scale.model_time().as_secs_f64()
    }

    /// Returns the bus bandwidth as nccl-tests defines it, in bytes per second: 2(N−1)/N · S/t.
    pub fn bus_bandwidth(&self) -> f64 {
        let ranks = self.scale.ranks as f64;
        2.0 * (ranks - 1.0) / ranks * self.scale.bytes as f64 / self.time.as_secs_f64()
    }
}

/// Bytes of Ethernet, IPv4, UDP, BTH, RETH, immediate and ICRC.
const MIN_FRAME_LEN: usize = 14 + 20 + 8 + 12 + 16 + 4 + 4;
