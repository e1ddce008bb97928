//! Devices: interfaces opened for RoCEv2.

mod opening;
mod wrapping;

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use roce_engine::GidEntry;
use roce_engine::policy::MAX_EXIT_WAIT;
use roce_faults::{DeviceLimits, VerbMoment};
use roce_io::{CaptureFile, FaultEvent, FaultScript, InterfaceInfo, interface_index, interfaces};
use roce_transport::congestion::CongestionConfig;
use roce_transport::{AsyncEvent, CqHandle, PdHandle};
use roce_wire::MacAddr;

use self::opening::open_driver;
use crate::backend::Backend;
use crate::channel::CompletionChannel;
use crate::completion_queue::{CompletionQueue, MAX_CQE};
use crate::device_config::DeviceConfig;
use crate::driver::{Driver, SleepSet};
use crate::error::Error;
use crate::events::EventQueue;
use crate::path::{AddressVector, Path, resolve};
use crate::port::{PortAttributes, attributes_of, gids_of};
use crate::process::exit;
use crate::process::fork::PerProcess;
use crate::process::purpose::Purpose;
use crate::process::signals::SignalsBlocked;
use crate::protection_domain::ProtectionDomain;
use crate::shard_set::MAX_SHARDS;
use crate::sockets::network_namespace;
use crate::verb_faults::VerbFaults;

/// An interface that carries RoCE, or could.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The interface.
    pub interface: InterfaceInfo,
    /// Its port as a device would show it.
    pub port: PortAttributes,
    /// Its GID table.
    pub gids: Vec<GidEntry>,
}

impl DeviceInfo {
    pub(crate) fn of(interface: InterfaceInfo) -> Self {
        let gids = gids_of(&interface).rows().to_vec();
        Self { port: attributes_of(&interface, gids.len()), gids, interface }
    }

    /// Returns the MAC address of the interface.
    pub(crate) fn mac(&self) -> MacAddr {
        MacAddr(self.interface.mac.unwrap_or_default())
    }
}

/// An interface opened to speak RoCEv2; as `ibv_context`.
///
/// It needs nothing of the kernel but packet sockets, with CAP_NET_RAW, or else UDP sockets: see
/// [`Backend`]. All objects made from it
/// share one engine, unless it has several [shards](DeviceConfig::shards). Opening the same
/// interface again in the same process gives another context of the same engine, with asynchronous
/// events of its own; a clone is the same context. The engine ends with the last object made from
/// any of them.
///
/// Dropping a `Device` ends nothing while such objects exist: queue pairs answer their peers, and
/// regions may be read and written by them, until they are dropped themselves or until
/// [`shut_down`](Self::shut_down).
///
/// # Delayed ACKs and the end of the process
///
/// The ACK of a message that the application has seen completed may leave later: it is delayed for
/// up to 120 µs while the program polls, and for up to 5 ms after it has stopped polling. It leaves
/// whatever the program calls next or omits: modifying or dropping the queue pair, dropping the
/// device, `exit` and the return from `main` included. An end that runs no code of this library
/// (SIGKILL and other signals that end the process, `_exit`, `execve`, a crash) loses an ACK that is
/// delayed at that moment; the peer's request then ends with
/// [`CompletionStatus::RetryExceeded`](crate::CompletionStatus::RetryExceeded). A program that ends
/// like this and must not lose the last ACK drops the queue pair first.
///
/// `exit` and the return from `main` end the device's thread as well: functions of `atexit` that were
/// registered before the device was opened may free memory that a peer writes into. After that only
/// calls of the program receive and send.
///
/// # Opening often
///
/// A process that opens a device after it has closed one keeps the packet sockets of those that it closes from then
/// on: at most four with some 9 MiB each, which receive nothing. They serve the next device that is opened on the
/// interface, which takes a millisecond; with new sockets it takes some 25, and their close 50 more. UDP port 4791 is
/// free as soon as the device is closed.
///
/// # fork
///
/// A child after `fork` cannot use its parent's objects: their methods return
/// [`Error::Forked`], and dropping them does nothing. It may open devices of its own, whatever the
/// parent's threads were doing when it was made.
///
/// ```no_run
/// # use roce_verbs::{Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// for row in device.gid_table()? {
///     println!("{:3}  {}  {}", row.index, row.gid, row.kind);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    driver: Arc<Driver>,
    /// The queue of asynchronous events of this context.
    events: Arc<EventQueue>,
}

