//! Runs rounds of the engine, in the calling thread or in the device's own.
//!
//! A round receives frames, fires timers, sends frames and delivers completions. `poll` of an empty
//! queue runs one inline if the engine's lock is free, so no other thread has to wake up between a
//! packet and its completion; `wait` runs rounds until an event. The driver thread, one for each
//! shard, runs them whenever the application may not. It sleeps without the devices only while the
//! last inline round is less than [`INLINE_RECENT`](roce_engine::policy::INLINE_RECENT) ago or a
//! caller is in `wait`, and never while a caller may sleep on the descriptor of a completion
//! channel, unless another polls. So every packet, timer and ACK is served whatever the application
//! calls or omits; how soon depends on its last call:
//!
//! | the application | drives | the driver thread |
//! |---|---|---|
//! | polls | each poll of an empty queue, one round | sleeps 1 to 4 ms at a time, without the devices; drives 300 µs after the last poll (5 ms while a thread is in a round, as one that posts long messages), or at the end of that sleep |
//! | polls for its requests, and waits for messages by reading its memory | as where it polls | as where it polls, until frames have waited in such a sleep; then sleeps on the devices' descriptors for some 16 wakes, twice as many each time |
//! | is in `CompletionChannel::wait` | the caller | sleeps up to 100 ms; drives a timer that is 1 ms late, and a backlog that the caller cannot see |
//! | arms a queue and may sleep on the descriptor, or awaits it | the driver thread | sleeps on the devices' descriptors; arming wakes it from any other sleep |
//! | armed, and polls the same queue on for 300 µs | as where it polls | as where it polls |
//! | armed a queue 300 µs ago, and polls another one all the time | each poll of an empty queue, one round, which notifies too | sleeps 1 ms at a time, without the devices; if a frame has waited in such a sleep, on the devices' descriptors for some 16 wakes |
//! | posts | the post sends what can leave | drives the rest: woken where it would sleep 4 ms beyond the next timer or backlog |
//! | calls nothing | the driver thread | sleeps on the devices' descriptors until the next timer: an idle device uses no CPU |
//!
//! Which queues may be slept on follows from when each was armed, reported and polled, and from
//! whether the last report found a caller in `wait`
//! ([`QueueState::relies_on_thread`](crate::queue_state::QueueState::relies_on_thread)). What the driver thread
//! does about it is decided by [`DriverThreadPolicy`](roce_engine::policy::DriverThreadPolicy) and
//! done in `thread.rs`.
//!
//! A thread that finds no work polls again, yields or blocks as its [`WaitPolicy`] says. A polling
//! thread blocks only on a contended processor, and with nothing held: see `blocking.rs`. Until it
//! returns it counts as polling, so the driver thread sleeps.
//!
//! [`WaitPolicy`]: roce_engine::policy::WaitPolicy
//!
//! Other calls change the engine without a round, and so does the monitor thread. The guard of the engine's
//! lock wakes the driver thread behind them where it sleeps beyond what they have left to do
//! (`driven_engine.rs`).
//!
//! Time is read with the engine's lock held, so the engine's instants never go backwards.
//!
//! # Shards
//!
//! A device may have several engines, so that threads on several processors do not wait for one
//! lock. A [`Shard`] is an engine with a lock, packet sockets, queue pair numbers and a driver
//! thread of its own; all of the above is about one shard. `shards.rs` has the set. The first shard
//! is opened with the device, each further one with a completion queue: queues take the shards in
//! turn as their homes.
//!
//! A queue pair is in the home of its send completion queue, so that a thread with a queue and
//! queue pairs of its own drives one shard alone. A queue pair with a shared receive queue is in
//! the shard of that queue, since the engine takes receives from it while it handles a packet. Any
//! of them may complete in a queue of another home. A completion is pushed under the lock of the
//! queue itself, whatever shard it comes from, and the queue keeps the [set of
//! shards](crate::shard_set) that its queue pairs are in: a poll or a wait drives these, and arming
//! the queue wakes their driver threads. To pin queue pairs to shards by their receive queues
//! instead would not do: each of two queues may serve queue pairs of its own before a queue pair
//! uses both.
//!
//! What all shards know, regions, paths and addresses, is written to each under its lock (`copies.rs`).
//! Queue pairs of two shards exchange packets over `lo`, as those of two processes do.
//!
//! Another thread (`monitor.rs`) asks the kernel about routes, neighbours and the interface, so that
//! no thread waits for an answer under the engine's lock.

