//! The transmit queues of an engine. Each of them stops, when it is full, the queue pairs whose packets
//! leave through it, and no others.

use std::collections::VecDeque;
use std::io;

use roce_io::{FrameDevice, TxFrame};
use roce_transport::TransmitQueue;

/// The slots of the interface.
pub(super) const WIRE_QUEUE: TransmitQueue = TransmitQueue(0);
/// Frames from this engine to itself.
pub(super) const LOOPBACK_QUEUE: TransmitQueue = TransmitQueue(1);
/// Frames for other processes of this host.
pub(super) const LO_QUEUE: TransmitQueue = TransmitQueue(2);
/// Packets of class 0 while the link pauses it; those of the other classes follow. See
/// [`LinkPauses`](super::link_pauses::LinkPauses).
pub(super) const FIRST_PAUSED_QUEUE: TransmitQueue = TransmitQueue(3);

/// Most frames in each queue for this host: to this engine, and to other processes.
pub(super) const MAX_LOCAL_FRAMES: usize = 16;

/// A frame for an address of this host.
pub(super) type LocalFrame = (Vec<u8>, TxFrame);

/// Sends the frames of a queue, as far as a device takes them.
pub(super) fn transmit_queue(
    device: &mut dyn FrameDevice,
    queue: &mut VecDeque<LocalFrame>,
) -> io::Result<()> {
    if queue.is_empty() && !device.has_unsent() {
        return Ok(());
    }
    device.transmit(&mut |slot| {
        let (frame, outgoing) = queue.pop_front()?;
        slot[..frame.len()].copy_from_slice(&frame);
        Some(outgoing)
    })?;
    Ok(())
}