/// The key of an engine in this process: network namespace and interface.
pub(crate) type EngineKey = (Option<u64>, u32);

/// A reference to a context of a device that does not keep it.
#[derive(Debug)]
pub(crate) struct WeakDevice {
    driver: Weak<Driver>,
    events: Weak<EventQueue>,
}

impl WeakDevice {
    pub(crate) fn upgrade(&self) -> Option<Device> {
        Some(Device { driver: self.driver.upgrade()?, events: self.events.upgrade()? })
    }
}

/// The devices open in this process. A child after `fork` has opened none.
static OPEN_DEVICES: PerProcess<Mutex<HashMap<EngineKey, Weak<Driver>>>> = PerProcess::new();

impl Device {
    /// Lists the interfaces of this network namespace that can carry RoCE: Ethernet, with a MAC.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel cannot be queried.
    pub fn list() -> Result<Vec<DeviceInfo>, Error> {
        let ethernet = |interface: &InterfaceInfo| {
            interface.mac.is_some() && !interface.flags.loopback && !interface.flags.point_to_point
        };
        Ok(interfaces()?.into_iter().filter(ethernet).map(DeviceInfo::of).collect())
    }

    /// Opens an interface of this thread's network namespace by its name.
    ///
    /// # Errors
    /// [`Error::Open`] when it does not exist, is down, or its [`Backend`] cannot be used;
    /// [`Error::Port`] when another stack or program holds UDP port 4791;
    /// [`Error::OpenedDifferently`] when it is open with another configuration;
    /// [`Error::ThreadPlacement`] when its thread may not run where the configuration says;
    /// [`Error::Shards`] for a number of shards that no device has.
    pub fn open(interface: &str, config: DeviceConfig) -> Result<Self, Error> {
        Self::open_for(interface, config, Purpose::Traffic)
    }

