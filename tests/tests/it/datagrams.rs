//! UD: datagrams between hosts, processes and queue pairs of one host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roce_test_macros::tier1;
use roce_tests::datagrams::{DatagramEnd, Q_KEY, address_handle};
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice, pattern};
use roce_tests::writer::Writer;
use roce_verbs::{
    AddressHandle, Completion, CompletionOperation, CompletionStatus, ConnectOptions, DeviceConfig,
    Error, GRH_LEN, GSI_Q_KEY, PathMtu, PostError, Qpn, SendOperation, SendWr, Service, WrError,
    exchange,
};

fn succeeded(completion: Completion, operation: CompletionOperation) -> Completion {
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    assert_eq!(completion.operation, operation, "{completion:?}");
    completion
}

fn inline_or_not(end: &DatagramEnd, message: &[u8], immediate: Option<[u8; 4]>) -> SendWr {
    let operation = SendOperation::Send { immediate, invalidate: None };
    if message.len() <= 64 {
        return SendWr::inline(9, operation, message).signaled();
    }
    // Behind the slots that receives use.
    let start = end.region.len() - 4096;
    end.region.write(start, message).unwrap();
    let piece = end.region.sge(start..start + message.len()).unwrap();
    SendWr::new(9, operation, [piece]).signaled()
}

/// Sends a datagram, and returns its completion at the receiver.
fn send(
    [left, right]: [&TestDevice; 2],
    [here, there]: [&DatagramEnd; 2],
    ah: &AddressHandle,
    message: &[u8],
    immediate: Option<[u8; 4]>,
) -> Completion {
    there.post_receive(0);
    let work = inline_or_not(here, message, immediate);
    here.qp.post_send_to([work], ah, there.qp.number(), Q_KEY).unwrap();
    succeeded(left.completion(), CompletionOperation::Send);
    let received = succeeded(right.completion(), CompletionOperation::Recv);
    assert_eq!(received.byte_len as usize, GRH_LEN + message.len());
    assert_eq!(received.immediate, immediate);
    assert_eq!(received.source_qpn, Some(here.qp.number()));
    assert!(there.contents(0, &received) == message, "{} bytes", message.len());
    received
}

#[tier1]
fn datagrams_up_to_the_path_mtu_arrive_and_are_answered_over_ipv4_and_ipv6() {
    for (netdev, mtu) in [(1500, PathMtu::B1024), (4200, PathMtu::B4096)] {
        let cable = Cable::with_mtu(netdev);
        let left = TestDevice::on(&cable.left, DeviceConfig::default());
        let right = TestDevice::on(&cable.right, DeviceConfig::default());
        let (here, there) = (DatagramEnd::new(&left, 4), DatagramEnd::new(&right, 4));
        for (mine, theirs) in [("10.1.0.1", "10.1.0.2"), ("fd00:1::1", "fd00:1::2")] {
            let ah = address_handle(&left, theirs, None);
            let mtu = mtu.bytes();
            for len in [0, 1, mtu - 1, mtu] {
                for immediate in [None, Some([1, 2, 3, 4])] {
                    let message = pattern(len, len as u8);
                    let received = send([&left, &right], [&here, &there], &ah, &message, immediate);
                    let back =
                        right.pd.create_ah_from_completion(&received, &there.grh(0)).unwrap();
                    assert_eq!(back.remote().to_string(), mine);
                    assert_eq!(back.local().to_string(), theirs);
                    send([&right, &left], [&there, &here], &back, &message, immediate);
                }
            }
            let long = inline_or_not(&here, &pattern(mtu, 1), None);
            let long = SendWr::new(1, long.operation, [here.region.sge(..mtu + 1).unwrap()]);
            let refused = here.qp.post_send_to([long], &ah, there.qp.number(), Q_KEY).unwrap_err();
            let expected = PostError::DatagramTooLong { len: mtu as u64 + 1, mtu };
            assert!(matches!(refused.source, WrError::Post(why) if why == expected), "{refused}");
            send([&left, &right], [&here, &there], &ah, b"the queue pair lives", None);
        }
        let dropped: u64 =
            [&left, &right].map(|end| end.device.counter("out_of_buffer").unwrap()).iter().sum();
        assert_eq!(dropped, 0);
    }
}

