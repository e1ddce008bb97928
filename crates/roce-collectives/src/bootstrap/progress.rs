//! Messages about ranks that others wait for: `MISSING`, `WAIT`, `LATE`, `LEFT`, and about ranks that call
//! different operations: `CALLS`.
//!
//! Both ends send these only if the other has said [`KEY`] in its first message.

use std::time::Duration;

use roce_ring::Operation;

use crate::message::{Message, MessageError};

/// The field of `HELLO` and `WELCOME` of an end that takes these messages.
pub(super) const KEY: &str = "progress";

/// Time after which a rank that waits is told, or tells, for what.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Time that a rank waits after a failure for the server to send the cause.
pub(crate) const VERDICT_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns true if the sender of a first message takes these messages.
pub(super) fn is_spoken(first: &Message) -> bool {
    first.value(KEY) == Some("1")
}

/// Returns the message of a rank that waits in an operation.
pub(super) fn waits(number: u64) -> Message {
    Message::new("WAIT").with("operation", number)
}

/// Returns the message of a rank that gives up an operation, or leaving after so many.
pub(super) fn late(number: u64, timeout: Duration) -> Message {
    Message::new("LATE").with("operation", number).with("seconds", timeout.as_secs_f32())
}

/// Returns the message of a rank that calls this operation, where a neighbour calls another.
pub(super) fn calls(number: u64, operation: &Operation) -> Message {
    Message::new("CALLS").with("operation", number).with("text", operation)
}

/// Returns the server's question what a rank calls.
pub(super) fn asks(number: u64) -> Message {
    Message::new("CALLS").with("operation", number)
}

/// A rank that has left the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) rank: u32,
    /// The operations that it called before.
    pub(crate) operations: u64,
}

impl Departure {
    pub(super) fn to_message(self) -> Message {
        Message::new("LEFT").with("rank", self.rank).with("operations", self.operations)
    }

    pub(super) fn from_message(message: &Message) -> Result<Self, MessageError> {
        Ok(Self { rank: message.number_as("rank")?, operations: message.number("operations")? })
    }
}
