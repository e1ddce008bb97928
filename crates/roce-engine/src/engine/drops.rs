//! Counters of what the engine drops, of faults, and of calls that change nothing.

use std::collections::BTreeMap;
use std::io;

/// Counters of drops outside the endpoint, of faults of calls and completions, and of calls that change nothing, by
/// name.
#[derive(Debug, Default)]
pub(super) struct Drops(BTreeMap<&'static str, u64>);

impl Drops {
    #[inline]
    pub(super) fn count(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    // Apart, so that the code that handles packets stays as it is.
    #[cold]
    #[inline(never)]
    pub(super) fn add(&mut self, name: &'static str, count: u64) -> u64 {
        let total = self.0.entry(name).or_default();
        *total += count;
        *total
    }

    /// Notes the error of a device, if there is one; returns what it has done.
    #[inline]
    pub(super) fn note_error_of<T: Default>(
        &mut self,
        result: io::Result<T>,
        name: &'static str,
    ) -> T {
        result.unwrap_or_else(|error| {
            self.note_error(name, &error);
            T::default()
        })
    }

    /// Counts and logs an error of a device. The protocol's own timers decide when a request fails.
    #[cold]
    fn note_error(&mut self, name: &'static str, error: &io::Error) {
        let count = self.add(name, 1);
        // Powers of two: the first error is logged at once, many of them rarely.
        if count.is_power_of_two() {
            tracing::warn!(count, %error, "{name}");
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }
}
