//! A transmit queue that is full: of a tap that nothing reads.

use roce_test_macros::tier1;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_netns::{Host, VirtualNetwork};
use roce_tests::echo::Echo;
use roce_tests::fixtures::{TestDevice, connect, contents, device_config};
use roce_tests::ip::ip;
use roce_tests::outage::{SHORT, USUAL, Waiter, Waiting, cpu_time, post_write, print_row};
use roce_verbs::{
    Backend, CompletionStatus, Device, MemoryRegion, RecvWr, SendOperation, SendWr, exchange,
};
use tappers::{Interface, Tap};

/// Two hosts with a tap each, and a thread that carries frames from one to the other.
struct Carried {
    left: Host,
    right: Host,
    /// Nothing is carried from left to right.
    is_paused: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

/// Packets that a tap holds before it is full.
const QUEUE: u32 = 8;

impl Carried {
    fn new() -> Self {
        let network = VirtualNetwork::new().expect("tier 1 runs as root or in a user namespace");
        let [is_paused, is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let made = [1, 2].map(|number| {
            let host = network.host("host").unwrap();
            let make = || Tap::new_named(Interface::new("tap0").unwrap()).unwrap();
            let tap = host.run(make);
            ip(
                &host,
                &format!("link set tap0 txqueuelen {QUEUE} address 02:00:00:00:00:0{number}"),
            );
            host.set_up("tap0").unwrap();
            host.address("tap0", format!("10.1.0.{number}/24").parse().unwrap()).unwrap();
            (host, tap)
        });
        let [(left, left_tap), (right, right_tap)] = made;
        let (pause, over) = (Arc::clone(&is_paused), Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if pause.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                } else {
                    carry(&left_tap, &right_tap);
                }
                carry(&right_tap, &left_tap);
            }
        });
        Self { left, right, is_paused, is_over }
    }

    fn pause(&self, pause: bool) {
        self.is_paused.store(pause, Ordering::Relaxed);
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Carries a few frames, if there are any.
fn carry(from: &Tap, to: &Tap) {
    let mut buffer = [0; 2000];
    for _ in 0..4 {
        let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO).unwrap_or(0) == 0 {
            std::thread::yield_now();
            return;
        }
        let len = from.recv(&mut buffer).unwrap_or(0);
        // A frame that the other tap does not take is lost, as on any network.
        let _lost = to.send(&buffer[..len]);
    }
}

fn ends(hosts: &Carried, waiting: Waiting) -> (Waiter, TestDevice) {
    let open = |host: &Host| host.run(|| Device::open("tap0", device_config())).unwrap();
    (Waiter::new(open(&hosts.left), waiting), TestDevice::of(open(&hosts.right)))
}

