//! Counts frames and bytes.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::{
    Filter,
    device::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame},
};

/// A device around a device that counts frames and bytes.
///
/// ```
/// use roce_io::{CountingDevice, FrameDevice, MemoryConfig, TxFrame, memory_pair};
///
/// let (device, _peer) = memory_pair(&MemoryConfig::default());
/// let mut device = CountingDevice::new(device);
/// let mut lens = [60, 100].into_iter();
/// device.transmit(&mut |_slot| lens.next().map(TxFrame::single))?;
/// assert!(device.counters().contains(&("device_sent_frames", 2)));
/// assert!(device.counters().contains(&("device_sent_bytes", 160)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CountingDevice<D> {
    inner: D,
    counters: DeviceCounters,
}

impl<D: FrameDevice> CountingDevice<D> {
    /// Wraps `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner, counters: DeviceCounters::default() }
    }

    /// Returns a handle to the counters.
    pub fn device_counters(&self) -> DeviceCounters {
        self.counters.clone()
    }
}

impl<D: FrameDevice> FrameDevice for CountingDevice<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let counts = &self.counters.0;
        self.inner.receive(budget, &mut |frame| {
            counts.received.add(frame.bytes.len(), frame.segment_len.is_some());
            on_frame(frame);
        })
    }
    fn may_receive(&self) -> bool {
        self.inner.may_receive()
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let counts = &self.counters.0;
        self.inner.transmit(&mut |slot| {
            let tx_frame = fill(slot)?;
            counts.sent.add(tx_frame.len, tx_frame.segment_len.is_some());
            Some(tx_frame)
        })
    }
    fn has_unsent(&self) -> bool {
        self.inner.has_unsent()
    }
    fn capabilities(&self) -> DeviceCapabilities {
        self.inner.capabilities()
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.wait_fds()
    }
    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.inner.set_filter(filter)
    }
    fn set_mtu(&mut self, mtu: usize) {
        self.inner.set_mtu(mtu);
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.inner.counters();
        all.extend(self.counters.iter());
        all
    }
}

/// Counters of a [`CountingDevice`]; cheap to clone, readable from any thread.
#[derive(Clone, Debug, Default)]
pub struct DeviceCounters(Arc<Both>);

impl DeviceCounters {
    /// Returns names and values. A train counts as one frame.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Both { received, sent } = &*self.0;
        [
            ("device_rcvd_frames", read(&received.frames)),
            ("device_rcvd_trains", read(&received.trains)),
            ("device_rcvd_bytes", read(&received.bytes)),
            ("device_sent_frames", read(&sent.frames)),
            ("device_sent_trains", read(&sent.trains)),
            ("device_sent_bytes", read(&sent.bytes)),
        ]
        .into_iter()
    }
}

#[derive(Debug, Default)]
struct Both {
    received: OneWay,
    sent: OneWay,
}

#[derive(Debug, Default)]
struct OneWay {
    frames: AtomicU64,
    trains: AtomicU64,
    bytes: AtomicU64,
}

impl OneWay {
    /// The device that owns the counters is their only writer, so no atomic read-modify-write is
    /// needed: six of them for each small message and its response would cost 50 ns.
    fn add(&self, bytes: usize, train: bool) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.frames, 1);
        add(&self.trains, u64::from(train));
        add(&self.bytes, bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryConfig, memory_pair};

    #[test]
    fn each_direction_has_its_own_counters() {
        let (here, there) = memory_pair(&MemoryConfig::default());
        let (mut here, mut there) = (CountingDevice::new(here), CountingDevice::new(there));
        let handle = there.device_counters();
        let mut frames =
            [TxFrame::single(60), TxFrame::train(242, 42, 100), TxFrame::single(100)].into_iter();
        here.transmit(&mut |_| frames.next()).unwrap();
        there.receive(8, &mut |_| ()).unwrap();
        let expected = |direction: &str| {
            let of = |what: &str| format!("device_{direction}_{what}");
            [(of("frames"), 3), (of("trains"), 1), (of("bytes"), 402)]
        };
        let seen = |counters: &DeviceCounters| -> Vec<(String, u64)> {
            let moved = counters.iter().filter(|(_, value)| *value > 0);
            moved.map(|(name, value)| (name.to_owned(), value)).collect()
        };
        assert_eq!(seen(&here.device_counters()), expected("sent"));
        assert_eq!(seen(&handle), expected("rcvd"));
    }
}
