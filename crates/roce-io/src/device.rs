//! A network interface that carries whole Ethernet frames.

use std::{fmt, io, os::fd::BorrowedFd, time::Instant};

use crate::Filter;

/// A network interface that carries whole Ethernet frames. It knows no RoCE.
///
/// Nothing here blocks. Before a thread sleeps on [`wait_fds`](Self::wait_fds) it calls
/// [`receive`](Self::receive) until that returns 0, and sleeps no longer than
/// [`wake_at`](Self::wake_at) says.
pub trait FrameDevice: Send {
    /// Lends each waiting frame, at most `budget` of them, to `on_frame`; returns how many.
    /// 0 means that nothing waits (or `budget` is 0).
    ///
    /// # Errors
    /// [`DeviceError::InterfaceDown`](crate::DeviceError::InterfaceDown) once each time the
    /// interface goes down: the device works again as soon as the interface is up.
    /// [`DeviceError::InterfaceGone`](crate::DeviceError::InterfaceGone): open another device.
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize>;

    /// Whether [`receive`](Self::receive) may find something: a look that costs next to nothing,
    /// for those who spin. True where only `receive` can tell.
    fn may_receive(&self) -> bool {
        true
    }

    /// Lends free transmit slots to `fill`, each [`DeviceCapabilities::max_frame_len`] bytes long, until
    /// `fill` returns `None`, no slot is free, or as much is in them as is worth handing over at
    /// once; then hands the batch to the kernel. Returns how many frames the kernel took, those
    /// left from earlier calls among them.
    ///
    /// A full kernel queue is no error: frames keep their slots and go first next time; then
    /// [`has_unsent`](Self::has_unsent) is true. No file descriptor tells when the queue has
    /// room again: call again at [`wake_at`](Self::wake_at). A call before that does nothing.
    /// Frames do not wait for ever: a device drops those that its interface cannot take in a
    /// bounded time, and counts them. From then on `has_unsent` is false, and what is filled in
    /// is dropped as long as the interface takes nothing.
    ///
    /// # Errors
    /// [`DeviceError::SegmentTooLong`](crate::DeviceError::SegmentTooLong) or
    /// [`DeviceError::BadFrame`](crate::DeviceError::BadFrame) when `fill` wrote what may not be
    /// sent: that frame is discarded and counted, those before it are sent all the same.
    /// [`DeviceError::InterfaceDown`](crate::DeviceError::InterfaceDown) or
    /// [`DeviceError::InterfaceGone`](crate::DeviceError::InterfaceGone): every frame in a slot
    /// is discarded, since it would be stale when the interface returns.
    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>)
    -> io::Result<usize>;

    /// Whether frames wait in slots because the kernel's queue was full.
    fn has_unsent(&self) -> bool;

    /// What a frame may be.
    fn capabilities(&self) -> DeviceCapabilities;

    /// Readable when [`receive`](Self::receive) has work.
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// When [`receive`](Self::receive) and [`transmit`](Self::transmit) are to be called again
    /// even though no descriptor is readable: frames are held back until then, or wait for room in
    /// the kernel's queue. In the past: at once. Never `None` while
    /// [`has_unsent`](Self::has_unsent).
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// Changes which frames [`receive`](Self::receive) sees. Devices without a filter ignore it.
    ///
    /// # Errors
    /// The kernel's reason; the filter before stays in force.
    fn set_filter(&mut self, _filter: &Filter) -> io::Result<()> {
        Ok(())
    }

    /// Sets [`DeviceCapabilities::mtu`] to the interface's MTU of now, in bytes. The caller learns of the
    /// change, so that the device need not ask the kernel.
    fn set_mtu(&mut self, _mtu: usize) {}

    /// Counters by stable names, the innermost device's first.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl<D: FrameDevice + ?Sized> FrameDevice for Box<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        (**self).receive(budget, on_frame)
    }
    fn may_receive(&self) -> bool {
        (**self).may_receive()
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        (**self).transmit(fill)
    }
    fn has_unsent(&self) -> bool {
        (**self).has_unsent()
    }
    fn capabilities(&self) -> DeviceCapabilities {
        (**self).capabilities()
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        (**self).wait_fds()
    }
    fn wake_at(&self) -> Option<Instant> {
        (**self).wake_at()
    }
    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        (**self).set_filter(filter)
    }
    fn set_mtu(&mut self, mtu: usize) {
        (**self).set_mtu(mtu);
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
}

/// A frame that arrived, lent for the duration of one call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RxFrame<'a> {
    /// The frame from the destination MAC address on, without the frame check sequence.
    pub bytes: &'a [u8],
    /// For a train, the UDP payload bytes of each packet but the last, never 0.
    /// `None`: one packet.
    pub segment_len: Option<usize>,
    /// The UDP checksum field holds only the sum over the pseudo-header (or nothing yet), since
    /// sender and receiver share a kernel: the frame never met a wire, do not verify it.
    pub udp_checksum_partial: bool,
}

impl fmt::Debug for RxFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxFrame")
            .field("len", &self.bytes.len())
            .field("segment_len", &self.segment_len)
            .field("udp_checksum_partial", &self.udp_checksum_partial)
            .finish()
    }
}

/// What was written into a transmit slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxFrame {
    /// Bytes of the frame, from the destination MAC address on.
    pub len: usize,
    /// For a train, the UDP payload bytes of each packet but the last. The UDP checksum field
    /// must then hold the folded sum over the pseudo-header of the whole train, *not*
    /// complemented: the kernel completes it when it cuts. `None`: one packet, sent untouched.
    pub segment_len: Option<usize>,
    /// Where the UDP payload starts: 42 for IPv4, 62 for IPv6, 4 more for each VLAN tag.
    /// Looked at for trains alone.
    pub headers_len: usize,
}

impl TxFrame {
    /// One packet of `len` bytes, sent as it stands.
    pub const fn single(len: usize) -> Self {
        Self { len, segment_len: None, headers_len: 0 }
    }

    /// A train of `len` bytes in all, whose UDP payload starts at `headers_len` and is cut every
    /// `segment_len` bytes.
    pub const fn train(len: usize, headers_len: usize, segment_len: usize) -> Self {
        Self { len, segment_len: Some(segment_len), headers_len }
    }
}

/// What a device can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCapabilities {
    /// The interface's MTU: no IP packet, and no packet of a train, may be longer.
    pub mtu: usize,
    /// Bytes a transmit slot holds: a frame, train or not, may not be longer.
    pub max_frame_len: usize,
    /// Packets a train may hold. 1: no trains.
    pub max_train_packets: usize,
}

/// Which way a frame went, seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}
