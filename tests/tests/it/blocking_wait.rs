//! Sleeping until something happens: channels, tasks, idle devices.

use roce_test_macros::tier1;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, connect, device_config};
use roce_tests::outage::cpu_time;
use roce_verbs::{
    CompletionChannel, CompletionStatus, ConnectOptions, Device, DeviceConfig, GsoMode,
    MemoryRegion, RecvWr, RemoteAddr, SendOperation, SendWr,
};

/// An end whose queue reports on a channel.
fn end_with_channel(device: Device) -> (TestDevice, CompletionChannel) {
    let channel = device.create_completion_channel().unwrap();
    let cq = device.create_cq(64, Some(&channel)).unwrap();
    let pd = device.alloc_pd().unwrap();
    (TestDevice { device, pd, cq }, channel)
}

#[tier1]
fn a_program_that_sleeps_on_a_channel_is_woken_by_each_completion() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = cable.right.run(|| Device::open("eth0", device_config())).unwrap();
    let (right, channel) = end_with_channel(right);
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let (ours, theirs) = (left.region(64, 1), right.region(64, 2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                right.cq.arm(false);
                there.post_recv([RecvWr::new(round, [theirs.sge(..).unwrap()])]).unwrap();
                let ready = channel.wait(Some(COMPLETION_TIMEOUT)).unwrap().expect("a report");
                let seen: Vec<u64> = ready.poll_all().iter().map(|done| done.wr_id).collect();
                assert_eq!(seen, [round]);
            }
        });
        for round in 0..200 {
            let work = SendWr::new(round, SendOperation::send(), [ours.sge(..).unwrap()]);
            here.post_send([work.signaled()]).unwrap();
            assert_eq!(left.completion().status, CompletionStatus::Success);
        }
    });
}

#[tier1]
fn a_queue_that_holds_completions_reports_at_once_when_it_is_armed() {
    let cable = Cable::with_mtu(1500);
    let device = cable.left.run(|| Device::open("eth0", device_config())).unwrap();
    let (end, channel) = end_with_channel(device);
    let (here, there) = connect(&end, &end, &ConnectOptions::default());
    let region = end.region(64, 1);
    there.post_recv([RecvWr::new(1, [region.sge(..32).unwrap()])]).unwrap();
    here.post_send([SendWr::new(2, SendOperation::send(), [region.sge(32..).unwrap()])]).unwrap();
    let deadline = Instant::now() + COMPLETION_TIMEOUT;
    // The message arrives while nothing is armed; its completion waits in the queue.
    while end.device.counter("rcvd_pkts").unwrap() < 2 {
        assert!(Instant::now() < deadline);
        end.device.poll_event();
    }
    assert!(channel.poll().is_none());
    end.cq.arm(true);
    assert!(channel.wait(Some(COMPLETION_TIMEOUT)).unwrap().is_some());
}

#[tier1]
fn a_task_is_woken_by_a_completion_while_its_thread_does_other_things() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = cable.right.run(|| Device::open("eth0", device_config())).unwrap();
    let (right, channel) = end_with_channel(right);
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let (ours, theirs) = (left.region(64, 1), right.region(64, 2));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for round in 0..50 {
            there.post_recv([RecvWr::new(round, [theirs.sge(..).unwrap()])]).unwrap();
            let work = SendWr::new(round, SendOperation::send(), [ours.sge(..).unwrap()]);
            // Polled in this order: the task sleeps before anything is sent.
            let both = async {
                let send = async { here.post_send([work]).unwrap() };
                tokio::join!(biased; right.cq.next_async(&channel), send).0
            };
            let done =
                tokio::time::timeout(COMPLETION_TIMEOUT, both).await.expect("in time").unwrap();
            assert_eq!((done.status, done.wr_id), (CompletionStatus::Success, round));
        }
    });
}

#[tier1]
fn an_idle_device_and_a_sleeping_program_use_no_cpu() {
    let cable = Cable::with_mtu(1500);
    let left = cable.left.run(|| Device::open("eth0", device_config())).unwrap();
    let (left, channel) = end_with_channel(left);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (_here, _there) = connect(&left, &right, &ConnectOptions::default());
    left.cq.arm(false);
    // Time itself is what is tested here: two connected devices and a sleeper for a second.
    let before = cpu_time();
    assert!(channel.wait(Some(Duration::from_secs(1))).unwrap().is_none());
    let used = cpu_time() - before;
    assert!(used <= Duration::from_millis(20), "{used:?} of CPU in an idle second");
}

