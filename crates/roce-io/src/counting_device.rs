//! Counts frames and bytes.

use std::io;

use crate::device::{FrameDevice, RxFrame, TxFrame, forward};

/// A device around a device that counts frames and bytes. A train counts as one frame.
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
    received: DirectionCounters,
    sent: DirectionCounters,
}

impl<D: FrameDevice> CountingDevice<D> {
    /// Wraps `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner, received: DirectionCounters::default(), sent: DirectionCounters::default() }
    }
}

impl<D: FrameDevice> FrameDevice for CountingDevice<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let received = &mut self.received;
        self.inner.receive(budget, &mut |frame| {
            received.add(frame.bytes.len(), frame.segment_len.is_some());
            on_frame(frame);
        })
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let sent = &mut self.sent;
        self.inner.transmit(&mut |slot| {
            let tx_frame = fill(slot)?;
            sent.add(tx_frame.len, tx_frame.segment_len.is_some());
            Some(tx_frame)
        })
    }
    forward!(self, self.inner; may_receive, has_unsent, capabilities, wait_fds, wake_at,
        set_filter, set_mtu, set_addresses);
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.inner.counters();
        let Self { received, sent, .. } = self;
        all.extend([
            ("device_rcvd_frames", received.frames),
            ("device_rcvd_trains", received.trains),
            ("device_rcvd_bytes", received.bytes),
            ("device_sent_frames", sent.frames),
            ("device_sent_trains", sent.trains),
            ("device_sent_bytes", sent.bytes),
        ]);
        all
    }
}

#[derive(Debug, Default)]
struct DirectionCounters {
    frames: u64,
    trains: u64,
    bytes: u64,
}

impl DirectionCounters {
    fn add(&mut self, bytes: usize, is_train: bool) {
        self.frames += 1;
        self.trains += u64::from(is_train);
        self.bytes += bytes as u64;
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
        let mut frames =
            [TxFrame::single(60), TxFrame::train(242, 42, 100), TxFrame::single(100)].into_iter();
        here.transmit(&mut |_| frames.next()).unwrap();
        there.receive(8, &mut |_| ()).unwrap();
        let expected = |direction: &str| {
            let of = |what: &str| format!("device_{direction}_{what}");
            [(of("frames"), 3), (of("trains"), 1), (of("bytes"), 402)]
        };
        let seen = |device: &dyn FrameDevice| -> Vec<(String, u64)> {
            let moved = device.counters().into_iter().filter(|(_, value)| *value > 0);
            moved.map(|(name, value)| (name.to_owned(), value)).collect()
        };
        assert_eq!(seen(&here), expected("sent"));
        assert_eq!(seen(&there), expected("rcvd"));
    }
}
