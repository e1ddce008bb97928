//! Two hosts on one cable, a device on each, and queue pairs between them.

use std::time::Duration;

use roce_netns::{Host, IpNet, Link, VirtualNetwork};
use roce_verbs::{
    AccessFlags, Backend, Completion, CompletionQueue, ConnectOptions, Device, DeviceConfig,
    MemoryRegion, ProtectionDomain, QueuePair, environment,
};

/// How long a completion may take before a test gives up: far beyond any retry.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(20);

/// The most sockets that a process which opens devices again and again keeps for the next one.
pub const KEPT_SOCKETS: usize = 4;

/// All rights that a region can have.
pub fn every_right() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_ATOMIC
        | AccessFlags::FLUSH_GLOBAL
}

/// Two hosts joined by a cable: `10.1.0.1` and `10.1.0.2`, `fd00:1::1` and `fd00:1::2`.
#[derive(Debug)]
pub struct Cable {
    /// The first host; its interface is `eth0`.
    pub left: Host,
    /// The second host; its interface is `eth0`.
    pub right: Host,
}

impl Cable {
    /// Lays a cable of this MTU.
    ///
    /// # Panics
    /// Without the right to make namespaces: `cargo xtask test` gives it.
    pub fn with_mtu(mtu: u32) -> Self {
        Self::with_cables(&[("eth0", 1)], mtu)
    }

    /// Lays another cable besides, of MTU 1500: `eth1` of both hosts, with `10.2.0.1` and so on.
    ///
    /// # Panics
    /// As [`with_mtu`](Self::with_mtu).
    pub fn with_another() -> Self {
        Self::with_cables(&[("eth0", 1), ("eth1", 2)], 1500)
    }

    fn with_cables(cables: &[(&str, u8)], mtu: u32) -> Self {
        let network = VirtualNetwork::new().expect("tier 1 runs as root or in a user namespace");
        let host = |name| network.host(name).expect("a namespace");
        let (left, right) = (host("left"), host("right"));
        for (name, net) in cables {
            network.veth((&left, name), (&right, name), Link { mtu }).expect("a veth pair");
            for (host, number) in [(&left, 1), (&right, 2)] {
                for text in [format!("10.{net}.0.{number}/24"), format!("fd00:{net}::{number}/64")]
                {
                    let address: IpNet = text.parse().expect("an address");
                    host.address(name, address).expect("an address of the interface");
                }
            }
        }
        Self { left, right }
    }
}

/// The configuration of a device by the back end that `ROCE_BACKEND` says.
///
/// # Panics
/// When the variable names none.
pub fn device_config() -> DeviceConfig {
    DeviceConfig { backend: environment::backend().expect("a back end"), ..DeviceConfig::default() }
}

/// One device with a protection domain and a completion queue.
#[derive(Debug)]
pub struct TestDevice {
    /// The device.
    pub device: Device,
    /// Its domain.
    pub pd: ProtectionDomain,
    /// One queue for sends and receives.
    pub cq: CompletionQueue,
}

impl TestDevice {
    /// Opens `eth0` of a host, with as many shards as `ROCE_SHARDS` says, by the back end that
    /// `ROCE_BACKEND` says unless the configuration names one.
    ///
    /// # Panics
    /// When the device cannot be opened.
    pub fn on(host: &Host, config: DeviceConfig) -> Self {
        let shards = environment::shards().expect("a number of shards");
        let backend = match config.backend {
            Backend::Auto => device_config().backend,
            named => named,
        };
        let config = DeviceConfig { shards, backend, ..config };
        let device = host.run(|| Device::open("eth0", config)).expect("the device opens");
        if let Some(why) = device.backend_refusal() {
            println!("{} instead of {backend}: {why}", device.backend());
        }
        Self::of(device)
    }

    /// Takes a device that is open.
    ///
    /// # Panics
    /// When it was made before a fork.
    pub fn of(device: Device) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        // The home of the queue, and so the shard of its queue pairs, is the last.
        for _ in 1..environment::shards().expect("a number of shards") {
            device.create_cq(1, None).expect("a queue");
        }
        let cq = device.create_cq(4096, None).expect("a queue");
        Self { device, pd, cq }
    }

    /// Whether several packets leave as one frame: AF_XDP has a frame for each.
    pub fn sends_trains(&self) -> bool {
        self.device.backend() != Backend::AfXdp
    }

    /// Whether the kernel tells of frames that it drops in front of an interface without carrier or with a full
    /// queue: of datagrams of UDP sockets it does not.
    pub fn learns_of_drops(&self) -> bool {
        self.device.backend() != Backend::Udp
    }

    /// Whether pauses of the link are seen: their frames are no datagrams.
    pub fn sees_pauses(&self) -> bool {
        self.device.backend() != Backend::Udp
    }

    /// Whether packets arrive that are sent to addresses which the host does not have: the kernel keeps these from
    /// UDP sockets.
    pub fn sees_packets_to_others(&self) -> bool {
        self.device.backend() != Backend::Udp
    }

    /// A queue pair in RESET.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn queue_pair(&self) -> QueuePair {
        self.pd
            .queue_pair(&self.cq, &self.cq)
            .max_send_wr(256)
            .max_recv_wr(256)
            .max_send_sge(32)
            .max_recv_sge(32)
            .max_inline(256)
            .build()
            .expect("a queue pair")
    }

    /// A region with every right, filled with a pattern that follows from `seed`.
    ///
    /// # Panics
    /// When there is no memory.
    pub fn region(&self, len: usize, seed: u8) -> MemoryRegion {
        let region = self.pd.register(len, every_right()).expect("memory");
        region.write(0, &pattern(len, seed)).expect("in range");
        region
    }

    /// The next completion, whatever it is.
    ///
    /// # Panics
    /// When none comes within [`COMPLETION_TIMEOUT`].
    pub fn completion(&self) -> Completion {
        self.cq.spin_wait(COMPLETION_TIMEOUT).expect("a completion within the time allowed")
    }
}

/// Bytes that tell a shift, a swap or a repetition of packets: no period of a power of two.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i / 251 % 241) as u8 ^ seed).collect()
}

/// All bytes of a region.
///
/// # Panics
/// Never: the range is the region's own.
pub fn contents(region: &MemoryRegion) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).expect("the whole region");
    bytes
}

/// Two queue pairs connected to each other, over the wire or within one device.
///
/// # Panics
/// When they cannot be connected.
pub fn connect(
    left: &TestDevice,
    right: &TestDevice,
    options: &ConnectOptions,
) -> (QueuePair, QueuePair) {
    let (here, there) = (left.queue_pair(), right.queue_pair());
    let dest = |qp: &QueuePair| qp.dest(options.gid_index).expect("an address");
    let (mine, theirs) = (dest(&here), dest(&there));
    here.connect(&theirs, options).expect("left connects");
    there.connect(&mine, options).expect("right connects");
    (here, there)
}
