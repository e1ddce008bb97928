//! A host: a driver, and a program that follows a random script.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_transport::{
    Completion, CompletionOperation, CompletionStatus, CqHandle, Instant, QpAttributes, QpState,
    RecvWr, RemoteAddr, SendOperation, SendWr, Sge,
};
use roce_wire::Qpn;

use super::driver::{Driver, WAKE_UP};

/// A queue without a channel, and one with.
pub(crate) const QUEUES: [CqHandle; 2] = [CqHandle(1), CqHandle(2)];
/// Remote and local address of the region.
pub(crate) const BASE: u64 = 0x1000;
/// Bytes of the region.
pub(crate) const REGION: usize = 64 << 10;
/// Requests that a queue pair may have outstanding.
pub(crate) const MAX_SENDS: usize = 300;

/// Time from one poll to the next of a program that does nothing else.
const FAST_POLL: Duration = Duration::from_nanos(200);
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// A queue pair of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) qpn: Qpn,
    /// The program has ended it.
    pub(crate) is_closed: bool,
}

/// What the program does next, or until when it does something.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Choose(Instant),
    Poll {
        at: Instant,
        queue: usize,
        left: u32,
        gap: Duration,
    },
    /// It is blocked in a poll.
    Block {
        until: Instant,
    },
    /// It sleeps on the channel's descriptor.
    Sleep {
        until: Instant,
    },
    /// It waits, and runs rounds while there is work.
    Wait {
        at: Instant,
        until: Instant,
        is_asleep: bool,
    },
    /// It polls for the completion of a WRITE, and then reads its memory.
    Exchange {
        at: Instant,
        id: u64,
        until: Instant,
        seen: u64,
    },
    /// It reads its memory until a message without a completion has come.
    Read {
        until: Instant,
        seen: u64,
    },
    Done,
}

/// A request that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) posted_at: Instant,
    pub(crate) is_signaled: bool,
    pub(crate) status: Option<CompletionStatus>,
}

/// What programs of a case do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    /// Actions of the script.
    pub(crate) actions: u32,
    /// Chance that an action is an exchange of WRITEs, one of which is read from memory.
    pub(crate) exchanges: f64,
    /// Chance that a request is signaled.
    pub(crate) signals: f64,
    /// Chance that a queue pair is closed when it has received a message.
    pub(crate) closes: f64,
    /// Longest time without a call, in microseconds.
    pub(crate) absence: u64,
}

pub(crate) struct Host {
    pub(crate) driver: Driver,
    pub(crate) connections: Vec<Connection>,
    pub(crate) key: u32,
    pub(crate) peer_key: u32,
    pub(crate) requests: HashMap<u64, Request>,
    /// Immediates of the messages of which the program has the completion.
    pub(crate) received: Vec<u64>,
    pub(crate) failures: u32,
    pub(crate) stopped_until: Option<Instant>,
    pub(crate) counts: Counts,
    doing: Doing,
    dice: StdRng,
    habit: Habit,
    left: u32,
    next_id: u64,
    last_post: Instant,
    /// When held completions became visible too late, as a message.
    pub(crate) complaint: Option<String>,
}

/// How often something has happened, to see that scripts reach it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) held_completions: u64,
    pub(crate) held_posts: u64,
    pub(crate) held_acks: u64,
    /// ACKs that have left behind a message, in one train.
    pub(crate) joined_acks: u64,
    pub(crate) sleeps: u64,
    pub(crate) closed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.held_completions += more.held_completions;
        self.held_posts += more.held_posts;
        self.held_acks += more.held_acks;
        self.joined_acks += more.joined_acks;
        self.sleeps += more.sleeps;
        self.closed += more.closed;
    }
}

impl Host {
    pub(crate) fn new(
        driver: Driver,
        seed: u64,
        habit: Habit,
        connections: Vec<Connection>,
    ) -> Self {
        Self {
            driver,
            connections,
            key: 0,
            peer_key: 0,
            requests: HashMap::new(),
            received: Vec::new(),
            failures: 0,
            stopped_until: None,
            counts: Counts::default(),
            doing: Doing::Choose(Instant::from_nanos(1_001_000)),
            dice: StdRng::seed_from_u64(seed),
            habit,
            left: habit.actions,
            next_id: 1,
            last_post: Instant::default(),
            complaint: None,
        }
    }

