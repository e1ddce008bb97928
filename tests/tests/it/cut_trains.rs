//! A path that cuts packet trains: each packet takes a slot of the peer's receive ring.

use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, contents, pattern};
use roce_verbs::{
    CompletionStatus, ConnectOptions, DeviceConfig, GsoMode, RemoteAddr, SendOperation, SendWr,
};

const QUEUE_PAIRS: usize = 16;
/// WRITEs on each queue pair.
const WRITES: usize = 8;
const LEN: usize = 64 << 10;
/// What a sender learned, it keeps for 32768 packets at first: as many as all transfers send.
const TRANSFERS: usize = 4;
/// Packets that a sender may lose once it knows that its trains are cut. One that does not know
/// loses 800 to 1700 of 8192.
const MAX_LOST: u64 = 100;

/// Has the kernel cut packet trains where they leave `eth0`.
fn switch_segmentation_off(host: &Host) {
    let features = ["tx-udp-segmentation", "off", "tx-generic-segmentation", "off"];
    let output = host.run(|| Command::new("ethtool").args(["-K", "eth0"]).args(features).output());
    let output = output.expect("ethtool is installed (cargo xtask test installs it)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `work` beside more threads that compute than there are processors.
fn beside_busy_threads<T>(work: impl FnOnce() -> T) -> T {
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..=thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        // A panic of `work` stops the threads too.
        let _stop = StopOnDrop(&stop);
        work()
    })
}

#[tier1]
fn a_sender_whose_trains_are_cut_learns_to_fit_its_peers_ring() {
    let cable = Cable::with_mtu(1500);
    switch_segmentation_off(&cable.left);
    let config = DeviceConfig { gso: GsoMode::On, ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let options = ConnectOptions::default();
    let pairs: Vec<_> = (0..QUEUE_PAIRS).map(|_| connect(&left, &right, &options)).collect();
    let (ours, theirs) = (left.region(QUEUE_PAIRS * LEN, 1), right.region(QUEUE_PAIRS * LEN, 2));
    let transfer = || {
        let before = left.device.counter("resent_pkts").unwrap();
        for (number, (here, _)) in pairs.iter().enumerate() {
            let offset = number * LEN;
            let addr = theirs.address() + offset as u64;
            let write = SendOperation::write(RemoteAddr { addr, rkey: theirs.rkey() });
            let local = || [ours.sge(offset..offset + LEN).unwrap()];
            here.post_send((0..WRITES).map(|_| SendWr::new(1, write, local()).signaled())).unwrap();
        }
        for _ in 0..QUEUE_PAIRS * WRITES {
            assert_eq!(left.completion().status, CompletionStatus::Success);
        }
        assert!(contents(&theirs) == pattern(QUEUE_PAIRS * LEN, 1), "what was written arrived");
        left.device.counter("resent_pkts").unwrap() - before
    };
    // The sender learns from the transfer in which its packets first overrun the ring. A receiver
    // with a processor of its own often keeps up with all of them.
    let lost: Vec<u64> = beside_busy_threads(|| (0..TRANSFERS).map(|_| transfer()).collect());
    let overruns = lost.iter().filter(|lost| **lost > MAX_LOST).count();
    assert!(overruns <= 1, "packets sent again in each transfer: {lost:?}");
}
