//! Messages that a service without acknowledgements lost.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::control::ControlChannel;
use crate::error::Result;

/// What became of the messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) sent: u64,
    /// Messages that the receiver has got whole; of a latency test, messages with a response.
    pub(crate) received: u64,
}

impl Loss {
    /// Tells the receiver how many messages were sent, and waits until it has got those that arrive.
    pub(crate) fn exchange(control: &mut ControlChannel, sent: u64) -> Result<Self> {
        control.send(&sent)?;
        Ok(Self { sent, received: control.receive()? })
    }

    /// Returns the number of messages that were lost; 0 if the network has duplicated some.
    pub(crate) fn messages(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the percentage of messages that were lost.
    pub(crate) fn percent(self) -> f64 {
        100.0 * self.messages() as f64 / self.sent.max(1) as f64
    }
}

/// Finds out that nothing more arrives, once the sender has sent all.
#[derive(Debug)]
pub(crate) struct QuietTimer {
    received: u64,
    since: Instant,
}

impl QuietTimer {
    /// Starts with `received` messages.
    pub(crate) fn new(received: u64) -> Self {
        Self { received, since: Instant::now() }
    }

    /// Returns true if none has arrived for some time.
    pub(crate) fn is_over(&mut self, received: u64) -> bool {
        if self.received != received {
            *self = Self::new(received);
        }
        self.since.elapsed() >= MIN_QUIET
    }
}

/// Time without a message after which the rest is lost.
const MIN_QUIET: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::Loss;

    #[test]
    fn duplicates_are_no_loss_and_no_messages_are_none_lost() {
        let loss = |sent, received| Loss { sent, received };
        assert_eq!((loss(200, 150).messages(), loss(200, 150).percent()), (50, 25.0));
        assert_eq!((loss(200, 201).messages(), loss(200, 201).percent()), (0, 0.0));
        assert_eq!(loss(0, 0).percent(), 0.0);
    }
}
