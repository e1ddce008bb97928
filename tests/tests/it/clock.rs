//! The engine's clock, driven by many threads.

use roce_test_macros::tier1;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use roce_tests::fixtures::{Cable, TestDevice, connect, device_config};
use roce_verbs::{
    CompletionStatus, ConnectOptions, Device, DeviceConfig, RecvWr, SendOperation, SendWr,
};

/// Builds with debug assertions check with every round that time has not gone back; a panic of any
/// thread that drives fails the test.
#[tier1]
fn time_never_goes_back_however_many_threads_drive() {
    if !cfg!(debug_assertions) {
        panic!("without debug assertions this checks nothing");
    }
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let device = cable.right.run(|| Device::open("eth0", device_config())).unwrap();
    let channel = device.create_completion_channel().unwrap();
    let cq = device.create_cq(64, Some(&channel)).unwrap();
    let right = TestDevice { pd: device.alloc_pd().unwrap(), device, cq };
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let (ours, theirs) = (left.region(64, 1), right.region(64, 2));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    right.cq.arm(false);
                    let _queue = channel.wait(Some(Duration::from_millis(1))).unwrap();
                    let _all = right.cq.poll_all();
                }
            });
        }
        // Dropped in any case: that ends the others.
        let _stop = StopOnDrop(&stop);
        for round in 0..1500 {
            there.post_recv([RecvWr::new(round, [theirs.sge(..).unwrap()])]).unwrap();
            let work = SendWr::new(round, SendOperation::send(), [ours.sge(..).unwrap()]);
            here.post_send([work.signaled()]).unwrap();
            assert_eq!(left.completion().status, CompletionStatus::Success);
        }
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Longer than any clock counts.
#[tier1]
fn the_longest_timeouts_wait_and_do_not_overflow() {
    let cable = Cable::with_mtu(1500);
    let config = DeviceConfig { spin: Duration::MAX, ..DeviceConfig::default() };
    let device = cable.left.run(|| Device::open("eth0", config)).unwrap();
    let channel = device.create_completion_channel().unwrap();
    let cq = device.create_cq(64, Some(&channel)).unwrap();
    let end = TestDevice { pd: device.alloc_pd().unwrap(), device, cq };
    let (here, there) = connect(&end, &end, &ConnectOptions::default());
    let region = end.region(64, 1);
    for round in 0..2 {
        there.post_recv([RecvWr::new(1, [region.sge(..32).unwrap()])]).unwrap();
        end.cq.arm(false);
        let work = SendWr::new(2, SendOperation::send(), [region.sge(32..).unwrap()]);
        here.post_send([work]).unwrap();
        if round == 0 {
            assert!(channel.wait(Some(Duration::MAX)).unwrap().is_some());
        }
        assert_eq!(end.cq.spin_wait(Duration::MAX).map(|done| done.wr_id), Some(1));
    }
}
