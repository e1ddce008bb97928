//! Sentences of the command line: faults, and what a run has to show.

use std::fmt::Display;

use roce_faults::{FaultSentence, Requirement};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// A sentence that is written as it is read.
pub(crate) trait Sentence: Display + Sized {
    /// Reads one.
    fn read(text: &str) -> Result<Self, String>;
}

impl Sentence for FaultSentence {
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|error| error.to_string())
    }
}

impl Sentence for Requirement {
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|error| error.to_string())
    }
}

/// Writes sentences to a file, as text.
pub(crate) fn serialize<T: Sentence, S: Serializer>(all: &[T], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().map(ToString::to_string))
}

/// Reads what [`serialize`] has written.
pub(crate) fn deserialize<'de, T: Sentence, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| T::read(text).map_err(D::Error::custom)).collect()
}
