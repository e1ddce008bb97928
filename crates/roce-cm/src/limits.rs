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
/// REQs, DREQs and SIDR_REQs to one peer address that wait for its answer at a time; further ones leave as
/// answers come in. The receive ring of a peer takes as many, and an RTU for each, at once.
pub const MAX_REQUESTS_IN_FLIGHT: usize = 64;
/// Time after which a REQ, DREQ or SIDR_REQ without answer no longer counts as in flight.
pub const REQUEST_FLIGHT_TIME: Duration = Duration::from_millis(50);
/// Requests of one listener that wait to be taken by [`Agent::poll_event`](crate::Agent::poll_event).
pub const MAX_BACKLOG: u32 = 1024;
/// Strays that an agent passes on at once, after a while without.
pub const MAX_STRAYS_AT_ONCE: u32 = 64;
/// Strays beyond these that wait for their turn.
pub const MAX_STRAYS_HELD: usize = 64;
/// Time for which an agent passes on one stray in a flood: 1000 a second.
pub const STRAY_INTERVAL: Duration = Duration::from_millis(1);
/// Time that the answer to a SIDR_REQ is kept after it was sent, or sent again: longer than the peer
/// repeats its request.
pub const KEPT_ANSWER_TIME: Duration = Duration::from_secs(70);
/// Time that the REJ of a REQ is kept after it was sent, or sent again: longer than a peer waits
/// twice that was asked for time with an MRA.
pub const KEPT_REJECT_TIME: Duration = Duration::from_secs(150);
