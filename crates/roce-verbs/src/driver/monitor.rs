//! The monitor thread, which queries the kernel about routes, neighbours and the interface.
//!
//! No other thread does, once the device is open. It sleeps until the kernel notifies it of a
//! change or a caller wants an address resolved, queries what changed, and takes the engines' locks
//! to store the results. So neither a slow kernel nor a dead peer delays data, or another
//! resolution. It is started in the device's network namespace and stays there: its sockets belong
//! to that namespace, and so do those of the shards that it opens.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_cm::StrayDatagram;
use roce_engine::{Flow, ManagementDestination, NextHop, Outcome, PathEntry, Resolver, RouteError};
use roce_io::process::Own;
use roce_io::{MulticastMembership, MulticastMemberships, PortReservation};
use roce_transport::{Instant, PathHandle};
use roce_wire::OuterHeaders;

use super::awaited_port::AwaitedPort;
use super::ending::Ending;
use super::shards::{EngineOpener, Shards};
use super::sleep::{is_closed, sleep};
use crate::answer::{Answerer, answer};
use crate::cm_router::Strays;
use crate::error::Error;
use crate::interface_kernel::InterfaceKernel;
use crate::netlink::notifications::{Changes, NotificationSocket};
use crate::process::background_thread::BackgroundThread;
use crate::process::fork;
use crate::process::last_thread;
use crate::process::thread_placement::ThreadPlacement;

/// Shortest time between two refreshes of routes, addresses and the interface: a routing daemon
/// changes thousands of routes in a row.
const REFRESH_INTERVAL: Duration = Duration::from_millis(10);

/// Time after which a link that has come up is up at its other end, too: half a millisecond later between two hosts of
/// a veth pair.
const SETTLING_TIME: Duration = Duration::from_millis(20);

/// Time before the next refresh after the kernel has refused a query about the interface.
const ERROR_INTERVAL: Duration = Duration::from_secs(1);

/// A handle to the monitor thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Monitor {
    /// `None` only in `drop`.
    inbox: Option<Arc<mpsc::Sender<Request>>>,
    wake: Arc<Own<EventFd>>,
    thread: Option<JoinHandle<()>>,
    generation: fork::Generation,
    /// Strays in the inbox.
    strays: Arc<AtomicUsize>,
    ending: Arc<Ending>,
    socket: Arc<NotificationSocket>,
}

/// What a caller waits for.
#[derive(Debug)]
enum Request {
    /// A path.
    Resolve(Box<Resolution>),
    /// The shards up to the one with this number, as far as they can be opened. This thread is in the
    /// device's network namespace; the caller may be in another.
    Open { shard: usize, reply: Answerer<()> },
    /// Sockets of the first shard for the traffic of queue pairs.
    Grow { reply: Answerer<()> },
    /// The path to a destination of management datagrams, for the engine of the first shard.
    ResolveForManagement(ManagementDestination),
    /// A datagram of which this process may be the one to answer.
    Stray(StrayDatagram),
    /// Whether there is a path, without the path.
    Reach(Box<Reach>),
    /// The membership of a multicast group.
    Join { group: IpAddr, joined: Joined },
}

/// A path that is wanted.
#[derive(Debug)]
struct Resolution {
    /// The path without its next hop.
    entry: PathEntry,
    /// When there is no path, if the kernel has not found one before.
    until: Option<Instant>,
    reply: Reply,
}

/// What learns of a path.
#[derive(Debug)]
enum Reply {
    /// A caller that waits.
    Caller(Answerer<Result<PathHandle, RouteError>>),
    /// The engine of the first shard.
    Management(ManagementDestination),
    /// A function that needs no path.
    Done(Done),
}

/// A function that learns whether there is a path.
struct Done(Box<dyn FnOnce(Result<(), RouteError>) + Send>);

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done")
    }
}

/// A function that gets the membership of a multicast group.
struct Joined(Box<dyn FnOnce(io::Result<MulticastMembership>) + Send>);

impl std::fmt::Debug for Joined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Joined")
    }
}

