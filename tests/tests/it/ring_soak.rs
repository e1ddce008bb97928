//! Many operations in one group: what it holds stays the same. Alone in its program, whose
//! memory it measures.

use roce_collectives::{DataType, Operation, ReduceOp};
use roce_test_macros::tier1;
use roce_tests::outage::resident;
use roce_tests::ranks::{Exercise, Ranks};

/// Bytes that may come and go without being a leak.
const SLACK: u64 = 1 << 20;

#[tier1]
fn ten_thousand_operations_leave_the_resident_set_as_it_was() {
    let grown = Ranks::new(2).grouped(
        |config| config.steps = 1000,
        |group| {
            let small = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 16);
            let large = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 200_000);
            let exercises = [small, large].map(|one| Exercise::new(group, &one, true));
            let round = |group: &mut _, count: u32| {
                for i in 0..count {
                    // Checked now and then: what is measured is the group.
                    let exercise = &exercises[usize::from(i % 200 == 199)];
                    if i % 50 == 0 {
                        assert_eq!(exercise.run(group).unwrap(), 0);
                    } else {
                        exercise.run_unchecked(group).unwrap();
                    }
                }
            };
            round(group, 1000);
            let before = resident();
            round(group, 10_000);
            resident().saturating_sub(before)
        },
    );
    assert!(grown.iter().all(|bytes| *bytes < SLACK), "{grown:?} bytes more than before");
}
