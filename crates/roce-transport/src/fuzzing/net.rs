//! Frames under way, and what a script does to each of them.
//!
//! The simulated network of the tests, `roce-simnet`, uses this crate, so the bodies of its fuzz targets, which
//! are part of it, cannot use that.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::Instant;
use roce_fuzz_support::Script;

/// The way between two engines: no limit of rate or room, and a fate for every frame.
pub(super) struct Net<'a> {
    /// A byte for each frame; when they are used up, all pass.
    fates: Script<'a>,
    under_way: BTreeMap<(Instant, u64), Arrival>,
    sent: u64,
    /// Frames that did not simply pass.
    pub(super) mishaps: u32,
}

/// A frame and its destination.
pub(super) struct Arrival {
    pub(super) to: usize,
    pub(super) frame: Vec<u8>,
}

/// How long a frame is under way that nothing befalls.
const LATENCY: Duration = Duration::from_micros(1);

impl<'a> Net<'a> {
    pub(super) fn new(fates: Script<'a>) -> Self {
        Self { fates, under_way: BTreeMap::new(), sent: 0, mishaps: 0 }
    }

    /// Sends the frame that `sealed` makes of a traffic class.
    pub(super) fn send(&mut self, now: Instant, to: usize, sealed: impl FnOnce(u8) -> Vec<u8>) {
        let code = self.fates.byte();
        // A quarter of the frames that pass are marked.
        let mut frame = sealed(if code & 7 == 3 { 0b11 } else { 0b10 });
        let at = now + LATENCY;
        // From none to 32 ms: within a batch, across some frames, across timeouts.
        let later = at + Duration::from_nanos(1000 << (code >> 3 >> 1));
        let (drops, duplicates, delays, corrupts) =
            (code & 7 == 4, code & 7 == 5, code & 7 == 6, code & 7 == 7);
        self.mishaps += u32::from(code & 7 >= 4);
        if corrupts {
            let bit = usize::from(self.fates.number::<u16>());
            let at = bit / 8 % frame.len();
            frame[at] ^= 1 << (bit % 8);
        }
        if duplicates {
            self.put(later, to, frame.clone());
        }
        if !drops {
            self.put(if delays { later } else { at }, to, frame);
        }
    }

    /// When the next frame arrives.
    pub(super) fn next(&self) -> Option<Instant> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// A frame that has arrived by now.
    pub(super) fn receive(&mut self, now: Instant) -> Option<Arrival> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn put(&mut self, at: Instant, to: usize, frame: Vec<u8>) {
        self.sent += 1;
        self.under_way.insert((at, self.sent), Arrival { to, frame });
    }
}
