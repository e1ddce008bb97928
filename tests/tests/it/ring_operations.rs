//! All collectives of groups over a private switch, against the naive reference.

use roce_collectives::{Collective, DataType, Operation, ReduceOp};
use roce_test_macros::tier1;
use roce_tests::ranks::{Exercise, Ranks};

const COLLECTIVES: [Collective; 6] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Barrier,
];

/// Each rank performs all of these; the sum of what is wrong anywhere.
fn wrong_in(size: usize, operations: &[(Operation, bool)]) -> u64 {
    let wrong = Ranks::new(size).grouped(
        |_| {},
        |group| {
            let perform = |(operation, in_place): &(Operation, bool)| {
                let exercise = Exercise::new(group, operation, *in_place);
                let wrong = exercise.run(group);
                wrong.unwrap_or_else(|error| panic!("{operation:?}: {error}"))
            };
            operations.iter().map(perform).sum::<u64>()
        },
    );
    wrong.iter().sum()
}

#[tier1]
fn every_type_and_operator_is_reduced_right_by_2_3_4_5_and_8_ranks() {
    for size in [2, 3, 4, 5, 8] {
        let counts = [0, 1, size as u64 - 1, 7, 1009, 5003];
        let mut operations = Vec::new();
        for data_type in DataType::ALL {
            for op in ReduceOp::ALL {
                for count in counts {
                    let in_place = operations.len() % 2 == 0;
                    operations.push((Operation::all_reduce(data_type, op, count), in_place));
                }
            }
        }
        assert_eq!(wrong_in(size, &operations), 0, "{size} ranks");
    }
}

#[tier1]
fn every_collective_is_right_in_place_and_out_of_place_from_every_root() {
    for size in [2_u32, 3, 5] {
        let mut operations = Vec::new();
        for collective in COLLECTIVES {
            // Small, and large: more than a slot, cut into pieces that do not divide.
            for count in [0, 1, u64::from(size) - 1, 100, 40_009, 100_003] {
                for root in 0..size {
                    for in_place in [false, true] {
                        let data_type = if in_place { DataType::F32 } else { DataType::I64 };
                        let op = ReduceOp::Sum;
                        let operation = Operation { collective, data_type, op, root, count };
                        let has_root =
                            matches!(collective, Collective::Broadcast | Collective::Reduce);
                        if has_root || root == 0 {
                            operations.push((operation, in_place));
                        }
                    }
                }
            }
        }
        assert_eq!(wrong_in(size as usize, &operations), 0, "{size} ranks");
    }
}

#[tier1]
fn sixty_four_megabytes_and_three_floats_are_summed_right() {
    let large = Operation::all_reduce(DataType::F32, ReduceOp::Sum, (1 << 24) + 3);
    assert_eq!(wrong_in(3, &[(large, true)]), 0);
}

#[tier1]
fn all_ranks_end_with_the_same_bits_and_again_with_the_same_when_repeated() {
    let operations = [(DataType::F32, 999), (DataType::Bf16, 100_001), (DataType::F16, 70_000)];
    let results = Ranks::new(4).grouped(
        |_| {},
        |group| {
            let mut bits = Vec::new();
            for (data_type, count) in operations {
                let operation = Operation::all_reduce(data_type, ReduceOp::Avg, count);
                let buffer =
                    group.buffer(operation.buffer_bytes(group.geometry()).unwrap().0).unwrap();
                // Any bits that are small numbers: sums of them round.
                let seed = u64::from(group.rank()) + 1;
                let fill = || -> Vec<u8> {
                    let element = |i: u64| {
                        let x = ((i * 2_654_435_761 * seed) % 10_007) as f32 / 10_007.0;
                        match data_type {
                            DataType::F32 => x.to_le_bytes().to_vec(),
                            // The upper half of a float is the bfloat16 below it; as half, it
                            // is some small number too.
                            _ => x.to_le_bytes()[2..].to_vec(),
                        }
                    };
                    (0..count).flat_map(element).collect()
                };
                for _ in 0..2 {
                    buffer.write(0, &fill()).unwrap();
                    group.all_reduce_in_place(&buffer, count, data_type, ReduceOp::Avg).unwrap();
                    let mut bytes = vec![0; buffer.len() as usize];
                    buffer.read(0, &mut bytes).unwrap();
                    bits.push(bytes);
                }
            }
            bits
        },
    );
    for rank in &results {
        assert!(*rank == results[0]);
        assert!(rank.chunks(2).all(|twice| twice[0] == twice[1]));
    }
}
