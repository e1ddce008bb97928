//! What a group tells about its steps: the ring of three ranks and one float.

use roce_collectives::{DataType, Group, ReduceOp, TimelineEvent};
use roce_test_macros::tier1;
use roce_tests::ranks::Ranks;
use roce_verbs::{Trace, TraceKind};

/// Rank i contributes i + 1; every rank ends with 6.
fn sum_of_one_float(group: &mut Group) {
    let buffer = group.buffer(4).unwrap();
    buffer.write(0, &(group.rank() as f32 + 1.0).to_le_bytes()).unwrap();
    group.all_reduce_in_place(&buffer, 1, DataType::F32, ReduceOp::Sum).unwrap();
    let mut sum = [0; 4];
    buffer.read(0, &mut sum).unwrap();
    assert_eq!(f32::from_le_bytes(sum), 6.0);
}

#[tier1]
fn one_float_meets_in_the_middle_of_three_ranks_in_two_steps_that_are_recorded() {
    let all = Ranks::new(3).grouped(
        |config| config.steps = 100,
        |group| {
            sum_of_one_float(group);
            group.steps()
        },
    );
    for (rank, steps) in all.iter().enumerate() {
        let numbers: Vec<_> =
            steps.iter().map(|one| (one.operation, one.step, one.messages, one.bytes)).collect();
        // Rank 1 is the middle: it hears from both, and tells both.
        let expected = match rank {
            1 => [(0, 0, 2, 8), (0, 1, 0, 0)],
            _ => [(0, 0, 0, 0), (0, 1, 1, 4)],
        };
        assert_eq!(numbers, expected, "rank {rank}");
        let (sends, receives) = if rank == 1 { (1, 0) } else { (0, 1) };
        let (posted, it) = (steps[sends].posted.unwrap(), &steps[receives]);
        assert!(it.begun <= posted && it.received <= it.done, "{steps:?}");
        assert!(it.waited <= it.latency().unwrap(), "{steps:?}");
        // What is sent in the second step was received in the first.
        assert_eq!(rank == 1, it.received <= Some(posted), "{steps:?}");
    }
}

#[tier1]
fn the_timeline_shows_states_posts_with_their_steps_and_polls_in_order() {
    let all = Ranks::new(3).grouped(
        |config| config.device.trace = Some(Trace::new(10_000)),
        |group| {
            sum_of_one_float(group);
            group.timeline()
        },
    );
    for (rank, events) in all.iter().enumerate() {
        assert!(events.is_sorted_by_key(TimelineEvent::at));
        let place = |what: &str| {
            let found = events.iter().position(|event| event.to_string().contains(what));
            found.unwrap_or_else(|| panic!("{what} is not in the timeline"))
        };
        let sent = |step: u32| {
            let is_it = |event: &TimelineEvent| match event {
                TimelineEvent::Device { event, step: Some((found, _)) } => {
                    *found == step && matches!(event.kind, TraceKind::PostSend { .. })
                }
                _ => false,
            };
            events.iter().position(is_it).unwrap()
        };
        let start = [
            place("modify_qp RESET->INIT"),
            place("post_recv"),
            place("modify_qp INIT->RTR"),
            place("modify_qp RTR->RTS"),
            place("begin operation=0 AllReduce type=float op=sum"),
        ];
        assert!(start.is_sorted(), "{start:?}");
        let (begin, end) = (start[4], place("end operation=0"));
        let course = match rank {
            1 => [begin, place("received step=0"), sent(1), end],
            _ => [begin, sent(0), place("received step=1"), end],
        };
        assert!(course.is_sorted(), "{course:?}");
        place("poll_cq");
    }
}
