//! Devices with several shards: threads that do not wait for each other, and objects of two shards in one
//! connection.

use std::fs;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::{
    COMPLETION_TIMEOUT, Cable, KEPT_SOCKETS, contents, every_right, pattern,
};
use roce_tests::ip::wait_until;
use roce_tests::verbs_program::{VerbsProgram, expect_success, roce_run};
use roce_verbs::{
    AccessFlags, AsyncEvent, Completion, CompletionQueue, CompletionStatus, ConnectOptions, Device,
    DeviceConfig, Error, MAX_SHARDS, MemoryRegion, ProtectionDomain, QueuePair, QueuePairBuilder,
    QueueRule, RecvWr, RemoteAddr, SendOperation, SendWr, SrqAttributes, WindowType,
};

const SUCCESS: CompletionStatus = CompletionStatus::Success;

fn open(host: &Host, shards: usize) -> Device {
    let config = DeviceConfig { shards, ..DeviceConfig::default() };
    host.run(|| Device::open("eth0", config)).unwrap()
}

/// A device with a queue in each shard.
struct End {
    device: Device,
    pd: ProtectionDomain,
    queues: Vec<CompletionQueue>,
}

impl End {
    fn on(host: &Host, shards: usize) -> Self {
        let device = open(host, shards);
        let pd = device.alloc_pd().unwrap();
        let queues = (0..shards).map(|_| device.create_cq(256, None).unwrap()).collect();
        Self { device, pd, queues }
    }

    /// A builder of a queue pair whose completions come in these queues.
    fn builder(&self, send: usize, receive: usize) -> QueuePairBuilder {
        let [send, receive] = [send, receive].map(|number| &self.queues[number]);
        self.pd.queue_pair(send, receive).max_send_wr(256).max_recv_wr(256).max_inline(64)
    }

    fn queue_pair(&self, shard: usize) -> QueuePair {
        self.builder(shard, shard).build().unwrap()
    }

    fn region(&self, len: usize, seed: u8) -> MemoryRegion {
        let rights = every_right() | AccessFlags::MW_BIND;
        let region = self.pd.register(len, rights).unwrap();
        region.write(0, &pattern(len, seed)).unwrap();
        region
    }
}

fn connect(here: &QueuePair, there: &QueuePair) {
    connect_with(here, there, &ConnectOptions::default());
}

fn connect_with(here: &QueuePair, there: &QueuePair, options: &ConnectOptions) {
    let (mine, theirs) = (here.dest(None).unwrap(), there.dest(None).unwrap());
    here.connect(&theirs, options).unwrap();
    there.connect(&mine, options).unwrap();
}

fn next(queue: &CompletionQueue) -> Completion {
    queue.spin_wait(COMPLETION_TIMEOUT).expect("a completion within the time allowed")
}

fn write(wr_id: u64, from: &MemoryRegion, to: &MemoryRegion) -> SendWr {
    write_to(wr_id, from, RemoteAddr { addr: to.address(), rkey: to.rkey() })
}

fn write_to(wr_id: u64, from: &MemoryRegion, to: RemoteAddr) -> SendWr {
    SendWr::new(wr_id, SendOperation::write(to), [from.sge(..).unwrap()]).signaled()
}

/// Number of packet sockets in the network namespace of a host.
fn packet_sockets(host: &Host) -> usize {
    let table = host.run(|| fs::read_to_string("/proc/thread-self/net/packet")).unwrap();
    table.lines().count() - 1
}

#[tier1]
fn a_shard_is_opened_with_the_first_queue_that_it_is_the_home_of() {
    let cable = Cable::with_mtu(1500);
    for shards in [1, 3] {
        let device = open(&cable.left, shards);
        // The monitor opens them, whatever namespace the caller is in.
        let each = packet_sockets(&cable.left);
        assert!(each > 0);
        let mut queues = Vec::new();
        for made in 1..=5 {
            queues.push(device.create_cq(16, None).unwrap());
            assert_eq!(packet_sockets(&cable.left), each * made.min(shards), "{made} queues");
        }
        drop((queues, device));
        // Those of one shard may be kept.
        if shards > 1 {
            assert!(each * shards > KEPT_SOCKETS);
            wait_until("the sockets are closed", || packet_sockets(&cable.left) <= KEPT_SOCKETS);
        }
    }
}

