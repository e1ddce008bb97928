//! What a receiver in the observed state would do with a packet, and why.

use crate::Packet;

/// What a receiver would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Take it.
    Accept,
    /// Drop it in silence.
    Drop,
    /// Refuse it with a NAK.
    Nak,
    /// Answer it again without doing it again.
    AnswerAgain,
}

/// What a receiver in the observed state would do with a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What it would do.
    pub action: Action,
    /// That in a sentence.
    pub verdict: String,
    /// Each check it makes, in order, and what came of it.
    pub reasons: Vec<String>,
}

impl Packet<'_> {
    /// What a receiver in the observed state would do with this packet, and why.
    pub fn explain(&self) -> Explanation {
        Explanation { action: Action::Accept, verdict: self.words(), reasons: Vec::new() }
    }
}
