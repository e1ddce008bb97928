//! Several interfaces, several queue pairs, several ranks on one host.

use roce_test_macros::tier1;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use roce_collectives::{DataType, Group, GroupConfig, Operation, ReduceOp};
use roce_netns::process::Launch;
use roce_tests::fixtures::{
    COMPLETION_TIMEOUT, Cable, TestDevice, connect, contents, device_config, every_right, pattern,
};
use roce_tests::ranks::{Exercise, Ranks};
use roce_verbs::{
    CompletionChannel, CompletionStatus, ConnectOptions, Device, DeviceConfig, RecvWr,
    RegisterOptions, RemoteAddr, SendOperation, SendWr,
};

/// Operations of all paths: nothing, small, a few pieces, many pieces.
fn check_group(group: &mut Group) {
    for count in [0, 1, 500, 20_011, 300_007] {
        for operation in [
            Operation::all_reduce(DataType::F32, ReduceOp::Sum, count),
            Operation::all_gather(DataType::I32, count / 3),
            Operation::reduce_scatter(DataType::I64, ReduceOp::Max, count / 5),
            Operation::broadcast(DataType::F64, 1, count),
            Operation::reduce(DataType::U32, ReduceOp::Sum, 0, count),
        ] {
            let exercise = Exercise::new(group, &operation, count % 2 == 0);
            assert_eq!(exercise.run(group).unwrap(), 0, "{operation:?}");
        }
    }
    group.barrier().unwrap();
}

#[tier1]
fn results_are_the_same_over_any_number_of_queue_pairs_split_or_not() {
    for (qps_per_connection, split) in [(1, true), (3, false), (4, true)] {
        Ranks::new(3).grouped(
            |config| *config = GroupConfig { qps_per_connection, split, ..config.clone() },
            check_group,
        );
    }
}

#[tier1]
fn two_interfaces_share_the_work() {
    for (qps_per_connection, split) in [(1, false), (2, true)] {
        let ranks = Ranks::with_rails(3, 2);
        let sent = ranks.grouped(
            |config| *config = GroupConfig { qps_per_connection, split, ..config.clone() },
            |group| {
                check_group(group);
                assert_eq!(group.interfaces(), ["eth0", "eth1"]);
                let sent = |device: &Device| device.counter("sent_pkts").unwrap();
                group.devices().map(sent).collect::<Vec<u64>>()
            },
        );
        for rank in sent {
            let (less, more) = (rank[0].min(rank[1]), rank[0].max(rank[1]));
            assert!(less * 2 > more, "packets per interface: {rank:?}");
        }
    }
}

#[tier1]
fn any_number_of_slots_of_any_size_will_do() {
    for (slots, slot_bytes, small_message_max) in [(1, 4096, 0), (2, 1000, 4096), (5, 1 << 20, 100)]
    {
        Ranks::new(3).grouped(
            |config| {
                *config = GroupConfig { slots, slot_bytes, small_message_max, ..config.clone() }
            },
            check_group,
        );
    }
}

#[tier1]
fn ranks_that_are_threads_of_one_process_may_share_an_interface() {
    let ranks = Ranks::new(1);
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let ranks = &ranks;
            scope.spawn(move || {
                ranks.host(0).run(|| {
                    let mut group =
                        Group::join(GroupConfig { size: 3, rank, ..ranks.config(0) }).unwrap();
                    check_group(&mut group);
                    group.leave().unwrap();
                });
            });
        }
    });
}

#[tier1]
fn ranks_that_are_processes_of_one_host_may_share_an_interface() {
    let ranks = Ranks::new(1);
    let children = (0..3).map(|rank: u32| {
        let launch = Launch::new(env!("CARGO_BIN_EXE_roce-test-rank"));
        let arguments = [&rank.to_string(), "3", "127.0.0.1:29500", "eth0", "50000", "20"];
        launch.args(arguments).start_in(ranks.host(0)).unwrap()
    });
    for child in children.collect::<Vec<_>>() {
        let outcome = child.wait(Duration::MAX).and_then(|outcome| outcome.check()).unwrap();
        assert_eq!(outcome.stdout, "joined\nworks\nleft\n");
    }
}

