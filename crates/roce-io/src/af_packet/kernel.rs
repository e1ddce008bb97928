//! Hands frames to the kernel by a packet socket.

use std::{io, os::fd::BorrowedFd};

use crate::{
    device::TxFrame,
    error::DeviceError,
    sys::{self, mmsg},
    transmitter::{Full, Kernel, ReadyFrames},
    vnet_hdr::{self, HEADER_LEN},
};

/// A packet socket that sends through an interface.
#[derive(Debug)]
pub(super) struct PacketKernel<'a> {
    pub(super) socket: BorrowedFd<'a>,
    pub(super) interface: &'a str,
    /// The socket bypasses the queueing discipline.
    pub(super) bypass: &'a mut bool,
}

/// What is known of a frame that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    is_train: bool,
}

impl Kernel for PacketKernel<'_> {
    type Note = Note;

    /// Aligned, with the virtio header directly before it.
    const FRAME_AT: usize = 16;

    fn prepare(&self, slot: &mut [u8], frame: &TxFrame) -> Result<Option<Note>, DeviceError> {
        slot[Self::FRAME_AT - HEADER_LEN..Self::FRAME_AT]
            .copy_from_slice(&vnet_hdr::tx_header(frame));
        Ok(Some(Note { is_train: frame.segment_len.is_some() }))
    }

    fn send(&mut self, ready: &ReadyFrames<Note>) -> io::Result<usize> {
        self.send_first(ready, ready.len())
    }

    fn on_full(&mut self, ready: &ReadyFrames<Note>) -> Full {
        if self.send_train_without_bypass(ready) {
            return Full::Sent(1);
        }
        // If the query fails, the time limit alone decides.
        let has_carrier = sys::interface::is_running(self.socket, self.interface).unwrap_or(true);
        Full::Waits { has_carrier }
    }
}

impl PacketKernel<'_> {
    /// Hands at least one of the first `count` frames to the kernel, or returns its error.
    fn send_first(&self, ready: &ReadyFrames<Note>, count: usize) -> io::Result<usize> {
        let mut frames = ready
            .iter()
            .take(count)
            .map(|(slot, len, _)| &slot[Self::FRAME_AT - HEADER_LEN..Self::FRAME_AT + len]);
        match (count, frames.next()) {
            (1, Some(frame)) => mmsg::send_one(self.socket, frame).map(|()| 1),
            (_, first) => mmsg::send(self.socket, first.into_iter().chain(frames)),
        }
    }

    /// Sends the first train through the queueing discipline if the bypass may be why it was
    /// refused, and ends the bypass if that succeeds. On an interface that does not take trains
    /// whole (such as a tap) the kernel segments only there; with the bypass it reports a full
    /// queue.
    fn send_train_without_bypass(&mut self, ready: &ReadyFrames<Note>) -> bool {
        let (socket, interface) = (self.socket, self.interface);
        let set_bypass = |on: bool| {
            let name = libc::PACKET_QDISC_BYPASS;
            sys::socket::set_int(socket, libc::SOL_PACKET, name, on.into()).is_ok()
        };
        // Without a carrier the queueing discipline would accept every frame and drop it. The
        // second query takes the kernel's lock on all interfaces, so it comes last.
        let has_carrier = || {
            sys::interface::is_running(socket, interface).unwrap_or(true)
                && sys::interface::has_carrier(socket, interface).unwrap_or(true)
        };
        let is_train = ready.first().is_some_and(|first| first.is_train);
        if !(*self.bypass && is_train && has_carrier() && set_bypass(false)) {
            return false;
        }
        let is_sent = self.send_first(ready, 1).is_ok();
        *self.bypass = !is_sent && set_bypass(true);
        is_sent
    }
}
