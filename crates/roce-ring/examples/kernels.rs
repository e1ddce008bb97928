//! How fast the kernels are: `cargo run --release -p roce-ring --example kernels`.
//!
//! Prints, for each type and operator, how many 10^9 bytes of result a second come out of
//! blocks of 16 KiB, as computations use them: the best of several runs.

use std::hint::black_box;
use std::time::Instant;

use roce_ring::{DataType, ReduceOp, kernel, test_data};

const BLOCK: usize = 16 << 10;
const RUNS: usize = 20;
const BLOCKS_PER_RUN: usize = 500;

fn main() {
    print!("{:>10}", "GB/s");
    for op in ReduceOp::ALL {
        print!("{op:>8}");
    }
    println!("{:>8}", "divide");
    for data_type in DataType::ALL {
        print!("{data_type:>10}");
        let (mut left, mut right) = (vec![0; BLOCK], vec![0; BLOCK]);
        for op in ReduceOp::ALL {
            test_data::fill(data_type, op, 0, 0, &mut left);
            test_data::fill(data_type, op, 8, 0, &mut right);
            print!(
                "{:>8.1}",
                best(|| kernel::reduce(data_type, op, black_box(&mut left), black_box(&right)))
            );
        }
        test_data::fill(data_type, ReduceOp::Sum, 0, 0, &mut left);
        println!("{:>8.1}", best(|| kernel::divide(data_type, black_box(&mut left), black_box(3))));
    }
}

fn best(mut work: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        (0..BLOCKS_PER_RUN).for_each(|_| work());
        (BLOCK * BLOCKS_PER_RUN) as f64 / start.elapsed().as_nanos() as f64
    };
    (0..RUNS).map(run).fold(0.0, f64::max)
}
