//! Acknowledgements that are held back.

use super::*;

fn write(id: u64) -> SendWr {
    let remote = RemoteAddr { addr: 1000 * id, rkey: KEY };
    SendWr::new(id, SendOperation::Write { remote, immediate: None }, [piece(0, 8)])
}

#[test]
fn a_held_acknowledgement_waits_until_it_is_released_and_then_speaks_for_all() {
    let mut sides = pair();
    sides[1].endpoint.delay_acks(true);
    for id in 1..=3 {
        sides[0].posts(write(id));
        assert_eq!(carry(&mut sides, 0), 1);
        assert_eq!(sides[1].endpoint.acks_scheduled(), id);
        assert_eq!(carry(&mut sides, 1), 0);
    }
    assert_eq!(sides[0].completed(), []);
    sides[1].endpoint.delay_acks(false);
    assert_eq!(carry(&mut sides, 1), 1);
    let done = [1, 2, 3].map(|id| (id, CompletionStatus::Success));
    assert_eq!(sides[0].completed(), done);
}

#[test]
fn a_request_leaves_past_a_held_acknowledgement() {
    let mut sides = pair();
    sides[1].endpoint.delay_acks(true);
    sides[0].posts(write(1));
    carry(&mut sides, 0);
    sides[1].posts(write(7));
    let sent = sides[1].sends(64);
    assert_eq!(sent.len(), 1);
    assert_eq!(headers_of(&sent[0]).bth.opcode.info().operation, Operation::Write);
}

#[test]
fn an_acknowledgement_that_is_released_leaves_in_front_of_requests_whatever_left_before_it() {
    let mut sides = pair();
    // A repetition is acknowledged too, so what left last is an acknowledgement, and no request.
    sides[0].posts(write(1));
    let first = sides[0].sends(64);
    for _ in 0..2 {
        sides[1].takes(sides[0].address, &first[0]);
        assert_eq!(carry(&mut sides, 1), 1);
    }
    sides[1].endpoint.delay_acks(true);
    sides[0].posts(write(2));
    carry(&mut sides, 0);
    sides[1].posts(write(7));
    sides[1].endpoint.delay_acks(false);
    let sent = sides[1].sends(64);
    let operations = sent.iter().map(|packet| headers_of(packet).bth.opcode.info().operation);
    let expected = [Operation::Acknowledge, Operation::Write];
    assert_eq!(operations.collect::<Vec<_>>(), expected);
}

#[test]
fn an_acknowledgement_held_behind_a_request_leaves_when_it_is_released() {
    // One packet, and several.
    for len in [8, 3000] {
        let mut sides = pair();
        sides[1].endpoint.delay_acks(true);
        sides[0].posts(write(1));
        carry(&mut sides, 0);
        let remote = RemoteAddr { addr: 0, rkey: KEY };
        let operation = SendOperation::Write { remote, immediate: None };
        sides[1].posts(SendWr::new(7, operation, [piece(0, len)]));
        assert_eq!(carry(&mut sides, 1) > 1, len > 8);
        assert_eq!(sides[0].completed(), [], "held");
        sides[1].endpoint.delay_acks(false);
        assert_eq!(carry(&mut sides, 1), 1);
        assert_eq!(sides[0].completed(), [(1, CompletionStatus::Success)]);
    }
}

/// The second side owes the ACK of a request, and posts a SEND of `len` bytes, which the ACK may join.
/// Returns the operations of the packets in each train that leaves.
fn trains_with_joining_ack(
    sides: &mut [Side; 2],
    len: u32,
    max_packets: usize,
) -> Vec<Vec<Operation>> {
    sides[1].endpoint.delay_acks(true);
    sides[0].posts(write(1));
    carry(sides, 0);
    sides[0].endpoint.post_recv(NOW, QPN, RecvWr::new(3, [piece(0, 4096)])).unwrap();
    sides[1].posts(SendWr::new(7, SendOperation::send(), [piece(0, len)]));
    sides[1].endpoint.join_acks();
    let trains = sides[1].trains_at(NOW, max_packets);
    let [first, second] = sides;
    trains.iter().flatten().for_each(|packet| first.takes(second.address, packet));
    let operation = |packet: &Vec<u8>| headers_of(packet).bth.opcode.info().operation;
    trains.iter().map(|train| train.iter().map(operation).collect()).collect()
}

#[test]
fn an_acknowledgement_joins_a_message_of_one_packet_if_it_fits_behind_it_in_a_train() {
    let (send, ack) = (Operation::Send, Operation::Acknowledge);
    for len in [4, 8, 200, 256] {
        let mut sides = pair();
        assert_eq!(trains_with_joining_ack(&mut sides, len, 64), [[send, ack]], "{len} bytes");
        assert_eq!(sides[0].completed().len(), 2, "the message and the acknowledged request");
        sides[1].endpoint.delay_acks(false);
        assert_eq!(carry(&mut sides, 1), 0, "it has left");
    }
    // An ACK is longer than the packet; the message has several; no train may have two packets.
    for (len, max_packets) in [(0, 64), (3000, 64), (8, 1)] {
        let mut sides = pair();
        let sent = trains_with_joining_ack(&mut sides, len, max_packets);
        assert!(sent.iter().flatten().all(|it| *it == send), "{len} bytes: {sent:?}");
        sides[1].endpoint.delay_acks(false);
        assert_eq!(carry(&mut sides, 1), 1, "the ACK of {len} bytes");
        assert_eq!(sides[0].completed().len(), 2);
    }
}

#[test]
fn naks_and_responses_with_data_are_never_delayed() {
    let mut sides = pair();
    sides[1].endpoint.delay_acks(true);
    let remote = RemoteAddr { addr: 0, rkey: KEY };
    sides[0].posts(SendWr::new(1, SendOperation::Read { remote }, [piece(500, 8)]));
    carry(&mut sides, 0);
    assert_eq!(carry(&mut sides, 1), 1);
    let remote = RemoteAddr { addr: 0, rkey: KEY + 1 };
    let operation = SendOperation::Write { remote, immediate: None };
    sides[0].posts(SendWr::new(2, operation, [piece(0, 8)]));
    carry(&mut sides, 0);
    assert_eq!(carry(&mut sides, 1), 1);
    let ends = [CompletionStatus::Success, CompletionStatus::RemoteAccessError];
    assert_eq!(sides[0].completed(), [(1, ends[0]), (2, ends[1])]);
}

#[test]
fn an_acknowledgement_that_is_held_leaves_at_once_when_its_queue_pair_is_destroyed() {
    let mut sides = pair();
    sides[1].endpoint.delay_acks(true);
    sides[0].posts(write(1));
    carry(&mut sides, 0);
    assert_eq!(carry(&mut sides, 1), 0);
    assert!(sides[1].endpoint.destroy_qp(QPN));
    assert_eq!(carry(&mut sides, 1), 1);
    assert_eq!(sides[0].completed(), [(1, CompletionStatus::Success)]);
    sides[1].endpoint.delay_acks(false);
    assert_eq!(carry(&mut sides, 1), 0);
}
