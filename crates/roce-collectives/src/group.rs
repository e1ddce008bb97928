//! Groups of ranks.

mod failure;
mod operations;

use std::sync::Arc;
use std::time::Duration;

use roce_ring::{Geometry, Side};

use crate::message::Message;
use roce_verbs::{MemoryRegion, ProtectionDomain};

use crate::bootstrap::BootstrapClient;
use crate::bootstrap::BootstrapServer;
use crate::bootstrap::LanePeer;
use crate::bootstrap::hello;
use crate::buffer::{Buffer, RegisteredBytes};
use crate::config::{GroupConfig, MAX_TIMEOUT};
use crate::driver::Driver;
use crate::error::Error;
use crate::report::Report;
use crate::ring::Ring;
use crate::steps::{Clock, StepRecord, StepRecorder};
use crate::timeline::{TimelineEvent, TimelineRecorder};
use failure::abort;

/// One rank of a group that computes together.
///
/// All ranks call the same operations in the same order; each call returns when this rank's part is
/// done. If a rank fails, the others get an error that names the rank, for a killed process within
/// two seconds. The group has ended then, and is dropped. [`leave`](Self::leave) ends a group with
/// success; dropping it earlier counts as a failure.
///
/// ```no_run
/// use roce_collectives::{DataType, Group, GroupConfig, ReduceOp};
///
/// # fn main() -> Result<(), roce_collectives::Error> {
/// // On each host, with its own rank:
/// let mut group = Group::join(GroupConfig::new(0, 3, "10.0.0.1:29500"))?;
/// let buffer = group.buffer(4)?;
/// buffer.write(0, &(group.rank() as f32 + 1.0).to_le_bytes())?;
/// group.all_reduce(&buffer, &buffer, 1, DataType::F32, ReduceOp::Sum)?;
/// let mut sum = [0; 4];
/// buffer.read(0, &mut sum)?;
/// assert_eq!(f32::from_le_bytes(sum), 6.0);
/// group.leave()
/// # }
/// ```
#[derive(Debug)]
pub struct Group {
    geometry: Geometry,
    registered: Arc<RegisteredBytes>,
    interfaces: Vec<String>,
    // Drop order: queue pairs first; rank 0's server waits for the end of its own connection.
    driver: Driver,
    bootstrap: BootstrapClient,
    server: Option<BootstrapServer>,
    /// The reason why the group ended.
    ended: Option<String>,
}

impl Group {
    /// Joins the group; returns when all ranks are connected.
    ///
    /// # Errors
    /// [`Error::Refused`] if configurations differ or ranks are missing after the timeout;
    /// [`Error::Listen`], [`Error::NoRoot`]; [`Error::Verbs`] if the interfaces cannot be used;
    /// [`Error::RankFailed`] if another rank could not connect.
    pub fn join(config: GroupConfig) -> Result<Self, Error> {
        Self::join_with(config, None)
    }

