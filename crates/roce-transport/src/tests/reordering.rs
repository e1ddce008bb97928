//! Rare orders of events, and packets that only a broken peer sends.

use roce_wire::{Aeth, Bth, Credits, KnownOpcode, NakCode, Syndrome, opcode};

use super::*;

const ACK: Syndrome = Syndrome::Ack { credits: Credits::UNLIMITED };
const RNR: Syndrome = Syndrome::RnrNak { timer: RnrTimer::DEFAULT };
const SEQUENCE_NAK: Syndrome = Syndrome::Nak(NakCode::PsnSequence);

/// A WRITE of ten bytes: one packet.
fn write(id: u64) -> SendWr {
    SendWr::new(id, SendOperation::write(REMOTE), piece(0, 10))
}

fn request(opcode: KnownOpcode, packets_ahead: u32) -> Headers {
    Headers::new(Bth::new(opcode, QPN, FIRST_PSN.advanced_by(packets_ahead)))
}

/// An acknowledgement or refusal of the `packets_ahead`th packet after the first.
fn answer(syndrome: Syndrome, packets_ahead: u32) -> Headers {
    let aeth = Some(Aeth { syndrome, msn: 0 });
    Headers { aeth, ..request(opcode::RC_ACKNOWLEDGE, packets_ahead) }
}

fn post_receive(side: &mut Side, len: u32) {
    side.endpoint.post_recv(NOW, QPN, RecvWr::new(4, piece(5000, len))).unwrap();
}

const SUCCESS: CompletionStatus = CompletionStatus::Success;

#[test]
fn packets_that_overtake_each_other_within_a_batch_and_come_again_draw_no_nak() {
    let mut sides = pair();
    (0..3).for_each(|id| sides[0].posts(write(id)));
    let packets = sides[0].sends(64);
    let from = sides[0].address;
    for index in [1, 0, 1, 2] {
        sides[1].takes(from, &packets[index]);
    }
    shuttle(&mut sides);
    assert_eq!(sides[0].endpoint.counters().rcvd_seq_err, 0);
    assert_eq!(sides[0].completed(), [0, 1, 2].map(|id| (id, SUCCESS)));
}

//= test rc-nak-acknowledges
#[test]
fn a_packet_dropped_as_out_of_order_is_requested_without_repeating_those_before() {
    let config = EndpointConfig { max_reorder_bytes: 0, ..EndpointConfig::default() };
    let mut sides = pair_of(&config, |_| ());
    (0..3).for_each(|id| sides[0].posts(write(id)));
    let packets = sides[0].sends(64);
    let from = sides[0].address;
    for index in [1, 0] {
        sides[1].takes(from, &packets[index]);
    }
    shuttle(&mut sides);
    assert_eq!(sides[0].endpoint.counters().rcvd_seq_err, 1);
    assert_eq!(sides[1].endpoint.counters().duplicate_request, 0);
    assert_eq!(sides[0].completed(), [0, 1, 2].map(|id| (id, SUCCESS)));
}

#[test]
fn packets_that_overtake_each_other_within_a_batch_draw_one_ack() {
    let mut sides = pair();
    (0..3).for_each(|id| sides[0].posts(write(id)));
    let packets = sides[0].sends(64);
    let from = sides[0].address;
    for index in [2, 1, 0] {
        sides[1].takes(from, &packets[index]);
    }
    let acks: Vec<_> = sides[1].sends(64).iter().map(|it| headers_of(it)).collect();
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].bth.psn, FIRST_PSN.advanced_by(2));
    assert_eq!(acks[0].aeth.map(|it| it.syndrome.to_byte() >> 5), Some(0));
}

//= test rc-ack-request
#[test]
fn without_trains_a_message_longer_than_the_window_requests_acks_inside() {
    for (frames, sent, asked, why) in [
        (1000, 128, 2, "in the middle of the window and at its end"),
        (96, 96, 4, "four times until the peer's queue is full"),
    ] {
        let peer = PeerWindowConfig { initial_frames: frames, max_frames: frames, min_frames: 8 };
        let config = EndpointConfig { peer_window: peer, ..EndpointConfig::default() };
        let [mut sender, _] = pair_of(&config, |_| ());
        sender.posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 10_000); 4]));
        let packets = sender.sends(1);
        let asking = packets.iter().filter(|it| headers_of(it).bth.ack_request).count();
        assert_eq!((packets.len(), asking), (sent, asked), "{why}");
        assert!(headers_of(packets.last().unwrap()).bth.ack_request);
    }
}

