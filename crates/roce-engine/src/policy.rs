//! Decisions about timing, each in virtual time: what waits, for how long, and which
//! thread runs the engine.
//!
//! | question | decided by |
//! |---|---|
//! | what each round holds back | `RoundPolicy`, which asks the next four |
//! | which posted requests wait for the next one | [`DoorbellCoalescing`] |
//! | which ACKs wait for a reply | `DelayedAck` |
//! | which completions wait for a message that the program reads from memory | `SilentReply` |
//! | whether the driver thread runs rounds, and how long it sleeps | [`DriverThreadPolicy`] |
//! | whether a thread without work polls, yields or blocks | [`WaitPolicy`] |
//! | when a thread yields to peers on its own processor | [`YieldTiming`] |

mod delayed_ack;
mod doorbell;
mod driver_thread;
mod driving;
mod expected_reply;
mod guess;
mod round_policy;
mod silent_reply;
mod wait;
mod yield_timing;

pub use doorbell::{CallerRun, Check, DoorbellCoalescing, Held, PostRuns, QueuePairRun};
pub(crate) use doorbell::{Doorbell, PostedRequests};
pub use driver_thread::{
    Decision, DriverThreadPolicy, INLINE_RECENT, MAX_RECHECK, MIN_RECHECK, Situation,
};
pub use driving::{
    BACKLOG_RETRY, LOCK_HOLDER_SLEEP, MAX_BLOCK, MAX_EXIT_WAIT, MAX_FLUSH, MAX_TELLING,
};
pub use round_policy::Cause;
pub(crate) use round_policy::{Arrivals, Holds, RoundPolicy};
pub(crate) use silent_reply::SilentReply;
pub use wait::{Wait, WaitPolicy};
pub use yield_timing::{Next, YieldTiming};
