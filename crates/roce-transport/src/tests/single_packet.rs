//! Messages that are one packet and all that there is to send.

use super::*;

/// What may be sent so: every kind of message, without and with pad, few bytes and a packet full.
fn messages() -> Vec<SendWr> {
    let (none, immediate) = (None, Some([1, 2, 3, 4]));
    let operations = [
        SendOperation::Send { immediate: none, invalidate: None },
        SendOperation::Send { immediate, invalidate: None },
        SendOperation::Send { immediate: none, invalidate: Some(0x0102_0304) },
        SendOperation::Write { remote: REMOTE, immediate: none },
        SendOperation::Write { remote: REMOTE, immediate },
    ];
    let bytes: Vec<u8> = (1..=64).collect();
    let mut all = vec![];
    for operation in operations {
        for len in [0, 1, 2, 3, 4, 8, 63, 64] {
            all.push(SendWr::inline(1, operation, &bytes[..len]));
        }
        for len in [0, 1, 8, 255, 256] {
            all.push(SendWr::new(1, operation, [piece(100, len)]));
            all.push(SendWr::new(1, operation, [piece(100, len)]).solicited().signaled());
            all.push(SendWr::new(1, operation, [piece(100, len)]).defer_ack());
            all.push(SendWr::new(1, operation, [piece(100, len), piece(9, len)]).fenced());
        }
    }
    all
}

#[test]
fn a_message_alone_is_the_packet_that_it_is_in_front_of_others() {
    for work in messages() {
        let [[mut alone, _], [mut in_front, _]] = [pair(), pair()];
        for (place, byte) in alone.memory.0.iter_mut().enumerate() {
            *byte = (place % 251) as u8;
        }
        in_front.memory.0.clone_from(&alone.memory.0);
        alone.endpoint.post_send(NOW, QPN, work.clone()).unwrap();
        in_front.endpoint.post_send(NOW, QPN, work.clone()).unwrap();
        in_front.posts(SendWr::new(2, SendOperation::send(), []));
        let sent = [alone.sends(64), in_front.sends(64)].map(|packets| packets[0].clone());
        assert_eq!(sent[0], sent[1], "{work:?}");
    }
}

#[test]
fn messages_one_by_one_arrive_and_complete_as_they_do_together() {
    let mut sides = pair();
    for work in messages() {
        sides[1].endpoint.post_recv(NOW, QPN, RecvWr::new(7, [piece(3000, 600)])).unwrap();
        let mut work = work.signaled();
        if let SendOperation::Send { invalidate: Some(key), .. } = &mut work.operation {
            *key = 99;
        }
        sides[0].endpoint.post_send(NOW, QPN, work).unwrap();
        shuttle(&mut sides);
        assert_eq!(sides[0].completed(), [(1, CompletionStatus::Success)]);
    }
}

#[test]
fn a_deferred_ack_is_requested_as_often_on_the_fast_path_as_on_the_other() {
    let operation = SendOperation::write(REMOTE);
    // The peer window is wide, so that only the queue pair's own reasons to request ACKs are left.
    let mut config = EndpointConfig::default();
    (config.peer_window.initial_frames, config.peer_window.max_frames) = (4096, 4096);
    // Memory in two pieces goes the way that takes everything.
    let asked = [vec![piece(0, 8)], vec![piece(0, 4), piece(4, 4)]].map(|memory| {
        let [mut side, _] = pair_of(&config, |_| ());
        let packets = (0..100).flat_map(|_| {
            let work = SendWr::new(1, operation, memory.clone()).defer_ack();
            side.endpoint.post_send(NOW, QPN, work).unwrap();
            side.sends(64)
        });
        packets.map(|packet| packet[8] >= 0x80).collect::<Vec<_>>()
    });
    assert_eq!(asked[0], asked[1]);
    assert!(asked[0].contains(&true) && asked[0].contains(&false), "{:?}", asked[0]);
}

#[test]
fn messages_one_by_one_fill_the_window_and_go_no_further() {
    let mut config = EndpointConfig::default();
    (config.peer_window.initial_frames, config.peer_window.max_frames) = (4096, 4096);
    for window in [4, 16, 50] {
        config.window.initial_packets = window;
        let [mut side, _] = pair_of(&config, |_| ());
        let sent = (0..60).map(|_| {
            side.posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 8)]));
            side.sends(64).len()
        });
        assert_eq!(sent.sum::<usize>(), window as usize);
    }
}

