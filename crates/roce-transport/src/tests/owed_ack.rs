//! Acknowledgements of what was executed, whatever becomes of the queue pair that owes them.

use super::*;

const RECEIVED: (u64, CompletionStatus) = (4, CompletionStatus::Success);
const SENT: (u64, CompletionStatus) = (1, CompletionStatus::Success);

/// A SEND from side 0 to side 1, which has told its application, and not its peer yet.
fn received(holds_acks: bool) -> [Side; 2] {
    let mut sides = pair();
    sides[1].endpoint.delay_acks(holds_acks);
    sides[1].endpoint.post_recv(NOW, QPN, RecvWr::new(4, [piece(0, 100)])).unwrap();
    sides[0].posts(SendWr::new(1, SendOperation::send(), [piece(0, 8)]));
    carry(&mut sides, 0);
    assert_eq!(sides[1].completed(), [RECEIVED]);
    sides
}

/// Whether side 0 learns that its SEND was received.
fn is_acknowledged(sides: &mut [Side; 2]) -> bool {
    sides[1].endpoint.delay_acks(false);
    assert!(sides[1].endpoint.has_pending_transmit(), "a driver asks this first");
    carry(sides, 1);
    sides[0].completed() == [SENT]
}

fn modify(side: &mut Side, state: QpState) {
    let asked = QpAttributes { state: Some(state), ..QpAttributes::default() };
    side.endpoint.modify_qp(NOW, QPN, &asked).unwrap();
}

#[test]
fn a_receive_that_completed_is_acknowledged_after_error() {
    for holds_acks in [false, true] {
        let mut sides = received(holds_acks);
        modify(&mut sides[1], QpState::Error);
        assert!(is_acknowledged(&mut sides));
    }
}

#[test]
fn a_receive_that_completed_is_acknowledged_after_reset_and_by_a_queue_pair_that_is_gone() {
    for holds_acks in [false, true] {
        for via_error in [false, true] {
            for destroys in [false, true] {
                let mut sides = received(holds_acks);
                if via_error {
                    modify(&mut sides[1], QpState::Error);
                }
                match destroys {
                    true => assert!(sides[1].endpoint.destroy_qp(QPN)),
                    false => modify(&mut sides[1], QpState::Reset),
                }
                assert!(is_acknowledged(&mut sides), "{holds_acks} {via_error} {destroys}");
                assert_eq!(sides[1].sends(64).len(), 0, "once");
            }
        }
    }
}

#[test]
fn a_receive_that_completed_is_acknowledged_though_a_local_request_fails() {
    let mut sides = received(true);
    let bad = Sge { lkey: 8, addr: 0, len: 10 };
    sides[1].posts(SendWr::new(2, SendOperation::write(REMOTE), bad));
    assert_eq!(sides[1].sends(64).len(), 0);
    let ends = sides[1].completed();
    assert_eq!(ends, [(2, CompletionStatus::LocalProtectionError)]);
    assert!(is_acknowledged(&mut sides));
}

#[test]
fn a_refusal_reaches_the_peer_though_the_queue_pair_is_destroyed() {
    let mut sides = pair();
    let forbidden = RemoteAddr { addr: 0, rkey: KEY + 1 };
    sides[0].posts(SendWr::new(1, SendOperation::write(forbidden), [piece(0, 8)]));
    carry(&mut sides, 0);
    assert!(sides[1].endpoint.destroy_qp(QPN));
    carry(&mut sides, 1);
    assert_eq!(sides[0].completed(), [(1, CompletionStatus::RemoteAccessError)]);
}

#[test]
fn requests_before_a_read_are_acknowledged_though_the_read_gets_no_response() {
    let mut sides = pair();
    sides[1].endpoint.post_recv(NOW, QPN, RecvWr::new(4, [piece(0, 100)])).unwrap();
    sides[0].posts(SendWr::new(1, SendOperation::send(), [piece(0, 8)]));
    sides[0].posts(SendWr::new(2, SendOperation::read(REMOTE), [piece(500, 8)]));
    carry(&mut sides, 0);
    modify(&mut sides[1], QpState::Reset);
    carry(&mut sides, 1);
    assert_eq!(sides[0].completed(), [SENT]);
}

#[test]
fn a_driver_that_sends_nothing_gathers_a_bounded_number_of_acknowledgements() {
    let [mut sender, mut receiver] = pair();
    sender.posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 8)]));
    let packets = sender.sends(64);
    let steps = to_ready_to_send(receiver.address, sender.address);
    for _ in 0..10_000 {
        receiver.takes(sender.address, &packets[0]);
        modify(&mut receiver, QpState::Reset);
        for asked in steps {
            receiver.endpoint.modify_qp(NOW, QPN, &asked).unwrap();
        }
    }
    assert_eq!(receiver.sends(64).len(), 4096);
}

#[test]
fn a_fatal_nak_behind_a_lost_response_ends_the_request_with_its_own_status() {
    let mut sides = pair();
    sides[0].posts(SendWr::new(1, SendOperation::read(REMOTE), [piece(500, 8)]));
    carry(&mut sides, 0);
    let lost = sides[1].sends(64);
    assert_eq!(lost.len(), 1);
    let forbidden = RemoteAddr { addr: 0, rkey: KEY + 1 };
    sides[0].posts(SendWr::new(2, SendOperation::write(forbidden), [piece(0, 8)]));
    shuttle(&mut sides);
    let flushed = CompletionStatus::WorkRequestFlushed;
    let expected = [(1, CompletionStatus::RemoteAccessError), (2, flushed)];
    assert_eq!(sides[0].completed(), expected);
}

#[test]
fn a_repeated_atomic_gets_its_response_after_the_capacity_of_resources_was_changed() {
    for max in [1, 2, 16] {
        let mut sides = pair();
        sides[1].memory.0[2000..2008].copy_from_slice(&41u64.to_ne_bytes());
        let add = SendOperation::FetchAdd { remote: REMOTE, add: 1 };
        sides[0].posts(SendWr::new(1, add, [piece(500, 8)]));
        let request = sides[0].sends(64);
        let from = sides[0].address;
        sides[1].takes(from, &request[0]);
        let lost = sides[1].sends(64);
        modify(&mut sides[1], QpState::SendQueueDrain);
        let asked = QpAttributes { max_dest_rd_atomic: Some(max), ..QpAttributes::default() };
        sides[1].endpoint.modify_qp(NOW, QPN, &asked).unwrap();
        sides[1].takes(from, &request[0]);
        assert_eq!(sides[1].sends(64), lost, "{max}");
        assert_eq!(sides[1].memory.0[2000..2008], 42u64.to_ne_bytes(), "executed once");
    }
}
