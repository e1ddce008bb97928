//! What became of frames that were not sent.

use std::io;

use crate::error::DeviceError;

/// Frames by the reason for which the kernel has not sent them, and refusals.
#[derive(Debug, Default)]
pub(crate) struct SendCounts {
    /// Times that the kernel had no room; the frames waited.
    pub(crate) queue_full: u64,
    too_long: u64,
    pub(crate) refused: u64,
    pub(crate) no_carrier: u64,
    pub(crate) stalled: u64,
    down: u64,
    gone: u64,
}

impl SendCounts {
    /// Counts a frame that may not be sent.
    pub(crate) fn note_bad(&mut self, error: &DeviceError) {
        match error {
            DeviceError::SegmentTooLong { .. } => self.too_long += 1,
            _ => self.refused += 1,
        }
    }

    /// Counts a frame that the kernel has refused for itself.
    pub(crate) fn note_refused(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => self.too_long += 1,
            _ => self.refused += 1,
        }
    }

    /// Counts frames that were dropped because the interface is down or gone.
    pub(crate) fn note_lost(&mut self, error: &io::Error, frames: u64) {
        match error.raw_os_error() {
            Some(libc::ENETDOWN) => self.down += frames,
            _ => self.gone += frames,
        }
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 7] {
        let Self { queue_full, too_long, refused, no_carrier, stalled, down, gone } = *self;
        [
            ("socket_sent_queue_full", queue_full),
            ("socket_sent_too_long", too_long),
            ("socket_sent_refused", refused),
            ("socket_sent_no_carrier", no_carrier),
            ("socket_sent_stalled", stalled),
            ("socket_sent_down", down),
            ("socket_sent_gone", gone),
        ]
    }
}

/// Returns true for an error that says that a queue of the kernel has no room now.
pub(crate) fn is_full(error: &io::Error) -> bool {
    // EAGAIN: the socket's buffer is full; ENOBUFS: the interface's queue is full, or it has no carrier yet.
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

/// Returns true for an error that says that the interface is down or gone.
pub(crate) fn is_lost(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV))
}