    /// As [`join`](Self::join), for rank 0 with a server that it has started: the server's address,
    /// with a port that was free, can be told to the other ranks before this call waits for them.
    ///
    /// ```
    /// use roce_collectives::{BootstrapServer, Group, GroupConfig};
    ///
    /// let config = GroupConfig::new(0, 1, "127.0.0.1:0");
    /// let server = BootstrapServer::start(&config.root, config.size, config.timeout)?;
    /// println!("the others join at {}", server.address());
    /// Group::join_with(config, Some(server))?.leave()?;
    /// # Ok::<(), roce_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`join`](Self::join); [`Error::Config`] for a server on another rank than 0.
    pub fn join_with(config: GroupConfig, server: Option<BootstrapServer>) -> Result<Self, Error> {
        if server.is_some() && config.rank != 0 {
            let rank = config.rank;
            return Err(Error::Config(format!("rank {rank} has a server, which rank 0 alone has")));
        }
        let geometry = config.geometry()?;
        if config.qps_per_connection == 0 {
            return Err(Error::Config("there must be 1 or more queue pairs per connection".into()));
        }
        let hello = hello::message(&config);
        hello.encode()?;
        // Mistakes of this host are told before any other rank is waited for.
        let several = config.size > 1;
        let opened = several.then(|| Self::open(&config, &geometry)).transpose();
        let server = match server {
            None if config.rank == 0 && opened.is_ok() => {
                Some(BootstrapServer::start(&config.root, config.size, config.timeout)?)
            }
            server => server,
        };
        let root =
            server.as_ref().map_or(config.root.clone(), |server| server.address().to_string());
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                if let Some(mut bootstrap) = BootstrapClient::connect_once(&root, &config) {
                    // The others may have gone; what this rank's program is told stays the same.
                    let _said = bootstrap.send(&hello);
                    let _said = bootstrap.send(&abort(config.rank, &error));
                }
                // The program is told at once, and others while it goes on.
                server.into_iter().for_each(BootstrapServer::abandon);
                return Err(error);
            }
        };
        let mut bootstrap = match Self::gather(&root, &config, &hello) {
            Ok(bootstrap) => bootstrap,
            Err(error) => {
                if let (Error::Interrupted, Some(server)) = (&error, server) {
                    server.abandon();
                }
                return Err(error);
            }
        };
        let clock = Clock::new(config.device.trace.as_ref());
        let registered = Arc::default();
        let connect = || -> Result<(Option<Ring>, Buffer), Error> {
            let ring = opened
                .map(|opened| Self::connect(opened, &config, &geometry, &mut bootstrap))
                .transpose()?;
            let scratch =
                Buffer::new(&registered, &domains(ring.as_ref()), geometry.scratch_bytes())?;
            bootstrap.send(&Message::new("READY"))?;
            bootstrap.expect(&["GO"], config.timeout)?;
            Ok((ring, scratch))
        };
        let (ring, scratch) = match connect() {
            Ok(connected) => connected,
            Err(error) => {
                // The server does not know errors of this rank yet.
                if !matches!(error, Error::RankFailed { .. } | Error::Refused { .. }) {
                    let _said = bootstrap.send(&abort(config.rank, &error));
                }
                return Err(error);
            }
        };
        let of_ring = |ring: &Ring| {
            ring.rails.iter().map(|rail| rail.device.interface().to_owned()).collect()
        };
        let interfaces = ring.as_ref().map(of_ring).unwrap_or_default();
        let steps = StepRecorder::new(config.steps);
        let timeline = TimelineRecorder::new(config.device.trace.clone());
        let driver = Driver::new(geometry, ring, scratch, steps, clock, timeline, &config);
        Ok(Self { geometry, registered, interfaces, driver, bootstrap, server, ended: None })
    }

    /// Opens the interfaces, and describes the lanes for the neighbours.
    fn open(config: &GroupConfig, geometry: &Geometry) -> Result<(Ring, Vec<Message>), Error> {
        let ring = Ring::open(config, geometry)?;
        if let Some(interface) = ring.interface_down() {
            let interface = interface.to_owned();
            return Err(Error::InterfaceDown { rank: config.rank, interface });
        }
        let offers = (0..geometry.lanes()).map(|lane| Ok(ring.offer(lane, config)?.to_message()));
        let offers = offers.collect::<Result<_, Error>>()?;
        Ok((ring, offers))
    }

    /// Waits until all ranks have come.
    fn gather(root: &str, config: &GroupConfig, hello: &Message) -> Result<BootstrapClient, Error> {
        let mut bootstrap = BootstrapClient::connect(root, config)?;
        bootstrap.send(hello)?;
        let welcome = bootstrap.expect(&["WELCOME"], config.timeout)?;
        bootstrap.handle_welcome(&welcome);
        Ok(bootstrap)
    }

    fn connect(
        (mut ring, offers): (Ring, Vec<Message>),
        config: &GroupConfig,
        geometry: &Geometry,
        bootstrap: &mut BootstrapClient,
    ) -> Result<Ring, Error> {
        for offer in &offers {
            bootstrap.send(offer)?;
        }
        for _ in 0..2 * geometry.lanes() {
            let message = bootstrap.expect(&["NEXT", "PREV"], config.timeout)?;
            let side = if message.word() == "NEXT" { Side::Next } else { Side::Previous };
            ring.connect(side, &LanePeer::from_message(&message)?, config)?;
        }
        Ok(ring)
    }

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.geometry.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.geometry.size()
    }

    /// Returns the geometry of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the interfaces in use; none in a group of one.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// Returns the devices in the order of the interfaces.
    pub fn devices(&self) -> impl Iterator<Item = &roce_verbs::Device> {
        self.driver.ring.iter().flat_map(|ring| ring.rails.iter().map(|rail| &rail.device))
    }

    /// Allocates a buffer of `len` zeroed bytes for operations of this group.
    ///
    /// # Errors
    /// [`Error::Verbs`] if there is not enough memory.
    pub fn buffer(&self, len: u64) -> Result<Buffer, Error> {
        Buffer::new(&self.registered, &domains(self.driver.ring.as_ref()), len)
    }

    /// Returns the protection domains of the interfaces, in their order; none in a group of one.
    pub fn protection_domains(&self) -> Vec<&ProtectionDomain> {
        domains(self.driver.ring.as_ref())
    }

    /// Returns a buffer over memory of the caller, which the caller has registered with each of the
    /// [`protection_domains`](Self::protection_domains). The output of an operation needs
    /// [`LOCAL_WRITE`](roce_verbs::AccessFlags::LOCAL_WRITE) and
    /// [`REMOTE_WRITE`](roce_verbs::AccessFlags::REMOTE_WRITE); an input needs no rights.
    ///
    /// # Errors
    /// [`Error::Config`] unless there is a region for each domain, all of one length.
    pub fn buffer_over(&self, regions: Vec<MemoryRegion>) -> Result<Buffer, Error> {
        Buffer::over(&self.registered, self.interfaces.len(), regions)
    }

    /// Returns the bytes of registered memory: the live buffers and a fixed amount, which
    /// is `lanes · (slots · (slot_bytes + small_message_max) + 24)` of staging for both neighbours
    /// together, `lanes · slots` copies of short messages to each of them (up to 16 KiB and never
    /// more than a slot holds), and [`Geometry::scratch_bytes`] for intermediate results.
    pub fn registered_bytes(&self) -> u64 {
        // The scratch memory counts as a buffer.
        self.driver.ring.as_ref().map_or(0, Ring::registered_bytes) + self.registered.bytes()
    }

    /// Sends a report to rank 0's program: a kind and fields.
    ///
    /// # Errors
    /// [`Error::Message`] for an invalid report; [`Error::RankFailed`] if the group has ended.
    pub fn report(&mut self, kind: &str, fields: &[(&str, String)]) -> Result<(), Error> {
        let message = Message::new("REPORT").with("kind", kind);
        let message = fields.iter().fold(message, |message, (key, value)| message.with(key, value));
        self.bootstrap.send(&message)
    }

    /// Returns all received reports; none except on rank 0.
    pub fn reports(&self) -> Vec<Report> {
        self.server.as_ref().map(BootstrapServer::reports).unwrap_or_default()
    }

    /// Waits up to `timeout` for the next report of any rank; `None` except on rank 0.
    ///
    /// # Errors
    /// [`Error::RankFailed`] if a rank fails.
    pub fn next_report(&mut self, timeout: Duration) -> Result<Option<Report>, Error> {
        let Some(server) = &self.server else { return Ok(None) };
        let deadline = std::time::Instant::now() + timeout.min(MAX_TIMEOUT);
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if let Some(report) = server.next_report(left.min(Duration::from_millis(50))) {
                return Ok(Some(report));
            }
            self.bootstrap.check()?;
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Takes the step records kept so far, oldest first: see [`GroupConfig::steps`].
    pub fn steps(&mut self) -> Vec<StepRecord> {
        self.driver.steps.take()
    }

    /// Takes the events so far, oldest first: those of the devices' trace, combined with those of
    /// this group. Empty without a
    /// [`trace`](roce_verbs::DeviceConfig::trace).
    pub fn timeline(&mut self) -> Vec<TimelineEvent> {
        self.driver.timeline.take()
    }

    /// Leaves the group; returns when all ranks have called it. Ranks in an operation that this one has not
    /// called get [`Error::Left`] at once, and this one [`Error::RankFailed`].
    ///
    /// # Errors
    /// [`Error::RankFailed`] if a rank fails instead, or does not leave within
    /// [`GroupConfig::operation_timeout`]; [`Error::Ended`].
    pub fn leave(mut self) -> Result<(), Error> {
        if let Some(why) = self.ended.take() {
            return Err(Error::Ended(why));
        }
        self.ended = Some("it was left".into());
        self.bootstrap.leave(self.driver.machine.started(), self.driver.timeout)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let error = Error::Config("its program dropped the group without leave()".into());
            let _said = self.bootstrap.send(&abort(self.rank(), &error));
        }
    }
}

fn domains(ring: Option<&Ring>) -> Vec<&ProtectionDomain> {
    ring.map(|ring| ring.rails.iter().map(|rail| &rail.pd).collect()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a group of one.
    pub(super) fn alone() -> Group {
        Group::join(GroupConfig::new(0, 1, "127.0.0.1:0")).unwrap()
    }

    #[test]
    fn reports_reach_rank_0_in_order() {
        let mut group = alone();
        for size in ["8", "16"] {
            group.report("time", &[("size", size.to_owned())]).unwrap();
        }
        for size in ["8", "16"] {
            let report = group.next_report(Duration::from_secs(10)).unwrap().unwrap();
            assert_eq!((report.kind.as_str(), report.value("size")), ("time", Some(size)));
        }
        assert_eq!(group.next_report(Duration::ZERO).unwrap(), None);
        assert!(group.report("time", &[("a b", String::new())]).is_err(), "no such key");
        group.leave().unwrap();
    }
}