/// Exchanges messages and WRITEs in both directions.
fn exchange(
    (here, there): (&QueuePair, &QueuePair),
    (ours, theirs): (&CompletionQueue, &CompletionQueue),
    (near, far): (&MemoryRegion, &MemoryRegion),
    rounds: u64,
) {
    for round in 0..rounds {
        let text = round.to_ne_bytes();
        there.post_recv([RecvWr::new(round, [far.sge(..8).unwrap()])]).unwrap();
        near.write(0, &text).unwrap();
        let send = SendWr::new(round, SendOperation::send(), [near.sge(..8).unwrap()]);
        here.post_send([send.signaled()]).unwrap();
        let received = next(theirs);
        assert_eq!((received.wr_id, received.status), (round, SUCCESS));
        assert_eq!(next(ours).status, SUCCESS);
        assert_eq!(contents(far)[..8], text);
        near.write(0, &pattern(near.len(), round as u8)).unwrap();
        here.post_send([write(round, near, far)]).unwrap();
        assert_eq!(next(ours).status, SUCCESS);
        assert!(contents(far) == contents(near), "round {round}");
    }
}

#[tier1]
fn two_threads_with_a_queue_each_exchange_messages_in_two_shards() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 2), End::on(&cable.right, 2));
    let blocks: Vec<_> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|shard| {
            let (left, right) = (&left, &right);
            scope.spawn(move || {
                let (here, there) = (left.queue_pair(shard), right.queue_pair(shard));
                connect(&here, &there);
                let memory = (&left.region(20_000, 1), &right.region(20_000, 2));
                let queues = (&left.queues[shard], &right.queues[shard]);
                exchange((&here, &there), queues, memory, 200);
                [here.number().get() >> 12, there.number().get() >> 12]
            })
        });
        threads.map(|thread| thread.join().unwrap()).into_iter().flatten().collect()
    });
    let mut distinct = blocks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "each shard has a block of numbers: {blocks:x?}");
    // Both shards are counted: 200 messages and as many WRITEs of 20 packets in each.
    let sent = left.device.counter("sent_pkts").unwrap();
    assert!(sent >= 2 * 200 * 21, "{sent} packets");
}

#[tier1]
fn queue_pairs_of_one_device_are_connected_within_a_shard_and_across_shards() {
    let cable = Cable::with_mtu(1500);
    for shards in [2, MAX_SHARDS] {
        let end = End::on(&cable.left, shards);
        let last = shards - 1;
        let memory = (&end.region(9000, 1), &end.region(9000, 2));
        for (one, other) in [(0, 0), (0, last), (last, 0), (last, last)] {
            let (here, there) = (end.queue_pair(one), end.queue_pair(other));
            connect(&here, &there);
            let queues = (&end.queues[one], &end.queues[other]);
            if one != other {
                exchange((&here, &there), queues, memory, 20);
                continue;
            }
            // Both complete in one queue.
            here.post_send([write(1, memory.0, memory.1)]).unwrap();
            assert_eq!(next(queues.0).status, SUCCESS);
        }
    }
}

#[tier1]
fn a_queue_has_the_completions_of_queue_pairs_of_all_shards() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 1), End::on(&cable.right, 3));
    // All three receive in the queue of shard 1, and one of them is there.
    let pairs: Vec<_> = (0..3)
        .map(|shard| (left.queue_pair(0), right.builder(shard, 1).build().unwrap()))
        .collect();
    let memory = right.region(64, 2);
    for (here, there) in &pairs {
        connect(here, there);
    }
    for round in 0..100 {
        for (number, (here, there)) in (0..).zip(&pairs) {
            there.post_recv([RecvWr::new(number, [memory.sge(..).unwrap()])]).unwrap();
            here.post_send([SendWr::inline(0, SendOperation::send(), b"x")]).unwrap();
        }
        let mut seen: Vec<_> = (0..3).map(|_| next(&right.queues[1]).wr_id).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2], "round {round}");
    }
    // With the last queue pair of a shard, polls leave that shard to its thread.
    drop(pairs);
    assert_eq!(right.queues[1].poll_one(), None);
}

