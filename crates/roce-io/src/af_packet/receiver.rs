//! Receives frames from the ring, or in batches by `recvmmsg`.

use std::{io, os::fd::BorrowedFd};

use super::ReceiveMode;
use crate::{
    device::RxFrame,
    sys::{
        mmsg::{self, Arrival},
        ring::{Ring, RingFrame},
    },
    vnet_hdr::{HEADER_LEN, RxHeader},
};

#[derive(Debug)]
pub(super) struct Receiver {
    source: Source,
    unusable: u64,
}

#[derive(Debug)]
enum Source {
    Ring(Ring),
    Mmsg { buffers: Vec<Vec<u8>>, arrivals: Vec<Arrival> },
}

impl Receiver {
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        mode: ReceiveMode,
        max_frame_len: usize,
    ) -> io::Result<Self> {
        let source = match mode {
            ReceiveMode::Ring { slots } => Source::Ring(Ring::new(socket, slots, max_frame_len)?),
            ReceiveMode::Mmsg { batch } => Source::Mmsg {
                buffers: vec![vec![0; HEADER_LEN + max_frame_len]; batch],
                arrivals: vec![Arrival::default(); batch],
            },
        };
        Ok(Self { source, unusable: 0 })
    }

    /// Drops all frames that wait, at most `limit`, and forgets what was counted.
    pub(super) fn clear(&mut self, socket: BorrowedFd<'_>, limit: usize) -> io::Result<()> {
        self.receive(socket, limit, &mut |_| ())?;
        // Gives the last slot of a ring back.
        self.receive(socket, 0, &mut |_| ())?;
        self.unusable = 0;
        Ok(())
    }

    /// As [`FrameDevice::receive`](crate::FrameDevice::receive).
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        if let Source::Ring(ring) = &mut self.source {
            ring.give_back();
        }
        while count < budget {
            let taken = match &mut self.source {
                Source::Ring(ring) => match ring.take() {
                    Some(RingFrame::Whole { vnet_hdr, bytes, vlan_tag }) => {
                        self.unusable += lend(vnet_hdr, bytes, vlan_tag, on_frame);
                        1
                    }
                    Some(RingFrame::Unusable) => {
                        self.unusable += 1;
                        1
                    }
                    None => 0,
                },
                Source::Mmsg { buffers, arrivals } => {
                    let len = buffers.len().min(budget - count);
                    let taken = receive_now(socket, &mut buffers[..len], arrivals)?;
                    for (buffer, arrival) in buffers.iter().zip(&arrivals[..taken]) {
                        self.unusable += lend_buffer(buffer, *arrival, on_frame);
                    }
                    taken
                }
            };
            if taken == 0 {
                break;
            }
            count += taken;
        }
        Ok(count)
    }

    /// As [`FrameDevice::may_receive`](crate::FrameDevice::may_receive).
    #[inline]
    pub(super) fn may_receive(&self) -> bool {
        match &self.source {
            Source::Ring(ring) => ring.has_frame(),
            Source::Mmsg { .. } => true,
        }
    }

    /// Returns the number of frames that were truncated, or trains of an unknown kind.
    pub(super) fn unusable(&self) -> u64 {
        self.unusable
    }
}

fn lend_buffer(buffer: &[u8], arrival: Arrival, on_frame: &mut dyn FnMut(RxFrame<'_>)) -> u64 {
    match buffer[..arrival.len].split_first_chunk() {
        Some((header, bytes)) if !arrival.truncated => lend(header, bytes, None, on_frame),
        _ => 1,
    }
}

/// Lends the frame and returns 0, or returns 1 if it is unusable.
fn lend(
    header: &[u8; HEADER_LEN],
    bytes: &[u8],
    vlan_tag: Option<[u8; 4]>,
    on_frame: &mut dyn FnMut(RxFrame<'_>),
) -> u64 {
    let Some(RxHeader { segment_len, checksum_partial }) = RxHeader::parse(header) else {
        return 1;
    };
    on_frame(RxFrame { bytes, segment_len, udp_checksum_partial: checksum_partial, vlan_tag });
    0
}

fn receive_now(
    socket: BorrowedFd<'_>,
    buffers: &mut [Vec<u8>],
    arrivals: &mut [Arrival],
) -> io::Result<usize> {
    match mmsg::receive(socket, buffers, arrivals) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Ok(0)
        }
        result => result,
    }
}