/// A path whose existence alone matters.
#[derive(Debug)]
struct Reach {
    entry: PathEntry,
    until: Instant,
    done: Done,
}

/// Most datagrams that wait until it is known which process answers.
const MAX_STRAYS: usize = 64;

/// Asks the monitor thread about management datagrams, without waiting.
#[derive(Debug)]
pub(super) struct ManagementQueries {
    /// Does not keep the thread.
    inbox: Weak<mpsc::Sender<Request>>,
    wake: Arc<Own<EventFd>>,
    /// Strays in the inbox.
    strays: Arc<AtomicUsize>,
}

impl ManagementQueries {
    /// Asks for a path, which the first shard's engine gets.
    pub(super) fn resolve(&self, destination: ManagementDestination) {
        self.send(Request::ResolveForManagement(destination));
    }

    /// Lets a datagram be answered unless it is another process's. Returns false if too many wait.
    pub(super) fn decide(&self, stray: StrayDatagram) -> bool {
        if self.strays.fetch_add(1, Ordering::Relaxed) >= MAX_STRAYS {
            self.strays.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.send(Request::Stray(stray));
        true
    }

    fn send(&self, request: Request) {
        if let Some(inbox) = self.inbox.upgrade() {
            // Where the thread has ended, the device ends too.
            let _sent = inbox.send(request);
        }
        // After the sender is gone, which may have been the last: the thread must see that.
        if self.wake.is_open() {
            let _written = self.wake.write(1);
        }
    }
}

/// The state of the monitor thread.
struct Worker {
    shards: Arc<Shards>,
    opener: EngineOpener,
    kernel: InterfaceKernel,
    socket: Arc<NotificationSocket>,
    inbox: mpsc::Receiver<Request>,
    wake: Arc<Own<EventFd>>,
    resolver: Resolver,
    /// Callers whose flows are being resolved.
    waiting: HashMap<Flow, Vec<Resolution>>,
    /// Next hops that changed and are not stored yet.
    outcomes: HashMap<Flow, Outcome>,
    /// Changes that have not been queried yet.
    changes: Changes,
    /// Earliest time of the next refresh of interface and routes.
    next_refresh: Instant,
    /// When the link, which has come up, is taken to be up at both ends.
    settles_at: Option<Instant>,
    strays: Strays,
    memberships: MulticastMemberships,
    /// As in [`Monitor`].
    strays_waiting: Arc<AtomicUsize>,
    awaited_port: AwaitedPort,
    ending: Arc<Ending>,
}

impl Monitor {
    /// Starts the thread in this thread's network namespace. It takes the UDP port as soon as the user that
    /// has it has closed it.
    pub(super) fn start(
        shards: &Arc<Shards>,
        opener: EngineOpener,
        port_holder: Option<Arc<Mutex<PortReservation>>>,
    ) -> Result<Self, Error> {
        let port = &shards.common.port;
        let (sender, inbox) = mpsc::channel();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Own::make(|| EventFd::from_value_and_flags(0, flags))?;
        let wake = Arc::new(wake);
        let strays = Arc::<AtomicUsize>::default();
        let ending = Arc::<Ending>::default();
        let socket = NotificationSocket::open().map_err(RouteError::from_kernel)?;
        let socket = Arc::new(socket);
        let worker = Worker {
            shards: Arc::clone(shards),
            opener,
            kernel: InterfaceKernel::open(port.index(), port.name())
                .map_err(RouteError::from_kernel)?,
            socket: Arc::clone(&socket),
            inbox,
            wake: Arc::clone(&wake),
            resolver: Resolver::new(port.name()),
            waiting: HashMap::new(),
            outcomes: HashMap::new(),
            // The interface was queried before the socket received notifications.
            changes: Changes::all(),
            next_refresh: Instant::default(),
            settles_at: None,
            strays: Strays::default(),
            memberships: MulticastMemberships::new(port.index()),
            strays_waiting: Arc::clone(&strays),
            awaited_port: AwaitedPort::of(port_holder),
            ending: Arc::clone(&ending),
        };
        last_thread::register(&wake);
        let thread = std::thread::Builder::new().name(format!("roce-m {}", port.name()));
        let thread = thread.spawn(move || {
            let own = BackgroundThread::begin();
            if let Err(error) = own.place(ThreadPlacement::default()) {
                tracing::warn!(%error, "the monitor thread runs where its creator was bound to");
            }
            worker.run();
        })?;
        let generation = fork::Generation::current();
        let (inbox, thread) = (Some(Arc::new(sender)), Some(thread));
        Ok(Self { inbox, wake, thread, generation, strays, ending, socket })
    }

