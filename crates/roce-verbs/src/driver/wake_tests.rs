//! Whatever reaches the engine of a shard leaves the driver thread awake in time for it.
//!
//! The device has no driver thread: each entry finds its sleep begun, and a timer that was due long ago. An
//! entry that may make the engine send must end the sleep, and one that cannot must not.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_cm::{DatagramAddresses, StrayDatagram};
use roce_engine::{EngineParts, ManagementDestination, PathEntry, Registration};
use roce_io::{DeviceCapabilities, Filter, FrameDevice, RxFrame, TxFrame, interfaces};
use roce_transport::congestion::CongestionConfig;
use roce_transport::{Endpoint, EndpointConfig, Instant, SrqAttributes};
use roce_wire::OuterHeaders;
use roce_wire::management::{CmDatagram, CmMessage, PortSpace, Req, ServiceId};

use super::Driver;
use super::driven_engine::entries_of_tests;
use crate::backend::Backend;
use crate::connect::ConnectOptions;
use crate::device::Device;
use crate::device_config::DeviceConfig;
use crate::device_state::DeviceState;
use crate::engine::{Engine, Objects};
use crate::port::{Port, gids_of};
use crate::trace::TraceObserver;
use crate::{AccessFlags, CompletionQueue, ProtectionDomain, WindowType};

/// An interface that takes all frames and has none, with a timer that is always due.
#[derive(Debug)]
struct Interface(std::time::Instant);

impl FrameDevice for Interface {
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { max_frame_len: 2048, mtu: 1500, max_train_packets: 1 }
    }
    fn receive(&mut self, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let mut slot = [0; 2048];
        Ok(std::iter::from_fn(|| fill(&mut slot)).count())
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
    fn wake_at(&self) -> Option<std::time::Instant> {
        Some(self.0)
    }
}

/// An interface whose descriptor becomes another one with the next change of its filter, which it refuses if there is
/// none.
#[derive(Debug)]
struct Growing {
    interface: Interface,
    fd: EventFd,
    next: Option<EventFd>,
}

impl Growing {
    fn new(next: Option<EventFd>) -> Box<Self> {
        let (interface, fd) = (Interface(std::time::Instant::now()), EventFd::new().unwrap());
        Box::new(Self { interface, fd, next })
    }
}

impl FrameDevice for Growing {
    fn capabilities(&self) -> DeviceCapabilities {
        self.interface.capabilities()
    }
    fn receive(&mut self, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        self.interface.transmit(fill)
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.fd.as_fd()]
    }
    fn set_filter(&mut self, _: &Filter) -> io::Result<()> {
        self.fd = self.next.take().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(())
    }
}

fn engine(shard: usize) -> Engine {
    engine_of(shard, Box::new(Interface(std::time::Instant::now())), None)
}

fn engine_of(shard: usize, wire: Box<dyn FrameDevice>, lo: Option<Box<dyn FrameDevice>>) -> Engine {
    let found = loopback();
    Engine::new(EngineParts {
        endpoint: Endpoint::with_observer(EndpointConfig::default(), TraceObserver::new(None)),
        wire,
        lo,
        loopback: None,
        gids: gids_of(&found),
        consumer: Objects::of_shard(shard).unwrap(),
        source_ports: Vec::new(),
    })
}

fn loopback() -> roce_io::InterfaceInfo {
    interfaces().unwrap().into_iter().find(|it| it.flags.loopback).expect("a loopback")
}

/// A device without driver threads.
struct Sleeping(Device);

impl Sleeping {
    fn new() -> Self {
        Self::with(engine(0))
    }

    fn with(first: Engine) -> Self {
        let device = DeviceState {
            config: DeviceConfig {
                shards: 2,
                counters_each_round: true,
                ..DeviceConfig::default()
            },
            capture: None,
            script: None,
            verb_faults: None,
            next_handle: AtomicU32::new(1),
            observer: TraceObserver::new(None),
            backend: Backend::AfPacket,
            backend_refusal: None,
            port_holder: None,
        };
        let opener = Box::new(|shard| Ok(engine(shard)));
        let driver =
            Driver::without_threads(first, Port::of(&loopback(), None), device, 2, opener).unwrap();
        let this = Self(Device::context_of(Arc::new(driver)).unwrap());
        // The monitor thread asks the kernel about the interface before its first answer.
        this.driver().resolve(Self::path()).unwrap();
        this
    }