#[tier1]
fn datagrams_to_the_own_device_and_to_the_own_queue_pair_arrive() {
    let cable = Cable::with_mtu(1500);
    let end = TestDevice::on(&cable.left, DeviceConfig::default());
    let (one, other) = (DatagramEnd::new(&end, 4), DatagramEnd::new(&end, 4));
    for address in ["10.1.0.1", "fd00:1::1"] {
        let ah = address_handle(&end, address, None);
        for to in [&other, &one] {
            to.post_receive(0);
            let message = pattern(1024, 7);
            let work = inline_or_not(&one, &message, None);
            one.qp.post_send_to([work], &ah, to.qp.number(), Q_KEY).unwrap();
            let mut seen = [end.completion(), end.completion()];
            seen.sort_by_key(|it| it.operation.code());
            succeeded(seen[0], CompletionOperation::Send);
            let received = succeeded(seen[1], CompletionOperation::Recv);
            assert_eq!(
                (received.qpn, received.source_qpn),
                (to.qp.number(), Some(one.qp.number()))
            );
            assert!(to.contents(0, &received) == message);
            let back = end.pd.create_ah_from_completion(&received, &to.grh(0)).unwrap();
            assert_eq!(back.remote().to_string(), address);
        }
    }
}

#[tier1]
fn processes_that_share_an_address_serve_datagrams_of_other_hosts_and_of_each_other() {
    let cable = Cable::with_mtu(1500);
    let program = env!("CARGO_BIN_EXE_roce-test-datagram-echo");
    let servers =
        [7011, 7012].map(|port| Echo::start(program, &cable.left, "eth0", "10.1.0.1", port));
    // From the other host, and from a third process of the servers' host by its own address.
    for host in [&cable.right, &cable.left] {
        let end = TestDevice::on(host, DeviceConfig::default());
        let datagrams = DatagramEnd::new(&end, 4);
        let ah = address_handle(&end, "10.1.0.1", None);
        let mine = datagrams.qp.dest(None).unwrap();
        let theirs: Vec<Qpn> = servers
            .iter()
            .map(|echo| host.run(|| exchange::connect(echo.address, &mine)).unwrap().qpn)
            .collect();
        for round in 0..50u8 {
            for (qpn, seed) in theirs.iter().zip([round, !round]) {
                datagrams.post_receive(0);
                let message = pattern(1000, seed);
                let work = inline_or_not(&datagrams, &message, None);
                datagrams.qp.post_send_to([work], &ah, *qpn, Q_KEY).unwrap();
                succeeded(end.completion(), CompletionOperation::Send);
                let echo = succeeded(end.completion(), CompletionOperation::Recv);
                assert_eq!(echo.source_qpn, Some(*qpn));
                assert!(datagrams.contents(0, &echo) == message, "the echo differs");
            }
        }
    }
}

/// A queue pair whose Q_Key is that of management datagrams, which it so receives.
fn manager(end: &TestDevice) -> DatagramEnd {
    DatagramEnd::of(end, 8, end.pd.queue_pair(&end.cq, &end.cq).service(Service::Ud), GSI_Q_KEY)
}

#[tier1]
fn every_process_with_a_general_services_queue_pair_receives_each_management_datagram() {
    let cable = Cable::with_mtu(1500);
    let program = env!("CARGO_BIN_EXE_roce-test-datagram-echo");
    let _servers = [7011, 7012].map(|port| {
        let address = ([10, 1, 0, 1], port).into();
        Echo::start_with(program, &cable.left, "eth0", address, &["general-services"])
    });
    // From the other host, and from a third process of the servers' host.
    for host in [&cable.right, &cable.left] {
        let end = TestDevice::on(host, DeviceConfig::default());
        let here = manager(&end);
        for address in ["10.1.0.1", "fd00:1::1"] {
            let ah = address_handle(&end, address, None);
            (0..2).for_each(|slot| here.post_receive(slot));
            let message = pattern(256, 7);
            let work = inline_or_not(&here, &message, None);
            here.qp.post_send_to([work], &ah, Qpn::GSI, 1 << 31).unwrap();
            succeeded(end.completion(), CompletionOperation::Send);
            for _ in 0..2 {
                let echo = succeeded(end.completion(), CompletionOperation::Recv);
                assert_eq!(echo.source_qpn, Some(Qpn::GSI));
                assert!(here.contents(echo.wr_id as usize, &echo) == message, "the echo differs");
            }
        }
        assert_eq!(end.device.counter("out_of_buffer").unwrap(), 0, "two echoes and no more");
    }
}

