//! Checks that posted requests complete once and in order.

use std::collections::VecDeque;

use crate::{Completion, CompletionOperation, CompletionStatus, QpInfo, QpState, Service};

/// Requests that were posted and have no completion yet.
#[derive(Debug, Default)]
pub(super) struct WrTracker {
    sends: VecDeque<Posted>,
    receives: VecDeque<u64>,
    has_send_failed: bool,
    has_receive_failed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    /// Success generates a completion too.
    is_signaled: bool,
}

impl WrTracker {
    pub(super) fn posted_send(&mut self, wr_id: u64, is_signaled: bool) {
        self.sends.push_back(Posted { wr_id, is_signaled });
    }

    pub(super) fn posted_receive(&mut self, wr_id: u64) {
        self.receives.push_back(wr_id);
    }

    /// The queue pair went back to RESET or is gone: nothing of it need end any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The queue pair sends again after a request has failed.
    pub(super) fn resume(&mut self) {
        self.has_send_failed = false;
    }

    /// A request completed; it must be the oldest of its queue, apart from unsignaled ones.
    pub(super) fn completed(&mut self, completion: &Completion, service: Service) {
        let is_receive = is_receive(completion);
        let has_failed = if is_receive {
            let oldest = self.receives.pop_front();
            assert_eq!(oldest, Some(completion.wr_id), "receives end in order: {completion:?}");
            assert_eq!(completion.retired.count(), 1, "{completion:?}");
            &mut self.has_receive_failed
        } else {
            let before = self.sends.len();
            loop {
                let oldest = self.sends.pop_front();
                let oldest = oldest.unwrap_or_else(|| panic!("not posted: {completion:?}"));
                if oldest.wr_id == completion.wr_id {
                    break;
                }
                let is_silent = !oldest.is_signaled && !self.has_send_failed;
                assert!(is_silent, "{oldest:?} must end before {completion:?}");
            }
            let ended = (before - self.sends.len()) as u32;
            assert_eq!(completion.retired.count(), ended, "{completion:?}");
            &mut self.has_send_failed
        };
        let is_flushed = completion.status == CompletionStatus::WorkRequestFlushed;
        assert!(is_flushed || !*has_failed, "behind a failure all is flushed: {completion:?}");
        // A datagram that is longer than its receive ends that alone.
        let is_alone =
            completion.status == CompletionStatus::LocalLengthError && service == Service::Ud;
        *has_failed |= completion.status != CompletionStatus::Success && !is_alone;
    }

    /// Does what the queue pair says of itself agree with what was posted and has ended?
    pub(super) fn validate(&self, info: &QpInfo) {
        let sends = info.sends_outstanding as usize;
        let silent = self.sends.len().checked_sub(sends).expect("no more than was posted");
        let retired = self.sends.iter().take(silent);
        assert!(retired.clone().all(|it| !it.is_signaled), "{self:?} lost work, {info:?}");
        let receives = info.receives_posted as usize;
        let in_use = self.receives.len().checked_sub(receives).expect("no more than was posted");
        assert!(in_use <= usize::from(info.state.is_receiving()), "{self:?} lost work, {info:?}");
        if matches!(info.state, QpState::Reset | QpState::Error) {
            assert_eq!((sends, receives), (0, 0), "all is flushed: {info:?}");
        }
    }
}

/// Returns true if a completion is that of a receive.
pub(super) fn is_receive(completion: &Completion) -> bool {
    let operation = completion.operation;
    matches!(operation, CompletionOperation::Recv | CompletionOperation::RecvWithImmediate)
}