#[tier1]
fn a_channel_reports_completions_of_queue_pairs_of_another_shard() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 1), End::on(&cable.right, 2));
    let channel = right.device.create_completion_channel().unwrap();
    // Shard 0 is its home; the queue pair is in shard 1.
    let received = right.device.create_cq(16, Some(&channel)).unwrap();
    received.arm(false);
    let there = right.pd.queue_pair(&right.queues[1], &received).build().unwrap();
    let here = left.queue_pair(0);
    connect(&here, &there);
    let memory = right.region(64, 2);
    let exchange = |wait: &dyn Fn()| {
        there.post_recv([RecvWr::new(7, [memory.sge(..).unwrap()])]).unwrap();
        here.post_send([SendWr::inline(0, SendOperation::send(), b"x")]).unwrap();
        wait();
        let ready = channel.poll().expect("a report");
        assert_eq!(ready.handle(), received.handle());
        assert_eq!(next(&ready).wr_id, 7);
        ready.arm(false);
    };
    for _ in 0..20 {
        // The driver thread of shard 1 reports; nothing else drives it.
        exchange(&|| {
            let mut set = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
            let limit = PollTimeout::try_from(COMPLETION_TIMEOUT).unwrap();
            assert_eq!(poll(&mut set, limit), Ok(1), "a report within the time allowed");
        });
        exchange(&|| assert!(channel.wait_reported(COMPLETION_TIMEOUT).unwrap()));
    }
}

#[tier1]
fn queue_pairs_with_queues_of_any_shard_take_receives_from_one_shared_queue() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 1), End::on(&cable.right, 2));
    let srqs = [0, 1].map(|_| right.pd.create_srq(64, 1).unwrap());
    assert_ne!(srqs[0].handle(), srqs[1].handle());
    let slots = right.region(64, 2);
    for srq in &srqs {
        let made = [0, 1].map(|shard| right.builder(shard, shard).srq(srq).build().unwrap());
        let pairs = made.map(|there| {
            let here = left.queue_pair(0);
            connect(&here, &there);
            (here, there)
        });
        srq.post_recv((0..6).map(|id| RecvWr::new(id, [slots.sge(..).unwrap()]))).unwrap();
        srq.modify(&SrqAttributes { limit: Some(2), ..SrqAttributes::default() }).unwrap();
        for id in 0..6 {
            let shard = id as usize % 2;
            let work = SendWr::inline(id, SendOperation::send(), b"hello").signaled();
            pairs[shard].0.post_send([work]).unwrap();
            let received = next(&right.queues[shard]);
            assert_eq!((received.wr_id, received.status), (id, SUCCESS));
            assert_eq!(received.qpn, pairs[shard].1.number());
            assert_eq!(next(&left.queues[0]).status, SUCCESS);
        }
        let limit = AsyncEvent::SrqLimitReached { srq: srq.handle() };
        assert_eq!(right.device.poll_event(), Some(limit));
        assert_eq!(srq.query().unwrap().posted, 0);
    }
}

