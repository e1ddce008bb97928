//! Simulated scale: how long a ring allreduce takes on a model fabric, beside its bound.

mod plot;

use std::time::Duration;

use roce_ring::{DataType, Operation, ReduceOp, RingConfig, test_data};
use roce_sim::LinkConfig;
use roce_wire::PathMtu;

use crate::ring::{Ring, RingError, RingOptions};
use crate::world::{WIRE_OVERHEAD, World, WorldConfig};

pub use plot::{PlotError, plot};

/// One ring allreduce to simulate: a sum of floats, in place, on one switch.
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
    /// Ranks, 2 or more; one a host.
    pub ranks: usize,
    /// Bytes of the vector, rounded down to whole floats.
    pub bytes: u64,
    /// Bits a second of each link, in either direction at once.
    pub bits_per_sec: u64,
    /// From the last bit out of a link to the last bit in at its other end.
    pub delay: Duration,
    /// Lanes, slots and limits of the ring.
    pub ring_config: RingConfig,
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// Reduce real data and look at the result. Takes memory for all ranks; see
    /// [`memory`](Self::memory).
    pub keep_data: bool,
}

impl Default for Scale {
    /// 8 ranks, 1 MiB, 100 Gbit/s, 1 µs a link, the ring's own settings, MTU 4096, real data.
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

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct ScaleResult {
    /// What was simulated.
    pub scale: Scale,
    /// In virtual time: from the start on all ranks until the last rank is done, that is, has
    /// its result and knows that what it sent has arrived.
    pub time: Duration,
    /// Packets that all ranks sent, acknowledgements and credits among them.
    pub packets: u64,
    /// Packets sent again; nothing is lost on this fabric, so there should be none.
    pub resent: u64,
    /// Elements that are wrong, over all ranks; `None` when no data were kept.
    pub wrong: Option<u64>,
}

impl Scale {
    /// Bytes of registered memory that all ranks take together when data are kept.
    pub const fn memory(&self) -> u64 {
        let staging = self.ring_config.slots as u64 * self.ring_config.slot_bytes as u64;
        let lanes = self.ring_config.lanes as u64;
        self.ranks as u64 * (self.bytes + (lanes + 1) * staging)
    }

    /// α: how long the smallest message takes from one rank to the next, when nothing else is
    /// on the way. That is an RDMA WRITE with immediate of no bytes, 102 on the cable: over two
    /// links, each with its own delay, and the switch takes the whole packet in before it
    /// sends it on.
    pub fn alpha(&self) -> Duration {
        let link = LinkConfig {
            bits_per_sec: Some(self.bits_per_sec),
            ..LinkConfig::with_latency(self.delay)
        };
        2 * (self.delay + link.time_on_wire(SMALLEST_FRAME + WIRE_OVERHEAD))
    }

    /// 2(N−1)/N · S/B + 2(N−1)·α: a ring that knows no headers, whose steps follow one another.
    pub fn bound(&self) -> Duration {
        let (ranks, bytes) = (self.ranks as f64, self.bytes as f64);
        let moved = 2.0 * (ranks - 1.0) / ranks * bytes * 8.0 / self.bits_per_sec as f64;
        Duration::from_secs_f64(moved + 2.0 * (ranks - 1.0) * self.alpha().as_secs_f64())
    }

    /// Runs it. Takes real time in proportion to the packets: about two microseconds each.
    ///
    /// # Errors
    /// [`RingError`] when the settings make no ring.
    pub fn simulate(&self) -> Result<ScaleResult, RingError> {
        let names: Vec<_> = (0..self.ranks).map(|rank| format!("rank {rank}")).collect();
        let config = WorldConfig {
            delay: self.delay,
            always_switch: true,
            bits_per_sec: Some(self.bits_per_sec),
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
                let bytes = world.host_mut(rank).memory.bytes_mut(buffer);
                test_data::fill(data_type, op, rank as u32, 0, bytes);
            }
        }
        let start = world.now();
        ring.start(&mut world)?;
        let end = ring.run(&mut world)?;
        let counters = || world.hosts().iter().map(|host| host.counters());
        let size = self.ranks as u32;
        let wrong = self.keep_data.then(|| {
            let wrong = |rank: usize| {
                let bytes = world.hosts()[rank].memory.bytes(ring.buffer(rank));
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
    /// How much longer than its bound it took: 1 is the bound itself.
    pub fn ratio(&self) -> f64 {
        self.time.as_secs_f64() / self.scale.bound().as_secs_f64()
    }

    /// Bus bandwidth as nccl-tests defines it, in bytes a second: 2(N−1)/N · S/t.
    pub fn bus_bandwidth(&self) -> f64 {
        let ranks = self.scale.ranks as f64;
        2.0 * (ranks - 1.0) / ranks * self.scale.bytes as f64 / self.time.as_secs_f64()
    }
}

/// Ethernet, IPv4, UDP, BTH, RETH, immediate, ICRC.
const SMALLEST_FRAME: usize = 14 + 20 + 8 + 12 + 16 + 4 + 4;
