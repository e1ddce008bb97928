//! Devices of memory: two that are connected, and one that receives what it sends.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::device::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame};

/// One device of a pair: each receives what the other sends, in order, trains whole.
#[derive(Debug)]
pub struct MemoryDevice {
    capabilities: DeviceCapabilities,
    queue_len: usize,
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
    slot: Vec<u8>,
    /// Readable while `incoming` may hold frames; the peer writes to its other end.
    bell: UnixStream,
    peer_bell: UnixStream,
}

/// Configuration of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// As [`DeviceCapabilities::mtu`]. Default 4300.
    pub mtu: usize,
    /// As [`DeviceCapabilities::max_train_packets`]. Default 64.
    pub max_train_packets: usize,
    /// Maximum number of frames queued in each direction; further frames are lost, as in a real
    /// receive queue. Default 1024.
    pub queue_len: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { mtu: 4300, max_train_packets: 64, queue_len: 1024 }
    }
}

/// Creates two connected devices.
///
/// # Panics
/// If the process has fewer than four file descriptors left.
pub fn memory_pair(config: &MemoryConfig) -> (MemoryDevice, MemoryDevice) {
    let bell = || {
        let (rings, hears) = UnixStream::pair().expect("a socket pair needs only descriptors");
        rings.set_nonblocking(true).expect("a fresh socket can be made non-blocking");
        hears.set_nonblocking(true).expect("a fresh socket can be made non-blocking");
        (rings, hears)
    };
    let ((ring_a, hear_a), (ring_b, hear_b)) = (bell(), bell());
    let (to_a, to_b) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
    let device = |incoming: &Arc<Queue>, outgoing: &Arc<Queue>, bell, peer_bell| MemoryDevice {
        capabilities: config.capabilities(),
        queue_len: config.queue_len,
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        slot: vec![0; crate::vnet_hdr::MAX_FRAME_LEN],
        bell,
        peer_bell,
    };
    (device(&to_a, &to_b, hear_a, ring_b), device(&to_b, &to_a, hear_b, ring_a))
}

/// A device that receives what it sends, in order, trains whole. A full queue is that of a kernel:
/// frames wait until some are received.
///
/// ```
/// use roce_io::{FrameDevice, LoopDevice, MemoryConfig, TxFrame};
///
/// let mut device = LoopDevice::new(&MemoryConfig { queue_len: 2, ..MemoryConfig::default() });
/// let mut lens = [60, 70, 80].into_iter();
/// device.transmit(&mut |_slot| lens.next().map(TxFrame::single))?;
/// assert!(device.has_unsent());
/// assert_eq!(device.receive(8, &mut |frame| assert!(frame.bytes.len() < 80))?, 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LoopDevice {
    capabilities: DeviceCapabilities,
    queue_len: usize,
    queue: VecDeque<Frame>,
    slot: Vec<u8>,
    /// A time in the past.
    made: Instant,
}

impl LoopDevice {
    /// Creates the device. Its queue has room for `queue_len` frames.
    pub fn new(config: &MemoryConfig) -> Self {
        Self {
            capabilities: config.capabilities(),
            queue_len: config.queue_len,
            queue: VecDeque::new(),
            slot: vec![0; crate::vnet_hdr::MAX_FRAME_LEN],
            made: Instant::now(),
        }
    }
}

impl FrameDevice for LoopDevice {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let count = budget.min(self.queue.len());
        for frame in self.queue.drain(..count) {
            on_frame(frame.lent());
        }
        Ok(count)
    }

    fn may_receive(&self) -> bool {
        !self.queue.is_empty()
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let mut count = 0;
        while self.queue.len() < self.queue_len {
            let Some(tx_frame) = fill(&mut self.slot) else { break };
            let sendable =
                crate::vnet_hdr::check(&self.slot, &tx_frame, &self.capabilities, "memory")?;
            self.queue.push_back(Frame::of(sendable, &tx_frame));
            count += 1;
        }
        Ok(count)
    }

    fn has_unsent(&self) -> bool {
        self.queue.len() >= self.queue_len
    }
    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
    /// At once while a frame waits, which no descriptor shows.
    fn wake_at(&self) -> Option<Instant> {
        self.may_receive().then_some(self.made)
    }
}

impl MemoryConfig {
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities {
            mtu: self.mtu,
            max_frame_len: crate::vnet_hdr::MAX_FRAME_LEN,
            max_train_packets: self.max_train_packets,
        }
    }
}