    fn path() -> PathEntry {
        let here = IpAddr::from([127, 0, 0, 1]);
        PathEntry::new(OuterHeaders::new(here, here)).unwrap()
    }

    fn driver(&self) -> &Arc<Driver> {
        self.0.driver()
    }

    /// Returns true if `entry` ends the sleep of the first shard's driver thread.
    fn is_woken_by(&self, entry: impl FnOnce()) -> bool {
        let sleep = self.driver().first().sleep();
        sleep.begin(Instant::from_nanos(u64::MAX / 2), true);
        entry();
        !sleep.lasts_beyond(Instant::from_nanos(0))
    }

    #[track_caller]
    fn assert_wakes(&self, entry: impl FnOnce()) {
        assert!(self.is_woken_by(entry), "the driver thread sleeps on");
    }

    #[track_caller]
    fn assert_lets_sleep(&self, entry: impl FnOnce()) {
        assert!(!self.is_woken_by(entry), "the driver thread is woken for nothing");
    }

    /// As [`assert_wakes`](Self::assert_wakes), of what the monitor thread does some time after `entry`.
    #[track_caller]
    fn assert_wakes_later(&self, entry: impl FnOnce()) {
        let sleep = self.driver().first().sleep();
        let sleeps = || sleep.lasts_beyond(Instant::from_nanos(0));
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let is_woken = self.is_woken_by(|| {
            entry();
            while sleeps() && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(is_woken, "the driver thread sleeps on");
    }
}

fn destination() -> ManagementDestination {
    let (local, remote) = ([10, 99, 0, 1].into(), [10, 99, 0, 2].into());
    ManagementDestination { local, remote, traffic_class: 0 }
}

/// A request for a connection to a port without listener.
fn stray() -> StrayDatagram {
    let service_id = ServiceId::from_port(PortSpace(0xf101), 7);
    let message = CmMessage::Req(Req { service_id, ..Req::default() });
    let datagram = Box::new(CmDatagram { transaction: 1, message }.encode());
    let ManagementDestination { local, remote, .. } = destination();
    StrayDatagram { addresses: DatagramAddresses { local, remote }, datagram }
}

fn check_management(sleeping: &Sleeping) {
    let driver = sleeping.driver();
    sleeping.assert_wakes(|| driver.manage_connections().unwrap());
    sleeping.assert_wakes(|| driver.with_agent(|_, _, _| ()).unwrap().expect("an agent"));
    sleeping.assert_wakes(|| driver.shards.set_management_path(destination(), None));
    let queries = driver.monitor.queries();
    sleeping.assert_wakes_later(|| assert!(queries.decide(stray())));
    sleeping.assert_wakes(|| driver.end_connections(std::time::Instant::now()));
}

fn check_tables(sleeping: &Sleeping, pd: &ProtectionDomain) {
    let driver = sleeping.driver();
    let (mut region, mut window) = (None, None);
    sleeping.assert_lets_sleep(|| region = pd.register(64, AccessFlags::LOCAL_WRITE).ok());
    let region = region.unwrap();
    sleeping.assert_lets_sleep(|| {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
        let (pd, iova) = (pd.handle, region.address());
        let how = Registration { pd, access, iova, invalidatable: false, on_demand: false };
        driver.register_again(region.lkey(), region.mapping(), how).unwrap();
    });
    sleeping.assert_lets_sleep(|| assert!(region.is_valid() && region.bound_windows() == 0));
    sleeping.assert_lets_sleep(|| window = pd.alloc_window(WindowType::Type1).ok());
    sleeping.assert_lets_sleep(|| assert!(!window.as_ref().unwrap().is_bound()));
    sleeping.assert_lets_sleep(|| drop((region, window)));
    let mut null = 0;
    sleeping.assert_lets_sleep(|| null = driver.register_null(pd.handle).unwrap());
    sleeping.assert_lets_sleep(|| driver.deregister_null(null));
    sleeping.assert_lets_sleep(|| driver.paths().unwrap().set_next_hops(&Default::default()));
    // Packets of its users may still need a path that is released.
    let path = driver.resolve(Sleeping::path()).unwrap();
    sleeping.assert_lets_sleep(|| driver.paths().unwrap().retain(path));
    sleeping.assert_wakes(|| driver.release_path(path));
    sleeping.assert_wakes(|| driver.paths().unwrap().store_port(None, None));
    sleeping.assert_wakes(|| driver.set_congestion(CongestionConfig::default()).unwrap());
    sleeping.assert_lets_sleep(|| {
        let device = &sleeping.0;
        device.port().unwrap();
        device.gid_table().unwrap();
        device.default_gid_index().unwrap();
        device.congestion().unwrap();
        driver.counters().unwrap();
        driver.publish_each_round(driver.first());
        Device::context_of(Arc::clone(driver)).unwrap();
    });
}

fn check_queue_pairs(sleeping: &Sleeping, pd: &ProtectionDomain, cq: &CompletionQueue) {
    let driver = sleeping.driver();
    let (mut queue_pair, mut srq) = (None, None);
    driver.first().pretend_to_be_small();
    // That its descriptors are others now wakes the thread in any case, so this says nothing of the engine.
    sleeping.assert_wakes(|| driver.prepare_for_traffic(driver.first()));
    sleeping.assert_wakes(|| queue_pair = pd.queue_pair(cq, cq).build().ok());
    let queue_pair = queue_pair.unwrap();
    sleeping.assert_wakes(|| queue_pair.init(&ConnectOptions::default()).unwrap());
    sleeping.assert_lets_sleep(|| assert!(queue_pair.query().is_ok()));
    sleeping.assert_wakes(|| queue_pair.post_recv([]).unwrap());
    sleeping.assert_wakes(|| queue_pair.post_send([]).unwrap());
    // The second post of a run may be held.
    driver.first().held_posts().note_held(Instant::from_nanos(1), Duration::from_micros(100));
    sleeping.assert_wakes(|| driver.first().send_held_posts());
    sleeping.assert_wakes(|| {
        let datagrams = pd.queue_pair(cq, cq).service(crate::Service::Ud).build().unwrap();
        // The loopback may take no multicast, and the queue pair then leaves the group.
        let group = IpAddr::from([224, 0, 1, 99]);
        if datagrams.attach(group).is_ok() {
            datagrams.detach(group).unwrap();
        }
    });
    sleeping.assert_wakes(|| srq = pd.create_srq(4, 1).ok());
    let srq = srq.unwrap();
    sleeping.assert_wakes(|| srq.post_recv([]).unwrap());
    sleeping.assert_wakes(|| srq.modify(&SrqAttributes::default()).unwrap());
    sleeping.assert_wakes(|| drop(srq));
    sleeping.assert_wakes(|| drop(queue_pair));
    sleeping.assert_wakes(|| sleeping.0.shut_down().unwrap());
}

fn check_rounds(sleeping: &Sleeping, cq: &CompletionQueue) {
    let driver = sleeping.driver();
    sleeping.assert_wakes(|| driver.run_rounds());
    sleeping.assert_wakes(|| _ = driver.first().prepare_to_block());
    let now = std::time::Instant::now;
    sleeping.assert_wakes(|| driver.flush_held(now() + Duration::from_millis(100)));
    let (mask, file) = (cq.inner().shards.mask(), std::fs::File::open("/dev/null").unwrap());
    sleeping.assert_wakes(|| {
        let mut rounds = 0;
        let is_done = || {
            rounds += 1;
            rounds > 1
        };
        let fd = file.as_fd();
        driver.drive_until(mask, Some(now() + Duration::from_secs(1)), fd, is_done).unwrap();
    });
    driver.end_threads(now());
    sleeping.assert_wakes(|| _ = driver.prepare_sleep());
}

/// Files of the crate in which the engine is locked by threads that need no wake-up, and why.
const OTHERS: [(&str, &str); 3] = [
    ("driver/thread.rs", "the driver thread itself"),
    ("driver/driven_engine.rs", "the locks themselves"),
    ("driver/wake_tests.rs", "this"),
];

/// Returns the lines of the crate's files that lock the engine, except where the compiler refuses a change
/// of it since the guard is not mutable, and those that pass the lock on.
fn lines_that_lock(folder: &Path, into: &mut BTreeSet<(String, u32)>) {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            lines_that_lock(&path, into);
            continue;
        }
        let name = path.strip_prefix(&crate_folder).unwrap().to_str().unwrap().to_owned();
        if OTHERS.iter().any(|(file, _)| *file == name) {
            continue;
        }
        let locks = [".engine()", ".lock_engine()", ".lock_engine_now()", ".try_lock_engine()"];
        for (line, text) in (1..).zip(std::fs::read_to_string(&path).unwrap().lines()) {
            let text = text.trim();
            let is_fixed = text.starts_with("let engine =")
                || text.starts_with("if let Some(engine) =")
                || text.starts_with("let first =");
            let passes_on = ["Ok(self.lock_engine())", "self.first().engine()"].contains(&text)
                || text == "self.engine.lock_engine()";
            if locks.iter().any(|lock| text.contains(lock)) && !is_fixed && !passes_on {
                into.insert((name.clone(), line));
            }
        }
    }
}

