//! What a group tells about its steps: the ring of three ranks and one float.

use roce_collectives::{DataType, Group, Moment, ReduceOp};
use roce_tests::ranks::Ranks;
use roce_verbs::{Trace, TraceKind};

/// Rank i contributes i + 1; everybody ends with 6.
fn sum_of_one_float(group: &mut Group) {
    let buffer = group.buffer(4).unwrap();
    buffer.write(0, &(group.rank() as f32 + 1.0).to_le_bytes()).unwrap();
    group.all_reduce_in_place(&buffer, 1, DataType::F32, ReduceOp::Sum).unwrap();
    let mut sum = [0; 4];
    buffer.read(0, &mut sum).unwrap();
    assert_eq!(f32::from_le_bytes(sum), 6.0);
}

#[test]
#[ignore = "tier 1: needs network namespaces (cargo xtask test runs it)"]
fn one_float_goes_round_three_ranks_in_two_steps_that_are_recorded() {
    let all = Ranks::new(3).grouped(
        |config| config.steps = 100,
        |group| {
            sum_of_one_float(group);
            group.steps()
        },
    );
    for steps in all {
        let numbers: Vec<_> =
            steps.iter().map(|one| (one.operation, one.step, one.messages, one.bytes)).collect();
        assert_eq!(numbers, [(0, 0, 1, 4), (0, 1, 1, 4)]);
        for step in &steps {
            let (posted, received, done) = (step.posted, step.received, step.done);
            assert!(posted.is_some() && posted <= done && received <= done, "{step:?}");
            assert!(step.waited <= step.latency().unwrap(), "{step:?}");
        }
        // What is sent in a step is what was received in the step before.
        assert!(steps[0].received <= steps[1].posted, "{steps:?}");
    }
}

#[test]
#[ignore = "tier 1: needs network namespaces (cargo xtask test runs it)"]
fn the_timeline_shows_states_posts_with_their_steps_and_polls_in_order() {
    let all = Ranks::new(3).grouped(
        |config| config.device.trace = Some(Trace::new(10_000)),
        |group| {
            sum_of_one_float(group);
            group.timeline()
        },
    );
    for moments in all {
        assert!(moments.is_sorted_by_key(Moment::at));
        let place = |what: &str| {
            let found = moments.iter().position(|moment| moment.to_string().contains(what));
            found.unwrap_or_else(|| panic!("{what} is not in the timeline"))
        };
        let sent = |step: u32| {
            let is_it = |moment: &Moment| match moment {
                Moment::Device { event, step: Some((found, _)) } => {
                    *found == step && matches!(event.kind, TraceKind::PostSend { .. })
                }
                _ => false,
            };
            moments.iter().position(is_it).unwrap()
        };
        let start = [
            place("modify_qp RESET->INIT"),
            place("post_recv"),
            place("modify_qp INIT->RTR"),
            place("modify_qp RTR->RTS"),
            place("begin operation=0 AllReduce type=float op=sum"),
        ];
        assert!(start.is_sorted(), "{start:?}");
        // What has come already is taken in before anything short is posted.
        let begin = start[4];
        let received = [place("received step=0"), place("received step=1")];
        let end = place("end operation=0");
        for course in [
            [begin, sent(0), sent(1), end],
            [begin, received[0], received[1], end],
            [begin, received[0], sent(1), end],
        ] {
            assert!(course.is_sorted(), "{course:?}");
        }
        place("poll_cq");
    }
}