    /// Returns true if the program sleeps on the descriptor of its channel.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.doing, Doing::Sleep { .. })
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.doing, Doing::Done)
    }

    pub(crate) fn last_post(&self) -> Instant {
        self.last_post
    }

    /// Returns the time of the program's next step.
    pub(crate) fn program_at(&self) -> Instant {
        match self.doing {
            Doing::Choose(at) | Doing::Poll { at, .. } | Doing::Exchange { at, .. } => at,
            Doing::Wait { at, until, is_asleep } => {
                let woken = self.driver.woken_by_frame().filter(|_| is_asleep);
                woken.map_or(at, |woken| at.min(woken)).min(until)
            }
            Doing::Block { until } => {
                self.driver.woken_by_frame().map_or(until, |at| at.min(until))
            }
            Doing::Sleep { until } => {
                let queues = &self.driver.engine.consumer().0;
                let report = queues.iter().filter_map(|queue| queue.notified).min();
                report.map_or(until, |at| (at + WAKE_UP).min(until))
            }
            Doing::Read { until, seen } => {
                let is_there = self.driver.engine.endpoint().acks_scheduled() != seen;
                if is_there { self.driver.engine.last_now() } else { until }
            }
            Doing::Done => NEVER,
        }
    }

    /// Does the program's step that is due.
    pub(crate) fn run_program(&mut self, now: Instant) {
        let soon = now + Duration::from_nanos(self.dice.random_range(50..400));
        self.doing = match self.doing {
            Doing::Choose(_) if self.left == 0 => Doing::Done,
            Doing::Choose(_) => {
                self.left -= 1;
                self.choose(now, soon)
            }
            Doing::Poll { queue, left, gap, .. } => {
                let found = self.poll(queue, now);
                match left {
                    0 => Doing::Choose(soon),
                    // It takes what there is, and then does something else.
                    _ if found && self.dice.random_bool(0.5) => Doing::Choose(soon),
                    _ if self.dice.random_ratio(1, 500) => self.block(now, soon),
                    _ => Doing::Poll { at: now + gap, queue, left: left - 1, gap },
                }
            }
            Doing::Block { .. } => Doing::Poll { at: now, queue: 0, left: 50, gap: FAST_POLL },
            Doing::Exchange { id, until, seen, .. } => {
                self.poll(0, now);
                let is_complete = self.requests.get(&id).is_none_or(|it| it.status.is_some());
                match is_complete || now >= until {
                    true => Doing::Read { until: now + Duration::from_micros(500), seen },
                    false => Doing::Exchange { at: now + FAST_POLL, id, until, seen },
                }
            }
            Doing::Sleep { .. } => {
                self.driver.engine.consumer_mut().get(QUEUES[1]).notified = None;
                while self.poll(1, now) {}
                Doing::Choose(soon)
            }
            Doing::Wait { until, .. } if now >= until => {
                self.driver.end_wait();
                Doing::Choose(soon)
            }
            Doing::Wait { until, .. } => match self.driver.wait_round() {
                None => Doing::Wait { at: soon, until, is_asleep: false },
                Some(at) => Doing::Wait { at: at.max(soon), until, is_asleep: true },
            },
            Doing::Read { .. } => {
                let thinks = if self.dice.random_bool(0.9) { 3 } else { 100 };
                Doing::Choose(soon + self.micros(thinks))
            }
            Doing::Done => Doing::Done,
        };
    }

    fn block(&mut self, now: Instant, soon: Instant) -> Doing {
        match self.driver.block() {
            Some(until) if until > now => Doing::Block { until },
            _ => Doing::Choose(soon),
        }
    }

    fn micros(&mut self, max: u64) -> Duration {
        Duration::from_nanos(self.dice.random_range(0..=max * 1000))
    }

    fn choose(&mut self, now: Instant, soon: Instant) -> Doing {
        if self.dice.random_bool(self.habit.exchanges) {
            return self.exchange(now);
        }
        match self.dice.random_range(0..10) {
            0..=2 => {
                let posts = match self.dice.random_range(0..4) {
                    0 => self.dice.random_range(1..100),
                    _ => 1,
                };
                for _ in 0..posts {
                    self.post_any(now);
                }
                Doing::Choose(soon)
            }
            3..=5 => {
                let queue = self.dice.random_range(0..2);
                let gap =
                    Duration::from_nanos([100, 300, 1000, 30_000][self.dice.random_range(0..4)]);
                let left = self.dice.random_range(0..200);
                Doing::Poll { at: soon, queue, left, gap }
            }
            6 => {
                // It polls once more behind the arming, as a program does that misses no report.
                self.driver.arm(QUEUES[1]);
                self.counts.sleeps += 1;
                while self.poll(1, now) {}
                let until = now + self.micros(20_000);
                Doing::Sleep { until }
            }
            7 => {
                self.driver.waiters += 1;
                let until = now + self.micros(5_000);
                Doing::Wait { at: soon, until, is_asleep: false }
            }
            _ => {
                let absence = self.habit.absence;
                Doing::Choose(now + self.micros(absence))
            }
        }
    }

    /// Posts a signaled WRITE; the program then polls for its completion, and reads its memory.
    fn exchange(&mut self, now: Instant) -> Doing {
        let seen = self.driver.engine.endpoint().acks_scheduled();
        let id = self.next_id;
        self.post(self.connections[0], now, SendKind::Write, true);
        let (at, until) = (now + FAST_POLL, now + Duration::from_micros(500));
        Doing::Exchange { at, id, until, seen }
    }

    fn poll(&mut self, queue: usize, now: Instant) -> bool {
        let Some(completion) = self.driver.poll(QUEUES[queue]) else {
            let due = self.driver.engine.completion_due();
            self.counts.held_completions += u64::from(due.is_some());
            if due.is_some_and(|due| due <= now) {
                self.complaint = Some(format!("a completion due at {due:?} is held at {now:?}"));
            }
            return false;
        };
        self.take(completion, now);
        true
    }

    fn take(&mut self, completion: Completion, now: Instant) {
        let Completion { wr_id, status, operation, .. } = completion;
        let is_receive =
            matches!(operation, CompletionOperation::Recv | CompletionOperation::RecvWithImmediate);
        if !is_receive {
            self.failures += u32::from(status != CompletionStatus::Success);
            if let Some(request) = self.requests.get_mut(&wr_id) {
                assert!(request.status.is_none(), "request {wr_id} completes twice");
                request.status = Some(status);
            }
            return;
        }
        if status != CompletionStatus::Success {
            return;
        }
        let immediate = completion.immediate.map(u32::from_be_bytes);
        self.received.extend(immediate.map(u64::from));
        let Some(place) = self.connections.iter().position(|it| it.qpn == completion.qpn) else {
            return;
        };
        if self.connections[place].is_closed {
            return;
        }
        if self.dice.random_bool(self.habit.closes) {
            return self.close(place);
        }
        let qpn = completion.qpn;
        let receive = self.receive();
        let engine = &mut self.driver.engine;
        engine.endpoint_mut().post_recv(now, qpn, receive).expect("as many as were taken");
        engine.deliver(engine.last_now());
    }

    /// Ends a queue pair straight behind a receive.
    fn close(&mut self, place: usize) {
        self.counts.closed += 1;
        self.connections[place].is_closed = true;
        let qpn = self.connections[place].qpn;
        match self.dice.random_range(0..3) {
            0 => self.driver.call(|engine, _| _ = engine.endpoint_mut().destroy_qp(qpn)),
            kind => {
                let state = if kind == 1 { QpState::Error } else { QpState::Reset };
                let attributes = QpAttributes { state: Some(state), ..QpAttributes::default() };
                self.driver.call(|engine, now| {
                    engine
                        .endpoint_mut()
                        .modify_qp(now, qpn, &attributes)
                        .expect("from every state")
                });
            }
        }
    }

    pub(crate) fn receive(&self) -> RecvWr {
        RecvWr::new(0, [Sge { lkey: self.key, addr: BASE, len: 4096 }])
    }

    fn post_any(&mut self, now: Instant) {
        let connection = self.connections[self.dice.random_range(0..self.connections.len())];
        let kind = match self.dice.random_range(0..8) {
            0..=2 => SendKind::Message,
            3 => SendKind::Read,
            _ => SendKind::Write,
        };
        let is_signaled = self.dice.random_bool(self.habit.signals);
        self.post(connection, now, kind, is_signaled);
    }

    fn post(&mut self, connection: Connection, now: Instant, kind: SendKind, is_signaled: bool) {
        let outstanding = self.driver.engine.endpoint().query_qp(connection.qpn);
        let is_open = |state| state == QpState::ReadyToSend;
        if !outstanding
            .is_some_and(|it| is_open(it.state) && (it.sends_outstanding as usize) < MAX_SENDS)
        {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let len = match self.dice.random_range(0..10) {
            0 => self.dice.random_range(0..4096),
            _ => 8,
        };
        let remote = RemoteAddr { addr: BASE, rkey: self.peer_key };
        let operation = match kind {
            SendKind::Message => {
                let immediate = Some((id as u32).to_be_bytes());
                SendOperation::Send { immediate, invalidate: None }
            }
            SendKind::Write => SendOperation::Write { remote, immediate: None },
            SendKind::Read => SendOperation::Read { remote },
        };
        let mut work = SendWr::new(id, operation, [Sge { lkey: self.key, addr: BASE, len }]);
        work.signaled = is_signaled || kind == SendKind::Message;
        let is_signaled = work.signaled;
        self.driver.post(connection.qpn, work).expect("there is room");
        self.last_post = now;
        self.requests.insert(id, Request { posted_at: now, is_signaled, status: None });
        self.counts.held_posts += u64::from(self.driver.engine.doorbells().is_holding());
    }

    /// Takes all that is in the queues, at the end of a case.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.habit.closes = 0.0;
        for queue in QUEUES {
            while let Some(completion) =
                self.driver.engine.consumer_mut().get(queue).entries.pop_front()
            {
                self.take(completion, now);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendKind {
    Message,
    Write,
    Read,
}