#[test]
fn a_deferred_ack_is_requested_late_when_nothing_follows() {
    let [mut side, _] = pair();
    let sends = |side: &mut Side, now: Instant| {
        let work = SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 8)]).defer_ack();
        side.endpoint.post_send(now, QPN, work).unwrap();
        let packets = side.sends_at(now, 64);
        assert!(packets.len() == 1 && packets[0][8] < 0x80, "it asks for nothing");
    };
    sends(&mut side, NOW);
    let mut last = NOW;
    for _ in 0..5 {
        let due = side.endpoint.poll_timeout().unwrap();
        let before = Instant::from_nanos((last.as_nanos() + due.as_nanos()) / 2);
        sends(&mut side, before);
        side.endpoint.handle_timeout(due);
        assert_eq!(side.sends_at(due, 64).len(), 0, "of a gap the peer would tell");
        last = due;
    }
    let due = side.endpoint.poll_timeout().unwrap();
    side.endpoint.handle_timeout(due);
    let asked = side.sends_at(due, 64);
    assert!(asked.len() == 1 && asked[0][8] >= 0x80, "the last one may be lost");
}

#[test]
fn a_message_whose_bytes_may_not_be_read_fails_alone_too() {
    let mut sides = pair();
    let forbidden = Sge { lkey: KEY + 1, addr: 0, len: 8 };
    sides[0].posts(SendWr::new(1, SendOperation::write(REMOTE), [forbidden]));
    assert_eq!(sides[0].sends(64).len(), 0);
    assert_eq!(sides[0].completed(), [(1, CompletionStatus::LocalProtectionError)]);
}

#[test]
fn the_time_matters_to_the_first_message_under_way_and_not_to_those_behind_it() {
    let mut sides = pair();
    let write = || SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 8)]);
    sides[0].sends(64);
    let endpoint = &mut sides[0].endpoint;
    assert!(!endpoint.needs_fresh_now(), "there is nothing to send");
    endpoint.post_send(NOW, QPN, write()).unwrap();
    assert!(endpoint.needs_fresh_now());
    let first = sides[0].sends(64).remove(0);
    let due = sides[0].endpoint.poll_timeout();
    assert!(due.is_some());
    for _ in 0..3 {
        sides[0].endpoint.post_send(NOW, QPN, write()).unwrap();
        assert!(!sides[0].endpoint.needs_fresh_now());
        assert_eq!(sides[0].sends(64).len(), 1);
        assert_eq!(sides[0].endpoint.poll_timeout(), due);
    }
    let [from, to] = &mut sides;
    to.takes(from.address, &first);
    let ack = to.sends(64).remove(0);
    from.takes(to.address, &ack);
    from.sends(64);
    // What is timed has come back: the next one is timed instead.
    from.endpoint.post_send(NOW, QPN, write()).unwrap();
    assert!(from.endpoint.needs_fresh_now());
}

#[test]
fn without_timers_and_for_more_than_one_packet_the_time_always_matters() {
    let mut sides = pair_with(|last| last.ack_timeout = AckTimeout::new(0));
    for _ in 0..3 {
        sides[0].posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, 8)]));
        assert!(sides[0].endpoint.needs_fresh_now());
        sides[0].sends(64);
    }
    let mut sides = pair();
    for len in [8, 257] {
        sides[0].posts(SendWr::new(1, SendOperation::write(REMOTE), [piece(0, len)]));
        assert!(sides[0].endpoint.needs_fresh_now(), "{len}");
        sides[0].sends(64);
    }
}

/// A SEND of 8 bytes into such a receive, of which the peer has another: how the receives end.
fn receives_of_a_send_that_fails(
    operation: SendOperation,
    receive: Sge,
) -> Vec<(u64, CompletionStatus)> {
    let mut sides = pair();
    for (id, piece) in [(1, receive), (2, piece(3000, 8))] {
        sides[1].endpoint.post_recv(NOW, QPN, RecvWr::new(id, [piece])).unwrap();
    }
    sides[0].posts(SendWr::new(7, operation, [piece(0, 8)]));
    shuttle(&mut sides);
    assert_eq!(sides[1].endpoint.query_qp(QPN).unwrap().state, QpState::Error);
    assert_eq!(sides[1].memory.0[3000..3008], [2; 8], "the other receive is not touched");
    sides[1].completed()
}

#[test]
fn the_receive_of_a_message_that_fails_ends_once_and_with_the_reason() {
    use CompletionStatus::{
        LocalLengthError, LocalProtectionError, RemoteInvalidRequest, WorkRequestFlushed,
    };
    let forbidden = Sge { lkey: KEY + 1, addr: 0, len: 8 };
    let invalidating = SendOperation::Send { immediate: None, invalidate: Some(KEY) };
    for (operation, receive, status) in [
        (SendOperation::send(), piece(3000, 7), LocalLengthError),
        (SendOperation::send(), forbidden, LocalProtectionError),
        (invalidating, piece(4000, 8), RemoteInvalidRequest),
    ] {
        let ends = receives_of_a_send_that_fails(operation, receive);
        assert_eq!(ends, [(1, status), (2, WorkRequestFlushed)], "{operation:?} {receive:?}");
    }
}