#[tier1]
fn management_datagrams_reach_a_device_only_while_it_has_a_general_services_queue_pair() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, there) = (manager(&left), DatagramEnd::new(&right, 4));
    let ah = address_handle(&left, "10.1.0.2", None);
    let manage = || {
        let work = inline_or_not(&here, b"manage", None);
        here.qp.post_send_to([work], &ah, Qpn::GSI, 1 << 31).unwrap();
        succeeded(left.completion(), CompletionOperation::Send);
    };
    // What the filter lets in for no queue pair would be counted before the datagram behind it.
    let assert_filtered = || {
        manage();
        send([&left, &right], [&here, &there], &ah, b"behind", None);
        assert_eq!(right.device.counter("unknown_qp").unwrap(), 0);
    };
    assert_filtered();
    let services = DatagramEnd::general_services(&right, 4);
    assert_eq!(services.qp.number(), Qpn::GSI);
    let second = right.pd.queue_pair(&right.cq, &right.cq).general_services().build();
    assert!(matches!(second, Err(Error::Misuse(_))), "{second:?}");
    let connected = right.pd.queue_pair(&right.cq, &right.cq).general_services();
    assert!(matches!(connected.service(Service::Rc).build(), Err(Error::Misuse(_))));
    services.post_receive(0);
    manage();
    let received = succeeded(right.completion(), CompletionOperation::Recv);
    assert_eq!((received.qpn, received.source_qpn), (Qpn::GSI, Some(here.qp.number())));
    assert_eq!(services.contents(0, &received), b"manage");
    // To the own address: through `lo`, as for other processes.
    let own = address_handle(&right, "10.1.0.2", None);
    let to_itself = manager(&right);
    services.post_receive(1);
    let work = inline_or_not(&to_itself, b"own", None);
    to_itself.qp.post_send_to([work], &own, Qpn::GSI, 1 << 31).unwrap();
    let mut seen = [right.completion(), right.completion()];
    seen.sort_by_key(|it| it.operation.code());
    assert_eq!(services.contents(1, &succeeded(seen[1], CompletionOperation::Recv)), b"own");
    drop(services);
    assert_filtered();
    DatagramEnd::general_services(&right, 1);
}

#[tier1]
fn a_datagram_with_another_q_key_or_without_a_receive_is_dropped_and_counted() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, there) = (DatagramEnd::new(&left, 4), DatagramEnd::new(&right, 4));
    let ah = address_handle(&left, "10.1.0.2", None);
    let post = |q_key| {
        let work = inline_or_not(&here, b"hello", None);
        here.qp.post_send_to([work], &ah, there.qp.number(), q_key).unwrap();
        succeeded(left.completion(), CompletionOperation::Send);
    };
    let wait_for = |counter| {
        let what = format!("{counter} counts one");
        roce_tests::ip::wait_until(&what, || right.device.counter(counter).unwrap() == 1);
    };
    post(Q_KEY);
    wait_for("out_of_buffer");
    there.post_receive(0);
    post(Q_KEY ^ 1);
    wait_for("bad_qkey");
    // The top bit stands for the sender's own Q_Key.
    post(1 << 31);
    let received = succeeded(right.completion(), CompletionOperation::Recv);
    assert_eq!(there.contents(0, &received), b"hello");
}

#[tier1]
fn an_address_handle_may_be_dropped_while_its_datagrams_wait_for_their_time() {
    const COUNT: usize = 100;
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, there) = (DatagramEnd::new(&left, 2), DatagramEnd::new(&right, COUNT));
    (0..COUNT).for_each(|slot| there.post_receive(slot));
    let message = pattern(1000, 3);
    let began = Instant::now();
    let rate = 1_000_000;
    for _ in 0..COUNT / 10 {
        // Each handle has a path of its own.
        let ah = address_handle(&left, "10.1.0.2", Some(rate));
        let work = inline_or_not(&here, &message, None);
        here.qp.post_send_to(vec![work; 10], &ah, there.qp.number(), Q_KEY).unwrap();
    }
    for slot in 0..COUNT {
        let received = succeeded(right.completion(), CompletionOperation::Recv);
        assert_eq!(received.wr_id as usize, slot, "the datagrams of a queue pair stay in order");
        assert!(there.contents(slot, &received) == message);
    }
    // All but the last one have taken their time at the static rate.
    let least = Duration::from_secs_f64(((COUNT - 1) * message.len()) as f64 / rate as f64);
    assert!(began.elapsed() >= least, "{:?} is faster than {rate} bytes/s", began.elapsed());
    assert_eq!(left.device.counter("drop_no_path").unwrap(), 0);
}

