//! Every operation between two of ours, over a real packet socket.

use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, contents, pattern};
use roce_verbs::{
    Completion, CompletionOperation, CompletionStatus, ConnectOptions, DeviceConfig, GsoMode,
    PathMtu, Psn, RecvWr, RemoteAddr, SendOperation, SendWr,
};

fn succeeded(completion: Completion, wr_id: u64) -> Completion {
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    assert_eq!(completion.wr_id, wr_id, "{completion:?}");
    completion
}

/// Sizes around the path MTU, and some that make long trains.
fn sizes(mtu: usize) -> [usize; 8] {
    [0, 1, mtu - 1, mtu, mtu + 1, 64 << 10, (1 << 20) + 3, 8 << 20]
}

/// All operations of all sizes between two ends.
fn all_operations(left: &TestDevice, right: &TestDevice, options: &ConnectOptions, mtu: PathMtu) {
    let (here, there) = connect(left, right, options);
    let most = 8 << 20;
    let (ours, theirs) = (left.region(most, 1), right.region(most, 2));
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    for (round, len) in sizes(mtu.bytes()).into_iter().enumerate() {
        let seed = 16 + round as u8;
        let message = pattern(len, seed);

        ours.write(0, &message).unwrap();
        theirs.write(0, &pattern(len, 99)).unwrap();
        there.post_recv([RecvWr::new(1, [theirs.sge(..len).unwrap()])]).unwrap();
        let send = SendOperation::Send { immediate: Some([1, 2, 3, seed]), invalidate: None };
        here.post_send([SendWr::new(2, send, [ours.sge(..len).unwrap()]).signaled()]).unwrap();
        let received = succeeded(right.completion(), 1);
        succeeded(left.completion(), 2);
        assert_eq!(received.byte_len as usize, len);
        assert_eq!(received.immediate, Some([1, 2, 3, seed]));
        assert_eq!(received.operation, CompletionOperation::Recv);
        assert!(contents(&theirs)[..len] == message, "SEND of {len} bytes");

        theirs.write(0, &pattern(len, 98)).unwrap();
        there.post_recv([RecvWr::new(3, [])]).unwrap();
        let write = SendOperation::Write { remote, immediate: Some([seed, 0, 0, 1]) };
        here.post_send([SendWr::new(4, write, [ours.sge(..len).unwrap()]).signaled()]).unwrap();
        let told = succeeded(right.completion(), 3);
        succeeded(left.completion(), 4);
        assert_eq!((told.byte_len as usize, told.immediate), (len, Some([seed, 0, 0, 1])));
        assert_eq!(told.operation, CompletionOperation::RecvWithImmediate);
        assert!(contents(&theirs)[..len] == message, "WRITE of {len} bytes");

        ours.write(0, &pattern(len, 97)).unwrap();
        let read = SendOperation::Read { remote };
        here.post_send([SendWr::new(5, read, [ours.sge(..len).unwrap()]).signaled()]).unwrap();
        succeeded(left.completion(), 5);
        assert!(contents(&ours)[..len] == message, "READ of {len} bytes");
    }
    theirs.write(64, &40u64.to_ne_bytes()).unwrap();
    let word = RemoteAddr { addr: theirs.address() + 64, rkey: theirs.rkey() };
    let add = SendOperation::FetchAdd { remote: word, add: 2 };
    here.post_send([SendWr::new(6, add, [ours.sge(8..16).unwrap()]).signaled()]).unwrap();
    succeeded(left.completion(), 6);
    let swap = SendOperation::CompareSwap { remote: word, compare: 42, swap: 7 };
    here.post_send([SendWr::new(7, swap, [ours.sge(16..24).unwrap()]).signaled()]).unwrap();
    succeeded(left.completion(), 7);
    assert_eq!(ours.load_u64(8).unwrap(), 40);
    assert_eq!(ours.load_u64(16).unwrap(), 42);
    assert_eq!(theirs.load_u64(64).unwrap(), 7);

    let before_store = contents(&theirs)[72..80].to_vec();
    let store = SendOperation::atomic_write(word, u64::MAX - 9);
    here.post_send([SendWr::new(8, store, []).signaled()]).unwrap();
    let flush = SendOperation::flush(word, 8);
    here.post_send([SendWr::new(9, flush, []).signaled()]).unwrap();
    assert_eq!(succeeded(left.completion(), 8).operation, CompletionOperation::AtomicWrite);
    assert_eq!(succeeded(left.completion(), 9).operation, CompletionOperation::Flush);
    assert_eq!(theirs.load_u64(64).unwrap(), u64::MAX - 9);
    assert_eq!(contents(&theirs)[72..80], before_store, "no byte beside the word has changed");
}

