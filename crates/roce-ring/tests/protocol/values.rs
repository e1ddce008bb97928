//! Results against a naive reference, for every type and operator.

use half::{bf16, f16};
use rand::Rng;
use rand::rngs::StdRng;
use roce_ring::{
    Collective, Compute, DataType, Operation, RankBuffers, ReduceOp, RingConfig, Workspace,
    test_data,
};

use crate::repeat::for_each_case;
use crate::scenario;
use crate::world::{Arithmetic, Job, World};

/// The arithmetic of the kernels.
#[derive(Default)]
struct Real(Workspace);

impl Arithmetic for Real {
    fn execute(&mut self, compute: &Compute, memory: &mut RankBuffers) {
        self.0.execute(compute, memory);
    }
}

#[test]
fn integers_are_exact_and_floats_within_the_stated_bound() {
    for_each_case(20, |random| {
        let (size, config) = (random.random_range(1..=9), scenario::config(random));
        let jobs: Vec<Job> = every_type_and_operator()
            .map(|(data_type, op)| {
                let mut operation = scenario::operation(random, size, data_type);
                operation.op = op;
                operation.collective = [
                    Collective::AllReduce,
                    Collective::AllReduce,
                    Collective::ReduceScatter,
                    Collective::Reduce,
                ][random.random_range(0..4)];
                job(operation, size, random, |random| number(data_type, op, random))
            })
            .collect();
        let ranks = World::new(size, config, &jobs, Real::default()).run(random).unwrap();
        for (rank, results) in (0..).zip(&ranks) {
            for (job, result) in jobs.iter().zip(results) {
                check(job, rank, size, result);
            }
        }
    });
}

#[test]
fn all_ranks_end_with_the_same_bits_whatever_the_input() {
    for_each_case(20, |random| {
        let (size, config) = (random.random_range(2..=9), scenario::config(random));
        let jobs: Vec<Job> = every_type_and_operator()
            .map(|(data_type, op)| {
                let count = random.random_range(1..200);
                let operation = Operation::all_reduce(data_type, op, count);
                // Any bits: infinities, NaNs and the smallest numbers among them.
                job(operation, size, random, |random| random.random::<u64>().to_le_bytes())
            })
            .collect();
        let ranks = World::new(size, config, &jobs, Real::default()).run(random).unwrap();
        assert!(ranks.iter().all(|results| *results == ranks[0]));
    });
}

#[test]
fn test_data_accepts_right_results_and_counts_wrong_elements() {
    for_each_case(25, |random| {
        // Beyond eight ranks, products and rounded sums differ.
        let size = [1, 2, 3, 5, 8, 9, 17, 64][random.random_range(0..8)];
        let config =
            RingConfig { lanes: 2, slot_bytes: 96, small_message_max: 40, ..RingConfig::default() };
        let mut jobs = Vec::new();
        for (data_type, op) in every_type_and_operator() {
            if size > 10 && random.random_range(0..4) > 0 {
                continue;
            }
            let (collective, root) = (Collective::ALL[random.random_range(0..5)], size / 2);
            let count = random.random_range(1..100);
            let operation = Operation { collective, data_type, op, root, count };
            let inputs = (0..size).map(|rank| pattern_input(&operation, rank, size)).collect();
            jobs.push(Job { operation, in_place: random.random(), inputs });
        }
        let ranks = World::new(size, config, &jobs, Real::default()).run(random).unwrap();
        for (rank, mut results) in (0..).zip(ranks) {
            for (Job { operation, .. }, result) in jobs.iter().zip(&mut results) {
                let wrong = |first: u64, bytes: &[u8]| {
                    test_data::wrong_elements(operation, rank, size, first, bytes)
                };
                assert_eq!(wrong(0, result), 0, "{operation:?} at rank {rank} of {size}");
                if result.is_empty() {
                    continue;
                }
                // The same from the middle on.
                let element = operation.data_type.size();
                let middle = random.random_range(0..result.len() / element);
                assert_eq!(wrong(middle as u64, &result[middle * element..]), 0);
                // The highest byte holds the exponent, or many.
                result[middle * element + element - 1] ^= 0x55;
                assert_eq!(wrong(0, result), 1, "{operation:?} at rank {rank} of {size}");
            }
        }
    });
}

#[test]
fn two_to_the_24_and_three_elements_are_as_exact_as_few() {
    // From this size on a float cannot count by ones; the plan must.
    let sum = Operation::all_reduce(DataType::U8, ReduceOp::Sum, (1 << 24) + 3);
    let inputs = (0..3).map(|rank| pattern_input(&sum, rank, 3)).collect();
    let jobs = [Job { operation: sum, in_place: true, inputs }];
    for_each_case(1, |random| {
        let world = World::new(3, RingConfig::default(), &jobs, Real::default());
        for (rank, results) in (0..).zip(world.run(random).unwrap()) {
            assert_eq!(test_data::wrong_elements(&sum, rank, 3, 0, &results[0]), 0);
        }
    });
}

