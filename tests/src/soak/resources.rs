//! Resources of this process, as the kernel counts them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

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

/// Time after which what a closed device keeps for the next one is gone, on a busy machine.
const MAX_SETTLING: Duration = Duration::from_secs(20);

impl Resources {
    /// Waits until there are no more descriptors and threads than `before`, and returns what there is
    /// then, or after [`MAX_SETTLING`].
    pub(super) fn when_settled(before: Self) -> Result<Self> {
        let end = Instant::now() + MAX_SETTLING;
        loop {
            let now = Self::now()?;
            let is_settled = now.descriptors <= before.descriptors && now.threads <= before.threads;
            if is_settled || Instant::now() > end {
                return Ok(now);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

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
