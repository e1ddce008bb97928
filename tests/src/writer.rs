//! A queue pair that writes into its peer's memory.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use roce_verbs::{
    CompletionStatus, ConnectOptions, Device, MemoryRegion, QueuePair, RemoteAddr, SendOperation,
    SendWr,
};

use crate::fixtures::TestDevice;
use crate::ip::wait_until;

/// A connected queue pair and the memory at both ends. The peer's program does nothing.
#[derive(Debug)]
pub struct Writer<'a> {
    end: &'a TestDevice,
    qp: QueuePair,
    _peer: QueuePair,
    ours: MemoryRegion,
    theirs: MemoryRegion,
}

impl<'a> Writer<'a> {
    /// Connects two ends. Each request writes `len` bytes.
    ///
    /// # Panics
    /// When they cannot be connected.
    pub fn connect(
        (end, options): (&'a TestDevice, &ConnectOptions),
        (peer, peer_options): (&TestDevice, &ConnectOptions),
        len: usize,
    ) -> Self {
        let (here, there) = (end.queue_pair(), peer.queue_pair());
        let mine = here.dest(options.gid_index).expect("an address");
        let theirs = there.dest(peer_options.gid_index).expect("an address");
        here.connect(&theirs, options).expect("the writer connects");
        there.connect(&mine, peer_options).expect("the peer connects");
        Self { end, qp: here, _peer: there, ours: end.region(len, 1), theirs: peer.region(len, 2) }
    }

    /// Posts a request that writes the first `len` bytes.
    ///
    /// # Panics
    /// When the queue is full or `len` is beyond the region.
    pub fn post(&self, len: usize) {
        let span = RemoteAddr { addr: self.theirs.address(), rkey: self.theirs.rkey() };
        let data = [self.ours.sge(..len).expect("within the region")];
        let work = SendWr::new(1, SendOperation::write(span), data);
        self.qp.post_send([work.signaled()]).expect("room in the queue");
    }

    /// Writes the first `len` bytes and returns how that ended and how long it took.
    ///
    /// # Panics
    /// When it does not end within [`COMPLETION_TIMEOUT`](crate::fixtures::COMPLETION_TIMEOUT).
    pub fn write(&self, len: usize) -> (CompletionStatus, Duration) {
        let began = Instant::now();
        self.post(len);
        (self.end.completion().status, began.elapsed())
    }

    /// Writes 64 bytes again and again as long as `lasts` says so, and returns the longest time
    /// that a request took.
    ///
    /// # Panics
    /// When a request fails.
    pub fn write_while(&self, mut lasts: impl FnMut() -> bool) -> Duration {
        let mut longest = Duration::ZERO;
        while lasts() {
            let (status, took) = self.write(64);
            assert_eq!(status, CompletionStatus::Success, "a WRITE failed after {took:?}");
            longest = longest.max(took);
            std::thread::sleep(Duration::from_micros(200));
        }
        longest
    }
}

/// Options with a retry time of a second, seven retries, and the row of this address.
///
/// # Panics
/// When the device does not get the address.
pub fn patient_from(device: &Device, address: &str) -> ConnectOptions {
    let address: IpAddr = address.parse().expect("an address");
    let row = || {
        let table = device.gid_table().expect("a table");
        table.into_iter().find(|row| row.usable && row.gid.ip() == address)
    };
    wait_until("the address is in the GID table", || row().is_some());
    ConnectOptions { gid_index: row().map(|row| row.index), ..patient() }
}

/// Options with a retry time of a second and seven retries.
pub fn patient() -> ConnectOptions {
    ConnectOptions { timeout: PATIENT_TIMEOUT, retry_count: 7, ..ConnectOptions::default() }
}

/// 4.096 µs · 2^18: 1.07 s.
const PATIENT_TIMEOUT: u8 = 18;
