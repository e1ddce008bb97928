//! What a run has to show, as the command line says it.

use roce_faults::Requirement;

use crate::error::{CliError, Result};

/// Parses a requirement of the command line.
pub(in crate::run) fn parse(text: &str) -> Result<Requirement, String> {
    Requirement::parse(text).map_err(|error| error.to_string())
}

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

/// Requirements in a file, as the text that the command line takes for them.
pub(in crate::run) mod sentences {
    use roce_faults::Requirement;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(all: &[Requirement], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Requirement>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| super::parse(text).map_err(D::Error::custom)).collect()
    }
}
