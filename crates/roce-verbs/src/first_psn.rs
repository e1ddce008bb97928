//! The first PSN of a connection.

use rand::Rng;
use roce_transport::QpState;
use roce_wire::Psn;

use crate::process::fork;

/// The PSN at which the requester of a queue pair starts: one for each connection.
///
/// A queue pair keeps its number when it connects again. Packets of the old connection that are
/// still in flight then have the right number and address; the PSN alone distinguishes them from
/// those of the new connection.
#[derive(Debug)]
pub(crate) struct FirstPsn {
    psn: Psn,
    /// A connection has started at this PSN.
    is_used: bool,
}

impl FirstPsn {
    /// Starts the first connection at `chosen`, or at a random PSN.
    pub(crate) fn new(chosen: Option<Psn>) -> Self {
        Self { psn: chosen.unwrap_or_else(draw), is_used: false }
    }

    /// Returns the PSN of the present connection of a queue pair in `state`, or of the next one if
    /// there is none.
    pub(crate) fn in_state(&mut self, state: QpState) -> Psn {
        use QpState::*;
        let is_connected = matches!(state, ReadyToSend | SendQueueDrain | SendQueueError);
        if self.is_used && !is_connected {
            *self = Self::new(None);
        }
        self.psn
    }

    /// Notes that a connection has started at `psn`.
    pub(crate) fn set_used(&mut self, psn: Psn) {
        *self = Self { psn, is_used: true };
    }
}

fn draw() -> Psn {
    Psn::wrapping(fork::rng().random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::*;

    const BEFORE_A_CONNECTION: [QpState; 4] = [Reset, Init, ReadyToReceive, Error];
    const DURING_A_CONNECTION: [QpState; 3] = [ReadyToSend, SendQueueDrain, SendQueueError];

    #[test]
    fn the_psn_stays_until_a_connection_has_used_it() {
        let chosen = Psn::wrapping(0x123456);
        for mut first in [FirstPsn::new(Some(chosen)), FirstPsn::new(None)] {
            let psn = first.in_state(Reset);
            for state in BEFORE_A_CONNECTION {
                assert_eq!(first.in_state(state), psn, "{state}");
            }
            first.set_used(psn);
            for state in DURING_A_CONNECTION {
                assert_eq!(first.in_state(state), psn, "{state}");
            }
        }
        assert_eq!(FirstPsn::new(Some(chosen)).in_state(Reset), chosen);
    }

    #[test]
    fn a_psn_that_a_connection_used_is_replaced_once_that_connection_is_over() {
        for over in BEFORE_A_CONNECTION {
            let mut seen = Vec::new();
            let mut first = FirstPsn::new(Some(Psn::wrapping(7)));
            // Two of 4 draws out of 2^24 are the same in 1 of 2.8 million runs.
            for _ in 0..4 {
                let psn = first.in_state(over);
                // Returned before RESET or behind it, and again in every state up to the connection.
                for state in BEFORE_A_CONNECTION {
                    assert_eq!(first.in_state(state), psn, "{over}, {state}");
                }
                assert!(!seen.contains(&psn), "{over}: {psn:?} is used again");
                seen.push(psn);
                first.set_used(psn);
            }
        }
    }

    #[test]
    fn a_psn_chosen_by_hand_is_returned_while_its_connection_lasts() {
        let mut first = FirstPsn::new(None);
        let by_hand = first.in_state(Reset).advanced_by(1000);
        first.set_used(by_hand);
        assert_eq!(first.in_state(ReadyToSend), by_hand);
        assert_ne!(first.in_state(Reset), by_hand);
    }
}
