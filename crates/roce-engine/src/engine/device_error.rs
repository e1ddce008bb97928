//! Errors of the devices of an engine.

use std::collections::BTreeMap;
use std::io;

/// Counts and logs an error of a device. The protocol's own timers decide when a request fails.
pub(super) fn note_device_error(
    drops: &mut BTreeMap<&'static str, u64>,
    name: &'static str,
    error: &io::Error,
) {
    let count = drops.entry(name).or_default();
    *count += 1;
    // Powers of two: the first error is logged at once, many of them rarely.
    if count.is_power_of_two() {
        tracing::warn!(count, %error, "{name}");
    }
}
