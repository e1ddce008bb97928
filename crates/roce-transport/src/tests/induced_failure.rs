//! Failures that the driver asks for.

use super::*;

fn post_sends(side: &mut Side, ids: core::ops::Range<u64>) {
    for id in ids {
        side.posts(SendWr::new(id, SendOperation::write(REMOTE), piece(0, 100)));
    }
}

#[test]
fn a_queue_pair_that_is_made_to_fail_flushes_both_queues_and_answers_nothing_more() {
    let mut sides = pair();
    sides[0].endpoint.post_recv(NOW, QPN, RecvWr::new(9, piece(0, 100))).unwrap();
    post_sends(&mut sides[0], 1..3);
    shuttle(&mut sides);
    assert_eq!(sides[0].endpoint.poll_completion().unwrap().1.status, CompletionStatus::Success);
    post_sends(&mut sides[0], 3..5);
    sides[0].endpoint.fail_qp(NOW, QPN, WorkQueue::Send);
    // Request 2 was done, but its completion was not taken.
    let flushed = CompletionStatus::WorkRequestFlushed;
    assert_eq!(sides[0].completed(), [2, 3, 4, 9].map(|id| (id, flushed)));
    assert_eq!(sides[0].endpoint.query_qp(QPN).unwrap().state, QpState::Error);
    post_sends(&mut sides[1], 1..2);
    shuttle(&mut sides);
    assert_eq!(sides[1].completed(), [], "the peer has no response");
}

#[test]
fn the_failure_of_one_queue_leaves_completions_of_the_other() {
    let mut sides = pair();
    post_sends(&mut sides[0], 1..2);
    shuttle(&mut sides);
    sides[0].endpoint.fail_qp(NOW, QPN, WorkQueue::Receive);
    assert_eq!(sides[0].completed(), [(1, CompletionStatus::Success)]);
}

#[test]
fn events_that_are_raised_take_their_queue_pairs_to_error() {
    let fails = [
        (AsyncEvent::QpFatal { qpn: QPN }, true),
        (AsyncEvent::QpAccessError { qpn: QPN }, true),
        (AsyncEvent::CqError { cq: CqHandle(2) }, true),
        (AsyncEvent::CqError { cq: CqHandle(3) }, false),
        (AsyncEvent::DeviceFatal, true),
        (AsyncEvent::PortError, false),
    ];
    for (event, is_fatal) in fails {
        let [mut side, _] = pair();
        side.endpoint.raise(NOW, event);
        assert_eq!(side.endpoint.poll_event(), Some(event));
        let state = side.endpoint.query_qp(QPN).unwrap().state;
        assert_eq!(state == QpState::Error, is_fatal, "{event:?}");
    }
}
