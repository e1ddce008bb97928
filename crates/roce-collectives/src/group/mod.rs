//! Groups: what programs use.

mod failure;
mod operations;

use std::sync::Arc;
use std::time::Duration;

use roce_ring::{Geometry, Side};

use crate::bootstrap::Message;
use roce_verbs::ProtectionDomain;

use crate::bootstrap::BootstrapClient;
use crate::bootstrap::BootstrapServer;
use crate::bootstrap::LanePeer;
use crate::bootstrap::hello;
use crate::buffer::{Buffer, RegisteredBytes};
use crate::config::{GroupConfig, MAX_TIMEOUT};
use crate::driver::Driver;
use crate::error::Error;
use crate::rail::Ring;
use crate::report::Report;
use crate::steps::{Clock, StepRecord, StepRecorder};
use crate::timeline::{TimelineEvent, TimelineRecorder};
use failure::abort;

/// One rank of a group that computes together.
///
/// All ranks call the same operations in the same order; each call returns when this rank's
/// part is done. When a rank fails, all others get an error that names it, a killed one
/// within two seconds, and the group is ended: drop it. [`leave`](Self::leave) ends a group
/// well; dropping it before counts as failing.
///
/// Memory registered: the buffers, and a fixed amount besides, see
/// [`registered_bytes`](Self::registered_bytes).
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
    // The order counts: queue pairs go first, rank 0's hub waits for its control connection.
    driver: Driver,
    bootstrap: BootstrapClient,
    server: Option<BootstrapServer>,
    /// What ended it.
    ended: Option<String>,
}

impl Group {
    /// Joins the other ranks: returns when all have come and are connected.
    ///
    /// # Errors
    /// [`Error::Refused`] when the ranks do not fit together or some did not come in time;
    /// [`Error::Listen`], [`Error::NoRoot`]; [`Error::Verbs`] when the interfaces cannot be
    /// used; [`Error::RankFailed`] when another rank could not connect.
    pub fn join(config: GroupConfig) -> Result<Self, Error> {
        let geometry = config.geometry()?;
        if config.qps_per_connection == 0 {
            return Err(Error::Config("there must be 1 or more queue pairs per connection".into()));
        }
        let hello = hello::message(&config);
        hello.encode()?;
        let is_root = config.rank == 0;
        let server =
            is_root.then(|| BootstrapServer::start(&config.root, config.size, config.timeout));
        let server = server.transpose()?;
        let root =
            server.as_ref().map_or(config.root.clone(), |server| server.address().to_string());
        let mut bootstrap = BootstrapClient::connect(&root, config.timeout)?;
        bootstrap.send(&hello)?;
        bootstrap.expect(&["WELCOME"], config.timeout)?;
        let clock = Clock::new(config.device.trace.as_ref());
        let registered = Arc::default();
        let mut connect = || -> Result<(Option<Ring>, Buffer), Error> {
            let several = config.size > 1;
            let ring =
                several.then(|| Self::connect(&config, &geometry, &mut bootstrap)).transpose()?;
            let scratch =
                Buffer::new(&registered, &domains(ring.as_ref()), geometry.scratch_bytes())?;
            bootstrap.send(&Message::new("READY"))?;
            bootstrap.expect(&["GO"], config.timeout)?;
            Ok((ring, scratch))
        };
        let (ring, scratch) = match connect() {
            Ok(connected) => connected,
            Err(error) => {
                // When the hub has said it, it knows; otherwise nobody does.
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
        let driver = Driver::new(geometry, ring, scratch, steps, clock, timeline, config.spin);
        Ok(Self { geometry, registered, interfaces, driver, bootstrap, server, ended: None })
    }

    fn connect(
        config: &GroupConfig,
        geometry: &Geometry,
        bootstrap: &mut BootstrapClient,
    ) -> Result<Ring, Error> {
        let mut ring = Ring::open(config, geometry)?;
        for lane in 0..geometry.lanes() {
            bootstrap.send(&ring.offer(lane, config)?.to_message())?;
        }
        for _ in 0..2 * geometry.lanes() {
            let message = bootstrap.expect(&["NEXT", "PREV"], config.timeout)?;
            let side = if message.word() == "NEXT" { Side::Next } else { Side::Previous };
            ring.connect(side, &LanePeer::from_message(&message)?, config)?;
        }
        Ok(ring)
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.geometry.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.geometry.size()
    }

    /// The shape of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The interfaces in use; none in a group of one.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// The rails' devices, in the order of the interfaces: for their counters.
    pub fn devices(&self) -> impl Iterator<Item = &roce_verbs::Device> {
        self.driver.ring.iter().flat_map(|ring| ring.rails.iter().map(|rail| &rail.device))
    }

    /// Makes a buffer of `len` zeroed bytes for operations of this group.
    ///
    /// # Errors
    /// [`Error::Verbs`] when there is not so much memory.
    pub fn buffer(&self, len: u64) -> Result<Buffer, Error> {
        Buffer::new(&self.registered, &domains(self.driver.ring.as_ref()), len)
    }

    /// Bytes of registered memory: the buffers that live, and a fixed amount besides, which
    /// is `lanes · (slots · (slot_bytes + small_message_max) + 24)` of staging for both neighbours
    /// together, `lanes · slots` copies of short messages to each of them (up to 16 KiB and never
    /// more than a slot holds), and [`Geometry::scratch_bytes`] for intermediate results.
    pub fn registered_bytes(&self) -> u64 {
        // The scratch is one of the buffers of the ledger.
        self.driver.ring.as_ref().map_or(0, Ring::registered_bytes) + self.registered.bytes()
    }

    /// Tells rank 0's program something: a word, and fields.
    ///
    /// # Errors
    /// [`Error::Message`] for what cannot be said; [`Error::RankFailed`] when the group is ended.
    pub fn report(&mut self, kind: &str, fields: &[(&str, String)]) -> Result<(), Error> {
        let message = Message::new("REPORT").with("kind", kind);
        let message = fields.iter().fold(message, |message, (key, value)| message.with(key, value));
        self.bootstrap.send(&message)
    }

    /// On rank 0: all reports that have come since. Elsewhere none.
    pub fn reports(&self) -> Vec<Report> {
        self.server.as_ref().map(BootstrapServer::reports).unwrap_or_default()
    }

    /// On rank 0: the next report of any rank, waiting up to `timeout` for it.
    ///
    /// # Errors
    /// [`Error::RankFailed`] when a rank fails meanwhile.
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

    /// Takes what has happened so far, oldest first: the events of the devices' trace, with
    /// this group's own steps beside them. Empty without a
    /// [`trace`](roce_verbs::DeviceConfig::trace).
    pub fn timeline(&mut self) -> Vec<TimelineEvent> {
        self.driver.timeline.take()
    }

    /// Ends the group well: returns when all ranks have called it.
    ///
    /// # Errors
    /// [`Error::RankFailed`] when a rank fails instead; [`Error::Ended`].
    pub fn leave(mut self) -> Result<(), Error> {
        if let Some(why) = self.ended.take() {
            return Err(Error::Ended(why));
        }
        self.ended = Some("it was left".into());
        self.bootstrap.send(&Message::new("BYE"))?;
        self.bootstrap.wait_for("BYE")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let error = Error::Config("its program dropped the group without leaving it".into());
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

    /// A group of one.
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
