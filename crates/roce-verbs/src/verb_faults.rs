//! Scripted faults of verbs: calls that fail, completions with an error, events.
//!
//! The rules of a process count the calls and completions of all its devices, and of all the times that
//! one is opened, as those of packets count packets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_engine::{CallFault, CompletionFault, Consumer, Engine};
use roce_faults::{
    DeviceLimits, DeviceRule, Errno, FaultEventKind, VerbCounter, VerbFault, VerbMoment, VerbRule,
};
use roce_io::{ActivityKind, ActivityLog, FaultConfig, FaultEvent, FaultLog};
use roce_transport::{AsyncEvent, Completion, CompletionStatus, CqHandle, Instant};
use roce_wire::Qpn;

use crate::process::fork::PerProcess;

/// Most queue pairs that are told from one another.
const MAX_QUEUE_PAIRS: usize = 1 << 20;

/// The failure of a call, as a scripted fault says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{verb} fails with {errno}, as a scripted fault says")]
pub struct InjectedError {
    /// The verb, such as `post-send`.
    pub verb: &'static str,
    /// The error.
    pub errno: Errno,
}

/// The faults of verbs of a device. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct VerbFaults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    /// Numbers of queue pairs, in the order in which they were made.
    numbers: HashMap<Qpn, u32>,
    queue_pairs: u32,
    log: FaultLog,
    /// Calls that failed without a device that could count them.
    uncounted: u64,
    limits: DeviceLimits,
    /// Places of the rules about what devices lack, and how many devices they met.
    limiting: Vec<(usize, u64)>,
    activity: Option<ActivityLog>,
}

#[derive(Debug)]
struct Rule {
    fault: VerbFault,
    counter: VerbCounter,
    /// Place in the log.
    place: usize,
    happened: u64,
}

/// What a call or a completion meets.
#[derive(Debug, Default)]
struct Met {
    errno: Option<Errno>,
    status: Option<CompletionStatus>,
    events: Vec<FaultEventKind>,
}

/// The faults that go on over all devices of this process.
static OF_PROCESS: PerProcess<Mutex<Vec<(FaultConfig, VerbFaults)>>> = PerProcess::new();

impl VerbFaults {
    /// Returns the faults of verbs that a configuration asks for, if it does: new ones, or those of the
    /// process.
    pub(crate) fn of(faults: &FaultConfig, of_process: bool) -> Option<Self> {
        let is_of_verbs = !faults.verbs.is_empty() || !faults.devices.is_empty();
        if !is_of_verbs && faults.activity.is_none() {
            return None;
        }
        if !of_process {
            return Some(Self::new(faults));
        }
        let mut known = OF_PROCESS.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = known.iter().find(|(known, _)| known == faults) {
            return Some(found.clone());
        }
        let new = Self::new(faults);
        known.push((faults.clone(), new.clone()));
        Some(new)
    }