    /// As [`open`](Self::open), for a certain purpose, unless the interface is open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_for(
        interface: &str,
        config: DeviceConfig,
        purpose: Purpose,
    ) -> Result<Self, Error> {
        if !(1..=MAX_SHARDS).contains(&config.shards) {
            return Err(Error::Shards { requested: config.shards, max: MAX_SHARDS });
        }
        let faults = config.faults.as_ref();
        let verb_faults = faults.and_then(|it| VerbFaults::of(it, config.faults_of_process));
        verb_faults.as_ref().map_or(Ok(()), VerbFaults::check_open)?;
        let namespace = network_namespace::current();
        // A handler that calls `exit` finds the device among those that `exit` ends, or not begun.
        let _section = SignalsBlocked::new();
        let mut open = OPEN_DEVICES.get().lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, device| device.strong_count() > 0);
        let name = interface_index(interface)?.map(|index| (namespace, index));
        let driver = name.and_then(|name| open.get(&name)?.upgrade());
        if let Some(driver) = driver.filter(|driver| !driver.is_lost()) {
            if driver.device().config != config {
                return Err(Error::OpenedDifferently { interface: interface.to_owned() });
            }
            drop(open);
            return Self::context_of(driver);
        }
        let driver = Arc::new(open_driver(interface, config, verb_faults, purpose)?);
        driver.allow_end();
        exit::run_at_exit(stop_at_exit);
        if let Some(name) = name {
            open.insert(name, Arc::downgrade(&driver));
        }
        drop(open);
        Self::context_of(driver)
    }

    /// Returns the key of an interface's engine; `None` if there is no such interface.
    pub(crate) fn key_of(interface: &str) -> Result<Option<EngineKey>, Error> {
        Ok(interface_index(interface)?.map(|index| (network_namespace::current(), index)))
    }

    /// Returns a context of a device, whatever its configuration is; `None` if this process has not
    /// opened it.
    pub(crate) fn opened(key: EngineKey) -> Result<Option<Self>, Error> {
        let driver = {
            let _section = SignalsBlocked::new();
            let open = OPEN_DEVICES.get().lock().unwrap_or_else(PoisonError::into_inner);
            open.get(&key).and_then(Weak::upgrade)
        };
        driver.map(Self::context_of).transpose()
    }

    /// Returns a reference to this context that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice { driver: Arc::downgrade(&self.driver), events: Arc::downgrade(&self.events) }
    }

    /// Makes a context of a device that is open.
    pub(crate) fn context_of(driver: Arc<Driver>) -> Result<Self, Error> {
        let events = Arc::new(EventQueue::new()?);
        driver.engine()?.consumer_mut().events.add_context(&events);
        Ok(Self { driver, events })
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Returns a number that no other object of this device has.
    fn next_handle(&self) -> u32 {
        self.driver.device().next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true in a child after `fork` of the process that opened the device, whose methods
    /// there return [`Error::Forked`]. Costs one load.
    pub fn is_inherited(&self) -> bool {
        self.driver().check_alive().is_err()
    }

    /// Returns the interface's name.
    pub fn interface(&self) -> &str {
        self.driver().port().name()
    }

    /// Returns how the device sends and receives packets: never [`Backend::Auto`].
    pub fn backend(&self) -> Backend {
        self.driver().device().backend
    }

    /// Returns why the device has another back end than [`DeviceConfig::backend`] names, in a line; `None` if
    /// it has that one, or if [`Backend::Auto`] left the choice to the device.
    pub fn backend_refusal(&self) -> Option<&str> {
        self.driver().device().backend_refusal.as_deref()
    }

    /// Returns the present attributes of the port.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn port(&self) -> Result<PortAttributes, Error> {
        let rows = self.driver().engine()?.gids().rows().len();
        Ok(self.driver().port().attributes(rows))
    }

    /// Returns the present GID table.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn gid_table(&self) -> Result<Vec<GidEntry>, Error> {
        Ok(self.driver().engine()?.gids().rows().to_vec())
    }

    /// Returns the row that is used by default: the first IPv4 address, else the
    /// first IPv6 address. `None` when the interface has no address.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn default_gid_index(&self) -> Result<Option<u8>, Error> {
        Ok(self.driver().engine()?.gids().default_index())
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        self.driver().check_verb(VerbMoment::AllocPd)?;
        let (driver, events) = (Arc::clone(self.driver()), Arc::clone(&self.events));
        Ok(ProtectionDomain::new(driver, events, PdHandle(self.next_handle())))
    }

    /// Makes a completion queue for `capacity` completions that reports on `channel`.
    ///
    /// # Errors
    /// [`Error::QueueCapacity`] beyond 1 ..= 2^22; [`Error::OutOfMemory`]; [`Error::Forked`].
    pub fn create_cq(
        &self,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, Error> {
        if capacity == 0 || capacity > MAX_CQE {
            return Err(Error::QueueCapacity { requested: capacity, max: MAX_CQE });
        }
        self.driver().check_verb(VerbMoment::CreateCq)?;
        let handle = CqHandle(self.next_handle());
        let (driver, events) = (Arc::clone(self.driver()), Arc::clone(&self.events));
        let queue =
            CompletionQueue::new(driver, events, handle, capacity, channel.map(|it| it.shared()))?;
        let home = self.driver().shard(queue.inner().shards.home());
        home.engine()?.consumer_mut().add_queue(handle, queue.inner());
        Ok(queue)
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no descriptor left; [`Error::Forked`].
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, Error> {
        self.driver().check_verb(VerbMoment::CreateCompChannel)?;
        CompletionChannel::new(Arc::clone(self.driver()))
    }

    /// Resolves the path to a peer: the route and the neighbour that the kernel would use for a UDP
    /// socket bound to the row's address. The path follows the kernel when they change.
    ///
    /// Where the kernel does not know the neighbour yet, this waits until it has resolved it or
    /// reported it as failed: by default three seconds, at most four. Neither data nor other
    /// resolutions wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Route`], [`Error::NoSuchGid`], [`Error::FamiliesDiffer`]; [`Error::Modify`] for a
    /// static rate of 0.
    pub fn resolve(&self, vector: &AddressVector) -> Result<Path, Error> {
        resolve(self.driver(), vector)
    }

    /// Returns the next asynchronous event of this context, if there is one: of an object made from
    /// it, or of the port. Each context gets every event of the port.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.run_round();
        self.fetch_event()
    }

    /// Runs one round of each shard, unless another thread does, and yields the processor as an empty
    /// poll of a completion queue does.
    pub fn run_round(&self) {
        self.driver().run_rounds();
    }

    /// Notes that the calling thread is about to sleep on the descriptor of events, after
    /// [`run_round`](Self::run_round): the device's threads do not wait for its next round.
    pub fn leave_to_threads(&self) {
        self.driver().leave_to_threads();
    }

    /// As [`poll_event`](Self::poll_event), without a round of the engine: for callers that hold a
    /// lock of their own.
    pub fn fetch_event(&self) -> Option<AsyncEvent> {
        self.events.take()
    }

    /// Returns what a thread sleeps on, beside the descriptor of a channel or of events, that waits
    /// without driving the device. When the sleep is over, the caller looks for its event and calls
    /// this again.
    ///
    /// While the process runs, the device's thread drives, and its end wakes the sleeper. That
    /// thread ends when `exit` begins; from then on this call runs a round of the engine in its
    /// place, and the descriptors are those of the interfaces.
    pub fn prepare_sleep(&self) -> SleepSet<'_> {
        self.driver().prepare_sleep()
    }

    /// Notes that the program has read bytes of [`event_fd`](Self::event_fd) itself, as a sleep by read(2)
    /// does. It stays readable while events wait.
    pub fn note_event_read(&self) {
        self.events.on_read();
    }

    /// Returns a descriptor that is readable while asynchronous events of this context wait. Its
    /// file description may be set to be non-blocking or not.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Returns all counters by name: those of the transport under rxe's names, then drops outside it,
    /// then those of the interface.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        self.driver().counters()
    }

    /// Returns one counter; 0 if none has this name.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn counter(&self, name: &str) -> Result<u64, Error> {
        Ok(self.counters()?.iter().filter(|(known, _)| *known == name).map(|(_, n)| n).sum())
    }

    /// Returns the present congestion control. Its line rate is that of the link.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn congestion(&self) -> Result<CongestionConfig, Error> {
        Ok(*self.driver().engine()?.endpoint().congestion())
    }

    /// Changes congestion control for all contexts of the device. The line rate remains. A sender
    /// that is limited now stays under its present control until that limits it no more; one under
    /// [`Swift`](crate::CongestionAlgorithm::Swift) does until its queue pair is reset.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn set_congestion(&self, config: CongestionConfig) -> Result<(), Error> {
        self.driver().set_congestion(config)
    }

    /// Ends all queue pairs of this context, at once and without a word to their peers: no packet to
    /// them is answered, so no peer reaches memory of the context's protection domains any more.
    /// Objects may be dropped later, in any order. Completions that wait can be polled; further ones
    /// do not come. Queue pairs refuse requests and changes, and no new ones are made. Other contexts
    /// of the interface, and their objects, are not touched.
    ///
    /// For libraries whose users close a context with objects, which ends these in the kernel.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn shut_down(&self) -> Result<(), Error> {
        self.driver().check_alive()?;
        // A queue pair that is made now is in none of the shards below, or is refused.
        self.events.shut_down();
        self.driver().open_shards().try_for_each(|shard| {
            shard.end(|engine| {
                for qpn in engine.consumer().events.queue_pairs_of(&self.events) {
                    // Its number stays allocated until the queue pair is dropped.
                    engine.endpoint_mut().destroy_qp(qpn);
                }
            })
        })
    }

    /// Counts a call about this device that another interface than this crate's makes, as one that scripted faults may
    /// meet: the calls of this crate that make objects count themselves.
    ///
    /// # Errors
    /// [`Error::Injected`], if the call is to fail; [`Error::Forked`].
    pub fn meet_faults_of(&self, verb: VerbMoment) -> Result<(), Error> {
        self.driver().check_verb(verb)
    }

    /// Returns what the device lacks, as scripted faults say. Its calls of this crate know no such limits: the
    /// interface that names them to a program holds them.
    pub fn limits(&self) -> DeviceLimits {
        let faults = self.driver().device().verb_faults.as_ref();
        faults.map_or_else(DeviceLimits::default, VerbFaults::limits)
    }

    /// Returns what happened of the scripted faults: of each rule the first sixteen events, then those
    /// whose number is a power of two.
    pub fn fault_events(&self) -> Vec<FaultEvent> {
        let device = self.driver.device();
        let of_packets = device.script.as_ref().map_or_else(Vec::new, FaultScript::events);
        let of_verbs = device.verb_faults.as_ref().map_or_else(Vec::new, VerbFaults::events);
        [of_packets, of_verbs].concat()
    }

    /// Flushes the capture file, if there is one.
    ///
    /// # Errors
    /// [`Error::System`]: the first error of any write to the file.
    pub fn flush_capture(&self) -> Result<(), Error> {
        Ok(self.driver.device().capture.as_ref().map_or(Ok(()), CaptureFile::flush)?)
    }
}