#[tier1]
fn no_shard_writes_to_a_region_whose_deregistration_has_returned() {
    let cable = Cable::with_mtu(4200);
    let (left, right) = (End::on(&cable.left, 2), End::on(&cable.right, 2));
    let memory = right.region(1 << 16, 1);
    for round in 0..20 {
        let region = right.pd.register_shared(&memory, every_right()).unwrap();
        let has_begun = [const { AtomicBool::new(false) }; 2];
        let ends_seen = std::thread::scope(|scope| {
            let target = RemoteAddr { addr: region.address(), rkey: region.rkey() };
            let has_begun = &has_begun;
            let writers = [0, 1].map(|shard| {
                let (left, right, has_begun) = (&left, &right, &has_begun[shard]);
                let (here, there) = (left.queue_pair(shard), right.queue_pair(shard));
                connect(&here, &there);
                scope.spawn(move || {
                    let ours = left.region(1 << 16, 0);
                    for number in 0_u64.. {
                        ours.write(0, &pattern(1 << 16, number as u8)).unwrap();
                        here.post_send([write_to(1, &ours, target)]).unwrap();
                        let done = next(&left.queues[shard]).status;
                        has_begun.store(true, Ordering::Relaxed);
                        if done != SUCCESS {
                            return (done, there);
                        }
                    }
                    unreachable!("the region goes")
                })
            });
            wait_until("both write", || has_begun.iter().all(|it| it.load(Ordering::Relaxed)));
            drop(region);
            let before = contents(&memory);
            std::thread::sleep(Duration::from_millis(5));
            assert!(before == contents(&memory), "round {round}: written after the end");
            writers.map(|writer| writer.join().unwrap().0)
        });
        assert_eq!(ends_seen, [CompletionStatus::RemoteAccessError; 2], "round {round}");
    }
}

#[tier1]
fn a_window_that_one_shard_has_bound_is_open_to_queue_pairs_of_the_others() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 1), End::on(&cable.right, 2));
    let memory = right.region(4096, 1);
    let ours = left.region(64, 2);
    let binder = right.queue_pair(0);
    let peer_of_binder = left.queue_pair(0);
    connect(&peer_of_binder, &binder);
    let bind = |window: &roce_verbs::MemoryWindow, len: usize| {
        let rights = AccessFlags::REMOTE_WRITE;
        let to = window.binding(window.next_tag(), &memory, 128..128 + len, rights).unwrap();
        binder.post_send([SendWr::new(1, SendOperation::BindWindow(to), []).signaled()]).unwrap();
        assert_eq!(next(&right.queues[0]).status, SUCCESS);
        RemoteAddr { addr: to.addr, rkey: to.rkey() }
    };
    // A refused request ends its queue pair.
    let written = |to: RemoteAddr| {
        let (here, there) = (left.queue_pair(0), right.queue_pair(1));
        connect(&here, &there);
        here.post_send([write_to(2, &ours, to)]).unwrap();
        next(&left.queues[0]).status
    };
    let window = right.pd.alloc_window(WindowType::Type1).unwrap();
    let first = bind(&window, 64);
    assert_eq!((window.is_bound(), memory.bound_windows()), (true, 1));
    assert_eq!(written(first), SUCCESS);
    assert_eq!(contents(&memory)[128..192], contents(&ours)[..]);
    let second = bind(&window, 64);
    assert_eq!(written(first), CompletionStatus::RemoteAccessError, "the key of before");
    assert_eq!(written(second), SUCCESS);
    bind(&window, 0);
    assert_eq!(memory.bound_windows(), 0);
    assert_eq!(written(second), CompletionStatus::RemoteAccessError);
    // One of type 2B is the binder's alone.
    let window = right.pd.alloc_window(WindowType::Type2B).unwrap();
    let to = bind(&window, 64);
    assert_eq!(written(to), CompletionStatus::RemoteAccessError);
    peer_of_binder.post_send([write_to(3, &ours, to)]).unwrap();
    assert_eq!(next(&left.queues[0]).status, SUCCESS);
    drop(binder);
    assert!(!window.is_bound());
}

#[tier1]
fn eight_shards_transfer_and_are_closed_with_the_device() {
    let cable = Cable::with_mtu(1500);
    let left = End::on(&cable.left, 1);
    for _ in 0..2 {
        let right = End::on(&cable.right, MAX_SHARDS);
        let each = packet_sockets(&cable.right) / MAX_SHARDS;
        assert!(each > 0 && packet_sockets(&cable.right) == each * MAX_SHARDS);
        let pairs: Vec<_> =
            (0..MAX_SHARDS).map(|shard| (left.queue_pair(0), right.queue_pair(shard))).collect();
        let (near, far) = (left.region(5000, 1), right.region(5000, 2));
        for (here, there) in &pairs {
            connect(here, there);
            here.post_send([write(1, &near, &far)]).unwrap();
            assert_eq!(next(&left.queues[0]).status, SUCCESS);
            assert!(contents(&near) == contents(&far));
            far.write(0, &[0; 5000]).unwrap();
        }
        // In flight when all goes.
        for (here, _) in &pairs {
            here.post_send((0..8).map(|id| write(id, &near, &far))).unwrap();
        }
        drop((pairs, far, right));
        while left.queues[0].poll_one().is_some() {}
    }
    wait_until("the sockets are closed", || packet_sockets(&cable.right) <= KEPT_SOCKETS);
}

