//! Completion statuses in the words of the RDMA tools.

use roce_verbs::{Completion, CompletionStatus as Status};

use crate::error::{CliError, Result};

/// Returns the text of `ibv_wc_status_str`.
pub(crate) const fn in_words(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLengthError => "local length error",
        Status::LocalQpOperationError => "local QP operation error",
        Status::LocalProtectionError => "local protection error",
        Status::WorkRequestFlushed => "Work Request Flushed Error",
        Status::MemoryWindowBindError => "memory management operation error",
        Status::BadResponse => "bad response error",
        Status::LocalAccessError => "local access error",
        Status::RemoteInvalidRequest => "remote invalid request error",
        Status::RemoteAccessError => "remote access error",
        Status::RemoteOperationError => "remote operation error",
        Status::RetryExceeded => "transport retry counter exceeded",
        Status::RnrRetryExceeded => "RNR retry counter exceeded",
        Status::FatalError => "fatal error",
        _ => "general error",
    }
}

/// Checks that a completion has succeeded; the error is the line of `ibv_rc_pingpong` and advice.
pub(crate) fn succeeded(completion: &Completion) -> Result {
    let status = completion.status;
    if status == Status::Success {
        return Ok(());
    }
    Err(CliError::new(format!(
        "Failed status {} ({}) for wr_id {}{}",
        in_words(status),
        status.code(),
        completion.wr_id & 0xffff_ffff,
        advice(status)
    )))
}

const fn advice(status: Status) -> &'static str {
    match status {
        Status::RetryExceeded => {
            "\nThe other end does not respond: check that it runs, that UDP port 4791 is open,\nand that \
             the whole path carries packets of this MTU (-m)."
        }
        Status::LocalLengthError | Status::RemoteInvalidRequest => {
            "\nUse the same message size (-s) at both ends."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use roce_verbs::{CompletionOperation, Qpn};

    use super::*;

    #[test]
    fn a_failure_reads_as_ibv_rc_pingpong_prints_it() {
        let completion = Completion::new(
            2,
            Qpn::new(17).unwrap(),
            CompletionOperation::Send,
            Status::RnrRetryExceeded,
            0,
        );
        let failure = succeeded(&completion).unwrap_err();
        let line = "Failed status RNR retry counter exceeded (13) for wr_id 2";
        assert!(matches!(failure, CliError::Message(text) if text == line));
        assert!(succeeded(&Completion { status: Status::Success, ..completion }).is_ok());
    }
}