#[test]
fn a_sequence_nak_while_waiting_for_a_receiver_costs_no_retry() {
    let [mut sender, peer] = pair_with(|asked| asked.retry_count = Some(0));
    sender.posts(SendWr::new(1, SendOperation::send(), piece(0, 10)));
    sender.sends(64);
    sender.takes_made(peer.address, &answer(RNR, 0), &[]);
    sender.takes_made(peer.address, &answer(SEQUENCE_NAK, 0), &[]);
    assert_eq!((sender.completed(), sender.sends(64).len()), (vec![], 0));
}

#[test]
fn an_rnr_nak_overtaken_by_its_own_success_holds_nothing_up() {
    let [mut sender, peer] = pair();
    (0..3).for_each(|id| sender.posts(write(id)));
    sender.sends(64);
    sender.takes_made(peer.address, &answer(RNR, 1), &[]);
    sender.takes_made(peer.address, &answer(ACK, 2), &[]);
    assert_eq!(sender.completed(), [0, 1, 2].map(|id| (id, SUCCESS)));
    sender.posts(write(3));
    assert_eq!(sender.sends(64).len(), 1);
}

/// Side 0 has sent a READ of two packets and a WRITE, and an RNR NAK for the WRITE has arrived before
/// the responses.
fn refused_behind_missing_responses() -> [Side; 2] {
    let [mut sender, peer] = pair();
    sender.posts(SendWr::new(1, SendOperation::read(REMOTE), piece(0, 512)));
    sender.posts(write(2));
    assert_eq!(sender.sends(64).len(), 2);
    sender.takes_made(peer.address, &answer(RNR, 2), &[]);
    [sender, peer]
}

fn take_responses(sender: &mut Side, peer: &Side) {
    for (opcode, ahead) in [(opcode::RC_READ_RESPONSE_FIRST, 0), (opcode::RC_READ_RESPONSE_LAST, 1)]
    {
        let response = Headers { aeth: answer(ACK, 0).aeth, ..request(opcode, ahead) };
        sender.takes_made(peer.address, &response, &[5; 256]);
    }
}

#[test]
fn an_rnr_nak_behind_missing_responses_begins_its_wait_once_they_have_arrived() {
    let [mut sender, peer] = refused_behind_missing_responses();
    sender.sends(64);
    take_responses(&mut sender, &peer);
    sender.posts(write(3));
    assert_eq!((sender.completed(), sender.sends(64).len()), (vec![(1, SUCCESS)], 0));
}

#[test]
fn an_rnr_nak_behind_missing_responses_is_void_once_its_request_has_succeeded() {
    let [mut sender, peer] = refused_behind_missing_responses();
    sender.takes_made(peer.address, &answer(ACK, 2), &[]);
    sender.sends(64);
    take_responses(&mut sender, &peer);
    assert_eq!(sender.completed(), [1, 2].map(|id| (id, SUCCESS)));
    sender.posts(write(3));
    assert_eq!(sender.sends(64).len(), 1);
}

#[test]
fn an_rnr_nak_behind_missing_responses_is_void_once_all_is_sent_again() {
    let [mut sender, peer] = refused_behind_missing_responses();
    sender.sends(64);
    let mut now = NOW;
    while sender.endpoint.counters().completer_retry_err == 0 {
        now = sender.endpoint.poll_timeout().unwrap();
        sender.endpoint.handle_timeout(now);
        sender.sends_at(now, 64);
    }
    take_responses(&mut sender, &peer);
    sender.posts(write(3));
    assert!(!sender.sends_at(now, 64).is_empty(), "it does not wait");
}

//= test rc-payload-length
#[test]
fn a_last_packet_of_a_send_without_a_byte_is_an_invalid_request() {
    let [mut receiver, peer] = pair();
    post_receive(&mut receiver, 1000);
    receiver.takes_made(peer.address, &request(opcode::RC_SEND_FIRST, 0), &[3; 256]);
    receiver.takes_made(peer.address, &request(opcode::RC_SEND_LAST, 1), &[]);
    let syndrome = headers_of(&receiver.sends(64)[0]).aeth.map(|it| it.syndrome);
    assert_eq!(syndrome, Some(Syndrome::Nak(NakCode::InvalidRequest)));
    assert_eq!(receiver.completed(), [(4, CompletionStatus::RemoteInvalidRequest)]);
}