    /// Resolves the next hop of a path and enters the path into the table. Waits until the kernel
    /// has found the next hop or given up, at most some four seconds.
    pub(super) fn resolve(&self, entry: PathEntry) -> Result<PathHandle, RouteError> {
        let ended = || RouteError::from_kernel(io::Error::other("the monitor thread has ended"));
        let (answerer, resolved) = answer();
        let reply = Reply::Caller(answerer);
        self.send(Request::Resolve(Box::new(Resolution { entry, until: None, reply })));
        resolved.wait().unwrap_or_else(|| Err(ended()))
    }

    /// Resolves the next hop of a path, and calls `done` with the outcome from the thread, at the
    /// latest at `until`. Does not wait.
    pub(super) fn reach(
        &self,
        entry: PathEntry,
        until: Instant,
        done: Box<dyn FnOnce(Result<(), RouteError>) + Send>,
    ) {
        self.send(Request::Reach(Box::new(Reach { entry, until, done: Done(done) })));
    }

    /// Returns what asks about management datagrams.
    pub(super) fn queries(&self) -> ManagementQueries {
        let inbox = self.inbox.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let (wake, strays) = (Arc::clone(&self.wake), Arc::clone(&self.strays));
        ManagementQueries { inbox, wake, strays }
    }

    /// Joins a multicast group on the interface, and calls `joined` with the membership.
    pub(super) fn join(
        &self,
        group: IpAddr,
        joined: Box<dyn FnOnce(io::Result<MulticastMembership>) + Send>,
    ) {
        self.send(Request::Join { group, joined: Joined(joined) });
    }

    /// Opens the shards up to the one with this number, as far as they can be opened, and waits until
    /// that is done.
    pub(super) fn open_shard(&self, shard: usize) {
        let (reply, answer) = answer();
        self.send(Request::Open { shard, reply });
        // If the thread has panicked, the device goes on with the shards that it has.
        let _done = answer.wait();
    }

    /// Replaces small sockets of the first shard, and waits until that is done.
    pub(super) fn grow(&self) {
        let (reply, answer) = answer();
        self.send(Request::Grow { reply });
        // If the thread has panicked, the device goes on with the sockets that it has.
        let _done = answer.wait();
    }

    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        let _written = self.wake.write(1);
    }

    /// Returns true if the thread has ended, or does so when it is woken, or cannot be.
    pub(super) fn is_lost(&self) -> bool {
        let are_open = self.wake.is_open() && self.socket.is_open();
        !are_open || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends a request. If the thread has ended, or sleeps and the program has closed what wakes it, its reply
    /// fails.
    fn send(&self, request: Request) {
        if !self.wake.is_open() {
            return;
        }
        let _sent = self.inbox.as_ref().map(|inbox| inbox.send(request));
        let _written = self.wake.write(1);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // In a child after fork the thread does not exist, and the eventfd is the parent's.
        if !self.generation.is_current() {
            return;
        }
        self.inbox = None;
        // The program may have closed all descriptors.
        if !self.wake.is_open() {
            return;
        }
        let _written = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the runtime.
            let _ended = thread.join();
        }
    }
}

