//! The outcome of a round.

use roce_transport::Completion;

/// The outcome of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundOutcome {
    /// Frames received.
    pub received: usize,
    /// Frames sent.
    pub sent: usize,
    /// Completions and events delivered.
    pub delivered: usize,
    /// A channel was notified.
    pub notified: bool,
    /// A completion that bypassed the polled queue, which holds none: the message takes two locks less.
    pub completion: Option<Completion>,
}

impl RoundOutcome {
    /// Returns true if the round had work: then another one is likely to have some too.
    pub fn did_work(self) -> bool {
        self.received + self.sent + self.delivered > 0
    }
}