#[tier1]
fn a_timer_set_by_one_thread_runs_although_another_sleeps_since_before() {
    let cable = Cable::with_mtu(1500);
    let device = cable.left.run(|| Device::open("eth0", device_config())).unwrap();
    let (left, channel) = end_with_channel(device);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let options = ConnectOptions { retry_count: 1, ..ConnectOptions::default() };
    let (here, there) = connect(&left, &right, &options);
    let region = left.region(64, 1);
    // From now on the peer does not respond.
    drop(there);
    left.cq.arm(false);
    std::thread::scope(|scope| {
        let (tell, name) = std::sync::mpsc::channel();
        let sleeper = scope.spawn(move || {
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            let report = channel.wait(Some(COMPLETION_TIMEOUT)).unwrap();
            report.expect("a report").poll_all()
        });
        let stat = std::path::Path::new("/proc").join(name.recv().unwrap()).join("stat");
        let deadline = Instant::now() + COMPLETION_TIMEOUT;
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            assert!(Instant::now() < deadline, "the thread never sleeps");
            std::thread::yield_now();
        }
        let work = SendWr::new(1, SendOperation::send(), [region.sge(..).unwrap()]);
        here.post_send([work.signaled()]).unwrap();
        let done = sleeper.join().unwrap();
        assert_eq!(done[0].status, CompletionStatus::RetryExceeded);
    });
}

/// A program that polls answers before it acknowledges; this one has no answer, and goes.
#[tier1]
fn who_leaves_with_the_last_message_has_acknowledged_it() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let (ours, theirs) = (left.region(64, 1), right.region(64, 2));
    there.post_recv([RecvWr::new(1, [theirs.sge(..).unwrap()])]).unwrap();
    let has_polled = std::sync::Barrier::new(2);
    let (has_polled, right) = (&has_polled, &right);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut done, deadline) = (Vec::new(), Instant::now() + COMPLETION_TIMEOUT);
            for polls in 0.. {
                if polls == 1000 {
                    has_polled.wait();
                }
                if right.cq.poll(&mut done, 1) > 0 {
                    break;
                }
                assert!(Instant::now() < deadline);
            }
            drop(there);
        });
        has_polled.wait();
        let work = SendWr::new(2, SendOperation::send(), [ours.sge(..).unwrap()]);
        here.post_send([work.signaled()]).unwrap();
        assert_eq!(left.completion().status, CompletionStatus::Success);
    });
}

/// Waits for a byte of memory and does nothing else.
fn wait_for_byte(region: &MemoryRegion, at: usize, value: u8) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while region.load_u8(at).unwrap() != value {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Writes to itself, without timers, and never polls.
fn write_to_itself(end: &TestDevice) {
    let options = ConnectOptions { timeout: 0, ..ConnectOptions::default() };
    let (here, _there) = connect(end, end, &options);
    let region = end.region(64, 1);
    for round in 1..20 {
        // Long enough for the device's thread to fall asleep; what must hold holds without.
        std::thread::sleep(Duration::from_millis(20));
        region.store_u8(0, round).unwrap();
        let remote = RemoteAddr { addr: region.address() + 32, rkey: region.rkey() };
        let work = SendWr::new(1, SendOperation::write(remote), [region.sge(..1).unwrap()]);
        here.post_send([work]).unwrap();
        assert!(wait_for_byte(&region, 32, round), "message {round} never arrives");
    }
}

#[tier1]
fn what_a_program_sends_to_itself_arrives_though_it_never_polls() {
    let cable = Cable::with_mtu(1500);
    write_to_itself(&TestDevice::on(&cable.left, DeviceConfig::default()));
}

#[tier1]
fn what_a_program_sends_to_itself_arrives_though_only_a_sleeper_drives() {
    let cable = Cable::with_mtu(1500);
    let device = cable.left.run(|| Device::open("eth0", device_config())).unwrap();
    let (end, channel) = end_with_channel(device);
    let (wakes, beside) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let (beside, channel) = (beside.as_fd(), &channel);
        scope.spawn(move || CompletionChannel::wait_any(&[channel], beside, None).unwrap());
        // Closed in any case: that wakes the sleeper.
        let _wakes = wakes;
        write_to_itself(&end);
    });
}

#[tier1]
fn all_of_a_message_leaves_though_its_sender_never_polls_and_has_no_timer() {
    let cable = Cable::with_mtu(1500);
    let config = || DeviceConfig { gso: GsoMode::Off, ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config());
    let right = TestDevice::on(&cable.right, config());
    let options = ConnectOptions { timeout: 0, ..ConnectOptions::default() };
    let (here, _there) = connect(&left, &right, &options);
    const LEN: usize = 63 << 10;
    let (ours, theirs) = (left.region(LEN, 1), right.region(LEN, 2));
    for round in 1..10 {
        std::thread::sleep(Duration::from_millis(20));
        ours.store_u8(LEN - 1, round).unwrap();
        let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
        let work = SendWr::new(1, SendOperation::write(remote), [ours.sge(..).unwrap()]);
        here.post_send([work]).unwrap();
        assert!(wait_for_byte(&theirs, LEN - 1, round), "message {round} never arrives");
    }
}
