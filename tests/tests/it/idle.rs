//! What queue pairs cost that are connected and have nothing to do.

use roce_test_macros::tier1;
use std::time::{Duration, Instant};

use roce_tests::fixtures::{Cable, TestDevice, connect};
use roce_tests::outage::{cpu_time, print_row};
use roce_verbs::{ConnectOptions, DeviceConfig, QueuePair};

/// A queue pair with queues for one request, connected to one that the peer has not got: what
/// is measured is this end's alone.
fn connected(left: &TestDevice, right: &QueuePair) -> QueuePair {
    let builder = left.pd.queue_pair(&left.cq, &left.cq);
    let qp = builder.max_send_wr(1).max_recv_wr(1).build().expect("a queue pair");
    let peer = right.dest(None).expect("an address");
    qp.connect(&peer, &ConnectOptions::default()).expect("it connects");
    qp
}

/// Everything that this process allocates for it: the object, its path, the engine's part.
#[tier1]
fn a_connected_queue_pair_of_a_real_device_takes_at_most_4_kib() {
    let cable = Cable::with_mtu(4200);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let peer = right.queue_pair();
    let mut all = Vec::new();
    // Whatever is made once only.
    all.push(connected(&left, &peer));
    let mut held = 0;
    for count in [1000, 4000] {
        all.reserve_exact(count - all.len() + 1);
        let info = allocation_counter::measure(|| {
            while all.len() <= count {
                all.push(connected(&left, &peer));
            }
        });
        held += info.bytes_current;
        // The vector holds the objects themselves.
        let each = held / count as i64 + size_of::<QueuePair>() as i64;
        println!("{count} queue pairs: {each} bytes each");
        assert!((1..=4096).contains(&each), "{each} bytes for each of {count} queue pairs");
    }
}

#[tier1]
fn connected_queue_pairs_that_have_nothing_to_do_use_no_processor() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let options = ConnectOptions::default();
    let _pairs: Vec<_> = (0..100).map(|_| connect(&left, &right, &options)).collect();
    // Behind the connecting, whose end wakes the threads once more.
    std::thread::sleep(Duration::from_millis(300));
    let (before, began) = (cpu_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let share = (cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    print_row("100 idle connections, both ends: per cent of a processor", 0.1, share);
    assert!(share < 0.1, "{share} % of a processor");
}
