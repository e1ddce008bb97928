//! The transmit queues of an engine. Each of them stops, when it is full, the queue pairs whose packets
//! leave through it, and no others.

use roce_io::TxFrame;
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