#[tier1]
fn an_address_handle_of_another_domain_and_a_completion_of_no_datagram_are_refused() {
    let cable = Cable::with_mtu(1500);
    let end = TestDevice::on(&cable.left, DeviceConfig::default());
    let other = TestDevice::of(end.device.clone());
    let datagrams = DatagramEnd::new(&end, 1);
    let foreign = address_handle(&other, "10.1.0.2", None);
    let work = inline_or_not(&datagrams, b"", None);
    let refused = datagrams.qp.post_send_to([work], &foreign, datagrams.qp.number(), Q_KEY);
    assert!(matches!(refused.unwrap_err().source, WrError::OtherDomain));
    let ah = address_handle(&end, "10.1.0.2", None);
    let connected = end.queue_pair();
    let work = inline_or_not(&datagrams, b"", None);
    let refused = connected.post_send_to([work], &ah, datagrams.qp.number(), Q_KEY).unwrap_err();
    assert!(matches!(refused.source, WrError::Post(PostError::UnexpectedDestination(_))));
    let sent = inline_or_not(&datagrams, b"", None);
    datagrams.qp.post_send_to([sent], &ah, datagrams.qp.number(), Q_KEY).unwrap();
    let done = end.completion();
    let made = end.pd.create_ah_from_completion(&done, &[0; GRH_LEN]);
    assert!(matches!(made, Err(Error::NotADatagram)));
}

/// WRITEs of 64 KiB, one after the other, in this time; all must succeed.
fn writes_during(writer: &Writer<'_>, time: Duration) -> usize {
    let until = Instant::now() + time;
    let mut count = 0;
    while Instant::now() < until {
        let (status, took) = writer.write(65_536);
        assert_eq!(status, CompletionStatus::Success, "after {took:?}");
        count += 1;
    }
    count
}

#[tier1]
fn a_flood_to_a_queue_pair_without_receives_is_counted_and_leaves_a_connection_its_rate() {
    const PHASE: Duration = Duration::from_millis(400);
    let cable = Cable::with_mtu(4200);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let options = ConnectOptions::default();
    let writer = Writer::connect((&left, &options), (&right, &options), 65_536);
    // Another context of the same engine, with a completion queue of its own.
    let flooding = TestDevice::on(&cable.left, DeviceConfig::default());
    let (here, there) = (DatagramEnd::new(&flooding, 4), DatagramEnd::new(&right, 4));
    // 20 MB per second: 20 000 datagrams.
    let ah = address_handle(&flooding, "10.1.0.2", Some(20_000_000));
    let (is_over, floods) = (AtomicBool::new(false), AtomicBool::new(false));
    let phases = std::thread::scope(|scope| {
        scope.spawn(|| {
            let payload = here.region.sge(..1000).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                if !floods.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let mut list = vec![SendWr::new(1, SendOperation::send(), [payload]); 32];
                let last = list.pop().map(SendWr::signaled);
                let list = list.into_iter().chain(last);
                here.qp.post_send_to(list, &ah, there.qp.number(), Q_KEY).unwrap();
                flooding.completion();
            }
        });
        let mut phases = [Vec::new(), Vec::new()];
        for _ in 0..5 {
            for (flood, counts) in [false, true].into_iter().zip(&mut phases) {
                floods.store(flood, Ordering::Relaxed);
                counts.push(writes_during(&writer, PHASE));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        phases
    });
    let dropped = right.device.counter("out_of_buffer").unwrap();
    assert!(dropped > 5_000, "{dropped}");
    let [quiet, flooded] = phases.map(|mut counts| {
        counts.sort_unstable();
        counts[2]
    });
    println!("WRITEs of 64 KiB in {PHASE:?}: {quiet} without, {flooded} beside a flood");
    // On two processors the flood's own thread takes a part of them.
    assert!(flooded * 3 > quiet, "{flooded} beside a flood of {dropped}, {quiet} without");
}
