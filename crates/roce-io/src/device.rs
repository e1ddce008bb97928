//! The interface between this crate's devices and their callers.

use std::{fmt, io, net::IpAddr, os::fd::BorrowedFd, time::Instant};

use crate::Filter;

/// A network interface that carries whole Ethernet frames.
///
/// No method blocks. Before a thread sleeps on [`wait_fds`](Self::wait_fds) it calls
/// [`receive`](Self::receive) until that returns 0, and sleeps no longer than
/// [`wake_at`](Self::wake_at) says.
pub trait FrameDevice: Send {
    /// Lends each waiting frame, at most `budget` of them, to `on_frame`; returns how many.
    /// 0 means that no frame waits, or that `budget` is 0.
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

    /// Returns false if [`receive`](Self::receive) would find no frame. Costs a few instructions,
    /// for callers that spin; a device that cannot tell so cheaply returns true.
    fn may_receive(&self) -> bool {
        true
    }

    /// Lends free transmit slots to `fill`, each
    /// [`max_frame_len`](DeviceCapabilities::max_frame_len) bytes long, until `fill` returns
    /// `None`, no slot is free, or a batch is full; then hands the batch to the kernel. Returns how
    /// many frames the kernel took, including those left from earlier calls.
    ///
    /// A full kernel queue is no error: frames keep their slots and go first next time; then
    /// [`has_unsent`](Self::has_unsent) is true. No file descriptor reports when the queue has
    /// space again: call again at [`wake_at`](Self::wake_at). A call before that does nothing.
    /// A device drops and counts frames that its interface does not take within a bounded time.
    /// From then on `has_unsent` is false, and further frames are dropped until the interface takes
    /// one.
    ///
    /// # Errors
    /// [`DeviceError::SegmentTooLong`](crate::DeviceError::SegmentTooLong) or
    /// [`DeviceError::BadFrame`](crate::DeviceError::BadFrame) if `fill` wrote a frame
    /// that may not be sent: it is discarded and counted, the frames before it are sent.
    /// [`DeviceError::InterfaceDown`](crate::DeviceError::InterfaceDown) or
    /// [`DeviceError::InterfaceGone`](crate::DeviceError::InterfaceGone): all frames in
    /// slots are discarded, as they would be stale when the interface returns.
    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>)
    -> io::Result<usize>;

    /// Returns true if frames wait in slots because the kernel's queue was full.
    fn has_unsent(&self) -> bool;

    /// Returns the limits on frames.
    fn capabilities(&self) -> DeviceCapabilities;

    /// Returns descriptors that are readable when [`receive`](Self::receive) has work.
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns when to call [`receive`](Self::receive) and [`transmit`](Self::transmit) again even
    /// though no descriptor is readable: frames are held back until then, or wait for space in the
    /// kernel's queue. A time in the past means at once. Never `None` while
    /// [`has_unsent`](Self::has_unsent).
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// Changes which frames [`receive`](Self::receive) lends. Devices without a filter ignore it.
    ///
    /// # Errors
    /// The kernel's error; the previous filter stays in force.
    fn set_filter(&mut self, _filter: &Filter) -> io::Result<()> {
        Ok(())
    }

    /// Sets [`DeviceCapabilities::mtu`] to the interface's current MTU in bytes. The
    /// caller monitors the interface, so the device does not query the kernel.
    fn set_mtu(&mut self, _mtu: usize) {}

    /// Tells which addresses the interface has now. Devices that receive frames to any address ignore it.
    fn set_addresses(&mut self, _addresses: &[IpAddr]) {}

    /// Records a packet that a device around this one loses, or has received and passes on with its
    /// faults. An empty comment is none. Devices that do not record packets ignore it.
    fn record(&mut self, _direction: Direction, _packet: &[u8], _comment: &str) {}

    /// Sets the comment with which the frames of the next calls of [`transmit`](Self::transmit) are
    /// recorded; an empty one is none.
    fn set_comment(&mut self, _comment: &str) {}

    /// Abandons the packets that faults hold back, before the device is closed: they are recorded, and
    /// neither sent nor received.
    fn abandon_held(&mut self) {}

    /// Returns counters by stable names, the innermost device's first.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Forwards the named methods of [`FrameDevice`] to a device inside.
