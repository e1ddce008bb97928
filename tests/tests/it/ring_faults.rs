//! What every rank hears when one fails.

use roce_test_macros::tier1;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use roce_collectives::{DataType, Error, Group, GroupConfig, Operation, ReduceOp};
use roce_tests::ranks::{Exercise, ROOT, Ranks};
use roce_verbs::{FaultConfig, FaultRates};

#[tier1]
fn a_rank_that_never_arrives_is_named_to_those_who_wait() {
    let ranks = Ranks::new(3);
    let errors = ranks.each(|rank, config| {
        let timeout = Duration::from_millis(1500);
        (rank != 2).then(|| Group::join(GroupConfig { timeout, ..config }).unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert_eq!(
            error.to_string(),
            "the ranks cannot form a group: rank 2 did not arrive within 1 s"
        );
    }
}

#[tier1]
fn where_rank_0_never_arrives_its_address_is_named() {
    let ranks = Ranks::new(2);
    let error = ranks.host(1).run(|| {
        let timeout = Duration::from_millis(300);
        Group::join(GroupConfig { timeout, ..ranks.config(1) }).unwrap_err()
    });
    assert!(matches!(&error, Error::NoRoot { address, .. } if address == ROOT), "{error}");
}

#[tier1]
fn a_rank_that_brings_another_count_or_type_is_refused_by_name() {
    let ranks = Ranks::new(3);
    for (key, odd, common) in [("count", "9", "8"), ("type", "double", "float")] {
        let errors = ranks.each(|rank, mut config| {
            let value = if rank == 1 { odd } else { common };
            config.job = vec![(key.to_owned(), value.to_owned())];
            Group::join(config).unwrap_err().to_string()
        });
        let expected = format!("rank 1 has job.{key}={odd}, but rank 0 has job.{key}={common}");
        for error in errors {
            assert!(error.ends_with(&expected), "{error}");
        }
    }
    let errors = ranks.each(|rank, mut config| {
        config.slots = if rank == 2 { 4 } else { 8 };
        Group::join(config).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.ends_with("rank 2 has ring.slots=4, but rank 0 has ring.slots=8"), "{error}");
    }
}

#[tier1]
fn a_rank_that_calls_another_operation_is_found_by_its_neighbour() {
    for count in [100, 50_000] {
        let errors = Ranks::new(3).each(|rank, config| {
            let mut group = Group::join(config).unwrap();
            let buffer = group.buffer(8 * count).unwrap();
            let data_type = if rank == 1 { DataType::I32 } else { DataType::F32 };
            group.all_reduce_in_place(&buffer, count, data_type, ReduceOp::Sum).unwrap_err()
        });
        let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
        for text in &texts {
            let of = |data_type: &str| format!("called allreduce of {count} {data_type} with sum");
            assert!(text.contains(&of("int32")) && text.contains(&of("float")), "{texts:?}");
        }
    }
}

#[tier1]
fn an_interface_that_goes_down_is_named_and_so_is_its_rank() {
    let ranks = Ranks::new(4);
    let all_work = Barrier::new(4);
    let errors = ranks.each(|rank, config| {
        let mut group = Group::join(config).unwrap();
        let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 30_000);
        let exercise = Exercise::new(&group, &sum, true);
        assert_eq!(exercise.run(&mut group).unwrap(), 0);
        all_work.wait();
        if rank == 1 {
            ranks.host(1).set_down("eth0").unwrap();
        }
        let pulled = Instant::now();
        loop {
            match exercise.run(&mut group) {
                Ok(_) => assert!(pulled.elapsed() < Duration::from_secs(10), "rank {rank}"),
                Err(error) => return (error, pulled.elapsed()),
            }
        }
    });
    for (rank, (error, took)) in errors.iter().enumerate() {
        match error {
            Error::InterfaceDown { rank: 1, interface } if rank == 1 => {
                assert_eq!(interface, "eth0")
            }
            Error::Neighbour { rank: 1, .. } | Error::RankFailed { rank: 1, .. } if rank != 1 => {}
            other => panic!("rank {rank}: {other}"),
        }
        assert!(*took < Duration::from_secs(10), "rank {rank} took {took:?}");
    }
}

#[tier1]
fn a_group_that_is_dropped_without_leaving_fails_the_others() {
    let ended = Ranks::new(3).each(|rank, config| {
        let mut group = Group::join(config).unwrap();
        if rank == 1 {
            return None;
        }
        Some(group.barrier().and_then(|()| group.barrier()).unwrap_err())
    });
    for error in ended.into_iter().flatten() {
        assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{error}");
    }
}

#[tier1]
fn a_link_that_loses_one_packet_in_twenty_changes_the_time_and_not_the_results() {
    let retransmitted = Ranks::new(3).grouped(
        |config| {
            let rates = FaultRates { drop: 0.05, ..FaultRates::default() };
            let seed = u64::from(config.rank);
            config.device.faults =
                Some(FaultConfig { seed, inbound: rates, ..FaultConfig::default() });
        },
        |group| {
            for (count, in_place) in [(1, true), (1000, false), (300_000, true), (300_001, false)] {
                let sum = Operation::all_reduce(DataType::I32, ReduceOp::Sum, count);
                let exercise = Exercise::new(group, &sum, in_place);
                assert_eq!(exercise.run(group).unwrap(), 0, "{count}");
            }
            let counter = |name| group.devices().next().unwrap().counter(name).unwrap();
            counter("retry_send_pkts") + counter("completer_retry_err") + counter("rcvd_seq_err")
        },
    );
    assert!(retransmitted.iter().sum::<u64>() > 0, "nothing was lost: the test tests nothing");
}

/// A rank that has its result goes on and posts the next message while the last one may be lost.
#[tier1]
fn what_was_copied_when_it_was_posted_stays_until_it_has_arrived() {
    let retransmitted = Ranks::new(2).grouped(
        |config| {
            let rates = FaultRates { drop: 0.05, ..FaultRates::default() };
            let seed = u64::from(config.rank);
            config.slots = 2;
            config.device.faults =
                Some(FaultConfig { seed, inbound: rates, ..FaultConfig::default() });
        },
        |group| {
            let (rank, buffer) = (u64::from(group.rank()), group.buffer(8 * 2100).unwrap());
            for round in 0..400 {
                // From within the work request to what is too long for a copy.
                let count = 5 + (round * 37) % 2095;
                let mine = (3 * round + rank).to_le_bytes().repeat(count as usize);
                buffer.write(0, &mine).unwrap();
                group.all_reduce_in_place(&buffer, count, DataType::U64, ReduceOp::Sum).unwrap();
                let mut sum = vec![0; mine.len()];
                buffer.read(0, &mut sum).unwrap();
                assert_eq!(sum, (6 * round + 1).to_le_bytes().repeat(count as usize), "{round}");
            }
            let counter = |name| group.devices().next().unwrap().counter(name).unwrap();
            counter("retry_send_pkts") + counter("completer_retry_err") + counter("rcvd_seq_err")
        },
    );
    assert!(retransmitted.iter().sum::<u64>() > 0, "nothing was lost: the test tests nothing");
}
