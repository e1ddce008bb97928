//! A rank is killed. Alone in its program, since it counts what the process has open.

use roce_test_macros::tier1;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use roce_collectives::{DataType, Error, Group, GroupConfig, Operation, ReduceOp};
use roce_netns::Host;
use roce_netns::process::{Launch, Output, Running};
use roce_tests::fixtures::KEPT_SOCKETS;
use roce_tests::ranks::{Exercise, ROOT, Ranks};

/// Within this time a killed rank is known to all others.
const BOUND: Duration = Duration::from_secs(2);
/// Longer than a rank takes to begin.
const BOUND_OF_START: Duration = Duration::from_secs(60);

/// Starts a rank as a process of its own that never stops by itself.
fn start_rank(host: &Host, rank: u32, size: usize) -> Running {
    let rank_of = Launch::new(env!("CARGO_BIN_EXE_roce-test-rank"));
    let rank_of = rank_of.args([&rank.to_string(), &size.to_string(), ROOT, "eth0", "30000", "0"]);
    rank_of.stderr(Output::Inherit).grace(Duration::ZERO).start_in(host).unwrap()
}

/// Sums vectors until that fails, and says how.
fn work_until_it_fails(config: GroupConfig) -> Error {
    let mut group = match Group::join(config) {
        Ok(group) => group,
        Err(error) => return error,
    };
    let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 30_000);
    let exercise = Exercise::new(&group, &sum, false);
    loop {
        match exercise.run(&mut group) {
            Ok(0) => {}
            Ok(wrong) => panic!("{wrong} elements are wrong"),
            Err(error) => {
                let again = exercise.run(&mut group).unwrap_err();
                assert!(matches!(again, Error::Ended(_)), "{again}");
                return error;
            }
        }
    }
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tier1]
fn a_killed_rank_is_named_by_every_other_rank_within_two_seconds_and_nothing_is_left() {
    const SIZE: usize = 4;
    for victim in [0, 2] {
        let ranks = Ranks::new(SIZE);
        let before = descriptors();
        let killed = Mutex::new(None);
        let ended = ranks.each(|rank, config| {
            if rank != victim {
                return Some((work_until_it_fails(config), Instant::now()));
            }
            let process = start_rank(ranks.host(rank as usize), rank, SIZE);
            while process.read_line(BOUND_OF_START).unwrap().expect("it works at first") != "works"
            {
            }
            *killed.lock().unwrap() = Some(Instant::now());
            drop(process);
            None
        });
        let killed = killed.into_inner().unwrap().unwrap();
        for (rank, outcome) in ended.into_iter().enumerate() {
            let Some((error, at)) = outcome else { continue };
            let names_it = matches!(&error, Error::RankFailed { rank, .. } if *rank == victim);
            assert!(names_it, "rank {rank}: {error}");
            let took = at - killed;
            assert!(took < BOUND, "rank {rank} took {took:?}");
        }
        let end = Instant::now() + Duration::from_secs(20);
        while descriptors() > before + KEPT_SOCKETS {
            assert!(Instant::now() < end, "{} descriptors, {before} before", descriptors());
            thread::sleep(Duration::from_millis(50));
        }
    }
}