#[tier1]
fn a_shut_down_context_has_no_queue_pairs_in_any_shard() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 1), End::on(&cable.right, 3));
    let far = right.region(64, 2);
    let there: Vec<_> = (0..3).map(|shard| right.queue_pair(shard)).collect();
    let options = ConnectOptions { timeout: 8, retry_count: 1, ..ConnectOptions::default() };
    let here: Vec<_> = there.iter().map(|_| left.queue_pair(0)).collect();
    for (here, there) in here.iter().zip(&there) {
        connect_with(here, there, &options);
    }
    right.device.shut_down().unwrap();
    assert!(there.iter().all(|qp| matches!(qp.query(), Err(Error::ShutDown))));
    assert!(matches!(right.builder(1, 1).build(), Err(Error::ShutDown)));
    let near = left.region(64, 1);
    for qp in &here {
        qp.post_send([write(1, &near, &far)]).unwrap();
        assert_eq!(next(&left.queues[0]).status, CompletionStatus::RetryExceeded);
    }
    assert!(contents(&far) == pattern(64, 2));
}

#[tier1]
fn each_context_has_an_event_of_the_port_once_and_all_shards_follow_the_interface() {
    let cable = Cable::with_mtu(4200);
    let (left, right) = (End::on(&cable.left, 3), End::on(&cable.right, 1));
    let other = open(&cable.left, 3);
    // The neighbours have to be resolved again within the retries.
    let path_mtu = Some(roce_verbs::PathMtu::B4096);
    let options = ConnectOptions { path_mtu, timeout: 18, ..ConnectOptions::default() };
    let pairs: Vec<_> = (0..3).map(|shard| (left.queue_pair(shard), right.queue_pair(0))).collect();
    for (here, there) in &pairs {
        connect_with(here, there, &options);
    }
    let (near, far) = (left.region(8000, 1), right.region(8000, 2));
    let transfer = || {
        for (shard, (here, _)) in pairs.iter().enumerate() {
            here.post_send([write(1, &near, &far)]).unwrap();
            assert_eq!(next(&left.queues[shard]).status, SUCCESS, "shard {shard}");
        }
    };
    transfer();
    let mtu = || left.device.port().unwrap().netdev_mtu;
    for next in [1500, 4200] {
        cable.left.set_mtu("eth0", next).unwrap();
        wait_until("the device follows", || mtu() == next);
    }
    transfer();
    cable.right.set_down("eth0").unwrap();
    let mut events = [Vec::new(), Vec::new()];
    let mut has = |wanted: AsyncEvent| {
        for (device, events) in [&left.device, &other].into_iter().zip(&mut events) {
            events.extend(device.poll_event());
        }
        events.iter().all(|events| events.contains(&wanted))
    };
    wait_until("the port is down", || has(AsyncEvent::PortError));
    cable.right.set_up("eth0").unwrap();
    wait_until("the port is up", || has(AsyncEvent::PortActive));
    transfer();
    for device in [&left.device, &other] {
        assert_eq!(device.poll_event(), None);
    }
    for events in events {
        let count = |event| events.iter().filter(|it| **it == event).count();
        assert_eq!([count(AsyncEvent::PortError), count(AsyncEvent::PortActive)], [1, 1]);
    }
}

