//! Every collective, for any ring, in any order of events.

use rand::Rng;
use roce_ring::{Collective, DataType, Operation, ReduceOp, RingConfig};

use crate::repeat::for_each_case;
use crate::scenario;
use crate::symbols::Symbols;
use crate::world::{Job, World};

/// The world also checks that no bytes are overwritten before they were sent, no slot before it
/// was consumed, no receive is missing, no send queue overflows, and the operation ends.
#[test]
fn every_result_holds_every_contribution_once() {
    for_each_case(400, |random| {
        let (size, config) = (scenario::size(random), scenario::config(random));
        let mut symbols = Symbols::default();
        let jobs: Vec<Job> = (0..random.random_range(1..=4))
            .map(|_| {
                let operation = scenario::operation(random, size, DataType::U64);
                job(&mut symbols, operation, size, random.random())
            })
            .collect();
        run(size, config, &jobs, &mut symbols, random);
    });
}

#[test]
fn every_collective_works_for_every_size_up_to_64() {
    for_each_case(1, |random| {
        for size in 1..=64 {
            let config = RingConfig {
                slot_bytes: 64,
                slots: 3,
                small_message_max: 64,
                ..RingConfig::default()
            };
            let mut symbols = Symbols::default();
            let mut jobs = Vec::new();
            for collective in Collective::ALL {
                for count in [1, u64::from(size) + 9] {
                    let (data_type, op, root) = (DataType::U64, ReduceOp::Sum, size / 2);
                    let operation = Operation { collective, data_type, op, root, count };
                    jobs.push(job(&mut symbols, operation, size, count == 1));
                }
            }
            run(size, config, &jobs, &mut symbols, random);
        }
    });
}

fn job(symbols: &mut Symbols, operation: Operation, size: u32, in_place: bool) -> Job {
    let inputs = (0..size).map(|rank| symbols.input(&operation, rank, size)).collect();
    Job { operation, in_place, inputs }
}

fn run(
    size: u32,
    config: RingConfig,
    jobs: &[Job],
    symbols: &mut Symbols,
    random: &mut rand::rngs::StdRng,
) {
    // Printed when the case fails.
    let calls: Vec<_> = jobs.iter().map(|job| (job.operation, job.in_place)).collect();
    eprintln!("{size} ranks, {config:?}: {calls:?}");
    let ranks = World::new(size, config, jobs, &mut *symbols).run(random).unwrap();
    for (rank, results) in (0..).zip(ranks) {
        for (job, result) in jobs.iter().zip(results) {
            let found: Vec<_> = result.chunks_exact(8).map(|bytes| symbols.decode(bytes)).collect();
            let expected = Symbols::output(&job.operation, rank, size);
            assert!(found == expected, "{:?} at rank {rank} of {size}, {config:?}", job.operation);
        }
    }
}