mod awaited_port;
mod blocking;
mod caller_run;
mod common;
mod copies;
mod counter_publisher;
mod driven_engine;
mod end_of_process;
mod ending;
mod held_posts;
mod management;
mod monitor;
mod paths;
mod polled;
mod polling;
mod posting;
mod shard;
mod shards;
mod sleep;
mod thread;
mod waiting;
#[cfg(test)]
mod wake_tests;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use roce_engine::PathEntry;
use roce_engine::policy::MAX_FLUSH;
use roce_faults::VerbMoment;
use roce_io::MulticastMembership;
use roce_io::process::Own;
use roce_transport::PathHandle;

use self::common::Common;
use self::counter_publisher::CounterPublisher;
pub(crate) use self::driven_engine::EngineGuard;
pub(crate) use self::held_posts::QueuePairRunCell;
use self::monitor::Monitor;
pub(crate) use self::shard::Shard;
pub(crate) use self::shards::EngineOpener;
use self::shards::Shards;
pub use self::waiting::SleepSet;
use crate::answer::answer;
use crate::cm_router::Router;
use crate::device_state::DeviceState;
use crate::engine::Engine;
use crate::error::Error;
use crate::port::Port;
use crate::run::counter_file;
use crate::work_slots::WorkSlots;

/// A device's shards and all that is needed to drive them; every object of the device keeps it alive.
#[derive(Debug)]
pub(crate) struct Driver {
    shards: Arc<Shards>,
    device: DeviceState,
    /// Completion queues made so far, and shared receive queues.
    queues_made: AtomicUsize,
    shared_receive_queues_made: AtomicUsize,
    monitor: Monitor,
    publisher: Option<CounterPublisher>,
    slots: Arc<WorkSlots>,
    /// Where events of connection management go, once the device has that.
    management: Mutex<Option<Arc<Mutex<Router>>>>,
}

impl Driver {
    /// Makes the driver of a device with at most `limit` shards: `engine` is that of the first, and
    /// `opener` makes those of the others.
    pub(crate) fn new(
        engine: Engine,
        port: Port,
        device: DeviceState,
        limit: usize,
        opener: EngineOpener,
    ) -> Result<Self, Error> {
        let driver = Self::without_threads(engine, port, device, limit, opener)?;
        driver.shards.start_first()?;
        Ok(driver)
    }

    /// As [`new`](Self::new), without a driver thread.
    fn without_threads(
        engine: Engine,
        port: Port,
        device: DeviceState,
        limit: usize,
        opener: EngineOpener,
    ) -> Result<Self, Error> {
        let common = Common::new(port, device.config.spin)?;
        let shards = Arc::new(Shards::new(engine, common, limit, device.config.thread)?);
        // Started by this thread, which is in the network namespace of the device.
        let monitor = Monitor::start(&shards, opener, device.port_holder.clone())?;
        let file = device.config.counter_file.clone();
        let publisher = file.and_then(|file| CounterPublisher::start_if_possible(&shards, &file));
        let (queues_made, shared_receive_queues_made) = Default::default();
        let driver = Self {
            shards,
            device,
            queues_made,
            shared_receive_queues_made,
            monitor,
            publisher,
            slots: Arc::default(),
            management: Mutex::default(),
        };
        driver.publish_each_round(driver.shards.first());
        Ok(driver)
    }

