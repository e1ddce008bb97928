//! Polling on processors that other threads use up.

use roce_test_macros::tier1;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, connect};
use roce_verbs::{
    CompletionOperation, ConnectOptions, DeviceConfig, MemoryRegion, QueuePair, RecvWr,
    SendOperation, SendWr,
};

/// Round trips that are not counted: the policy learns.
const WARM_UP: usize = 100;
const ROUND_TRIPS: usize = 300;
/// A poller that yields waits for a time slice of milliseconds at either end, and a round trip
/// takes 5 to 8 ms; one that blocks takes some 50 µs.
const MAX_MEDIAN: Duration = Duration::from_millis(2);

/// One of the two ends of a cable, with a queue pair to the other.
struct Side {
    end: TestDevice,
    qp: QueuePair,
    region: MemoryRegion,
}

impl Side {
    fn new(end: TestDevice, qp: QueuePair) -> Self {
        let region = end.region(16, 1);
        let side = Self { end, qp, region };
        side.post_receive();
        side
    }

    fn post_receive(&self) {
        self.qp.post_recv([RecvWr::new(1, [self.region.sge(..8).unwrap()])]).unwrap();
    }

    fn send(&self) {
        let work = SendWr::new(2, SendOperation::send(), [self.region.sge(8..).unwrap()]);
        self.qp.post_send([work]).unwrap();
    }

    /// Polls once; returns true if a message has arrived.
    fn has_arrived(&self) -> bool {
        let Some(done) = self.end.cq.poll_one() else { return false };
        assert_eq!(done.operation, CompletionOperation::Recv);
        self.post_receive();
        true
    }
}

fn sides_of(cable: &Cable) -> [Side; 2] {
    let [left, right] =
        [&cable.left, &cable.right].map(|it| TestDevice::on(it, DeviceConfig::default()));
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    [Side::new(left, here), Side::new(right, there)]
}

/// Ends the other threads of a test.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the median round trip beside two busy loops for each processor, over as many devices
/// in turn; the thread that begins each round trip polls all of them.
fn median_round_trip(cables: usize) -> Duration {
    let cables: Vec<_> = (0..cables).map(|_| Cable::with_mtu(1500)).collect();
    let (lefts, rights): (Vec<_>, Vec<_>) =
        cables.iter().map(sides_of).map(|[left, right]| (left, right)).unzip();
    let is_over = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut times = std::thread::scope(|scope| {
        for _ in 0..2 * processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        for right in &rights {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if right.has_arrived() {
                        right.send();
                    }
                }
            });
        }
        // Also if a round trip fails: the scope waits for its threads.
        let _ending = EndOnDrop(&is_over);
        let round_trip = |number: usize| {
            let began = Instant::now();
            lefts[number % lefts.len()].send();
            while !lefts.iter().any(Side::has_arrived) {
                assert!(began.elapsed() < COMPLETION_TIMEOUT, "round trip {number} does not end");
            }
            began.elapsed()
        };
        (0..WARM_UP + ROUND_TRIPS).map(round_trip).skip(WARM_UP).collect::<Vec<_>>()
    });
    times.sort();
    times[times.len() / 2]
}

#[tier1]
fn a_polled_message_waits_for_no_time_slice_of_other_threads() {
    let median = median_round_trip(1);
    println!("median round trip {median:?}, at most {MAX_MEDIAN:?}");
    assert!(median <= MAX_MEDIAN, "{median:?}");
}

#[tier1]
fn a_thread_that_polls_two_devices_waits_for_both_at_once() {
    let median = median_round_trip(2);
    println!("median round trip {median:?}, at most {MAX_MEDIAN:?}");
    assert!(median <= MAX_MEDIAN, "{median:?}");
}
