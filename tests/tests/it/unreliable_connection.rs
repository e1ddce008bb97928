//! UC: messages between two connected queue pairs, without acknowledgements.

use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, contents, pattern};
use roce_verbs::{
    Completion, CompletionOperation, CompletionStatus, ConnectOptions, DeviceConfig, PathMtu,
    PostError, QueuePair, RecvWr, RemoteAddr, SendOperation, SendWr, Service, WrError,
};

fn succeeded(completion: Completion, wr_id: u64) -> Completion {
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    assert_eq!(completion.wr_id, wr_id, "{completion:?}");
    completion
}

fn connect(ends: [&TestDevice; 2], options: &ConnectOptions) -> [QueuePair; 2] {
    let pair = ends.map(|end| {
        end.pd.queue_pair(&end.cq, &end.cq).service(Service::Uc).max_send_sge(4).build().unwrap()
    });
    let dests = pair.each_ref().map(|qp| qp.dest(options.gid_index).unwrap());
    pair[0].connect(&dests[1], options).unwrap();
    pair[1].connect(&dests[0], options).unwrap();
    pair
}

fn every_operation(ends: [&TestDevice; 2], options: &ConnectOptions, mtu: usize) {
    let [left, right] = ends;
    let [here, there] = connect(ends, options);
    let most = 1 << 20;
    let (ours, theirs) = (left.region(most, 1), right.region(most, 2));
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    for (round, len) in [0, 1, mtu - 1, mtu, mtu + 1, 64 << 10, 1 << 20].into_iter().enumerate() {
        let message = pattern(len, round as u8);
        ours.write(0, &message).unwrap();
        for immediate in [None, Some([1, 2, 3, round as u8])] {
            theirs.write(0, &pattern(len, 99)).unwrap();
            there.post_recv([RecvWr::new(1, [theirs.sge(..len).unwrap()])]).unwrap();
            let send = SendOperation::Send { immediate, invalidate: None };
            here.post_send([SendWr::new(2, send, [ours.sge(..len).unwrap()]).signaled()]).unwrap();
            succeeded(left.completion(), 2);
            let received = succeeded(right.completion(), 1);
            assert_eq!((received.byte_len as usize, received.immediate), (len, immediate));
            assert_eq!(received.operation, CompletionOperation::Recv);
            assert!(contents(&theirs)[..len] == message, "SEND of {len} bytes");

            theirs.write(0, &pattern(len, 98)).unwrap();
            there.post_recv([RecvWr::new(3, [])]).unwrap();
            // A WRITE without immediate tells nothing: the one behind it does.
            let last = Some(immediate.unwrap_or([9; 4]));
            let mut writes = vec![SendOperation::Write { remote, immediate: last }];
            if immediate.is_none() {
                writes.insert(0, SendOperation::Write { remote, immediate: None });
            }
            let empty = SendWr::new(4, writes[writes.len() - 1], []).signaled();
            let whole = SendWr::new(4, writes[0], [ours.sge(..len).unwrap()]).signaled();
            let work = if writes.len() == 2 { vec![whole, empty] } else { vec![whole] };
            let count = work.len();
            here.post_send(work).unwrap();
            for _ in 0..count {
                succeeded(left.completion(), 4);
            }
            let told = succeeded(right.completion(), 3);
            assert_eq!(told.operation, CompletionOperation::RecvWithImmediate);
            assert_eq!(told.immediate, last);
            assert!(contents(&theirs)[..len] == message, "WRITE of {len} bytes");
        }
    }
    let read = SendWr::new(5, SendOperation::read(remote), [ours.sge(..8).unwrap()]);
    let refused = here.post_send([read]).unwrap_err();
    assert!(matches!(refused.source, WrError::Post(PostError::NotOfService { .. })), "{refused}");
}

#[tier1]
fn every_operation_of_every_size_arrives_intact_over_ipv4_and_ipv6() {
    for (netdev, mtu) in [(1500, PathMtu::B1024), (4200, PathMtu::B4096)] {
        let cable = Cable::with_mtu(netdev);
        let left = TestDevice::on(&cable.left, DeviceConfig::default());
        let right = TestDevice::on(&cable.right, DeviceConfig::default());
        for gid in [1, 2] {
            let options = ConnectOptions { gid_index: Some(gid), ..ConnectOptions::default() };
            every_operation([&left, &right], &options, mtu.bytes());
            every_operation([&right, &left], &options, mtu.bytes());
        }
        // One device to itself.
        every_operation([&left, &left], &ConnectOptions::default(), mtu.bytes());
        for end in [&left, &right] {
            assert_eq!(end.device.counter("uc_dropped_msgs").unwrap(), 0);
            let trains = end.device.counter("device_sent_trains").unwrap();
            assert_eq!(trains > 0, end.sends_trains(), "{trains} trains are sent");
        }
    }
}

#[tier1]
fn a_message_without_a_receive_is_dropped_and_the_next_one_arrives() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let [here, there] = connect([&left, &right], &ConnectOptions::default());
    let send = |byte: u8| {
        here.post_send([SendWr::inline(2, SendOperation::send(), &[byte]).signaled()]).unwrap();
        succeeded(left.completion(), 2);
    };
    send(1);
    roce_tests::ip::wait_until("the message is dropped", || {
        right.device.counter("out_of_buffer").unwrap() == 1
    });
    let theirs = right.region(8, 0);
    there.post_recv([RecvWr::new(1, [theirs.sge(..).unwrap()])]).unwrap();
    send(2);
    assert_eq!(succeeded(right.completion(), 1).byte_len, 1);
    assert_eq!(contents(&theirs)[0], 2);
}