#[test]
fn work_on_bad_memory_does_not_take_down_what_was_sent_before_it() {
    let mut sides = pair();
    let bad = Sge { lkey: 8, addr: 0, len: 10 };
    sides[0].posts(write(1));
    sides[0].posts(SendWr::new(2, SendOperation::write(REMOTE), bad));
    sides[0].posts(write(3));
    shuttle(&mut sides);
    let expected = [
        (1, SUCCESS),
        (2, CompletionStatus::LocalProtectionError),
        (3, CompletionStatus::WorkRequestFlushed),
    ];
    assert_eq!(sides[0].completed(), expected);
}

#[test]
fn a_queue_pair_in_error_sends_no_sequence_nak() {
    let mut sides = pair();
    sides[0].posts(write(1));
    sides[0].posts(write(2));
    let packets: Vec<_> = (0..2).flat_map(|_| sides[0].sends(1)).collect();
    let from = sides[0].address;
    // It misses the first.
    sides[1].takes(from, &packets[1]);
    let down = QpAttributes { state: Some(QpState::Error), ..QpAttributes::default() };
    sides[1].endpoint.modify_qp(NOW, QPN, &down).unwrap();
    let answers = sides[1].sends(64);
    let syndromes = answers.iter().map(|it| headers_of(it).aeth.unwrap().syndrome);
    assert!(syndromes.into_iter().all(|it| matches!(it, Syndrome::Ack { .. })));
}

#[test]
fn a_message_into_two_places_of_which_one_is_forbidden_touches_neither() {
    let [mut receiver, peer] = pair();
    let bad = Sge { lkey: 8, addr: 0, len: 10 };
    let work = RecvWr::new(4, [piece(5000, 10), bad]);
    receiver.endpoint.post_recv(NOW, QPN, work).unwrap();
    receiver.takes_made(peer.address, &request(opcode::RC_SEND_ONLY, 0), &[9; 20]);
    assert_eq!(receiver.completed(), [(4, CompletionStatus::LocalProtectionError)]);
    assert!(receiver.memory.0.iter().all(|it| *it == 1));
}

//= test rc-read-response-failed
#[test]
fn a_read_whose_memory_goes_away_during_its_response_ends_in_a_nak() {
    let [mut responder, peer] = pair();
    responder.takes_made(peer.address, &read(0, 1000), &[]);
    responder.memory.0.truncate(500);
    let packets = responder.sends(1);
    let last = headers_of(packets.last().unwrap());
    assert_eq!((packets.len(), last.bth.psn), (1, FIRST_PSN));
    let syndrome = last.aeth.map(|it| it.syndrome);
    assert_eq!(syndrome, Some(Syndrome::Nak(NakCode::RemoteAccess)));
    let state = responder.endpoint.query_qp(QPN).map(|it| it.state);
    assert_eq!(state, Some(QpState::Error));
}

fn read(packets_ahead: u32, len: u32) -> Headers {
    let reth = roce_wire::Reth { addr: 0, rkey: KEY, len };
    Headers { reth: Some(reth), ..request(opcode::RC_READ_REQUEST, packets_ahead) }
}

#[test]
fn a_read_response_that_is_too_short_or_too_long_ends_the_connection() {
    for (opcode, ahead) in
        [(opcode::RC_READ_RESPONSE_LAST, 0), (opcode::RC_READ_RESPONSE_MIDDLE, 1)]
    {
        let [mut sender, peer] = pair();
        sender.posts(SendWr::new(1, SendOperation::read(REMOTE), piece(0, 512)));
        sender.sends(64);
        if ahead == 1 {
            let first =
                Headers { aeth: answer(ACK, 0).aeth, ..request(opcode::RC_READ_RESPONSE_FIRST, 0) };
            sender.takes_made(peer.address, &first, &[5; 256]);
        }
        let aeth = answer(ACK, 0).aeth.filter(|_| ahead == 0);
        let wrong = Headers { aeth, ..request(opcode, ahead) };
        sender.takes_made(peer.address, &wrong, &[5; 256]);
        assert_eq!(sender.completed(), [(1, CompletionStatus::BadResponse)]);
    }
}

