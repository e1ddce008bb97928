//! What an agent keeps at most.

use std::time::Duration;

/// Requests that wait for the program's answer.
pub const MAX_REQUESTS: usize = 4096;
/// Replies that are kept for repeated requests: of connections, and as many of resolutions.
pub const MAX_KEPT_REPLIES: usize = 1024;
/// Connections in timewait.
pub const MAX_TIMEWAITS: usize = 65_536;
/// Datagrams that wait to be taken by [`Agent::poll_transmit`](crate::Agent::poll_transmit).
pub const MAX_TRANSMITS: usize = 8192;
/// Requests of one listener that wait to be taken by [`Agent::poll_event`](crate::Agent::poll_event).
pub const MAX_BACKLOG: u32 = 1024;
/// Strays that an agent passes on at once, after a while without.
pub const MAX_STRAYS_AT_ONCE: u32 = 64;
/// Time for which an agent passes on one stray in a flood: 1000 a second.
pub const STRAY_INTERVAL: Duration = Duration::from_millis(1);
/// Time that the answer to a SIDR_REQ is kept after it was sent, or sent again: longer than the peer
/// repeats its request.
pub const KEPT_ANSWER_TIME: Duration = Duration::from_secs(70);
/// Time that the REJ of a REQ is kept after it was sent, or sent again: longer than a peer waits
/// twice that was asked for time with an MRA.
pub const KEPT_REJECT_TIME: Duration = Duration::from_secs(150);