    /// Lets each round of a shard publish the counters, if the configuration says so.
    fn publish_each_round(&self, shard: &Shard) {
        if self.device.config.counters_each_round {
            let file = self.publisher.as_ref().map(|it| Arc::clone(it.file()));
            shard.lock_engine().consumer_mut().counter_file = file;
        }
    }

    pub(crate) fn device(&self) -> &DeviceState {
        &self.device
    }

    /// Returns the slots of the device's work queues.
    pub(crate) fn slots(&self) -> &Arc<WorkSlots> {
        &self.slots
    }

    pub(crate) fn port(&self) -> &Port {
        &self.shards.common.port
    }

    /// Makes the interface a member of a multicast group, as long as the result lives.
    pub(crate) fn join(&self, group: IpAddr) -> io::Result<MulticastMembership> {
        let (answerer, joined) = answer();
        self.join_later(group, move |membership| answerer.give(membership));
        joined.wait().unwrap_or_else(|| Err(io::Error::other("the monitor thread has ended")))
    }

    /// As [`join`](Self::join), without waiting: the monitor thread calls `joined`.
    pub(crate) fn join_later(
        &self,
        group: IpAddr,
        joined: impl FnOnce(io::Result<MulticastMembership>) + Send + 'static,
    ) {
        self.monitor.join(group, Box::new(joined));
    }

    /// Checks that this is the process that opened the device.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.shards.common.generation.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Counts a call of this device, if calls meet faults.
    ///
    /// # Errors
    /// [`Error::Injected`]; [`Error::Forked`].
    pub(crate) fn check_verb(&self, verb: VerbMoment) -> Result<(), Error> {
        self.check_alive()?;
        let Some(faults) = &self.device.verb_faults else { return Ok(()) };
        let checked =
            self.first().with_engine(|engine, now| faults.check_call(engine, now, verb, None))?;
        Ok(checked?)
    }

    /// Returns the first shard, which knows regions, paths and addresses as all others do.
    pub(crate) fn first(&self) -> &Arc<Shard> {
        self.shards.first()
    }

    /// Returns a shard by its number.
    pub(crate) fn shard(&self, number: usize) -> &Arc<Shard> {
        self.shards.get(number)
    }

    /// Returns the open shards.
    pub(crate) fn open_shards(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.shards.iter()
    }

