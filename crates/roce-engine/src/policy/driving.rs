//! Times for which threads of a device sleep, block or go on, beside what the other policies decide.

use std::time::Duration;

/// Sleep while frames for this host wait, which no descriptor shows.
pub const BACKLOG_RETRY: Duration = Duration::from_micros(50);
/// Time for which a device that closes, or a process that exits, tries to send its backlog.
pub const MAX_FLUSH: Duration = Duration::from_millis(5);
/// Longest time for which a poll blocks.
pub const MAX_BLOCK: Duration = Duration::from_micros(500);
/// Sleep of a polling thread while another holds the engine's lock. With the timer slack of the
/// kernel it takes some 100 µs.
pub const LOCK_HOLDER_SLEEP: Duration = Duration::from_micros(50);
/// Longest time for which `exit` tells peers that their connections have ended.
pub const MAX_TELLING: Duration = Duration::from_millis(400);
/// Longest time that a device takes at `exit` for locks that other threads hold, for interfaces and threads; `exit`
/// waits twice as long for the thread that does it.
pub const MAX_EXIT_WAIT: Duration = Duration::from_millis(500);
