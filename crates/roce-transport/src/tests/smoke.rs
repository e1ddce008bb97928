//! Every operation once, to know that the parts fit together.

use super::*;

/// Posts on the first side, carries, and returns the one completion that must come of it.
fn carry_out(sides: &mut [Side; 2], operation: SendOperation, data: Sge) -> Completion {
    let work = SendWr::new(9, operation, data).signaled();
    sides[0].endpoint.post_send(NOW, QPN, work).unwrap();
    shuttle(sides);
    let (cq, completion) = sides[0].endpoint.poll_completion().unwrap();
    assert_eq!((cq, completion.wr_id), (CqHandle(1), 9));
    assert_eq!(completion.status, CompletionStatus::Success);
    assert_eq!(sides[0].endpoint.poll_completion(), None);
    completion
}

fn post_receive(side: &mut Side, place: Sge) {
    side.endpoint.post_recv(NOW, QPN, RecvWr::new(4, place)).unwrap();
}

#[test]
fn a_send_arrives_with_what_it_carries() {
    let cases = [
        SendOperation::send(),
        SendOperation::Send { immediate: Some([1, 2, 3, 4]), invalidate: None },
        SendOperation::Send { immediate: None, invalidate: Some(99) },
    ];
    for operation in cases {
        let SendOperation::Send { immediate, invalidate } = operation else { panic!() };
        let mut sides = pair();
        post_receive(&mut sides[1], piece(5000, 1000));
        let sent = carry_out(&mut sides, operation, piece(0, 600));
        assert_eq!((sent.immediate, sent.invalidated_key), (immediate, None));
        let (cq, received) = sides[1].endpoint.poll_completion().unwrap();
        assert_eq!((cq, received.wr_id, received.byte_len), (CqHandle(2), 4, 600));
        assert_eq!((received.immediate, received.invalidated_key), (immediate, invalidate));
        assert_eq!(sides[1].memory.0[5000..5601], [&[1; 600][..], &[2]].concat());
    }
}

#[test]
fn a_write_lands_where_it_says() {
    for immediate in [None, Some([1, 2, 3, 4])] {
        let mut sides = pair();
        post_receive(&mut sides[1], piece(0, 0));
        let operation = SendOperation::Write { remote: REMOTE, immediate };
        assert_eq!(carry_out(&mut sides, operation, piece(0, 700)).immediate, immediate);
        assert_eq!(sides[1].memory.0[1999..2701], [&[2][..], &[1; 700], &[2]].concat());
        let received = sides[1].endpoint.poll_completion();
        assert_eq!(received.and_then(|(_, it)| it.immediate), immediate);
    }
}

#[test]
fn a_read_brings_the_bytes() {
    let mut sides = pair();
    let completion = carry_out(&mut sides, SendOperation::read(REMOTE), piece(100, 700));
    assert_eq!(completion.byte_len, 700);
    assert_eq!(sides[0].memory.0[99..801], [&[1][..], &[2; 700], &[1]].concat());
}

//= test rc-atomic-operation
#[test]
fn atomics_change_the_word_and_bring_what_it_held() {
    let mut sides = pair();
    let word = u64::from_ne_bytes([2; 8]);
    carry_out(&mut sides, SendOperation::FetchAdd { remote: REMOTE, add: 1 }, piece(0, 8));
    assert_eq!(sides[0].memory.0[..8], word.to_ne_bytes());
    let swap = SendOperation::CompareSwap { remote: REMOTE, compare: word + 1, swap: 5 };
    carry_out(&mut sides, swap, piece(8, 8));
    assert_eq!(sides[0].memory.0[8..16], (word + 1).to_ne_bytes());
    assert_eq!(sides[1].memory.0[2000..2008], 5u64.to_ne_bytes());
}

#[test]
fn a_key_of_our_own_is_invalidated_behind_what_came_before() {
    let mut sides = pair();
    let write = SendWr::new(1, SendOperation::write(REMOTE), piece(0, 10)).signaled();
    let invalidate = SendWr::new(2, SendOperation::LocalInvalidate { key: 99 }, []).signaled();
    let behind = SendWr::new(3, SendOperation::write(REMOTE), piece(0, 10)).signaled();
    for work in [write, invalidate, behind] {
        sides[0].endpoint.post_send(NOW, QPN, work).unwrap();
    }
    shuttle(&mut sides);
    let done = core::iter::from_fn(|| sides[0].endpoint.poll_completion());
    let done: Vec<_> = done.map(|(_, it)| (it.wr_id, it.status)).collect();
    assert_eq!(done, [1, 2, 3].map(|id| (id, CompletionStatus::Success)));
}

/// A binding of this window to the bytes of the only region.
fn bind(window: u32) -> SendWr {
    let (lkey, addr, len, access) = (KEY, 0, 8, AccessFlags::REMOTE_READ);
    let to = WindowBinding { window, tag: 1, lkey, addr, len, access };
    SendWr::new(2, SendOperation::BindWindow(to), [])
}

//= test mw-bind-order
//= test mw-bind-failed
#[test]
fn a_window_is_bound_behind_what_came_before_and_what_cannot_be_bound_ends_the_queue_pair() {
    for (window, expected) in [
        (99, [CompletionStatus::Success; 3]),
        (
            98,
            [
                CompletionStatus::Success,
                CompletionStatus::MemoryWindowBindError,
                CompletionStatus::WorkRequestFlushed,
            ],
        ),
    ] {
        let mut sides = pair();
        let write = || SendWr::new(1, SendOperation::write(REMOTE), piece(0, 10));
        for work in [write(), bind(window), write()] {
            sides[0].posts(work);
        }
        let first = sides[0].sends(64);
        assert_eq!(first.len(), 1, "the WRITE behind the binding waits");
        assert_eq!(sides[0].completed(), []);
        let [from, to] = &mut sides;
        to.takes(from.address, &first[0]);
        shuttle(&mut sides);
        let statuses: Vec<_> = sides[0].completed().into_iter().map(|it| it.1).collect();
        assert_eq!(statuses, expected);
    }
}

#[test]
fn a_batch_of_messages_is_acknowledged_once() {
    let mut sides = pair();
    for _ in 0..8 {
        let work = SendWr::new(1, SendOperation::write(REMOTE), piece(0, 10)).signaled();
        sides[0].endpoint.post_send(NOW, QPN, work).unwrap();
    }
    let carried = shuttle(&mut sides);
    assert_eq!(carried.iter().filter(|it| **it == Operation::Acknowledge).count(), 1);
    assert_eq!(sides[1].endpoint.counters().ack_deferred, 7);
}