#[tier1]
fn every_operation_of_every_size_arrives_intact_at_any_mtu_over_ipv4_and_ipv6() {
    for (netdev, mtu) in [(1500, PathMtu::B1024), (4200, PathMtu::B4096), (9000, PathMtu::B4096)] {
        let cable = Cable::with_mtu(netdev);
        let left = TestDevice::on(&cable.left, DeviceConfig::default());
        let right = TestDevice::on(&cable.right, DeviceConfig::default());
        for gid in [1, 2] {
            let rows = left.device.gid_table().unwrap();
            assert!(rows.len() > usize::from(gid), "{rows:?}");
            let options = ConnectOptions { gid_index: Some(gid), ..ConnectOptions::default() };
            all_operations(&left, &right, &options, mtu);
        }
        for end in [&left, &right] {
            let count = |name| end.device.counter(name).unwrap();
            let (packets, frames) = (count("sent_pkts"), count("device_sent_frames"));
            if !end.sends_trains() {
                assert_eq!((count("device_sent_trains"), packets), (0, frames));
                continue;
            }
            assert!(count("device_sent_trains") > 0, "trains are sent");
            assert!(count("device_rcvd_trains") > 0, "and arrive whole");
            assert!(packets > 4 * frames, "{packets} packets in {frames} frames");
        }
    }
}

#[tier1]
fn the_longest_trains_leave_over_ipv6_behind_something_over_ipv4() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let [by_ipv4, by_ipv6] = [1, 2].map(|gid| {
        let options = ConnectOptions { gid_index: Some(gid), ..ConnectOptions::default() };
        connect(&left, &right, &options)
    });
    let (ours, theirs) = (left.region(64 << 10, 1), right.region(64 << 10, 2));
    // 62 packets and a part of one: as much as a datagram holds, and a little less.
    for last in (900..1024).step_by(4) {
        for (pair, len) in [(&by_ipv4, 8), (&by_ipv6, 62 * 1024 + last)] {
            let (here, there) = pair;
            there.post_recv([RecvWr::new(1, [theirs.sge(..len).unwrap()])]).unwrap();
            let work = SendWr::new(2, SendOperation::send(), [ours.sge(..len).unwrap()]);
            here.post_send([work.signaled()]).unwrap();
            succeeded(right.completion(), 1);
            succeeded(left.completion(), 2);
            assert!(contents(&theirs)[..len] == contents(&ours)[..len], "{len} bytes");
        }
    }
}

#[tier1]
fn without_trains_every_operation_arrives_too() {
    let cable = Cable::with_mtu(1500);
    let config = DeviceConfig { gso: GsoMode::Off, ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config.clone());
    let right = TestDevice::on(&cable.right, config);
    all_operations(&left, &right, &ConnectOptions::default(), PathMtu::B1024);
    assert_eq!(left.device.counter("device_sent_trains").unwrap(), 0);
}

#[tier1]
fn a_queue_pair_that_talks_to_its_own_device_or_to_itself_is_served_too() {
    let cable = Cable::with_mtu(1500);
    let end = TestDevice::on(&cable.left, DeviceConfig::default());
    let options = ConnectOptions::default();
    let qp = end
        .pd
        .queue_pair(&end.cq, &end.cq)
        .first_psn(Psn::new(0x00ff_fff0).unwrap())
        .build()
        .unwrap();
    qp.connect(&qp.dest(None).unwrap(), &options).unwrap();
    let region = end.region(1 << 20, 5);
    qp.post_recv([RecvWr::new(1, [region.sge(1 << 19..).unwrap()])]).unwrap();
    let work = SendWr::new(2, SendOperation::send(), [region.sge(..1 << 19).unwrap()]);
    qp.post_send([work.signaled()]).unwrap();
    let mut seen: Vec<_> = (0..2).map(|_| end.completion()).collect();
    seen.sort_by_key(|completion| completion.wr_id);
    succeeded(seen[0], 1);
    succeeded(seen[1], 2);
    let bytes = contents(&region);
    assert!(bytes[..1 << 19] == bytes[1 << 19..]);
}

#[tier1]
fn a_target_whose_program_does_nothing_is_written_and_read_all_the_same() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, _there) = connect(&left, &right, &ConnectOptions::default());
    let (ours, theirs) = (left.region(4096, 1), right.region(4096, 2));
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    let write = SendOperation::Write { remote, immediate: None };
    here.post_send([SendWr::new(1, write, [ours.sge(..).unwrap()])]).unwrap();
    // The target only looks at its memory.
    let last = pattern(4096, 1)[4095];
    let deadline = std::time::Instant::now() + roce_tests::fixtures::COMPLETION_TIMEOUT;
    while theirs.load_u8(4095).unwrap() != last {
        assert!(std::time::Instant::now() < deadline, "nothing was written");
        left.cq.poll_one();
    }
    assert!(contents(&theirs) == pattern(4096, 1));
}
