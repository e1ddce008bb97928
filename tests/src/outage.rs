//! Requests that meet an interface which does not carry them: how they end, and when.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use roce_verbs::{
    CompletionChannel, CompletionStatus, ConnectOptions, Device, DeviceConfig, MemoryRegion,
    QueuePair, RemoteAddr, SendOperation, SendWr,
};

use crate::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, device_config};

/// A connection whose requests end soon where no answer comes: 8.4 ms, four times.
pub const SHORT: ConnectTimes = ConnectTimes { timeout: 11, retry_count: 3 };
/// The same with the defaults of a connection: 67 ms, eight times.
pub const USUAL: ConnectTimes = ConnectTimes { timeout: 14, retry_count: 7 };
/// One that outlasts an outage of seconds: 2.1 s, eight times.
pub const LONG: ConnectTimes = ConnectTimes { timeout: 19, retry_count: 7 };

/// When a request without an answer ends.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTimes {
    /// As [`ConnectOptions::timeout`].
    pub timeout: u8,
    /// As [`ConnectOptions::retry_count`].
    pub retry_count: u8,
}

impl ConnectTimes {
    /// Options with these times.
    pub fn options(self) -> ConnectOptions {
        let Self { timeout, retry_count } = self;
        ConnectOptions { timeout, retry_count, ..ConnectOptions::default() }
    }

    /// The ACK timeout, once for the first transmission and once for each retry.
    pub fn bound(self) -> Duration {
        Duration::from_nanos(4096 << self.timeout) * (u32::from(self.retry_count) + 1)
    }

    /// The latest time at which a test accepts the end: a timeout may last four times as long as
    /// it says by the specification, and a busy machine lets both ends wait.
    pub fn limit(self) -> Duration {
        4 * self.bound() + Duration::from_secs(2)
    }
}

/// How an application waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It polls its queue.
    Polling,
    /// It sleeps on a completion channel.
    Sleeping,
}

/// An end, and the channel on which its queue reports.
#[derive(Debug)]
pub struct Waiter {
    /// The end.
    pub end: TestDevice,
    channel: CompletionChannel,
    waiting: Waiting,
}

/// A request's end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The request.
    pub wr_id: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// When, counted from the call of [`Waiter::collect`].
    pub after: Duration,
}

impl Waiter {
    /// An end of this device.
    ///
    /// # Panics
    /// When the system has no descriptor left.
    pub fn new(device: Device, waiting: Waiting) -> Self {
        let channel = device.create_completion_channel().expect("a channel");
        let cq = device.create_cq(1024, Some(&channel)).expect("a queue");
        let pd = device.alloc_pd().expect("a domain");
        Self { end: TestDevice { device, pd, cq }, channel, waiting }
    }

    /// Returns the left end of a cable, which waits in some manner, and the right one.
    ///
    /// # Panics
    /// When a device cannot be opened.
    pub fn and_peer(cable: &Cable, waiting: Waiting) -> (Self, TestDevice) {
        let left = cable.left.run(|| Device::open("eth0", device_config())).expect("a device");
        (Self::new(left, waiting), TestDevice::on(&cable.right, DeviceConfig::default()))
    }

    /// Waits until so many requests have ended, at most until `limit`.
    ///
    /// # Panics
    /// When the device was made before a fork.
    pub fn collect(&self, count: usize, limit: Duration) -> Vec<Ended> {
        let began = Instant::now();
        let mut ended = Vec::new();
        while ended.len() < count && began.elapsed() < limit {
            if self.waiting == Waiting::Sleeping {
                self.end.cq.arm(false);
            }
            while let Some(done) = self.end.cq.poll_one() {
                let (wr_id, status) = (done.wr_id, done.status);
                ended.push(Ended { wr_id, status, after: began.elapsed() });
            }
            if self.waiting == Waiting::Sleeping && ended.len() < count {
                let left = limit.saturating_sub(began.elapsed());
                self.channel.wait(Some(left)).expect("the channel of this process");
            }
        }
        ended
    }
}

/// Posts a WRITE of 32 bytes.
///
/// # Panics
/// When the queue pair takes no requests.
pub fn post_write(qp: &QueuePair, wr_id: u64, from: &MemoryRegion, to: &MemoryRegion) {
    let remote = RemoteAddr { addr: to.address(), rkey: to.rkey() };
    let piece = from.sge(..32).expect("the region has 32 bytes");
    let work = SendWr::new(wr_id, SendOperation::write(remote), [piece]).signaled();
    qp.post_send([work]).expect("the request is taken");
}

/// Does a WRITE and waits until it has succeeded.
///
/// # Panics
/// When it does not succeed.
pub fn write_through(waiter: &Waiter, qp: &QueuePair, from: &MemoryRegion, to: &MemoryRegion) {
    post_write(qp, 7, from, to);
    let ended = waiter.collect(1, COMPLETION_TIMEOUT);
    assert_eq!(ended[0].status, CompletionStatus::Success, "{ended:?}");
}

/// Waits until the device knows that its port is in a state.
///
/// # Panics
/// When it does not learn of it.
pub fn wait_for_port(device: &Device, state: roce_verbs::PortState) {
    let began = Instant::now();
    while device.port().expect("this process opened it").state != state {
        assert!(
            began.elapsed() < COMPLETION_TIMEOUT,
            "the port's state never changes to {state:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the whole process has used of the processors.
///
/// # Panics
/// Never: the kernel always answers.
pub fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the arguments are right");
    let of = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    of(usage.user_time()) + of(usage.system_time())
}

/// Bytes of this process that are in memory.
///
/// # Panics
/// When `/proc` is not there.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("every process may read it");
    statm.split(' ').nth(1).expect("a number").parse::<u64>().expect("a number") * 4096
}

/// Prints a row of the table of bounds and observed times.
pub fn print_row(what: &str, bound: impl std::fmt::Debug, observed: impl std::fmt::Debug) {
    println!("| {what} | {bound:?} | {observed:?} |");
}
