//! A rank for the tests: sums vectors of floats with the others until something ends it.
//!
//! `roce-test-rank RANK SIZE HOST:PORT INTERFACE COUNT ROUNDS`; says `joined`, then `works` when
//! some operations are done, and `left` when all ROUNDS are (0: they never are). An error ends
//! it with 1 and its text.

use std::error::Error;

use roce_collectives::{DataType, Group, GroupConfig, Operation, ReduceOp};
use roce_tests::fixtures::device_config;
use roce_tests::ranks::Exercise;

/// So many operations count as working.
const SOME: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rank, size, root, interface, count, rounds] = arguments.as_slice() else {
        return Err("roce-test-rank RANK SIZE HOST:PORT INTERFACE COUNT ROUNDS".into());
    };
    let config = GroupConfig {
        interfaces: vec![interface.clone()],
        device: device_config(),
        ..GroupConfig::new(rank.parse()?, size.parse()?, root)
    };
    let rounds: u64 = rounds.parse()?;
    let mut group = Group::join(config)?;
    println!("joined");
    let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, count.parse()?);
    let exercise = Exercise::new(&group, &sum, false);
    let mut round = 0;
    while rounds == 0 || round < rounds {
        let wrong = exercise.run(&mut group)?;
        if wrong > 0 {
            return Err(format!("{wrong} elements are wrong in round {round}").into());
        }
        round += 1;
        if round == SOME {
            println!("works");
        }
    }
    group.leave()?;
    println!("left");
    Ok(())
}
