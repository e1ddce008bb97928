//! Why a case is red.

use std::time::Duration;

use roce_guest::GuestError;

/// What went wrong in a case.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The guest did not do its part.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// An agent refused a command, or ended over it.
    #[error("{end}: `{request}`: {reply}")]
    Refused {
        /// Whose agent.
        end: &'static str,
        /// The command.
        request: String,
        /// Its reply.
        reply: String,
    },
    /// An agent says nothing.
    #[error("{end}: no reply within {limit:?}")]
    Silent {
        /// Whose agent.
        end: &'static str,
        /// How long it was given.
        limit: Duration,
    },
    /// Our side of the network or our programs could not do something.
    #[error("ours cannot {doing}: {error}")]
    Ours {
        /// What was asked of it.
        doing: &'static str,
        /// Its error.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Completions did not come.
    #[error("{end}: {seen} of {wanted} completions within {limit:?}")]
    TooFew {
        /// Which end waited.
        end: &'static str,
        /// How many came.
        seen: usize,
        /// How many were waited for.
        wanted: usize,
        /// How long.
        limit: Duration,
    },
    /// The guest lacks what the case needs: it is no fault of either side.
    #[error("{0}")]
    Lacking(String),
    /// Something is not as it should be.
    #[error("{0}")]
    Wrong(String),
}

impl Fault {
    /// For `map_err`: our side could not do something.
    pub fn ours<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        doing: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Ours { doing, error: error.into() }
    }
}

/// Fails unless two things are equal; `what` says what they are.
///
/// # Errors
/// [`Fault::Wrong`] with both.
pub(crate) fn expect_equal<T: PartialEq + std::fmt::Debug>(
    what: impl std::fmt::Display,
    is: T,
    should_be: T,
) -> Result<(), Fault> {
    if is == should_be {
        return Ok(());
    }
    Err(Fault::Wrong(format!("{what} is {is:?}, should be {should_be:?}")))
}

/// Fails unless something holds.
///
/// # Errors
/// [`Fault::Wrong`] with `otherwise`.
pub(crate) fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Wrong(otherwise())) }
}