    fn new(config: &FaultConfig) -> Self {
        let first = config.script.len();
        let is_ours = |rule: &VerbRule| rule.at.rank.is_none() || rule.at.rank == config.rank;
        let numbered = config.verbs.iter().enumerate().filter(|(_, rule)| is_ours(rule));
        let is_limit = |rule: &DeviceRule| rule.rank.is_none() || rule.rank == config.rank;
        let limiting = config.devices.iter().enumerate().filter(|(_, rule)| is_limit(rule));
        let rules = numbered.map(|(place, rule)| Rule {
            fault: rule.fault,
            counter: VerbCounter::new(rule.at),
            place: first + place,
            happened: 0,
        });
        let state = State {
            rules: rules.collect(),
            numbers: HashMap::new(),
            queue_pairs: 0,
            log: FaultLog::open(config.log.as_deref(), config.rank),
            uncounted: 0,
            limits: DeviceLimits::of(&config.devices, config.rank),
            limiting: limiting
                .map(|(place, _)| (first + config.verbs.len() + config.links.len() + place, 0))
                .collect(),
            activity: config
                .activity
                .as_deref()
                .and_then(|path| ActivityLog::open(path, config.rank, config.began)),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has counted a call at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what happened in this process so far.
    pub(crate) fn events(&self) -> Vec<FaultEvent> {
        self.lock().log.events().to_vec()
    }

    /// Notes a queue pair that was made: it has the next number.
    pub(crate) fn note_queue_pair(&self, qpn: Qpn) {
        let mut state = self.lock();
        state.queue_pairs = state.queue_pairs.saturating_add(1);
        let number = state.queue_pairs;
        if state.numbers.len() < MAX_QUEUE_PAIRS || state.numbers.contains_key(&qpn) {
            state.numbers.insert(qpn, number);
        }
    }

    /// Counts the opening of a device, which has no engine yet.
    ///
    /// # Errors
    /// [`InjectedError`]. Events have no device to come from.
    pub(crate) fn check_open(&self) -> Result<(), InjectedError> {
        let mut state = self.lock();
        let met = state.meet(VerbMoment::OpenDevice, None);
        let Some(errno) = met.errno else { return Ok(()) };
        state.uncounted += 1;
        Err(InjectedError { verb: VerbMoment::OpenDevice.name(), errno })
    }

    /// Notes a device that was opened in the events of the rules about what devices lack.
    pub(crate) fn note_device(&self, interface: &str) {
        let State { limiting, log, .. } = &mut *self.lock();
        for (place, number) in limiting {
            *number += 1;
            log.note(*place, *number, || format!("the device of {interface} was opened"), None);
        }
    }

    /// Returns what devices lack.
    pub(crate) fn limits(&self) -> DeviceLimits {
        self.lock().limits
    }

    /// Lets the first device that could be opened count the openings that failed before.
    pub(crate) fn count_openings<C: Consumer>(&self, engine: &mut Engine<C>) {
        for _ in 0..std::mem::take(&mut self.lock().uncounted) {
            engine.count_call(VerbMoment::OpenDevice.counter());
        }
    }

    /// Counts a call, under the engine's lock, and raises the events that it meets.
    ///
    /// # Errors
    /// [`InjectedError`], if the call fails.
    pub(crate) fn check_call<C: Consumer>(
        &self,
        engine: &mut Engine<C>,
        now: Instant,
        verb: VerbMoment,
        qpn: Option<Qpn>,
    ) -> Result<(), InjectedError> {
        let fault = self.fault_of_call(verb, qpn, || engine.endpoint().send_queue_of(qpn?));
        engine.meet_fault(now, fault)
    }

    /// Counts a call, and returns what it meets. `send_cq` returns the completion queue of a queue pair's sends.
    pub(crate) fn fault_of_call<E: From<InjectedError>>(
        &self,
        verb: VerbMoment,
        qpn: Option<Qpn>,
        send_cq: impl FnOnce() -> Option<CqHandle>,
    ) -> CallFault<E> {
        let met = self.lock().meet(verb, qpn);
        let failure = met.errno.map(|errno| InjectedError { verb: verb.name(), errno });
        let cq = std::cell::LazyCell::new(send_cq);
        CallFault {
            failure: failure.map(|error| (error.into(), verb.counter())),
            events: met.events.into_iter().filter_map(|kind| event(kind, qpn, || *cq)).collect(),
        }
    }

    /// Counts a completion, and returns the fault that it meets.
    pub(crate) fn fault_of(
        &self,
        handle: CqHandle,
        completion: &Completion,
    ) -> Option<CompletionFault> {
        if completion.status != CompletionStatus::Success {
            return None;
        }
        let moment = match completion.operation.is_receive() {
            true => VerbMoment::RecvCompletion,
            false => VerbMoment::SendCompletion,
        };
        let mut state = self.lock();
        let met = state.meet(moment, Some(completion.qpn));
        let fails = met.status.is_some_and(|status| status != CompletionStatus::Success);
        if let Some(log) = state.activity.as_mut().filter(|_| !fails) {
            log.note(ActivityKind::Completed, std::time::Instant::now());
        }
        drop(state);
        if met.status.is_none() && met.events.is_empty() {
            return None;
        }
        let event = |kind| event(kind, Some(completion.qpn), || Some(handle));
        Some(CompletionFault {
            status: met.status.map(|status| (status, moment.counter())),
            events: met.events.into_iter().filter_map(event).collect(),
        })
    }
}

impl State {
    /// Counts a call or a completion; returns what it meets. Of several errors the first holds.
    fn meet(&mut self, moment: VerbMoment, qpn: Option<Qpn>) -> Met {
        let Self { rules, numbers, log, .. } = self;
        let number = qpn.and_then(|qpn| numbers.get(&qpn).copied());
        let mut met = Met::default();
        for rule in rules {
            if !rule.counter.admits(moment, number) {
                continue;
            }
            match rule.fault {
                VerbFault::Errno(errno) => met.errno = met.errno.or(Some(errno)),
                VerbFault::Status(status) => met.status = met.status.or(status_of(status.code())),
                VerbFault::Raise(event) => met.events.push(event),
            }
            rule.happened += 1;
            let subject = || match (moment.is_completion(), number) {
                (true, Some(number)) => format!("{} of queue pair {number}", moment.name()),
                (true, None) => moment.name().to_owned(),
                (false, Some(number)) => {
                    format!("{} of queue pair {number}", c_name(moment))
                }
                (false, None) => c_name(moment),
            };
            log.note(rule.place, rule.happened, subject, None);
        }
        met
    }
}

/// Returns the name of a call in C.
fn c_name(moment: VerbMoment) -> String {
    format!("ibv_{}", moment.name().replace('-', "_"))
}

fn status_of(code: u8) -> Option<CompletionStatus> {
    CompletionStatus::ALL.into_iter().find(|status| status.code() == code)
}

/// Returns an event of a queue pair, of a completion queue, or of the device.
fn event(
    kind: FaultEventKind,
    qpn: Option<Qpn>,
    cq: impl FnOnce() -> Option<CqHandle>,
) -> Option<AsyncEvent> {
    Some(match kind {
        FaultEventKind::QpFatal => AsyncEvent::QpFatal { qpn: qpn? },
        FaultEventKind::QpRequestError => AsyncEvent::QpRequestError { qpn: qpn? },
        FaultEventKind::QpAccessError => AsyncEvent::QpAccessError { qpn: qpn? },
        FaultEventKind::CqError => AsyncEvent::CqError { cq: cq()? },
        FaultEventKind::DeviceFatal => AsyncEvent::DeviceFatal,
        FaultEventKind::PortError => AsyncEvent::PortError,
        FaultEventKind::PortActive => AsyncEvent::PortActive,
        FaultEventKind::GidChange => AsyncEvent::GidChange,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rules: &[&str], rank: Option<u32>) -> VerbFaults {
        let verbs = rules.iter().map(|rule| VerbRule::parse(rule).unwrap()).collect();
        VerbFaults::new(&FaultConfig { verbs, rank, ..FaultConfig::default() })
    }

    #[test]
    fn every_status_of_a_sentence_is_one_of_completions() {
        for status in roce_faults::FaultStatus::all() {
            let found = status_of(status.code()).expect("the status exists");
            let official = format!("IBV_WC_{}", found.name());
            assert_eq!(roce_faults::FaultStatus::named(&official), Some(status));
        }
    }

    #[test]
    fn openings_are_counted_over_all_devices_and_rules_of_other_ranks_are_left_out() {
        let rules =
            ["fail open-device 2 with ENODEV", "fail open-device from 1 of rank 1 with EIO"];
        let faults = faults(&rules, Some(0));
        assert!(faults.check_open().is_ok());
        let refused = faults.check_open();
        assert!(matches!(refused, Err(InjectedError { errno, .. }) if errno.code() == 19));
        assert!(faults.clone().check_open().is_ok());
        let events = faults.events();
        assert_eq!((events.len(), events[0].rule), (1, 0));
        assert_eq!(events[0].subject, "ibv_open_device");
    }

    #[test]
    fn a_queue_pair_has_the_number_of_its_making() {
        let faults = faults(&["fail completion 1 of queue pair 2 with flushed"], None);
        let [first, second] = [17, 18].map(|number| Qpn::new(number).unwrap());
        [first, second].into_iter().for_each(|qpn| faults.note_queue_pair(qpn));
        let mut state = faults.lock();
        assert_eq!(state.meet(VerbMoment::SendCompletion, Some(first)).status, None);
        let met = state.meet(VerbMoment::SendCompletion, Some(second));
        assert_eq!(met.status, Some(CompletionStatus::WorkRequestFlushed));
    }
}
