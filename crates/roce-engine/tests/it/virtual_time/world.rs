//! Two hosts on a link, and the properties that hold at every moment.
//!
//! A `roce_simnet::World` serves an endpoint at once whenever something happens. What is tested here is when an
//! engine is served: by its driver thread, which sleeps and wakes late, and by the calls of a program.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_engine::{Engine, EngineParts, GidTable, NextHop, PathEntry, PlainRegion, Registration};
use roce_simnet::{ConnectOptions, PD};
use roce_transport::{
    AccessFlags, AckTimeout, Endpoint, EndpointConfig, Instant, PathAttributes, QpCap,
};
use roce_wire::{MacAddr, OuterHeaders, Qpn};

use super::driver::{Driver, WAKE_UP};
use super::host::{BASE, Connection, Habit, Host, MAX_SENDS, QUEUES, REGION};
use super::queues::{Queue, Queues};
use super::wire::{Clock, Wire, WireHandle, link};

/// Longest time until a round serves what is due: a frame that has arrived, or something held. The time
/// counts from the last inline round if that comes later.
const MAX_SERVICE_DELAY: Duration = Duration::from_millis(5);
/// The same for a frame that a program sleeps for on a descriptor, which wakes the driver thread.
const MAX_SERVICE_DELAY_ASLEEP: Duration = Duration::from_micros(100);
/// Longest time from the last post to the departure of held posts.
const MAX_POST_HOLD: Duration = Duration::from_millis(1);
/// Time for which nothing but timers happens at the end of a case: longer than every retry.
const SETTLE: Duration = Duration::from_secs(5);

/// The kind of trouble of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Frames are lost.
    Loss,
    /// The first host's interface takes no frame for a while, or for ever.
    FullInterface,
    /// The first host runs for a moment now and then, and the second not at all for a while.
    NoProcessor,
}

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) hosts: [Host; 2],
    trouble: Trouble,
    /// When the trouble changes next.
    change_at: Instant,
    changes: u32,
    dice: StdRng,
    /// Delays are not judged before, since a host was stopped.
    excused_until: Instant,
    /// Since when each program sleeps.
    asleep_since: [Option<Instant>; 2],
    /// When what each engine holds is due, and since when that is known.
    due: [(Option<Instant>, Instant); 2],
}

