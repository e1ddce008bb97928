//! The failure of a group.

use roce_ring::{Side, Violation, ViolationKind};

use crate::bootstrap::progress;
use crate::message::Message;

use super::Group;
use crate::driver::DriverError;
use crate::error::Error;

impl Group {
    /// Ends the group, reports the failure to the others, and returns the error for the caller.
    pub(super) fn fail(&mut self, error: DriverError) -> Error {
        let rank = self.rank();
        let neighbour = |side| match side {
            Side::Next => self.geometry.next(),
            Side::Previous => self.geometry.previous(),
        };
        let (culprit, error) = match error {
            DriverError::Violation(violation) => {
                let Violation { side, .. } = violation;
                let rank = neighbour(side);
                let differs = matches!(violation.kind, ViolationKind::WrongSignature { .. });
                let (number, operation) = (self.driver.number(), self.driver.machine.latest());
                let told = operation
                    .filter(|_| differs)
                    .and_then(|operation| self.bootstrap.report_difference(number, operation));
                (rank, told.unwrap_or(Error::Mismatch { rank, violation }))
            }
            DriverError::RequestFailed { lane, side, status } => {
                let ring = self.driver.ring.as_ref();
                match ring.and_then(|ring| Some((ring, ring.interface_down()?))) {
                    Some((_, down)) => {
                        (rank, Error::InterfaceDown { rank, interface: down.to_owned() })
                    }
                    None => {
                        let rails = self.interfaces.len().max(1);
                        let interface = self.interfaces.get(lane as usize % rails);
                        let interface = interface.cloned().unwrap_or_default();
                        let rank = neighbour(side);
                        (rank, Error::Neighbour { rank, interface, status })
                    }
                }
            }
            DriverError::InterfaceDown(interface) => {
                (rank, Error::InterfaceDown { rank, interface })
            }
            DriverError::Other(error) => (error.failed_rank().unwrap_or(rank), error),
        };
        let error = match error {
            // The server knows these errors already.
            Error::RankFailed { .. } | Error::Refused { .. } => error,
            // Its text is about this rank's operation, which is another one at the others.
            Error::Left { rank: left, operations, .. } => {
                let reason = format!("it left after {operations} operations, rank {rank} goes on");
                let message = Message::new("ABORT").with("rank", left).with("reason", reason);
                let _said = self.bootstrap.send(&message);
                error
            }
            error => self.report_failure(culprit, error),
        };
        self.ended = Some(error.to_string());
        // Dropping the queue pairs stops all traffic.
        self.driver.ring = None;
        error
    }

    /// Reports the failure to the server. If the server has an earlier cause, returns that.
    fn report_failure(&mut self, culprit: u32, error: Error) -> Error {
        let message = abort(culprit, &error);
        let ours = message.value("reason").unwrap_or_default().to_owned();
        if self.bootstrap.send(&message).is_err() {
            return error;
        }
        let is_symptom = matches!(error, Error::Neighbour { .. });
        match self.bootstrap.failure_reason(progress::VERDICT_TIMEOUT) {
            Some(Error::RankFailed { rank, reason }) if is_symptom && reason != ours => {
                Error::RankFailed { rank, reason }
            }
            _ => error,
        }
    }
}

/// Returns the message that reports a failure.
pub(super) fn abort(culprit: u32, error: &Error) -> Message {
    let reason: String = error.to_string().chars().take(1000).collect();
    Message::new("ABORT").with("rank", culprit).with("reason", reason)
}
