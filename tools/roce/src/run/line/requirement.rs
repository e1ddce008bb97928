//! What a run has to show, as the command line says it.

use roce_faults::Requirement;

use crate::error::{CliError, Result};

/// Refuses requirements that name a rail or a rank that the run has not.
pub(in crate::run) fn check(all: &[Requirement], ranks: u32, rails: u32) -> Result {
    for requirement in all {
        let (rail, rank) = requirement.place();
        let refused = |what: &str, last: u32| {
            let text = requirement.to_string();
            Err(CliError::new(format!("{text:?}: the {what} are 0 to {last}")))
        };
        if rail.is_some_and(|rail| rail >= rails) {
            return refused("rails", rails - 1);
        }
        if rank.is_some_and(|rank| rank >= ranks) {
            return refused("ranks", ranks - 1);
        }
    }
    Ok(())
}