impl Worker {
    fn run(mut self) {
        loop {
            // The program may have closed it while this thread was busy.
            if !self.wake.is_open() {
                return;
            }
            let _read = self.wake.read();
            self.ending.end_if_asked();
            last_thread::exit_if_alone();
            // Before the requests: these are answered by what the kernel had reported when the thread woke up.
            self.changes.merge(self.socket.read(self.shards.common.port.index()));
            let now = self.shards.common.now();
            let neighbours = std::mem::take(&mut self.changes.neighbours);
            if !neighbours.is_empty() {
                let Self { resolver, kernel, outcomes, .. } = &mut self;
                resolver.on_neighbours(&neighbours, now, kernel, outcomes);
            }
            if self.changes.any() && self.next_refresh <= now {
                let pause = if self.refresh(now) { REFRESH_INTERVAL } else { ERROR_INTERVAL };
                self.next_refresh = self.shards.common.now() + pause;
            }
            self.settle_link();
            loop {
                match self.inbox.try_recv() {
                    Ok(Request::Resolve(request)) => self.resolve(*request),
                    Ok(Request::ResolveForManagement(destination)) => {
                        self.resolve_for_management(destination);
                    }
                    Ok(Request::Stray(stray)) => {
                        self.strays_waiting.fetch_sub(1, Ordering::Relaxed);
                        self.answer_stray(&stray);
                    }
                    Ok(Request::Reach(reach)) => {
                        let Reach { entry, until, done } = *reach;
                        let (until, reply) = (Some(until), Reply::Done(done));
                        self.resolve(Resolution { entry, until, reply });
                    }
                    Ok(Request::Open { shard, reply }) => {
                        self.shards.open_up_to(shard, &self.opener);
                        reply.give(());
                    }
                    Ok(Request::Grow { reply }) => {
                        self.shards.grow_first();
                        reply.give(());
                    }
                    Ok(Request::Join { group, joined }) => (joined.0)(self.memberships.join(group)),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.resolver.on_timeout(
                self.shards.common.now(),
                &mut self.kernel,
                &mut self.outcomes,
            );
            self.store_outcomes();
            self.expire();
            self.awaited_port.run(self.shards.common.now(), self.shards.common.port.name());
            match self.sleep_until_event() {
                // Whatever still waits for an answer has an error.
                Err(error) if is_closed(&error) => return,
                Err(error) => tracing::error!(%error, "the monitor thread cannot sleep"),
                Ok(()) => {}
            }
        }
    }

    /// Sleeps until a notification or a request arrives, or a timer expires.
    ///
    /// # Errors
    /// Those of [`sleep`].
    fn sleep_until_event(&self) -> Result<(), Error> {
        let refresh = self.changes.any().then_some(self.next_refresh);
        let expiry = self.waiting.values().flatten().filter_map(|request| request.until).min();
        let resolution = self.resolver.poll_timeout();
        let timers = [refresh, resolution, expiry, self.awaited_port.next_look(), self.settles_at];
        let at = timers.into_iter().flatten().min();
        let look = last_thread::is_main_ending().then_some(last_thread::LOOK_INTERVAL);
        let limit = at.map(|at| at.saturating_since(self.shards.common.now()));
        let limit = limit.into_iter().chain(look).min();
        sleep(&[self.wake.as_fd(), self.socket.as_fd()], limit).map(drop)
    }

    /// Resolves the next hops anew some time after the link has come up.
    fn settle_link(&mut self) {
        let now = self.shards.common.now();
        if self.settles_at.is_some_and(|at| at <= now) {
            self.settles_at = None;
            self.kernel.settle();
            let Self { resolver, kernel, outcomes, .. } = self;
            resolver.on_routes(now, kernel, outcomes);
        }
    }

    fn resolve(&mut self, request: Resolution) {
        let (now, flow) = (self.shards.common.now(), request.entry.flow());
        let Self { resolver, kernel, outcomes, .. } = self;
        let (handle, outcome) = resolver.look_up(flow, now, kernel, outcomes);
        let request = Resolution { entry: request.entry.with_flow(handle), ..request };
        match outcome {
            Some(outcome) => self.reply(request, outcome),
            None => self.waiting.entry(flow).or_default().push(request),
        }
    }

    fn resolve_for_management(&mut self, destination: ManagementDestination) {
        let ManagementDestination { local, remote, traffic_class } = destination;
        let outer = OuterHeaders { traffic_class, ..OuterHeaders::new(local, remote) };
        match PathEntry::new(outer) {
            Ok(entry) => {
                let reply = Reply::Management(destination);
                self.resolve(Resolution { entry, until: None, reply });
            }
            Err(_) => self.shards.set_management_path(destination, None),
        }
    }

    /// Answers a datagram unless another process does.
    fn answer_stray(&mut self, stray: &StrayDatagram) {
        let interface = self.shards.common.port.index();
        if self.strays.is_to_answer(interface, stray.addresses, &stray.datagram[..]) {
            self.shards.first().lock_engine().answer_stray(stray);
        }
    }

    /// Queries what changed: the interface, its addresses, the routes. Returns true if the kernel has
    /// answered.
    fn refresh(&mut self, now: Instant) -> bool {
        let changes = std::mem::take(&mut self.changes);
        let link = changes.link.then(|| self.kernel.link()).transpose();
        let addresses = changes.addresses.then(|| self.kernel.addresses()).transpose();
        let is_answered = match (link, addresses) {
            (Ok(link), Ok(addresses)) => {
                let is_running = link.flatten().is_some_and(|link| link.is_running);
                if is_running && !self.kernel.is_settled() {
                    self.settles_at.get_or_insert(now + SETTLING_TIME);
                }
                self.shards.paths().store_port(link, addresses.as_deref());
                true
            }
            (Err(error), _) | (_, Err(error)) => {
                let interface = self.shards.common.port.name();
                tracing::warn!(%error, interface, "cannot query the interface");
                (self.changes.link, self.changes.addresses) = (changes.link, changes.addresses);
                false
            }
        };
        // The kernel does not notify of every route that goes with a link or an address.
        let Self { resolver, kernel, outcomes, .. } = self;
        resolver.on_routes(now, kernel, outcomes);
        is_answered
    }

    /// Stores the next hops that changed, all of a shard under one lock, and replies to the waiting
    /// callers.
    fn store_outcomes(&mut self) {
        if self.outcomes.is_empty() {
            return;
        }
        let outcomes = std::mem::take(&mut self.outcomes);
        let hops: HashMap<Flow, Option<NextHop>> = outcomes
            .iter()
            .filter_map(|(flow, outcome)| match outcome {
                Ok(hop) => Some((*flow, Some(*hop))),
                Err(RouteError::NoRoute { .. }) => Some((*flow, None)),
                // The kernel knows no other: the next hop stays.
                Err(_) => None,
            })
            .collect();
        self.shards.paths().set_next_hops(&hops);
        for (flow, outcome) in outcomes {
            for request in self.waiting.remove(&flow).into_iter().flatten() {
                self.reply(request, outcome.clone());
            }
        }
    }

    /// Ends the requests that wait no longer.
    fn expire(&mut self) {
        let now = self.shards.common.now();
        let is_over = |request: &Resolution| request.until.is_some_and(|until| until <= now);
        let mut over = Vec::new();
        for requests in self.waiting.values_mut() {
            over.extend(requests.extract_if(.., |request| is_over(request)));
        }
        self.waiting.retain(|_, requests| !requests.is_empty());
        let interface = self.shards.common.port.name().to_owned();
        for request in over {
            let next_hop = request.entry.flow().destination;
            let error = RouteError::NoNeighbour { next_hop, interface: interface.clone() };
            self.reply(request, Err(error));
        }
    }

    fn reply(&self, request: Resolution, outcome: Outcome) {
        let own = self.shards.common.port.mac();
        let flow = request.entry.flow();
        let found = outcome.map(|hop| request.entry.with_next_hop(Some(hop), own));
        match request.reply {
            Reply::Caller(reply) => {
                reply.give(found.map(|entry| self.shards.paths().insert(entry)));
            }
            Reply::Management(destination) => {
                self.shards.set_management_path(destination, found.ok());
            }
            Reply::Done(Done(done)) => {
                done(found.map(|entry| {
                    // A burst of requests follows where a program connects many times at once.
                    let destination = ManagementDestination {
                        local: flow.source,
                        remote: flow.destination,
                        traffic_class: flow.traffic_class,
                    };
                    self.shards.set_management_path(destination, Some(entry));
                }));
            }
        }
    }
}