    /// Locks the engine of the first shard.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn engine(&self) -> Result<EngineGuard<'_>, Error> {
        self.first().engine()
    }

    /// Returns the number of the home of the next completion queue, which is opened if it is not open.
    pub(crate) fn home_of_next_queue(&self) -> usize {
        let limit = self.shards.limit();
        if limit == 1 {
            return 0;
        }
        let number = self.queues_made.fetch_add(1, Ordering::Relaxed) % limit;
        let is_open = || self.shards.iter().any(|shard| shard.number() == number);
        if !is_open() {
            self.monitor.open_shard(number);
            self.open_shards().for_each(|shard| self.publish_each_round(shard));
        }
        if is_open() { number } else { 0 }
    }

    /// Lets a shard have sockets for the traffic of queue pairs.
    pub(crate) fn prepare_for_traffic(&self, shard: &Shard) {
        if shard.is_small() {
            self.monitor.grow();
        }
    }

    /// Returns the shard of the next shared receive queue. Those that are open have them in turn,
    /// so that a program with as many of them as of completion queues has both in the same.
    pub(crate) fn shard_of_next_receive_queue(&self) -> &Arc<Shard> {
        let made = self.shared_receive_queues_made.fetch_add(1, Ordering::Relaxed);
        self.shards.get(made % self.shards.iter().count().max(1))
    }

    /// Takes the general services queue pair, of which a device has one. Returns false if it is taken.
    pub(crate) fn take_general_services(&self) -> bool {
        !self.shards.common.has_general_services.swap(true, Ordering::AcqRel)
    }

    /// Gives the general services queue pair back.
    pub(crate) fn give_general_services_back(&self) {
        self.shards.common.has_general_services.store(false, Ordering::Release);
    }

    /// Returns all counters by name, each the sum over the shards.
    pub(crate) fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let mut all = self.engine()?.counters();
        for shard in self.open_shards().skip(1) {
            let own = shard.engine()?.counters();
            counter_file::add(&mut all, &own);
        }
        Ok(all)
    }

    /// Sends held packets, and all else that can leave, at most until `deadline`. Never waits for a lock
    /// beyond that.
    pub(crate) fn flush_held(&self, deadline: std::time::Instant) {
        self.open_shards().for_each(|shard| shard.flush_held(deadline));
    }

    /// Publishes the counters, if the device does that. Waits at most until `deadline` for the locks.
    pub(crate) fn publish_counters(&self, deadline: std::time::Instant) {
        let Some(publisher) = &self.publisher else { return };
        for shard in self.open_shards() {
            while shard.generation.is_current() {
                if let Some(engine) = shard.engine.try_lock_engine() {
                    counter_file::write(publisher.file(), shard.number, &engine.counters());
                    break;
                }
                if std::time::Instant::now() >= deadline {
                    return;
                }
                std::thread::yield_now();
            }
        }
    }

    /// Ends the driver threads, at the latest at `deadline`. Calls of the application run rounds as
    /// before.
    pub(crate) fn end_threads(&self, deadline: std::time::Instant) {
        let common = &self.shards.common;
        common.stopping.store(true, Ordering::SeqCst);
        // A program that has closed all descriptors has left the threads without what wakes them.
        let can_end = || self.open_shards().all(|shard| shard.sleep().can_wake());
        let run = || can_end() && self.shards.threads().iter().any(|thread| !thread.is_finished());
        while run() && std::time::Instant::now() < deadline {
            self.open_shards().for_each(|shard| shard.sleep().wake());
            std::thread::yield_now();
        }
        // Threads of the program that sleep until an event comes drive the device from now on.
        if common.thread_ended.is_open() {
            let _written = nix::unistd::write(&common.thread_ended, &1_u64.to_ne_bytes());
        }
    }

    /// Returns true if a thread has ended, or ends when it is woken, or cannot be woken any more: the program has
    /// closed descriptors of this device. What is open stays so; what is opened from now on needs another.
    pub(crate) fn is_lost(&self) -> bool {
        let threads = self.shards.threads();
        let has_ended = self.monitor.is_lost() || threads.iter().any(JoinHandle::is_finished);
        let is_whole = |shard: &Arc<Shard>| {
            shard.sleep().can_wake() && shard.device_fds().iter().all(Own::is_open)
        };
        has_ended || !self.open_shards().all(is_whole)
    }

    /// Finds the next hop of a path and enters the path into the table, with one user. Waits for
    /// the kernel's answer, at most some four seconds, without the engine's lock.
    pub(crate) fn resolve(&self, entry: PathEntry) -> Result<PathHandle, Error> {
        self.check_alive()?;
        Ok(self.monitor.resolve(entry)?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // In a child after fork the threads do not exist, and the eventfds are the parent's.
        if !self.shards.common.generation.is_current() {
            return;
        }
        self.shards.common.stopping.store(true, Ordering::Release);
        // A program that has closed all descriptors has left the threads without what wakes them.
        let can_be_woken = self.open_shards().all(|shard| shard.sleep().can_wake());
        if can_be_woken {
            self.open_shards().for_each(|shard| shard.sleep().wake());
        }
        let threads = std::mem::take(&mut *self.shards.threads());
        for thread in threads.into_iter().filter(|_| can_be_woken) {
            // A panic there has been printed by the runtime; there is nothing to add.
            let _ended = thread.join();
        }
        let deadline = std::time::Instant::now() + MAX_FLUSH;
        self.flush_held(deadline);
        if let Some(publisher) = &mut self.publisher {
            publisher.end();
        }
        self.publish_counters(deadline);
    }
}