impl FrameDevice for MemoryDevice {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < budget {
            let Some(frame) = self.next_frame() else { break };
            on_frame(frame.lent());
            count += 1;
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let mut count = 0;
        while let Some(tx_frame) = fill(&mut self.slot) {
            let sendable =
                crate::vnet_hdr::check(&self.slot, &tx_frame, &self.capabilities, "memory")?;
            let mut queue = self.outgoing.lock();
            if queue.len() < self.queue_len {
                if queue.is_empty() {
                    // A full bell is readable already; a closed one has no reader.
                    let _ = self.peer_bell.write(&[1]);
                }
                queue.push_back(Frame::of(sendable, &tx_frame));
            }
            count += 1;
        }
        Ok(count)
    }

    fn has_unsent(&self) -> bool {
        false
    }
    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.bell.as_fd()]
    }
}

impl MemoryDevice {
    fn next_frame(&mut self) -> Option<Frame> {
        let mut queue = self.incoming.lock();
        let frame = queue.pop_front();
        if queue.is_empty() {
            // Drained under the lock, so that the byte of a later frame is not lost.
            let _ = self.bell.read(&mut [0; 16]);
        }
        frame
    }
}

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    segment_len: Option<usize>,
}

impl Frame {
    fn of(bytes: &[u8], tx_frame: &TxFrame) -> Self {
        Self { bytes: bytes.to_vec(), segment_len: tx_frame.segment_len }
    }

    fn lent(&self) -> RxFrame<'_> {
        RxFrame {
            bytes: &self.bytes,
            segment_len: self.segment_len,
            udp_checksum_partial: self.segment_len.is_some(),
            vlan_tag: None,
        }
    }
}

#[derive(Debug, Default)]
struct Queue(Mutex<VecDeque<Frame>>);

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        // A thread that panicked left only whole frames in the queue.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceError;

    fn send(device: &mut MemoryDevice, lens: &[usize]) -> io::Result<usize> {
        let mut lens = lens.iter();
        device.transmit(&mut |_| Some(TxFrame::single(*lens.next()?)))
    }

    fn received_lens(device: &mut MemoryDevice, budget: usize) -> Vec<usize> {
        let mut lens = Vec::new();
        device.receive(budget, &mut |frame| lens.push(frame.bytes.len())).unwrap();
        lens
    }

    fn is_readable(device: &MemoryDevice) -> bool {
        let mut fds = [nix::poll::PollFd::new(device.wait_fds()[0], nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn frames_keep_their_order_and_do_not_return_to_their_sender() {
        let (mut here, mut there) = memory_pair(&MemoryConfig::default());
        send(&mut here, &[60, 70, 80]).unwrap();
        send(&mut there, &[90]).unwrap();
        assert_eq!(received_lens(&mut there, 2), [60, 70]);
        assert_eq!(received_lens(&mut there, 2), [80]);
        assert_eq!(received_lens(&mut here, 2), [90]);
    }

    #[test]
    fn a_full_queue_loses_the_newest_frames() {
        let config = MemoryConfig { queue_len: 2, ..MemoryConfig::default() };
        let (mut here, mut there) = memory_pair(&config);
        assert_eq!(send(&mut here, &[60, 70, 80]).unwrap(), 3);
        assert_eq!(received_lens(&mut there, 8), [60, 70]);
    }

    #[test]
    fn the_descriptor_is_readable_while_a_frame_waits() {
        let (mut here, mut there) = memory_pair(&MemoryConfig::default());
        for round in 0..3 {
            assert!(!is_readable(&there), "round {round}");
            send(&mut here, &[60, 70, 80]).unwrap();
            assert!(is_readable(&there), "round {round}");
            received_lens(&mut there, 2);
            assert!(is_readable(&there), "one is left in round {round}");
            received_lens(&mut there, 1);
            send(&mut here, &[60; 100]).unwrap();
            received_lens(&mut there, 100);
        }
        assert!(!is_readable(&there));
        assert!(!is_readable(&here));
    }

    #[test]
    fn a_segment_beyond_the_mtu_is_refused() {
        let (mut here, mut there) = memory_pair(&MemoryConfig::default());
        let error = send(&mut here, &[60, 4315, 70]).unwrap_err();
        assert!(matches!(DeviceError::of(&error), Some(DeviceError::SegmentTooLong { .. })));
        assert_eq!(received_lens(&mut there, 8), [60]);
    }

    #[test]
    fn frames_to_a_dropped_peer_are_lost() {
        let (mut here, there) = memory_pair(&MemoryConfig::default());
        drop(there);
        assert_eq!(send(&mut here, &[60, 70]).unwrap(), 2);
        assert_eq!(received_lens(&mut here, 8), []);
    }
}
