//! Groups: what programs use.

use std::sync::Arc;
use std::time::Duration;

use roce_ring::{Collective, DataType, Geometry, Line, Operation, ReduceOp, Side, Violation};
use roce_verbs::ProtectionDomain;

use crate::buffer::{Buffer, BufferSlice, Ledger};
use crate::config::GroupConfig;
use crate::control::Control;
use crate::driver::{Driver, Trouble};
use crate::error::{BufferError, Error};
use crate::hello;
use crate::hub::Hub;
use crate::lane_lines::LanePeer;
use crate::rail::Ring;
use crate::report::Report;
use crate::steps::{Clock, StepRecord, Steps};
use crate::timeline::{Log, Moment};

/// One rank of a group that computes together.
///
/// All ranks call the same operations in the same order; each call returns when this rank's
/// part is done. When a rank fails, all others get an error that names it, a killed one
/// within two seconds, and the group is over: drop it. [`leave`](Self::leave) ends a group
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
    ledger: Arc<Ledger>,
    interfaces: Vec<String>,
    // The order counts: queue pairs go first, rank 0's hub waits for its control connection.
    driver: Driver,
    control: Control,
    hub: Option<Hub>,
    /// What ended it.
    over: Option<String>,
}

/// How long a rank that found a fault waits to hear whether the hub knows better.
const VERDICT: Duration = Duration::from_millis(500);

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
        let hello = hello::of(&config);
        hello.encode()?;
        let is_root = config.rank == 0;
        let hub = is_root.then(|| Hub::start(&config.root, config.size, config.timeout));
        let hub = hub.transpose()?;
        let root = hub.as_ref().map_or(config.root.clone(), |hub| hub.address().to_string());
        let mut control = Control::connect(&root, config.timeout)?;
        control.say(&hello)?;
        control.expect(&["WELCOME"], config.timeout)?;
        let clock = Clock::new(config.device.trace.as_ref());
        let ledger = Arc::default();
        let mut connect = || -> Result<(Option<Ring>, Buffer), Error> {
            let several = config.size > 1;
            let ring =
                several.then(|| Self::connect(&config, &geometry, &mut control)).transpose()?;
            let scratch = Buffer::new(&ledger, &domains(ring.as_ref()), geometry.scratch_bytes())?;
            control.say(&Line::new("READY"))?;
            control.expect(&["GO"], config.timeout)?;
            Ok((ring, scratch))
        };
        let (ring, scratch) = match connect() {
            Ok(connected) => connected,
            Err(error) => {
                // When the hub has said it, it knows; otherwise nobody does.
                if !matches!(error, Error::RankFailed { .. } | Error::Refused { .. }) {
                    let _said = control.say(&abort(config.rank, &error));
                }
                return Err(error);
            }
        };
        let of_ring = |ring: &Ring| {
            ring.rails.iter().map(|rail| rail.device.interface().to_owned()).collect()
        };
        let interfaces = ring.as_ref().map(of_ring).unwrap_or_default();
        let steps = Steps::new(config.steps);
        let log = Log::new(config.device.trace.clone());
        let driver = Driver::new(geometry, ring, scratch, steps, clock, log, config.spin);
        Ok(Self { geometry, ledger, interfaces, driver, control, hub, over: None })
    }

    fn connect(
        config: &GroupConfig,
        geometry: &Geometry,
        control: &mut Control,
    ) -> Result<Ring, Error> {
        let mut ring = Ring::open(config, geometry)?;
        for lane in 0..geometry.lanes() {
            control.say(&ring.offer(lane, config)?.to_line())?;
        }
        for _ in 0..2 * geometry.lanes() {
            let line = control.expect(&["NEXT", "PREV"], config.timeout)?;
            let side = if line.word() == "NEXT" { Side::Next } else { Side::Previous };
            ring.connect(side, &LanePeer::from_line(&line)?, config)?;
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
        Buffer::new(&self.ledger, &domains(self.driver.ring.as_ref()), len)
    }

    /// Bytes of registered memory: the buffers that live, and a fixed amount besides, which
    /// is `lanes · (slots · slot_bytes + 24)` of staging for both neighbours together and
    /// [`Geometry::scratch_bytes`] for intermediate results.
    pub fn registered_bytes(&self) -> u64 {
        // The scratch is one of the buffers of the ledger.
        self.driver.ring.as_ref().map_or(0, Ring::registered_bytes) + self.ledger.bytes()
    }

    /// Every rank's `output` becomes the reduction of all `input`s of `count` elements.
    /// In place: `input` and `output` are the same.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn all_reduce(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.perform(&Operation::all_reduce(data_type, op, count), input, output)
    }

    /// As [`all_reduce`](Self::all_reduce), in place.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn all_reduce_in_place(
        &mut self,
        buffer: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let buffer = buffer.into();
        self.all_reduce(&buffer, &buffer, count, data_type, op)
    }

    /// Rank r's `output` of `count` elements becomes chunk r of the reduction of all `input`s,
    /// which are `size` times as long. In place: `output` is chunk r of `input`.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn reduce_scatter(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.perform(&Operation::reduce_scatter(data_type, op, count), input, output)
    }

    /// Every rank's `output` becomes all `input`s of `count` elements, one behind the other.
    /// In place: `input` is block r of `output`.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn all_gather(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
    ) -> Result<(), Error> {
        self.perform(&Operation::all_gather(data_type, count), input, output)
    }

    /// Every rank's `output` becomes the root's `input` of `count` elements; the others'
    /// `input` is not looked at. In place: `input` and `output` are the same.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn broadcast(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        root: u32,
    ) -> Result<(), Error> {
        self.perform(&Operation::broadcast(data_type, root, count), input, output)
    }

    /// The root's `output` becomes the reduction of all `input`s of `count` elements; the
    /// others' `output` is not touched. In place: `input` and `output` are the same.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn reduce(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
        root: u32,
    ) -> Result<(), Error> {
        self.perform(&Operation::reduce(data_type, op, root, count), input, output)
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn barrier(&mut self) -> Result<(), Error> {
        let nothing = self.driver.scratch.slice(..0)?;
        self.perform(&Operation::barrier(), &nothing, &nothing)
    }

    /// Performs any operation; returns when this rank's part is done.
    ///
    /// A rank spins for [`GroupConfig::spin`] when there is nothing to do, then sleeps.
    ///
    /// # Errors
    /// [`Error::Operation`] and [`Error::Buffer`] are the caller's and harm nobody.
    /// [`Error::RankFailed`], [`Error::Neighbour`], [`Error::Mismatch`] and
    /// [`Error::InterfaceDown`] name who failed; the group is over then.
    pub fn perform(
        &mut self,
        operation: &Operation,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
    ) -> Result<(), Error> {
        let (input, output) = (input.into(), output.into());
        if let Some(why) = &self.over {
            return Err(Error::Over(why.clone()));
        }
        let in_place = self.check(operation, &input, &output)?;
        let number = self.driver.machine.start(operation, in_place)?;
        self.driver.steps.begin(number);
        self.driver.log.begin(&self.driver.clock, number, operation);
        let done = self.driver.run(&input, &output, &mut self.control);
        self.driver.steps.finish();
        self.driver.log.end(&self.driver.clock, number);
        done.map_err(|trouble| self.give_up(trouble))
    }

    /// Whether the operation is in place; the buffers fit then.
    fn check(
        &self,
        operation: &Operation,
        input: &BufferSlice,
        output: &BufferSlice,
    ) -> Result<bool, Error> {
        let (needs_in, needs_out) = operation.buffer_bytes(&self.geometry)?;
        for (which, slice, need) in [("input", input, needs_in), ("output", output, needs_out)] {
            if !slice.belongs_to(&self.ledger) {
                return Err(BufferError::Foreign(which).into());
            }
            if slice.len() < need {
                return Err(BufferError::TooShort { which, need, have: slice.len() }.into());
            }
        }
        if !input.is_of(output) {
            return Ok(false);
        }
        let own = u64::from(self.rank()) * operation.count * operation.data_type.size() as u64;
        let (ahead_in, ahead_out) = match operation.collective {
            Collective::AllGather => (0, own),
            Collective::ReduceScatter => (own, 0),
            _ => (0, 0),
        };
        if input.offset() + ahead_in == output.offset() + ahead_out {
            return Ok(true);
        }
        let apart = input.offset() + needs_in <= output.offset()
            || output.offset() + needs_out <= input.offset();
        let unused = needs_in == 0 || needs_out == 0;
        if apart || unused { Ok(false) } else { Err(BufferError::Overlap.into()) }
    }

    /// The group is over; says so to the others, and to the caller whose fault it is.
    fn give_up(&mut self, trouble: Trouble) -> Error {
        let rank = self.rank();
        let neighbour = |side| match side {
            Side::Next => self.geometry.next(),
            Side::Previous => self.geometry.previous(),
        };
        let (culprit, error) = match trouble {
            Trouble::Violation(violation) => {
                let Violation { side, .. } = violation;
                let rank = neighbour(side);
                (rank, Error::Mismatch { rank, violation })
            }
            Trouble::Broken { lane, side, status } => {
                let ring = self.driver.ring.as_ref();
                match ring.and_then(|ring| Some((ring, ring.interface_down()?))) {
                    Some((_, down)) => {
                        (rank, Error::InterfaceDown { rank, interface: down.to_owned() })
                    }
                    None => {
                        let rails = self.interfaces.len().max(1);
                        let interface = self.interfaces.get(lane as usize % rails);
                        let interface = interface.cloned().unwrap_or_default();
                        let rank = neighbour(side);
                        (rank, Error::Neighbour { rank, interface, status })
                    }
                }
            }
            Trouble::InterfaceDown(interface) => (rank, Error::InterfaceDown { rank, interface }),
            Trouble::Other(error) => (rank, error),
        };
        let error = match error {
            // What the hub said need not be said to it.
            Error::RankFailed { .. } | Error::Refused { .. } => error,
            error => self.tell(culprit, error),
        };
        self.over = Some(error.to_string());
        // Nothing more is sent, and what the neighbours still send hits nothing.
        self.driver.ring = None;
        error
    }

    /// Tells the hub what was found. Where the hub knows of an earlier cause, that is the error.
    fn tell(&mut self, culprit: u32, error: Error) -> Error {
        let line = abort(culprit, &error);
        let ours = line.value("reason").unwrap_or_default().to_owned();
        if self.control.say(&line).is_err() {
            return error;
        }
        let is_symptom = matches!(error, Error::Neighbour { .. });
        match self.control.verdict(VERDICT) {
            Some(Error::RankFailed { rank, reason }) if is_symptom && reason != ours => {
                Error::RankFailed { rank, reason }
            }
            _ => error,
        }
    }

    /// Tells rank 0's program something: a word, and fields.
    ///
    /// # Errors
    /// [`Error::Line`] for what cannot be said; [`Error::RankFailed`] when the group is over.
    pub fn report(&mut self, kind: &str, fields: &[(&str, String)]) -> Result<(), Error> {
        let line = Line::new("REPORT").with("kind", kind);
        let line = fields.iter().fold(line, |line, (key, value)| line.with(key, value));
        self.control.say(&line)
    }

    /// On rank 0: all reports that have come since. Elsewhere none.
    pub fn reports(&self) -> Vec<Report> {
        self.hub.as_ref().map(Hub::reports).unwrap_or_default()
    }

    /// On rank 0: the next report of any rank, waiting up to `timeout` for it.
    ///
    /// # Errors
    /// [`Error::RankFailed`] when a rank fails meanwhile.
    pub fn next_report(&mut self, timeout: Duration) -> Result<Option<Report>, Error> {
        let Some(hub) = &self.hub else { return Ok(None) };
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if let Some(report) = hub.next_report(left.min(Duration::from_millis(50))) {
                return Ok(Some(report));
            }
            self.control.check()?;
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
    pub fn timeline(&mut self) -> Vec<Moment> {
        self.driver.log.take()
    }

    /// Ends the group well: returns when all ranks have called it.
    ///
    /// # Errors
    /// [`Error::RankFailed`] when a rank fails instead; [`Error::Over`].
    pub fn leave(mut self) -> Result<(), Error> {
        if let Some(why) = self.over.take() {
            return Err(Error::Over(why));
        }
        self.over = Some("it was left".into());
        self.control.say(&Line::new("BYE"))?;
        self.control.wait_for("BYE")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.over.is_none() {
            let error = Error::Config("its program dropped the group without leaving it".into());
            let _said = self.control.say(&abort(self.rank(), &error));
        }
    }
}

fn domains(ring: Option<&Ring>) -> Vec<&ProtectionDomain> {
    ring.map(|ring| ring.rails.iter().map(|rail| &rail.pd).collect()).unwrap_or_default()
}

/// What to tell the hub.
fn abort(culprit: u32, error: &Error) -> Line {
    let reason: String = error.to_string().chars().take(1000).collect();
    Line::new("ABORT").with("rank", culprit).with("reason", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Group {
        Group::join(GroupConfig::new(0, 1, "127.0.0.1:0")).unwrap()
    }

    #[test]
    fn buffers_that_do_not_fit_are_refused_and_harm_nobody() {
        let (mut group, other) = (alone(), alone());
        let (buffer, foreign) = (group.buffer(100).unwrap(), other.buffer(100).unwrap());
        let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 10);
        let slice = |range: std::ops::Range<u64>| buffer.slice(range).unwrap();
        let mut refusal = |input: BufferSlice, output: BufferSlice| match group
            .perform(&sum, input, output)
            .unwrap_err()
        {
            Error::Buffer(error) => error,
            other => panic!("{other}"),
        };
        let short = refusal(slice(0..39), slice(50..90));
        assert_eq!(short, BufferError::TooShort { which: "input", need: 40, have: 39 });
        let short = refusal(slice(0..40), slice(61..100));
        assert_eq!(short, BufferError::TooShort { which: "output", need: 40, have: 39 });
        assert_eq!(refusal(slice(0..40), slice(39..79)), BufferError::Overlap);
        assert_eq!(refusal(slice(1..41), slice(0..40)), BufferError::Overlap);
        let strange = refusal(slice(0..40), (&foreign).into());
        assert_eq!(strange, BufferError::Foreign("output"));
        group.perform(&sum, slice(0..40), slice(40..80)).unwrap();
        group.perform(&sum, slice(0..40), slice(0..40)).unwrap();
        group.leave().unwrap();
    }

    #[test]
    fn a_group_of_one_performs_every_collective() {
        let mut group = alone();
        let (input, output) = (group.buffer(80).unwrap(), group.buffer(80).unwrap());
        for collective in [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::Broadcast,
            Collective::Reduce,
            Collective::Barrier,
        ] {
            let (data_type, op) = (DataType::I64, ReduceOp::Avg);
            let operation = Operation { collective, data_type, op, root: 0, count: 10 };
            input.write(0, &[7; 80]).unwrap();
            output.write(0, &[0; 80]).unwrap();
            group.perform(&operation, &input, &output).unwrap();
            let mut seen = [1; 80];
            output.read(0, &mut seen).unwrap();
            let expected = if collective == Collective::Barrier { [0; 80] } else { [7; 80] };
            assert_eq!(seen, expected, "{collective:?}");
        }
        assert!(group.interfaces().is_empty());
        group.leave().unwrap();
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
