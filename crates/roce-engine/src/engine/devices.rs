//! The devices of an engine, and the frames that wait for them.

use std::collections::VecDeque;

use roce_io::FrameDevice;

use super::link_pauses::LinkPauses;
use super::transmit_queues::LocalFrame;

/// The devices of an engine, and the frames that wait for them.
pub(super) struct Devices {
    pub(super) wire: Box<dyn FrameDevice>,
    pub(super) lo: Option<Box<dyn FrameDevice>>,
    pub(super) loopback: Option<Box<dyn FrameDevice>>,
    /// Frames from this engine to itself.
    pub(super) loopback_queue: VecDeque<LocalFrame>,
    /// Frames for other processes of this host.
    pub(super) lo_queue: VecDeque<LocalFrame>,
    /// Queue pairs that send through the interface wait until it has sent what it took. It may do
    /// that while frames are received, so its state before a round does not show it.
    pub(super) is_wire_suspended: bool,
    /// Classes that the other end of the link has paused.
    pub(super) pauses: LinkPauses,
    /// Rounds since the last that received from `lo`.
    pub(super) rounds_without_lo: u32,
}

impl Devices {
    pub(super) fn new(
        wire: Box<dyn FrameDevice>,
        lo: Option<Box<dyn FrameDevice>>,
        loopback: Option<Box<dyn FrameDevice>>,
    ) -> Self {
        Self {
            wire,
            lo,
            loopback,
            loopback_queue: VecDeque::new(),
            lo_queue: VecDeque::new(),
            is_wire_suspended: false,
            pauses: LinkPauses::default(),
            rounds_without_lo: 0,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn FrameDevice> {
        let of_this_host = self.lo.iter().chain(&self.loopback);
        std::iter::once(&self.wire).chain(of_this_host).map(|device| &**device)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn FrameDevice>> {
        let of_this_host = self.lo.iter_mut().chain(&mut self.loopback);
        std::iter::once(&mut self.wire).chain(of_this_host)
    }

    /// Returns true if frames wait to be sent.
    pub(super) fn has_backlog(&self) -> bool {
        let unsent = self.wire.has_unsent() || self.lo.as_ref().is_some_and(|lo| lo.has_unsent());
        unsent || self.is_wire_suspended || self.has_local_backlog()
    }

    /// Returns true if frames for this host wait to be sent.
    pub(super) fn has_local_backlog(&self) -> bool {
        !self.loopback_queue.is_empty() || !self.lo_queue.is_empty()
    }
}