#[test]
fn every_entry_to_the_engine_that_may_make_it_send_wakes_the_driver_thread_and_no_other_does() {
    let sleeping = Sleeping::new();
    let (mut pd, mut cq) = (None, None);
    sleeping.assert_lets_sleep(|| pd = sleeping.0.alloc_pd().ok());
    sleeping.assert_lets_sleep(|| cq = sleeping.0.create_cq(8, None).ok());
    let (pd, cq) = (pd.unwrap(), cq.unwrap());
    // The second queue opens the second shard.
    drop(sleeping.0.create_cq(8, None).unwrap());
    sleeping.assert_lets_sleep(|| cq.advise_moderation().unwrap());
    check_tables(&sleeping, &pd);
    check_management(&sleeping);
    check_queue_pairs(&sleeping, &pd, &cq);
    check_rounds(&sleeping, &cq);

    // That some test of this process has come by each place is all that this compares. What the thread does
    // there is asserted above.
    let mut expected = BTreeSet::new();
    lines_that_lock(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut expected);
    let seen: BTreeSet<_> = entries_of_tests()
        .into_iter()
        .map(|(file, line)| (file.split_once("src/").unwrap().1.to_owned(), line))
        .collect();
    let missed: Vec<_> = expected.difference(&seen).collect();
    assert!(missed.is_empty(), "no test locks the engine from {missed:?}");
    assert!(expected.len() > 30, "only {} lines lock the engine", expected.len());
}

#[test]
fn a_shard_of_which_only_one_socket_grows_sleeps_on_the_descriptors_of_now() {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let larger = EventFd::from_flags(flags).unwrap();
    let frames = larger.as_fd().try_clone_to_owned().unwrap();
    let (wire, lo) = (Growing::new(Some(larger)), Growing::new(None));
    let sleeping = Sleeping::with(engine_of(0, wire, Some(lo)));
    let first = sleeping.driver().first();
    first.pretend_to_be_small();
    sleeping.assert_wakes(|| sleeping.driver().prepare_for_traffic(first));
    assert!(!first.is_small(), "it is not tried again");
    let readable = || {
        let fds: Vec<_> = first.device_fds().iter().map(|fd| fd.as_fd()).collect();
        super::sleep::sleep(&fds, Some(Duration::ZERO)).unwrap()
    };
    assert_eq!(readable(), [false, false]);
    nix::unistd::write(&frames, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(readable(), [true, false], "frames at the socket that has grown end the sleep");
}
