//! What the engine fills of a completion queue and of a completion channel, and the program empties.
//!
//! The handles of the program, which drive the engine, are
//! [`CompletionQueue`](crate::CompletionQueue) and [`CompletionChannel`](crate::CompletionChannel).

pub(crate) mod reports;
mod state;
#[cfg(test)]
mod tests;

// For the files below: the model of several threads has other locks in this place.
use std::sync;

pub(crate) use self::state::{QueueState, Report, armed};
