//! Sums a vector over a group of ranks.
//!
//! `roce run --local 3 -- target/debug/examples/sum` makes a group of three, as `torchrun` and `mpirun` do on hosts;
//! started alone the program is a group of one.

use std::error::Error;

use roce_collectives::{DataType, Group, GroupConfig, LauncherEnv, ReduceOp};

const ELEMENTS: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let config = match LauncherEnv::from_environment()? {
        Some(job) => GroupConfig::new(job.rank, job.size, job.root()?),
        None => GroupConfig::new(0, 1, "127.0.0.1:0"),
    };
    let mut group = Group::join(config)?;
    let (rank, size) = (u64::from(group.rank()), u64::from(group.size()));

    let (input, output) = (group.buffer(8 * ELEMENTS)?, group.buffer(8 * ELEMENTS)?);
    let own = (0..ELEMENTS).flat_map(|index| (index + rank).to_le_bytes());
    input.write(0, &own.collect::<Vec<u8>>())?;
    group.all_reduce(&input, &output, ELEMENTS, DataType::U64, ReduceOp::Sum)?;

    let mut sums = vec![0; 8 * ELEMENTS as usize];
    output.read(0, &mut sums)?;
    for (index, sum) in sums.as_chunks::<8>().0.iter().enumerate() {
        let expected = size * index as u64 + size * (size - 1) / 2;
        assert_eq!(u64::from_le_bytes(*sum), expected, "element {index}");
    }
    println!("rank {rank} of {size}: {ELEMENTS} sums are right");
    group.leave()?;
    Ok(())
}
