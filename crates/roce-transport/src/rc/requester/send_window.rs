//! The send window of a queue pair.

use roce_wire::{PathMtu, Psn};

use crate::WindowConfig;

/// A limit on the packets that a queue pair has in flight, adapted to loss.
///
/// Hardware relies on a lossless fabric. Between software endpoints the peer's socket buffer
/// overflows, and go-back-N with a fixed window would overflow it again. So the window halves with
/// each loss and quarters with each ACK timeout; rare losses of packets that are repaired alone do
/// not count (see `LossAllowance`). It grows while packets arrive: doubling up to half the size of
/// the last loss, slowly from there on.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow {
    size: u32,
    /// Where doubling ends.
    threshold: u32,
    min: u32,
    max: u32,
    /// Packets that arrived since the last slow step.
    arrived: u32,
    /// The window blocked a packet since it last grew.
    is_limited: bool,
}

/// The smallest and the largest size in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowLimits {
    pub(super) min: u32,
    pub(super) max: u32,
}

/// The slow growth for each window of packets that arrives: a 16th.
const SLOW_STEP: u32 = 16;

impl SendWindow {
    pub(super) fn new(config: &WindowConfig, mtu: PathMtu) -> Self {
        let by_bytes = config.max_bytes / mtu.bytes() as u32;
        let max = config.max_packets.min(by_bytes).clamp(1, Psn::HALF / 2);
        let min = config.min_packets.clamp(1, max);
        let size = config.initial_packets.clamp(min, max);
        Self { size, threshold: max, min, max, arrived: 0, is_limited: false }
    }

    /// The limits of its size.
    pub(super) const fn limits(&self) -> WindowLimits {
        WindowLimits { min: self.min, max: self.max }
    }

    /// Limits the window to `packets`, at least 1. A window at an earlier cap follows. `limits` are
    /// those without a cap.
    pub(super) fn set_cap(&mut self, packets: u32, limits: WindowLimits) {
        let WindowLimits { min, max } = limits;
        let was_capped = self.size >= self.max;
        self.max = packets.clamp(1, max);
        self.min = min.min(self.max);
        self.size = if was_capped { self.max } else { self.size.min(self.max) };
    }

    /// Removes the limit. The window grows slowly from where it is.
    pub(super) fn remove_cap(&mut self, limits: WindowLimits) {
        WindowLimits { min: self.min, max: self.max } = limits;
        self.size = self.size.max(self.min);
        self.threshold = self.size;
    }

    /// Packets that may be in flight.
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// The size that losses never shrink it below.
    pub(super) const fn min(&self) -> u32 {
        self.min
    }

    /// The window blocked a packet.
    pub(super) fn on_limit(&mut self) {
        self.is_limited = true;
    }

    /// `packets` arrived.
    pub(super) fn on_progress(&mut self, packets: u32) {
        if !self.is_limited || self.size == self.max {
            return;
        }
        self.is_limited = false;
        if self.size < self.threshold {
            self.size = self.size.saturating_add(packets).min(self.threshold);
            return;
        }
        self.arrived = self.arrived.saturating_add(packets);
        if self.arrived >= self.size {
            self.arrived = 0;
            self.size = (self.size + self.size.div_ceil(SLOW_STEP)).min(self.max);
        }
    }

    /// A packet was lost that does not count: the window grows slowly from here on.
    pub(super) fn end_doubling(&mut self) {
        self.threshold = self.threshold.min(self.size);
    }

    /// A packet was lost and others arrived.
    pub(super) fn on_loss(&mut self) {
        self.shrink(2);
    }

    /// The ACK timeout expired.
    pub(super) fn on_timeout(&mut self) {
        self.shrink(4);
    }

    fn shrink(&mut self, by: u32) {
        self.threshold = (self.size / 2).max(self.min);
        self.size = (self.size / by).max(self.min);
        self.arrived = 0;
        self.is_limited = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window() -> SendWindow {
        SendWindow::new(&WindowConfig::default(), PathMtu::B1024)
    }

    fn full_windows(window: &mut SendWindow, count: u32) {
        for _ in 0..count {
            window.on_limit();
            window.on_progress(window.size());
        }
    }

    #[test]
    fn without_loss_the_window_doubles_up_to_its_limit() {
        let mut window = window();
        full_windows(&mut window, 4);
        assert_eq!(window.size(), 2048);
        assert_eq!(SendWindow::new(&WindowConfig::default(), PathMtu::B4096).max, 512, "2 MiB");
    }

    #[test]
    fn after_a_loss_it_grows_slowly_from_half() {
        let mut window = window();
        full_windows(&mut window, 4);
        window.on_loss();
        assert_eq!(window.size(), 1024);
        full_windows(&mut window, 1);
        assert_eq!(window.size(), 1088);
    }

    #[test]
    fn a_window_that_limits_nothing_does_not_grow() {
        let mut window = window();
        window.on_progress(1000);
        assert_eq!(window.size(), 128);
    }

    #[test]
    fn a_window_follows_its_cap_and_grows_slowly_once_that_is_gone() {
        let mut window = window();
        let limits = window.limits();
        for cap in [100, 2, 0, 40] {
            window.set_cap(cap, limits);
            assert_eq!((window.size(), window.min()), (cap.max(1), cap.clamp(1, 4)));
        }
        window.on_loss();
        window.set_cap(50, limits);
        assert_eq!(window.size(), 20, "a loss counts beside the cap");
        window.remove_cap(limits);
        full_windows(&mut window, 1);
        assert_eq!((window.size(), window.min()), (22, 4));
    }

    proptest! {
        #[test]
        fn the_window_never_leaves_its_limits(steps in prop::collection::vec(0u8..4, 0..200)) {
            let mut window = window();
            for step in steps {
                match step {
                    0 => window.on_limit(),
                    1 => window.on_progress(100),
                    2 => window.on_loss(),
                    _ => window.on_timeout(),
                }
                prop_assert!((4..=2048).contains(&window.size()));
            }
        }
    }
}
