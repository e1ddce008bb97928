//! Several processes on one interface and one address.

use roce_io::sockets::is_abstract_bound;
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice, contents, every_right, pattern};
use roce_verbs::{
    CompletionStatus, ConnectOptions, DeviceConfig, MemoryRegion, QueuePair, RecvWr, SendOperation,
    SendWr, exchange,
};

fn start_echo(host: &Host, ip: &str, port: u16) -> Echo {
    Echo::start(env!("CARGO_BIN_EXE_roce-test-echo"), host, "eth0", ip, port)
}

/// A connection to an echo server.
struct Caller {
    qp: QueuePair,
    region: MemoryRegion,
}

const LEN: usize = 20_000;

impl Caller {
    fn connect(host: &Host, end: &TestDevice, echo: &Echo, options: &ConnectOptions) -> Self {
        let qp = end.queue_pair();
        let mine = qp.dest(None).unwrap();
        let theirs = host.run(|| exchange::connect(echo.address, &mine)).unwrap();
        qp.connect(&theirs, options).unwrap();
        let region = end.pd.register(2 * LEN, every_right()).unwrap();
        Self { qp, region }
    }

    fn send(&self, seed: u8) {
        self.post(seed, |work| work);
    }

    /// Sends, and waits for the ACK as well as for the echo.
    fn send_and_wait(&self, end: &TestDevice, seed: u8) {
        self.post(seed, SendWr::signaled);
        let mut done = [end.completion(), end.completion()].map(|it| (it.wr_id, it.status));
        done.sort_by_key(|it| it.0);
        assert_eq!(done, [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
        self.expect(seed);
    }

    fn post(&self, seed: u8, finish: impl Fn(SendWr) -> SendWr) {
        self.region.write(0, &pattern(LEN, seed)).unwrap();
        self.region.write(LEN, &pattern(LEN, !seed)).unwrap();
        self.qp.post_recv([RecvWr::new(1, [self.region.sge(LEN..).unwrap()])]).unwrap();
        let work = SendWr::new(2, SendOperation::send(), [self.region.sge(..LEN).unwrap()]);
        self.qp.post_send([finish(work)]).unwrap();
    }

    fn expect(&self, seed: u8) {
        assert!(contents(&self.region)[LEN..] == pattern(LEN, seed), "the echo differs");
    }
}

/// Else two processes could have the same numbers: a program may make queue pairs in any thread.
#[tier1]
fn queue_pair_numbers_are_claimed_in_the_namespace_of_the_device() {
    let cable = Cable::with_mtu(1500);
    let device = TestDevice::on(&cable.left, DeviceConfig::default());
    // In this thread, which is in another namespace.
    let block = device.queue_pair().number().get() >> 12;
    let name = format!("roce/qpn/{block:03x}");
    assert!(cable.left.run(|| is_abstract_bound(&name)));
    assert!(!cable.right.run(|| is_abstract_bound(&name)));
}

#[tier1]
fn processes_that_share_an_address_serve_the_same_peer_at_once_and_each_other() {
    let cable = Cable::with_mtu(1500);
    let servers = [7001, 7002].map(|port| start_echo(&cable.left, "10.1.0.1", port));
    // From the other host, from a third process of the servers' host by its own address.
    for host in [&cable.right, &cable.left] {
        let end = TestDevice::on(host, DeviceConfig::default());
        let options = ConnectOptions::default();
        let callers = servers.each_ref().map(|echo| Caller::connect(host, &end, echo, &options));
        for round in 0..50u8 {
            callers.iter().zip([0, 128]).for_each(|(caller, lane)| caller.send(round ^ lane));
            for _ in &callers {
                let echo = end.completion();
                assert_eq!((echo.status, echo.wr_id), (CompletionStatus::Success, 1));
            }
            callers.iter().zip([0, 128]).for_each(|(caller, lane)| caller.expect(round ^ lane));
        }
    }
}

#[tier1]
fn a_process_that_was_killed_leaves_nothing_that_stops_its_successor() {
    let cable = Cable::with_mtu(1500);
    let end = TestDevice::on(&cable.right, DeviceConfig::default());
    // 67 ms in all: an echo server that waits for a processor is not given up.
    let options = ConnectOptions { timeout: 12, retry_count: 3, ..ConnectOptions::default() };
    for round in 0..3 {
        let echo = start_echo(&cable.left, "10.1.0.1", 7003);
        let caller = Caller::connect(&cable.right, &end, &echo, &options);
        // Without the ACK this request fails as well, and flushes the next: a process that is killed
        // loses an ACK that it has delayed.
        caller.send_and_wait(&end, round);
        echo.process.kill();
        caller.send(round);
        let statuses = [end.completion(), end.completion()].map(|done| done.status);
        let expected = [CompletionStatus::RetryExceeded, CompletionStatus::WorkRequestFlushed];
        assert_eq!(statuses, expected);
    }
}