fn every_type_and_operator() -> impl Iterator<Item = (DataType, ReduceOp)> {
    DataType::ALL.into_iter().flat_map(|data_type| ReduceOp::ALL.map(|op| (data_type, op)))
}

fn pattern_input(operation: &Operation, rank: u32, size: u32) -> Vec<u8> {
    let count = operation.input_count(rank, size).unwrap() as usize;
    let mut input = vec![0; count * operation.data_type.size()];
    test_data::fill(operation.data_type, operation.op, rank, 0, &mut input);
    input
}

fn job(
    operation: Operation,
    size: u32,
    random: &mut StdRng,
    mut element: impl FnMut(&mut StdRng) -> [u8; 8],
) -> Job {
    let bytes = operation.data_type.size();
    let inputs = (0..size).map(|rank| {
        let count = operation.input_count(rank, size).unwrap();
        (0..count).flat_map(|_| element(random)[..bytes].to_vec()).collect()
    });
    let inputs = inputs.collect();
    Job { operation, in_place: random.random(), inputs }
}

/// Returns a number whose reduction with eight others does not overflow.
fn number(data_type: DataType, op: ReduceOp, random: &mut StdRng) -> [u8; 8] {
    let mut bytes = random.random::<u64>().to_le_bytes();
    if !data_type.is_float() {
        return bytes;
    }
    let spread: f64 = random.random_range(-1000.0..1000.0);
    let near_one: f64 = random.random_range(0.5..2.0);
    let value = if op == ReduceOp::Prod { near_one.copysign(spread) } else { spread };
    match data_type {
        DataType::F16 => bytes[..2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DataType::Bf16 => bytes[..2].copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        DataType::F32 => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        _ => bytes = value.to_le_bytes(),
    }
    bytes
}

/// Compares a rank's result with the reference, element by element.
fn check(job: &Job, rank: u32, size: u32, result: &[u8]) {
    let operation = &job.operation;
    let bytes = operation.data_type.size();
    let scattered = operation.collective == Collective::ReduceScatter;
    let start = if scattered { rank as usize * operation.count as usize } else { 0 };
    for (j, found) in result.chunks_exact(bytes).enumerate() {
        let at = (start + j) * bytes;
        let column = job.inputs.iter().map(|input| &input[at..at + bytes]);
        let (data_type, op) = (operation.data_type, operation.op);
        let good = if data_type.is_float() {
            let values: Vec<f64> = column.map(|element| float(data_type, element)).collect();
            let (value, tolerance) = float_reference(data_type, op, size, &values);
            (float(data_type, found) - value).abs() <= tolerance
        } else {
            let values: Vec<i128> = column.map(|element| integer(data_type, element)).collect();
            integer(data_type, found) == integer_reference(data_type, op, size, &values)
        };
        assert!(good, "element {j} at rank {rank} of {size}: {operation:?} gave {found:?}");
    }
}

fn float_reference(data_type: DataType, op: ReduceOp, size: u32, values: &[f64]) -> (f64, f64) {
    let sum: f64 = values.iter().sum();
    let (value, magnitude) = match op {
        ReduceOp::Sum => (sum, values.iter().map(|x| x.abs()).sum()),
        ReduceOp::Avg => (sum / f64::from(size), values.iter().map(|x| x.abs()).sum()),
        ReduceOp::Prod => {
            let product: f64 = values.iter().product();
            (product, product.abs())
        }
        ReduceOp::Max => (values.iter().copied().fold(f64::MIN, f64::max), 0.0),
        ReduceOp::Min => (values.iter().copied().fold(f64::MAX, f64::min), 0.0),
    };
    // The reference rounds too, in double precision.
    let own = test_data::tolerance(DataType::F64, op, size, magnitude);
    (value, test_data::tolerance(data_type, op, size, magnitude) + own)
}

fn integer_reference(data_type: DataType, op: ReduceOp, size: u32, values: &[i128]) -> i128 {
    let sum: i128 = values.iter().sum();
    let wrapped = |value: i128| integer(data_type, &value.to_le_bytes()[..data_type.size()]);
    match op {
        ReduceOp::Sum => wrapped(sum),
        ReduceOp::Avg => wrapped(sum) / i128::from(size),
        ReduceOp::Prod => wrapped(values.iter().fold(1, |product, x| product.wrapping_mul(*x))),
        ReduceOp::Max => *values.iter().max().unwrap(),
        ReduceOp::Min => *values.iter().min().unwrap(),
    }
}

fn float(data_type: DataType, bytes: &[u8]) -> f64 {
    match data_type {
        DataType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        DataType::Bf16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        DataType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

fn integer(data_type: DataType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let value = i128::from_le_bytes(wide);
    let unused = 128 - 8 * bytes.len() as u32;
    if data_type.is_signed() { value << unused >> unused } else { value }
}
