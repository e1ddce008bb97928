//! The configuration of a device.

use std::path::PathBuf;
use std::time::Duration;

use roce_io::{FaultConfig, GsoMode, OtherIdentifications, ReceiveMode};
use roce_transport::EndpointConfig;
use roce_transport::congestion::CongestionConfig;

use crate::backend::Backend;
use crate::connection_timing::Timing;
use crate::process::thread_placement::ThreadPlacement;
use crate::trace::Trace;

/// The configuration of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// How packets are sent and received. Default [`Backend::Auto`].
    pub backend: Backend,
    /// What [`Backend::Udp`] does with IPv4 packets of unexpected identifications, which the kernel does not
    /// tell. Default: it accepts them.
    pub other_identifications: OtherIdentifications,
    /// A user that has a socket on UDP port 4791, and so reads received packets, is trusted: a device with packet
    /// sockets opens beside it. Default `false`: it opens beside the superuser alone, and takes the port when
    /// that one has closed it.
    pub trusts_port_holder: bool,
    /// Whether to send trains: runs of packets that the kernel carries as one frame.
    pub gso: GsoMode,
    /// How frames are received from packet sockets.
    pub receive: ReceiveMode,
    /// File to record all packets in, as pcapng, those between queue pairs of one device included.
    /// Packets are added to those that it has; several devices and processes may write to one file.
    /// Each packet is in the file before it is sent or handled.
    pub capture: Option<PathBuf>,
    /// A unix socket at which `roce run` gives packet sockets to processes of its run that may not open any. Where it
    /// gives none, packets travel by UDP sockets. Default: none.
    pub socket_giver: Option<PathBuf>,
    /// Faults to inject into the packets of the device, those between its own queue pairs included.
    pub faults: Option<FaultConfig>,
    /// Whether the scripted faults go on where they are when this process opens a device again, and
    /// count the packets of all its devices together. Default: each opened device begins anew.
    pub faults_of_process: bool,
    /// Rail of the interface, from 0, for faults that name one. Default: none.
    pub rail: Option<u32>,
    /// Peers that inject the same faults and record in the same capture. Default: none.
    pub peers: PeersInRun,
    /// Whether of the packets between such peers the receiver records those that are not lost on purpose:
    /// then the capture shows what a switch between them did. Default: their sender records them.
    pub capture_at_receiver: bool,
    /// Longest time that the device's thread and waiting programs spin before they sleep. A thread
    /// spins for all of it if its last sleep was shorter than that, and otherwise for a tenth. A
    /// sleeping thread notices a packet some 10 to 50 µs late. On a processor that other threads use
    /// up no thread spins. Default 200 µs.
    pub spin: Duration,
    /// CPU and scheduling class of the device's own thread, or of those of all its shards. By default it
    /// runs on any CPU, whatever the thread that opens the device is bound to.
    pub thread: ThreadPlacement,
    /// Trace that records the events of the device. Default: none.
    pub trace: Option<Trace>,
    /// Congestion control. The rate of the link, where it is known, is its line rate.
    pub congestion: CongestionConfig,
    /// Rate of the link in bits per second, at least 1, for the durations of its pauses and for
    /// congestion control. Default: the speed of the interface. Where it has none, pauses are ignored,
    /// and congestion control assumes 10 Gbit/s. The speed that an interface in software (a veth, a tap,
    /// a bridge, a VLAN) makes up counts for congestion control alone: a neighbour there could otherwise
    /// hold all classes.
    pub link_rate: Option<u64>,
    /// Most bytes of packets that wait for a missing one before them, over all queue pairs of a shard; 0
    /// drops such packets. Default 4 MiB.
    pub max_reorder_bytes: usize,
    /// Most shards of the device, 1 ..= 8. Default 1.
    ///
    /// A shard is an engine with a lock, packet sockets and a driver thread of its own. With one,
    /// the threads of a program take turns; with several, two threads that have a completion queue
    /// each, and queue pairs that complete there, work on two processors at the same time.
    /// Completion queues are spread over the shards in turn, and a shard is opened with its first
    /// queue: a program with one queue has one shard. A queue pair is in the shard of its send
    /// completion queue, or in that of its shared receive queue. It may complete in a queue of
    /// another shard, whose polls drive both. Queue pairs of two shards that are connected with
    /// each other exchange packets over `lo`, which is slower than within a shard.
    ///
    /// Each shard takes two packet sockets, with some 9 MiB of the kernel's memory each. Opening
    /// one takes some 25 ms of the call that creates the queue. If it cannot be opened, the device
    /// goes on without it. A device with a [`capture`](Self::capture) or [`faults`](Self::faults)
    /// has one shard.
    pub shards: usize,
    /// Until when a posted request takes a place in its work queue. Default [`QueueRule::Done`], with which requests
    /// that have no completions may be posted for ever; the C library takes [`QueueRule::Polled`].
    pub queue_rule: QueueRule,
    /// File in which the device publishes its counters for other processes: one line with name and
    /// value for each, four times a second as long as they change, and when the device or the
    /// process ends. The counters of a device that this process opens again go on. The name gets `.1`
    /// or the next number behind it for which there is no file yet. Default: none.
    pub counter_file: Option<PathBuf>,
    /// Whether each round that received, sent or completed anything publishes the counters before it
    /// delivers completions: then nothing is missing when the process ends in whatever way. It costs
    /// some microseconds a round.
    pub counters_each_round: bool,
    /// How long connection management waits for peers. Default: as rdma_cm.
    pub connection_timing: Timing,
    /// File in which the device writes down its connections, made by connection management, whenever one
    /// begins or ends: [`Orphans`](crate::cm::Orphans) of another process tells their peers if this
    /// process dies. The name gets `.1` or the next number behind it for which there is no file yet.
    /// The file is removed with the device, once no connection is left. Default: none.
    pub connection_file: Option<PathBuf>,
    /// Open the device also while its interface is down, as libibverbs does: its port is down then, and carries
    /// packets as soon as the interface is up. Default false: an error, which says what to do.
    pub may_be_down: bool,
}

/// Until when a posted request counts against the capacity of its work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRule {
    /// Until the program has polled the completion that retires it, as on cards: its own, or, for a send
    /// request that has none, the next one of its queue. A program that never polls fills its queue.
    Polled,
    /// Until it is done, as the kernel's `rdma_rxe` has it: requests whose completions wait to be polled
    /// do not count, nor do those that have no completion.
    Done,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            backend: Backend::default(),
            other_identifications: OtherIdentifications::default(),
            trusts_port_holder: false,
            gso: GsoMode::Auto,
            receive: ReceiveMode::default(),
            capture: None,
            socket_giver: None,
            faults: None,
            faults_of_process: false,
            rail: None,
            peers: PeersInRun::None,
            capture_at_receiver: false,
            spin: Duration::from_micros(200),
            thread: ThreadPlacement::default(),
            trace: None,
            congestion: CongestionConfig::default(),
            link_rate: None,
            max_reorder_bytes: EndpointConfig::default().max_reorder_bytes,
            shards: 1,
            queue_rule: QueueRule::Done,
            counter_file: None,
            counters_each_round: false,
            connection_timing: Timing::default(),
            connection_file: None,
            may_be_down: false,
        }
    }
}

/// Peers of a device that inject the same faults and record in the same capture, so that each packet
/// meets them once: the sender of a packet between such devices does both, its receiver neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeersInRun {
    /// None: faults are injected into packets of both directions, and both are recorded.
    #[default]
    None,
    /// Those of other processes of this host.
    ThisHost,
    /// All.
    All,
}
