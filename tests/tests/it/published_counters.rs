//! Counters that a device publishes for other processes (tier 1).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use roce_test_macros::tier1;
use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, connect};
use roce_verbs::{CompletionStatus, ConnectOptions, DeviceConfig, RecvWr, SendOperation, SendWr};

/// Returns what a file has, by name.
fn published(file: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, count)| (name.to_owned(), count.parse().expect("a count"))).collect()
}

#[tier1]
fn counters_are_published_while_a_device_is_open_and_at_its_end() {
    let file = std::env::temp_dir().join(format!("roce-published-{}", std::process::id()));
    let cable = Cable::with_mtu(4200);
    let config = DeviceConfig { counter_file: Some(file.clone()), ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let region = left.region(64, 1);
    let target = right.region(64, 0);
    let send = || {
        there.post_recv([RecvWr::new(1, [target.sge(..).expect("in range")])]).expect("posted");
        let piece = [region.sge(..).expect("in range")];
        here.post_send([SendWr::new(2, SendOperation::send(), piece).signaled()]).expect("posted");
        let statuses = [&left, &right].map(|end| end.completion().status);
        assert_eq!(statuses, [CompletionStatus::Success; 2]);
    };
    send();
    let deadline = Instant::now() + COMPLETION_TIMEOUT;
    while published(&file).get("rdma_sends") != Some(&1) {
        assert!(Instant::now() < deadline, "{:?}", published(&file));
        std::thread::yield_now();
    }
    send();
    drop((here, there, region, target, left));
    assert_eq!(published(&file)["rdma_sends"], 2);
    assert!(published(&file)["device_sent_bytes"] >= 2 * 64);
    std::fs::remove_file(&file).expect("the file exists");
}