#[tier1]
fn a_group_that_is_told_no_interface_takes_one_that_has_an_address() {
    let chosen = Ranks::new(2).grouped(
        |config| config.interfaces.clear(),
        |group| {
            group.barrier().unwrap();
            group.interfaces().to_vec()
        },
    );
    assert_eq!(chosen, [["eth0"], ["eth0"]]);
}

#[tier1]
fn memory_registered_with_two_devices_is_one_memory_and_outlives_the_first() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, _there) = connect(&left, &right, &ConnectOptions::default());
    // The left's memory, registered with the right too: a write there is seen here.
    let source = left.region(3000, 5);
    let first = left.region(3000, 6);
    let second = right.pd.register_shared(&first, every_right()).unwrap();
    assert_eq!((second.address(), second.len()), (first.address(), 3000));
    drop(first);
    let remote = RemoteAddr { addr: second.address(), rkey: second.rkey() };
    let work = SendWr::new(1, SendOperation::write(remote), [source.sge(..).unwrap()]);
    here.post_send([work.signaled()]).unwrap();
    assert_eq!(left.completion().status, CompletionStatus::Success);
    assert!(contents(&second) == pattern(3000, 5));

    let mut owned = vec![0_u8; 64];
    // SAFETY: the vector outlives the region, and no code reads it.
    let borrowed = unsafe {
        left.pd.register_memory(owned.as_mut_ptr(), 64, every_right(), RegisterOptions::default())
    };
    let refused = right.pd.register_shared(&borrowed.unwrap(), every_right());
    assert!(refused.unwrap_err().to_string().contains("belongs to the caller"));
}

#[tier1]
fn a_sleeper_on_two_devices_is_woken_by_either_and_by_a_socket() {
    let cable = Cable::with_mtu(1500);
    let ends: Vec<_> = [&cable.left, &cable.right]
        .map(|host| {
            let device = host.run(|| Device::open("eth0", device_config())).unwrap();
            let channel = device.create_completion_channel().unwrap();
            let cq = device.create_cq(16, Some(&channel)).unwrap();
            (TestDevice { pd: device.alloc_pd().unwrap(), device, cq }, channel)
        })
        .into();
    let channels: Vec<&CompletionChannel> = ends.iter().map(|(_, channel)| channel).collect();
    let (socket, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let sleep = || {
        let begun = Instant::now();
        CompletionChannel::wait_any(&channels, socket.as_fd(), Some(COMPLETION_TIMEOUT))?;
        assert!(begun.elapsed() < COMPLETION_TIMEOUT, "it slept through");
        Ok::<_, roce_verbs::Error>(())
    };
    let (here, there) = connect(&ends[0].0, &ends[1].0, &ConnectOptions::default());
    for (sender, receiver, woken) in [(&here, &there, 1), (&there, &here, 0)] {
        ends[woken].0.cq.arm(false);
        receiver.post_recv([RecvWr::new(7, [])]).unwrap();
        sender.post_send([SendWr::new(8, SendOperation::send(), [])]).unwrap();
        sleep().unwrap();
        assert!(channels[woken].poll().is_some());
        assert!(ends[woken].0.cq.poll_one().is_some());
    }
    drop(other);
    sleep().unwrap();
    assert!(channels.iter().all(|channel| channel.poll().is_none()));
}

#[tier1]
fn registered_memory_is_the_buffers_and_a_fixed_amount() {
    let seen = Ranks::new(3).grouped(
        |config| config.qps_per_connection = 2,
        |group| {
            let (lanes, staging, back) = (2, 16 * (128 << 10), 16 * (64 << 10));
            let outboxes = 2 * 16 * (16 << 10);
            let fixed = lanes * (staging + back + outboxes + 24) + staging;
            assert_eq!(group.registered_bytes(), fixed);
            let buffer = group.buffer(10_000_000).unwrap();
            assert_eq!(group.registered_bytes(), fixed + 10_000_000);
            group.all_reduce_in_place(&buffer, 2_500_000, DataType::I32, ReduceOp::Max).unwrap();
            assert_eq!(group.registered_bytes(), fixed + 10_000_000);
            drop(buffer);
            group.registered_bytes() - fixed
        },
    );
    assert_eq!(seen, [0, 0, 0]);
}