macro_rules! forward {
    ($self:ident, $inner:expr; $($method:ident),+) => {
        $($crate::device::forward!(@$method $self, $inner);)+
    };
    (@may_receive $self:ident, $inner:expr) => {
        fn may_receive(&$self) -> bool {
            $inner.may_receive()
        }
    };
    (@has_unsent $self:ident, $inner:expr) => {
        fn has_unsent(&$self) -> bool {
            $inner.has_unsent()
        }
    };
    (@capabilities $self:ident, $inner:expr) => {
        fn capabilities(&$self) -> $crate::DeviceCapabilities {
            $inner.capabilities()
        }
    };
    (@wait_fds $self:ident, $inner:expr) => {
        fn wait_fds(&$self) -> Vec<std::os::fd::BorrowedFd<'_>> {
            $inner.wait_fds()
        }
    };
    (@wake_at $self:ident, $inner:expr) => {
        fn wake_at(&$self) -> Option<std::time::Instant> {
            $inner.wake_at()
        }
    };
    (@set_filter $self:ident, $inner:expr) => {
        fn set_filter(&mut $self, filter: &$crate::Filter) -> std::io::Result<()> {
            $inner.set_filter(filter)
        }
    };
    (@set_mtu $self:ident, $inner:expr) => {
        fn set_mtu(&mut $self, mtu: usize) {
            $inner.set_mtu(mtu);
        }
    };
    (@set_addresses $self:ident, $inner:expr) => {
        fn set_addresses(&mut $self, addresses: &[std::net::IpAddr]) {
            $inner.set_addresses(addresses);
        }
    };
    (@counters $self:ident, $inner:expr) => {
        fn counters(&$self) -> Vec<(&'static str, u64)> {
            $inner.counters()
        }
    };
}
pub(crate) use forward;

impl<D: FrameDevice + ?Sized> FrameDevice for Box<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        (**self).receive(budget, on_frame)
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        (**self).transmit(fill)
    }
    fn record(&mut self, direction: Direction, packet: &[u8], comment: &str) {
        (**self).record(direction, packet, comment);
    }
    fn set_comment(&mut self, comment: &str) {
        (**self).set_comment(comment);
    }
    fn abandon_held(&mut self) {
        (**self).abandon_held();
    }
    forward!(self, **self; may_receive, has_unsent, capabilities, wait_fds, wake_at, set_filter,
        set_mtu, set_addresses, counters);
}

/// A frame that arrived, lent for the duration of one call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RxFrame<'a> {
    /// The frame from its destination MAC address, without the frame check sequence.
    pub bytes: &'a [u8],
    /// UDP payload bytes of each packet of a train but the last, never 0. `None`: one packet.
    pub segment_len: Option<usize>,
    /// True if the UDP checksum field is zero or holds only the sum over the pseudo-header: sender
    /// and receiver share a kernel, so there is no checksum to verify.
    pub udp_checksum_partial: bool,
    /// The VLAN tag that the kernel took off, EtherType and control information, which stood behind the
    /// addresses. Only a promiscuous device receives tags of other VLANs than 0.
    pub vlan_tag: Option<[u8; 4]>,
}

impl<'a> RxFrame<'a> {
    /// Describes one packet with whole checksums and without a VLAN tag taken off.
    pub const fn packet(bytes: &'a [u8]) -> Self {
        Self { bytes, segment_len: None, udp_checksum_partial: false, vlan_tag: None }
    }
}

impl fmt::Debug for RxFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxFrame")
            .field("len", &self.bytes.len())
            .field("segment_len", &self.segment_len)
            .field("udp_checksum_partial", &self.udp_checksum_partial)
            .field("vlan_tag", &self.vlan_tag)
            .finish()
    }
}

/// A frame written into a transmit slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxFrame {
    /// Bytes of the frame, from its destination MAC address.
    pub len: usize,
    /// UDP payload bytes of each packet of a train but the last. The UDP checksum field must then
    /// hold the folded sum over the pseudo-header of the whole train, *not* complemented: the
    /// kernel completes it when it segments the train. `None`: one packet, sent unchanged.
    pub segment_len: Option<usize>,
    /// Offset of the UDP payload: 42 for IPv4, 62 for IPv6, 4 more for each VLAN tag. Used for
    /// trains only.
    pub headers_len: usize,
}

impl TxFrame {
    /// Describes one packet of `len` bytes, sent unchanged.
    pub const fn single(len: usize) -> Self {
        Self { len, segment_len: None, headers_len: 0 }
    }

    /// Describes a train of `len` bytes whose UDP payload starts at `headers_len` and is segmented
    /// every `segment_len` bytes.
    pub const fn train(len: usize, headers_len: usize, segment_len: usize) -> Self {
        Self { len, segment_len: Some(segment_len), headers_len }
    }
}

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCapabilities {
    /// The interface's MTU in bytes: the maximum length of an IP packet, in a train or not.
    pub mtu: usize,
    /// Bytes of a transmit slot: the maximum length of a frame, train or not.
    pub max_frame_len: usize,
    /// Maximum number of packets in a train. 1: no trains.
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