#[tier1]
fn requests_end_in_time_when_the_transmit_queue_stays_full_and_local_ones_at_once() {
    for waiting in [Waiting::Polling, Waiting::Sleeping] {
        let hosts = Carried::new();
        let (left, right) = ends(&hosts, waiting);
        let pairs: Vec<_> = (0..16).map(|_| connect(&left.end, &right, &SHORT.options())).collect();
        let (near, _itself) = connect(&left.end, &left.end, &SHORT.options());
        let (ours, theirs) = (left.end.region(64 << 10, 1), right.region(64, 2));
        let own = left.end.region(64, 3);
        let echo = env!("CARGO_BIN_EXE_roce-test-echo");
        let echo = Echo::start(echo, &hosts.left, "tap0", "10.1.0.1", 7001);
        let other = Other::connect(&hosts.left, &left.end, &echo);
        hosts.pause(true);
        let before = cpu_time();
        pairs.iter().for_each(|(here, _)| post_write(here, 1, &ours, &theirs));
        // The frames are in slots that are never emptied by now.
        std::thread::sleep(Duration::from_millis(5));
        let began = Instant::now();
        post_write(&near, 2, &ours, &own);
        other.send();
        let (mut local, mut far) = (Vec::new(), Vec::new());
        while local.len() + far.len() < 19 && began.elapsed() < SHORT.limit() {
            for it in left.collect(1, SHORT.limit()) {
                let is_far = it.wr_id == 1;
                (if is_far { &mut far } else { &mut local }).push((it.status, began.elapsed()));
            }
        }
        assert_eq!((local.len(), far.len()), (3, 16), "{local:?} {far:?}");
        assert!(local.iter().all(|it| it.0 == CompletionStatus::Success), "{local:?}");
        assert!(far.iter().all(|it| it.0 == CompletionStatus::RetryExceeded), "{far:?}");
        assert_eq!(contents(&own)[..32], contents(&ours)[..32]);
        let last = |of: &[(_, Duration)]| of.iter().map(|it| it.1).max().unwrap();
        print_row(&format!("{waiting:?}: transmit queue stays full"), SHORT.bound(), last(&far));
        print_row("local requests meanwhile, over lo as well", LOCAL_LIMIT, last(&local));
        assert!(last(&local) < LOCAL_LIMIT, "{local:?}");
        if waiting == Waiting::Sleeping {
            let share = (cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
            print_row("processor time meanwhile, per cent", (), share * 100.0);
        }
        let stalled = left.end.device.counter("socket_sent_stalled").unwrap();
        let full = left.end.device.counter(of_full_queue(&left.end)).unwrap();
        println!("{} {full}, socket_sent_stalled {stalled}", of_full_queue(&left.end));
        assert!(full > 0, "{:?}", left.end.device.counters());
    }
}

/// Returns what counts the frames that a full queue does not take: packet sockets keep these, and the kernel
/// drops them behind an AF_XDP socket, so that they are repeated. Behind UDP sockets, too, where it does not tell.
fn of_full_queue(end: &TestDevice) -> &'static str {
    match end.device.backend() {
        Backend::AfXdp => "socket_sent_dropped",
        _ if !end.learns_of_drops() => "resent_pkts",
        _ => "socket_sent_queue_full",
    }
}

/// Local requests take microseconds; a busy machine may take away the processor.
const LOCAL_LIMIT: Duration = Duration::from_millis(50);

#[tier1]
fn a_queue_that_is_full_for_less_than_the_bound_loses_nothing() {
    let hosts = Carried::new();
    let (left, right) = ends(&hosts, Waiting::Sleeping);
    // The kernel has a queue of its own between UDP sockets and the tap.
    let count = if left.end.learns_of_drops() { 16 } else { 64 };
    let pairs: Vec<_> = (0..count).map(|_| connect(&left.end, &right, &USUAL.options())).collect();
    let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
    for _ in 0..3 {
        hosts.pause(true);
        pairs.iter().for_each(|(here, _)| post_write(here, 1, &ours, &theirs));
        std::thread::sleep(Duration::from_millis(40));
        hosts.pause(false);
        let ended = left.collect(count, USUAL.limit());
        assert_eq!(ended.len(), count);
        assert!(ended.iter().all(|it| it.status == CompletionStatus::Success), "{ended:?}");
    }
    let counter = |name| left.end.device.counter(name).unwrap();
    assert!(counter(of_full_queue(&left.end)) > 0, "the queue was never full");
    assert_eq!(counter("socket_sent_stalled"), 0);
    assert_eq!(counter("socket_sent_no_carrier"), 0);
}

/// A connection to another process of the same host.
struct Other {
    qp: roce_verbs::QueuePair,
    region: MemoryRegion,
}

impl Other {
    fn connect(host: &Host, end: &TestDevice, echo: &Echo) -> Self {
        let qp = end.queue_pair();
        let mine = qp.dest(None).unwrap();
        let theirs = host.run(|| exchange::connect(echo.address, &mine)).unwrap();
        qp.connect(&theirs, &USUAL.options()).unwrap();
        Self { qp, region: end.region(64, 5) }
    }

    /// Sends a message; two completions follow, of the message and of its echo.
    fn send(&self) {
        self.qp.post_recv([RecvWr::new(3, [self.region.sge(..32).unwrap()])]).unwrap();
        let work = SendWr::new(3, SendOperation::send(), [self.region.sge(32..).unwrap()]);
        self.qp.post_send([work.signaled()]).unwrap();
    }
}
