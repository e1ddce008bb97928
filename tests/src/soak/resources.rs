//! Resources of this process, as the kernel counts them.

use std::fs;

use serde::{Deserialize, Serialize};

use super::Result;

/// Counts of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resources {
    /// KiB of its memory that are resident.
    pub(super) resident: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
    /// Memory maps.
    pub(super) maps: u64,
}

impl Resources {
    pub(super) fn now() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            Ok(word.ok_or_else(|| format!("/proc/self/status has no {name}"))?.parse()?)
        };
        Ok(Self {
            resident: field("VmRSS:")?,
            threads: field("Threads:")?,
            // Without the one that lists them.
            descriptors: (fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1),
            maps: fs::read_to_string("/proc/self/maps")?.lines().count() as u64,
        })
    }
}