impl World {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let clock = Clock::new();
        let max_train = if dice.random_bool(0.5) { 64 } else { 1 };
        let count = dice.random_range(1..=3);
        let wires = link(&clock, seed, max_train);
        let mut places: Vec<_> = (0..count)
            .map(|_| [0, 1].map(|_| [0, 1].map(|_| QUEUES[dice.random_range(0..2)])))
            .collect();
        // Programs that read their memory do so at both ends, and have no channel there.
        let exchanges = if dice.random_bool(0.2) { 0.97 } else { 0.0 };
        if exchanges > 0.0 {
            places[0] = [[QUEUES[0]; 2]; 2];
        }
        let mut place = 0;
        let mut hosts = wires.map(|(wire, handle)| {
            let host = new_host(place, wire, handle, &clock, &places, exchanges, &mut dice);
            place += 1;
            host
        });
        let keys = [hosts[0].key, hosts[1].key];
        (hosts[0].peer_key, hosts[1].peer_key) = (keys[1], keys[0]);
        if trouble == Trouble::Loss {
            let loss = dice.random_range(0.001..0.05);
            hosts.iter().for_each(|host| host.driver.wire.faults().loss = loss);
        }
        let change_at = clock.now() + Duration::from_micros(dice.random_range(100..3000));
        let excused_until = clock.now();
        let (asleep_since, due) = ([None; 2], [(None, clock.now()); 2]);
        let changes = 0;
        Self { clock, hosts, trouble, change_at, changes, dice, excused_until, asleep_since, due }
    }

    /// Runs both scripts to their end, and then until every timer has fired.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let mut end = None;
        loop {
            if end.is_none() && self.hosts.iter().all(Host::is_done) {
                // What programs have not changed by now stays so, a full interface too.
                end = Some(self.clock.now() + SETTLE);
            }
            let next = self.next_step();
            if end.is_some_and(|end| next.is_none_or(|(at, _)| at > end)) {
                break;
            }
            let Some((at, step)) = next else {
                return Err("nothing happens although a program is not done".to_owned());
            };
            let now = at.max(self.clock.now());
            self.clock.set(now);
            match step {
                Step::Trouble => self.change(now),
                Step::Program(host) => self.hosts[host].run_program(now),
                Step::Thread(host) => self.hosts[host].driver.run_thread(),
            }
            self.check(now)?;
        }
        self.check_end()
    }

    fn next_step(&self) -> Option<(Instant, Step)> {
        let mut steps = Vec::with_capacity(5);
        for (place, host) in self.hosts.iter().enumerate() {
            let from = host.stopped_until.unwrap_or_default();
            steps.push((host.program_at().max(from), Step::Program(place)));
            steps.push((host.driver.thread_at().max(from), Step::Thread(place)));
        }
        let has_trouble = matches!(self.trouble, Trouble::FullInterface | Trouble::NoProcessor);
        if has_trouble {
            steps.push((self.change_at, Step::Trouble));
        }
        let next = steps.into_iter().min_by_key(|(at, _)| *at)?;
        (next.0 < Instant::from_nanos(u64::MAX)).then_some(next)
    }

    fn change(&mut self, now: Instant) {
        self.changes += 1;
        let micros = |n| Duration::from_micros(n);
        if self.trouble == Trouble::FullInterface {
            let is_full = self.changes == 1;
            let gives_up = self.dice.random_bool(0.5);
            let mut faults = self.hosts[0].driver.wire.faults();
            (faults.is_full, faults.gives_up) = (is_full, gives_up);
            let is_over = !is_full || self.dice.random_bool(0.3);
            let after = micros(self.dice.random_range(1000..400_000));
            self.change_at = if is_over { Instant::from_nanos(u64::MAX) } else { now + after };
            return;
        }
        // The first host has the processor for a moment once in 20 ms, while the second has none.
        if self.changes == 1 {
            self.hosts[1].stopped_until = Some(now + micros(200_000));
        }
        let is_last = self.changes >= 12;
        let slice = micros(self.dice.random_range(50..400));
        let pause = micros(self.dice.random_range(18_000..22_000));
        self.hosts[0].stopped_until = (!is_last).then_some(now + pause);
        self.change_at = if is_last { Instant::from_nanos(u64::MAX) } else { now + pause + slice };
        self.excused_until = now + micros(200_000) + MAX_SERVICE_DELAY;
    }

    /// Checks what holds at every moment.
    fn check(&mut self, now: Instant) -> Result<(), String> {
        for (place, host) in self.hosts.iter_mut().enumerate() {
            if let Some(complaint) = host.complaint.take() {
                return Err(format!("host {place}: {complaint}"));
            }
            let asleep_since = &mut self.asleep_since[place];
            *asleep_since = if host.is_asleep() { Some(asleep_since.unwrap_or(now)) } else { None };
            if now < self.excused_until {
                continue;
            }
            let driver = &host.driver;
            let late = |at: Instant, max: Duration| now.saturating_since(at) > max;
            if let Some(at) = driver.wire.next_arrival() {
                // A round has received as many as its budget, and the program has called since.
                if late(at.max(driver.last_inline()), MAX_SERVICE_DELAY) {
                    return Err(format!("host {place}: a frame of {at:?} waits at {now:?}"));
                }
                let since = asleep_since.map(|since| at.max(since));
                if since.is_some_and(|since| late(since, WAKE_UP + MAX_SERVICE_DELAY_ASLEEP)) {
                    return Err(format!(
                        "host {place}: a frame of {at:?} waits for a sleeper at {now:?}"
                    ));
                }
            }
            let due = driver.engine.held_due();
            if due != self.due[place].0 {
                self.due[place] = (due, now);
            }
            if let Some(due) = due {
                host.counts.held_acks += 1;
                if late(due.max(self.due[place].1), MAX_SERVICE_DELAY) {
                    return Err(format!("host {place}: due at {due:?} and held at {now:?}"));
                }
            }
            let posted = host.last_post();
            if driver.engine.doorbells().is_holding() && late(posted, MAX_POST_HOLD) {
                return Err(format!("host {place}: posts of {posted:?} are held at {now:?}"));
            }
        }
        Ok(())
    }

    /// Checks what holds when all timers have fired.
    fn check_end(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        self.hosts.iter_mut().for_each(|host| host.drain(now));
        let have_closed =
            self.hosts.iter().any(|host| host.connections.iter().any(|it| it.is_closed));
        let may_fail = have_closed || self.trouble == Trouble::FullInterface;
        for (place, host) in self.hosts.iter().enumerate() {
            for connection in &host.connections {
                let info = host.driver.engine.endpoint().query_qp(connection.qpn);
                let outstanding = info.map_or(0, |info| info.sends_outstanding);
                if outstanding > 0 && !connection.is_closed {
                    return Err(format!("host {place}: {outstanding} requests never complete"));
                }
            }
            if host.failures > 0 && !may_fail {
                return Err(format!("host {place}: {} requests failed", host.failures));
            }
            let is_open = host.connections.iter().all(|it| !it.is_closed);
            let missing = host.requests.values().filter(|it| it.is_signaled && it.status.is_none());
            if is_open && let Some(request) = missing.min_by_key(|it| it.posted_at) {
                return Err(format!("host {place}: {request:?} has no completion"));
            }
            // What the peer's program has received was acknowledged, whatever it did next.
            if self.trouble == Trouble::None && is_open {
                for id in &self.hosts[1 - place].received {
                    let status = host.requests[id].status;
                    if status.is_none_or(|it| it != roce_transport::CompletionStatus::Success) {
                        return Err(format!("host {place}: message {id} was received: {status:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Trouble,
    Program(usize),
    Thread(usize),
}

fn address(place: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, place as u8 + 1).into()
}

fn mac(place: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, place as u8 + 1])
}

fn qpn(place: usize, index: usize) -> Qpn {
    Qpn::new(0x1000 * (place as u32 + 1) + index as u32).expect("24 bits")
}

fn new_host(
    place: usize,
    wire: Wire,
    handle: WireHandle,
    clock: &Clock,
    queues_of: &[[[roce_transport::CqHandle; 2]; 2]],
    exchanges: f64,
    dice: &mut StdRng,
) -> Host {
    let queues = QUEUES.iter().enumerate().map(|(index, queue)| Queue::new(*queue, index == 1));
    let mut engine = Engine::new(EngineParts {
        endpoint: Endpoint::new(EndpointConfig::default()),
        wire: Box::new(wire),
        lo: None,
        loopback: None,
        gids: GidTable::of(mac(place), &[address(place)]),
        consumer: Queues(queues.collect()),
        source_ports: Vec::new(),
    });
    let access = AccessFlags::ALL;
    let how = Registration { pd: PD, access, iova: BASE, invalidatable: false, on_demand: false };
    let key = engine.memory_mut().insert(Rc::new(PlainRegion::new(REGION)), how, || dice.random());
    let (local, remote) = (address(place), address(1 - place));
    let entry = PathEntry::new(OuterHeaders::new(local, remote)).expect("one family");
    let entry = entry.with_next_hop(Some(NextHop::Neighbour(mac(1 - place))), mac(place));
    let handle_of_path = engine.paths_mut().insert(entry);
    let path = PathAttributes { handle: handle_of_path, local, remote, max_rate: None };
    let cap = QpCap { max_send_wr: MAX_SENDS as u32, max_recv_wr: 512, ..QpCap::default() };
    let mut connections = Vec::new();
    let now = clock.now();
    // The retries of the second host outlast each stop of the first.
    let ack_timeout = AckTimeout::new(if place == 0 { 12 } else { 14 }).expect("below 32");
    let options = ConnectOptions { ack_timeout, cap, ..ConnectOptions::default() };
    for (index, places) in queues_of.iter().enumerate() {
        let [send_cq, recv_cq] = places[place];
        let number = qpn(place, index);
        engine
            .endpoint_mut()
            .create_qp(number, options.init(send_cq, recv_cq))
            .expect("a new number");
        for attributes in options.transitions(place, path, qpn(1 - place, index)) {
            engine.endpoint_mut().modify_qp(now, number, &attributes).expect("the table's order");
        }
        connections.push(Connection { qpn: number, is_closed: false });
    }
    let max_spin = Duration::from_micros([0, 20, 100][dice.random_range(0..3)]);
    let driver = Driver::new(engine, handle, clock.clone(), max_spin);
    let habit = Habit {
        actions: dice.random_range(5..60),
        exchanges,
        signals: [0.02, 0.5, 1.0][dice.random_range(0..3)],
        closes: if dice.random_bool(0.2) { 0.05 } else { 0.0 },
        absence: [10, 300, 10_000][dice.random_range(0..3)],
    };
    let mut host = Host::new(driver, dice.random(), habit, connections);
    host.key = key;
    let receive = host.receive();
    for connection in &host.connections {
        for _ in 0..400 {
            let posted =
                host.driver.engine.endpoint_mut().post_recv(now, connection.qpn, receive.clone());
            posted.expect("there is room");
        }
    }
    host
}
