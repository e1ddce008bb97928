//! Statements with their values.

use std::time::Duration;

use roce_dissect::{Filter, NamedField};

use super::send_step::SendStep;

/// A statement whose variables have their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A variable has its value.
    Let,
    /// Send packets.
    Send(Box<SendStep>),
    /// Wait for a packet that passes.
    Expect {
        /// What it has to pass.
        filter: Filter,
        /// How long to wait.
        within: Duration,
    },
    /// Fail if a packet passes.
    Forbid {
        /// What none may pass.
        filter: Filter,
        /// How long to wait.
        during: Duration,
    },
    /// Take the value of a variable from the packet that was expected last.
    Take {
        /// The variable.
        name: String,
        /// The field.
        field: NamedField,
    },
    /// Wait.
    Wait(Duration),
}