#[test]
fn a_message_of_which_the_second_piece_is_forbidden_is_not_begun() {
    let [mut sender, _] = pair();
    let bad = Sge { lkey: 8, addr: 0, len: 1000 };
    sender.posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 1000), bad]));
    assert_eq!(sender.sends(64).len(), 0);
    assert_eq!(sender.completed(), [(1, CompletionStatus::LocalProtectionError)]);
}

#[test]
fn draining_sends_again_what_was_begun_before_going_back_and_nothing_else() {
    let mut sides = pair();
    (1..3).for_each(|id| sides[0].posts(write(id)));
    assert_eq!(sides[0].sends(64).len(), 2);
    let due = sides[0].endpoint.poll_timeout().unwrap();
    sides[0].endpoint.handle_timeout(due);
    sides[0].posts(write(3));
    let drain = QpAttributes {
        state: Some(QpState::SendQueueDrain),
        sqd_notify: Some(true),
        ..QpAttributes::default()
    };
    sides[0].endpoint.modify_qp(NOW, QPN, &drain).unwrap();
    assert_eq!(sides[0].endpoint.poll_event(), None);
    shuttle(&mut sides);
    assert_eq!(sides[0].completed(), [1, 2].map(|id| (id, SUCCESS)));
    let drained = AsyncEvent::SendQueueDrained { qpn: QPN };
    assert_eq!(sides[0].endpoint.poll_event(), Some(drained));
}

//= test rc-too-many-reads
#[test]
fn more_reads_at_a_time_than_were_agreed_upon_are_an_invalid_request() {
    let [mut responder, peer] = pair();
    for ahead in 0..3 {
        responder.takes_made(peer.address, &read(ahead, 10), &[]);
    }
    let answers = responder.sends(64);
    let syndromes: Vec<_> =
        answers.iter().map(|it| headers_of(it).aeth.unwrap().syndrome.to_byte() >> 5).collect();
    assert_eq!(syndromes, [0, 0, 3], "two answers and a refusal");
}

#[test]
fn a_repetition_that_the_peer_no_longer_needs_makes_room_for_new_reads() {
    let [mut responder, peer] = pair();
    for ahead in 0..2 {
        responder.takes_made(peer.address, &read(ahead, 10), &[]);
    }
    assert_eq!(responder.sends(64).len(), 2);
    responder.takes_made(peer.address, &read(0, 10), &[]);
    responder.takes_made(peer.address, &read(2, 10), &[]);
    let answers: Vec<_> = responder.sends(64).iter().map(|it| headers_of(it).bth.psn).collect();
    assert_eq!(answers, [FIRST_PSN.advanced_by(2)]);
}

#[test]
fn a_posted_receive_schedules_no_queue_pair() {
    let mut sides = pair();
    assert!(sides[1].sends(64).is_empty());
    post_receive(&mut sides[1], 10);
    assert!(!sides[1].endpoint.has_pending_transmit());
}

#[test]
fn the_turn_of_a_destroyed_queue_pair_sends_nothing_for_the_next_one_in_its_slot() {
    let [mut side, _] = pair();
    let init = side.endpoint.query_qp(QPN).unwrap().init;
    side.posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 8)]));
    assert!(side.endpoint.destroy_qp(QPN));
    side.endpoint.create_qp(QPN, init).unwrap();
    assert_eq!(side.sends(64).len(), 0);
    assert!(!side.endpoint.has_pending_transmit());
}

#[test]
fn an_atomic_on_memory_that_is_not_aligned_is_an_invalid_request() {
    for operation in [
        SendOperation::FetchAdd { remote: RemoteAddr { rkey: ODD_KEY, ..REMOTE }, add: 1 },
        SendOperation::CompareSwap {
            remote: RemoteAddr { rkey: ODD_KEY, ..REMOTE },
            compare: 0,
            swap: 1,
        },
    ] {
        let mut sides = pair();
        sides[0].posts(SendWr::new(1, operation, [piece(500, 8)]));
        shuttle(&mut sides);
        assert_eq!(sides[0].completed(), [(1, CompletionStatus::RemoteInvalidRequest)]);
        assert_eq!(sides[1].endpoint.counters().nak_invalid_request, 1);
    }
}