/// Ends all devices of this process, for its end. Closes none.
///
/// A signal handler may call `exit` while the code that it has interrupted holds the lock of the allocator, or any of
/// this library: this thread allocates nothing, and waits for what others do no longer than the limit.
fn stop_all(limit: Duration) {
    let Some(open) = OPEN_DEVICES.existing() else { return };
    let deadline = Instant::now() + limit;
    let open = loop {
        match open.try_lock() {
            Ok(open) => break open,
            Err(TryLockError::Poisoned(open)) => break open.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    };
    // Another thread may drop all other references meanwhile: the process closes the device.
    let drivers = || open.values().filter_map(Weak::upgrade).map(ManuallyDrop::new);
    drivers().for_each(|driver| driver.begin_end(deadline));
    while Instant::now() < deadline + MAX_EXIT_WAIT && drivers().any(|driver| !driver.has_ended()) {
        std::thread::sleep(LOOK_INTERVAL);
    }
    // The thread that ends a device may wait for a lock of the call that the handler has interrupted.
    let late = || drivers().filter(|driver| !driver.has_ended());
    late().for_each(|driver| driver.end_threads(Instant::now() + LAST_WAIT));
}

/// Time between two looks whether a device has ended.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// Time that the threads of a device have, at the end of the wait, to end a round.
const LAST_WAIT: Duration = Duration::from_millis(10);

/// Sends, at `exit` and at the return from `main`, the ACKs of messages that the application has
/// seen and the requests that it has posted, and ends connections that connection management has
/// made, as the kernel does for a process that ends. A device that the program has leaked, or keeps
/// in a static, is never dropped.
///
/// Then it ends the devices' threads: handlers and destructors that run later may free memory that a
/// peer still writes into. Only their own calls run rounds, those that wait for events included: a
/// thread that sleeps in one is woken, and drives the device from then on.
extern "C" fn stop_at_exit() {
    if !exit::begin() {
        return;
    }
    // A panic must not abort a process that exits. The runtime prints it.
    let _outcome = std::panic::catch_unwind(|| stop_all(MAX_EXIT_WAIT));
}
