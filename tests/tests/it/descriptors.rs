//! Round trips to a program that sleeps on the descriptor of a completion channel.

use roce_test_macros::tier1;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, connect, device_config};
use roce_verbs::{
    Completion, CompletionChannel, CompletionStatus, ConnectOptions, Device, DeviceConfig,
    MemoryRegion, QueuePair, RecvWr, SendOperation, SendWr,
};

/// How the responder waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Wait,
    Poll,
    Epoll,
    Tokio,
}

/// The ends of a connection; the right one has a queue that reports on a channel.
struct Ends {
    left: TestDevice,
    right: TestDevice,
    channel: CompletionChannel,
    here: QueuePair,
    there: QueuePair,
    ours: MemoryRegion,
    theirs: MemoryRegion,
    _cable: Cable,
}

impl Ends {
    fn new() -> Self {
        let cable = Cable::with_mtu(1500);
        let left = TestDevice::on(&cable.left, DeviceConfig::default());
        let device = cable.right.run(|| Device::open("eth0", device_config())).unwrap();
        let channel = device.create_completion_channel().unwrap();
        let cq = device.create_cq(64, Some(&channel)).unwrap();
        let right = TestDevice { pd: device.alloc_pd().unwrap(), device, cq };
        let (here, there) = connect(&left, &right, &ConnectOptions::default());
        let (ours, theirs) = (left.region(64, 1), right.region(64, 2));
        Self { left, right, channel, here, there, ours, theirs, _cable: cable }
    }

    /// Polls, arms, polls again, and sleeps: as programs with an event loop do.
    fn next(&self, mut sleep: impl FnMut()) -> Completion {
        loop {
            if let Some(done) = self.right.cq.poll_one() {
                return done;
            }
            self.right.cq.arm(false);
            if let Some(done) = self.right.cq.poll_one() {
                return done;
            }
            sleep();
            while self.channel.poll().is_some() {}
        }
    }

    /// Answers `rounds` messages.
    fn respond(&self, way: Way, rounds: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        epoll.add(&self.channel, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        for round in 0..rounds {
            let done = match way {
                Way::Wait => loop {
                    if let Some(done) = self.right.cq.poll_one() {
                        break done;
                    }
                    self.right.cq.arm(false);
                    let _queue = self.channel.wait(Some(COMPLETION_TIMEOUT)).unwrap();
                },
                Way::Poll => self.next(|| {
                    let mut set = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
                    nix::poll::poll(&mut set, PollTimeout::from(20_000u16)).unwrap();
                }),
                Way::Epoll => self.next(|| {
                    let mut events = [EpollEvent::empty()];
                    epoll.wait(&mut events, 20_000u16).unwrap();
                }),
                Way::Tokio => runtime.block_on(self.right.cq.next_async(&self.channel)).unwrap(),
            };
            assert_eq!(done.status, CompletionStatus::Success);
            self.receive_one(round);
            let answer = SendWr::new(round, SendOperation::send(), [self.theirs.sge(..).unwrap()]);
            self.there.post_send([answer]).unwrap();
        }
    }

    fn receive_one(&self, id: u64) {
        self.there.post_recv([RecvWr::new(id, [self.theirs.sge(..).unwrap()])]).unwrap();
    }

    /// Times `rounds` round trips, and sorts them.
    fn round_trips(&self, way: Way, rounds: u64, pause: Duration) -> Vec<Duration> {
        std::thread::scope(|scope| {
            scope.spawn(|| self.respond(way, rounds));
            let one = |round| {
                let receive = RecvWr::new(round, [self.ours.sge(..).unwrap()]);
                self.here.post_recv([receive]).unwrap();
                let message =
                    SendWr::new(round, SendOperation::send(), [self.ours.sge(..).unwrap()]);
                let began = Instant::now();
                self.here.post_send([message]).unwrap();
                assert_eq!(self.left.completion().status, CompletionStatus::Success);
                let took = began.elapsed();
                // So that the responder sleeps; what is timed is over.
                std::thread::sleep(pause);
                took
            };
            // The first ones are another matter: the program changes its way of waiting.
            let mut all: Vec<_> = (0..rounds).map(one).skip(5).collect();
            all.sort();
            all
        })
    }
}

fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Prints medians and 99 % of all ways in one run: the figures are for people; what is asserted
/// has room for a busy machine, where a thread that sleeps waits for a processor and one that spins
/// has one. Where the driver thread leaves the engine to a program that has polled before it armed,
/// the median is above a millisecond.
#[tier1]
fn a_program_that_sleeps_on_a_descriptor_is_told_about_as_soon_as_one_in_wait() {
    let ends = Ends::new();
    ends.receive_one(0);
    for pause in [Duration::ZERO, Duration::from_micros(500)] {
        let mut times = [const { Vec::new() }; 4];
        let ways = [Way::Wait, Way::Poll, Way::Epoll, Way::Tokio];
        // In turn, so that all have their share of whatever else the machine does.
        for _ in 0..5 {
            for (way, times) in ways.iter().zip(&mut times) {
                times.extend(ends.round_trips(*way, 200, pause));
            }
        }
        times.iter_mut().for_each(|times| times.sort());
        let wait = quantile(&times[0], 50);
        for (way, times) in ways.iter().zip(&times) {
            let (median, most) = (quantile(times, 50), quantile(times, 99));
            println!("pause {pause:?}, {way:?}: median {median:?}, 99 % {most:?}");
            let most = (6 * wait).max(Duration::from_micros(400));
            assert!(median <= most, "{way:?}: {median:?}; in wait {wait:?}");
        }
    }
}

/// Most of a second that threads which wait use of the processors.
const MAX_IDLE_CPU: Duration = Duration::from_millis(2);

/// What all threads of this process have used of the processors.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

#[tier1]
fn a_program_that_sleeps_on_a_descriptor_uses_no_cpu_nor_does_its_driver_thread() {
    let ends = Ends::new();
    ends.receive_one(0);
    // The driver threads know that the program polls, and then that it may sleep.
    let _trips = ends.round_trips(Way::Poll, 100, Duration::ZERO);
    ends.right.cq.arm(false);
    assert_eq!(ends.right.cq.poll_one(), None);
    std::thread::sleep(Duration::from_millis(100));
    // Time itself is what is tested here. A virtual machine counts as a thread's what its host takes from it
    // meanwhile, so one of three seconds has to be idle.
    let mut seconds = (0..3).map(|_| {
        let before = cpu_time();
        std::thread::sleep(Duration::from_secs(1));
        let used = cpu_time() - before;
        println!("{used:?} of CPU in an idle second");
        used
    });
    assert!(
        seconds.any(|used| used <= MAX_IDLE_CPU),
        "more than {MAX_IDLE_CPU:?} in each of three"
    );
}
