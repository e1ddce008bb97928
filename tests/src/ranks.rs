//! Hosts on private switches, a rank on each, and whether what they compute is right.

use roce_collectives::{Buffer, BufferSlice, Collective, Error, Group, GroupConfig, Operation};
use roce_netns::{Host, IpNet, Link, Switch, VirtualNetwork};
use roce_ring::test_data;

use crate::fixtures::device_config;

/// Where rank 0 listens.
pub const ROOT: &str = "10.7.0.1:29500";

/// Hosts that each will be a rank: rank r is `10.7.0.(r + 1)` on `eth0`, `10.8.0.(r + 1)` on
/// `eth1`.
#[derive(Debug)]
pub struct Ranks {
    hosts: Vec<Host>,
    rails: usize,
    _switches: Vec<Switch>,
}

impl Ranks {
    /// Builds hosts for `count` ranks with one interface each, of a path MTU of 4096.
    ///
    /// # Panics
    /// Without the right to make namespaces: `cargo xtask test` gives it.
    pub fn new(count: usize) -> Self {
        Self::with_rails(count, 1)
    }

    /// The same with several interfaces.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn with_rails(count: usize, rails: usize) -> Self {
        let network = VirtualNetwork::new().expect("tier 1 runs as root or in a user namespace");
        let host = |rank| network.host(&format!("rank{rank}")).expect("a namespace");
        let hosts: Vec<Host> = (0..count).map(host).collect();
        let mut switches = Vec::new();
        for rail in 0..rails {
            let name = format!("eth{rail}");
            let ports: Vec<_> = hosts.iter().map(|host| (host, name.as_str())).collect();
            switches.push(network.bridge(&ports, Link { mtu: 4200 }).expect("a switch"));
            for (rank, host) in hosts.iter().enumerate() {
                let text = format!("10.{}.0.{}/24", 7 + rail, rank + 1);
                let address: IpNet = text.parse().expect("an address");
                host.address(&name, address).expect("an address on the interface");
            }
        }
        Self { hosts, rails, _switches: switches }
    }

    /// The host of a rank.
    pub fn host(&self, rank: usize) -> &Host {
        &self.hosts[rank]
    }

    /// How a rank joins.
    pub fn config(&self, rank: u32) -> GroupConfig {
        let interfaces = (0..self.rails).map(|rail| format!("eth{rail}")).collect();
        let device = device_config();
        GroupConfig { interfaces, device, ..GroupConfig::new(rank, self.hosts.len() as u32, ROOT) }
    }

    /// Lets every rank do `work` in a thread of its own, in its host.
    ///
    /// # Panics
    /// When one does.
    pub fn each<T: Send>(&self, work: impl Fn(u32, GroupConfig) -> T + Sync) -> Vec<T> {
        let work = &work;
        std::thread::scope(|scope| {
            let ranks = 0..self.hosts.len() as u32;
            let start = |rank: u32| {
                let host = &self.hosts[rank as usize];
                scope.spawn(move || host.run(|| work(rank, self.config(rank))))
            };
            let threads: Vec<_> = ranks.map(start).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    /// Lets every rank join, do `work`, and leave.
    ///
    /// # Panics
    /// When a rank cannot join or leave, or `work` does.
    pub fn grouped<T: Send>(
        &self,
        change: impl Fn(&mut GroupConfig) + Sync,
        work: impl Fn(&mut Group) -> T + Sync,
    ) -> Vec<T> {
        self.each(|rank, mut config| {
            change(&mut config);
            let mut group = Group::join(config).unwrap_or_else(|e| panic!("rank {rank}: {e}"));
            let result = work(&mut group);
            group.leave().unwrap_or_else(|e| panic!("rank {rank}: {e}"));
            result
        })
    }
}

/// The buffers of one operation at one rank, with guards around what may be written.
#[derive(Debug)]
pub struct Exercise {
    operation: Operation,
    input: BufferSlice,
    output: BufferSlice,
    buffers: Vec<Buffer>,
}

/// Bytes before and behind an operation's data that no rank may access.
const GUARD: u64 = 64;
/// What they hold.
const GUARD_BYTE: u8 = 0xee;

impl Exercise {
    /// Buffers for `operation`, in place or not.
    ///
    /// # Panics
    /// Without memory, or when the operation cannot be.
    pub fn new(group: &Group, operation: &Operation, in_place: bool) -> Self {
        let (input, output) = operation.buffer_bytes(group.geometry()).expect("an operation");
        let buffer = |len: u64| group.buffer(len + 2 * GUARD).expect("memory");
        let own = u64::from(group.rank()) * operation.count * operation.data_type.size() as u64;
        let slice = |buffer: &Buffer, start: u64, len: u64| {
            buffer.slice(GUARD + start..GUARD + start + len).expect("inside")
        };
        if !in_place {
            let buffers = vec![buffer(input), buffer(output)];
            let (input, output) = (slice(&buffers[0], 0, input), slice(&buffers[1], 0, output));
            return Self { operation: *operation, input, output, buffers };
        }
        let buffers = vec![buffer(input.max(output))];
        let (before_input, before_output) = match operation.collective {
            Collective::AllGather => (own, 0),
            Collective::ReduceScatter => (0, own),
            _ => (0, 0),
        };
        let input = slice(&buffers[0], before_input, input);
        let output = slice(&buffers[0], before_output, output);
        Self { operation: *operation, input, output, buffers }
    }

    /// Fills the input, performs the operation, and counts elements that are wrong and guards
    /// that are broken.
    ///
    /// # Errors
    /// Those of the operation.
    ///
    /// # Panics
    /// When a buffer is not as large as it says.
    pub fn run(&self, group: &mut Group) -> Result<u64, Error> {
        self.fill(group.rank());
        group.perform(&self.operation, &self.input, &self.output)?;
        Ok(self.wrong(group.rank(), group.size()))
    }

    /// Performs the operation on whatever there is.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn run_unchecked(&self, group: &mut Group) -> Result<(), Error> {
        group.perform(&self.operation, &self.input, &self.output)
    }

    /// Fills the input with the pattern, everything else with the guard.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn fill(&self, rank: u32) {
        for buffer in &self.buffers {
            buffer.write(0, &vec![GUARD_BYTE; buffer.len() as usize]).expect("inside");
        }
        let mut bytes = vec![0; self.input.len() as usize];
        test_data::fill(self.operation.data_type, self.operation.op, rank, 0, &mut bytes);
        self.input.buffer().write(self.input.offset(), &bytes).expect("inside");
    }

    /// As [`run`](Self::run) counts.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn wrong(&self, rank: u32, size: u32) -> u64 {
        let contents = |buffer: &Buffer, start: u64, len: u64| {
            let mut bytes = vec![0; len as usize];
            buffer.read(start, &mut bytes).expect("inside");
            bytes
        };
        let guards = self.buffers.iter().flat_map(|buffer| {
            let mut both = contents(buffer, 0, GUARD);
            both.extend(contents(buffer, buffer.len() - GUARD, GUARD));
            both
        });
        let broken = guards.filter(|byte| *byte != GUARD_BYTE).count() as u64;
        let output = contents(self.output.buffer(), self.output.offset(), self.output.len());
        broken + test_data::wrong_elements(&self.operation, rank, size, 0, &output)
    }

    /// The bytes of the output.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn output(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.output.len() as usize];
        self.output.buffer().read(self.output.offset(), &mut bytes).expect("inside");
        bytes
    }
}