#[tier1]
fn an_overrun_queue_ends_its_queue_pairs_of_all_shards() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = (End::on(&cable.left, 1), End::on(&cable.right, 2));
    let small = right.device.create_cq(1, None).unwrap();
    let make = |shard: usize| right.pd.queue_pair(&right.queues[shard], &small).build().unwrap();
    let pairs = [0, 1].map(|shard| (left.queue_pair(0), make(shard)));
    let memory = right.region(64, 1);
    for (here, there) in &pairs {
        connect(here, there);
        there.post_recv((0..4).map(|id| RecvWr::new(id, [memory.sge(..).unwrap()]))).unwrap();
    }
    let send = |pair: usize| {
        let work = SendWr::inline(1, SendOperation::send(), b"x").signaled();
        pairs[pair].0.post_send([work]).unwrap();
        let _any = next(&left.queues[0]);
    };
    [0, 0, 1].into_iter().for_each(send);
    let is_over = |pair: usize| {
        let state = pairs[pair].1.query().unwrap().state;
        state == roce_verbs::QpState::Error
    };
    wait_until("both have ended", || {
        right.device.run_round();
        is_over(0) && is_over(1)
    });
    assert_eq!(right.device.poll_event(), Some(AsyncEvent::CqError { cq: small.handle() }));
}

#[tier1]
fn receives_whose_completions_an_overrun_queue_loses_leave_their_shared_queue() {
    let cable = Cable::with_mtu(1500);
    let left = End::on(&cable.left, 1);
    let config = DeviceConfig { queue_rule: QueueRule::Polled, ..DeviceConfig::default() };
    let device = cable.right.run(|| Device::open("eth0", config)).unwrap();
    let pd = device.alloc_pd().unwrap();
    let (sends, small) = (device.create_cq(4, None).unwrap(), device.create_cq(1, None).unwrap());
    let memory = pd.register(64, every_right()).unwrap();
    let srq = pd.create_srq(4, 1).unwrap();
    let post = |id| srq.post_recv([RecvWr::new(id, [memory.sge(..).unwrap()])]);
    (0..4).for_each(|id| post(id).unwrap());
    let (here, there) = (left.queue_pair(0), pd.queue_pair(&sends, &small).srq(&srq).build());
    let there = there.unwrap();
    connect(&here, &there);
    for id in 0..2 {
        here.post_send([SendWr::inline(id, SendOperation::send(), b"x").signaled()]).unwrap();
        let _any = next(&left.queues[0]);
    }
    wait_until("the queue pair has ended", || {
        device.run_round();
        there.query().unwrap().state == roce_verbs::QpState::Error
    });
    assert_eq!(srq.query().unwrap().posted, 2, "one has completed, and one is lost");
    assert!(small.poll_one().is_some() && small.poll_one().is_none());
    (4..6).for_each(|id| post(id).unwrap());
    post(6).unwrap_err();
}

#[tier1]
fn a_child_of_a_process_with_several_shards_opens_a_device_of_its_own() {
    let cable = Cable::with_mtu(1500);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce-test-fork"));
    command.arg("eth0").env("ROCE_SHARDS", "3");
    expect_success("a fork", &cable.left, command);
}

#[tier1]
fn a_number_of_shards_that_no_device_has_is_refused_with_what_to_do() {
    let cable = Cable::with_mtu(1500);
    for shards in [0, MAX_SHARDS + 1] {
        let config = DeviceConfig { shards, ..DeviceConfig::default() };
        let error = cable.left.run(|| Device::open("eth0", config)).unwrap_err();
        assert!(matches!(error, Error::Shards { requested, .. } if requested == shards));
        assert!(error.to_string().contains("configure 1 to 8"), "{error}");
    }
    for value in ["0", "9", "two", ""] {
        let mut command = roce_run();
        command.arg("--").arg("/bin/true").env("ROCE_SHARDS", value);
        let output = cable.left.run(|| command.output()).unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains("set it to 1 to 8"), "{value}: {words}");
    }
}

#[tier1]
fn a_c_program_has_the_shards_that_the_environment_says() {
    let cable = Cable::with_mtu(1500);
    let program = VerbsProgram::linked("windows");
    program.run_all(&cable.left, |command| {
        command.env("ROCE_SHARDS", "2");
    });
}
