//! The engine of a shard, and what it delivers to.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::sync::Arc;

use roce_engine::{CallFault, CompletionFault, Consumer, KeyHasher, OwnNumbers, Pushed};
use roce_faults::VerbMoment;
use roce_transport::{AsyncEvent, Completion, CqHandle, EventSource, Instant, SrqHandle};
use roce_wire::{PathMtu, Qpn};

use crate::events::EventRouter;
use crate::qpn_allocator::QpnAllocator;
use crate::queue_state::QueueState;
use crate::region::Mapping;
use crate::run::counter_file::{self, SharedCounterFile};
use crate::sockets::growing_socket::Successor;
use crate::trace::TraceObserver;
use crate::verb_faults::{InjectedError, VerbFaults};
use crate::wr_error::WrError;

/// The engine of a shard.
pub(crate) type Engine = roce_engine::Engine<Objects>;

/// The objects of a shard that the lock of its engine guards.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Number of the shard.
    pub(crate) shard: usize,
    /// The completion queues of its queue pairs, and those whose home it is.
    pub(crate) queues: HashMap<CqHandle, Arc<QueueState>, BuildHasherDefault<KeyHasher>>,
    /// The receivers of asynchronous events.
    pub(crate) events: EventRouter,
    /// The queue pair numbers of this shard.
    pub(crate) numbers: QpnAllocator,
    /// File to which each round with work publishes the counters.
    pub(crate) counter_file: Option<SharedCounterFile>,
    /// Faults of calls and completions.
    pub(crate) verb_faults: Option<VerbFaults>,
    /// What takes the place of sockets that are small until the first queue pair.
    pub(crate) successors: Vec<Arc<Successor>>,
}

/// Sets the packet filters of the devices to the present queue pair numbers.
///
/// # Errors
/// The kernel's error; the previous filter stays in force.
pub(crate) fn update_filters(engine: &mut Engine) -> io::Result<()> {
    let numbers = own_numbers(engine);
    engine.set_numbers(numbers)
}

/// Returns the present queue pair numbers.
pub(crate) fn own_numbers(engine: &Engine) -> OwnNumbers {
    let numbers = &engine.consumer().numbers;
    let (blocks, general_services) = (numbers.blocks(), numbers.has_general_services());
    OwnNumbers { blocks, general_services, multicast: engine.endpoint().has_groups() }
}

/// Counts the post of a receive, if calls meet faults.
///
/// # Errors
/// [`InjectedError`].
#[inline]
pub(crate) fn check_post(
    engine: &mut Engine,
    now: Instant,
    verb: VerbMoment,
    qpn: Option<Qpn>,
) -> Result<(), InjectedError> {
    match engine.consumer().verb_faults.clone() {
        None => Ok(()),
        Some(faults) => faults.check_call(engine, now, verb, qpn),
    }
}

/// Tells the agent of connection management the addresses and the path MTU of its device.
pub(crate) fn update_agent(engine: &mut Engine, path_mtu: Option<PathMtu>) {
    let usable = engine.gids().rows().iter().filter(|row| row.usable);
    let addresses = usable.map(|row| row.gid.ip()).collect();
    if let Some(agent) = engine.agent() {
        agent.set_local_addresses(addresses);
        agent.set_path_mtu(path_mtu.unwrap_or(PathMtu::B256));
    }
}

/// Bits of a shared receive queue's name that are its number in its shard.
const SRQ_BITS: u32 = 28;

impl Objects {
    /// Returns the objects of the shard with this number, of a device in this thread's network namespace:
    /// none as yet.
    ///
    /// # Errors
    /// The system refuses a unix socket.
    pub(crate) fn of_shard(shard: usize) -> io::Result<Self> {
        let numbers = QpnAllocator::of_this_namespace()?;
        Ok(Self { shard, numbers, ..Self::default() })
    }

    /// Adds a completion queue, unless it is there.
    pub(crate) fn add_queue(&mut self, handle: CqHandle, queue: &Arc<QueueState>) {
        self.queues.entry(handle).or_insert_with(|| Arc::clone(queue));
    }

    /// Returns the name in the device of a shared receive queue of this shard.
    pub(crate) fn name_of(&self, srq: SrqHandle) -> SrqHandle {
        SrqHandle((self.shard as u32) << SRQ_BITS | srq.0)
    }

    /// Returns an event with the name of its object in the device.
    fn named(&self, event: AsyncEvent) -> AsyncEvent {
        match event {
            AsyncEvent::SrqLimitReached { srq } => {
                AsyncEvent::SrqLimitReached { srq: self.name_of(srq) }
            }
            event => event,
        }
    }
}

impl Consumer for Objects {
    type Observer = TraceObserver;
    type Region = Arc<Mapping>;
    type Queue = QueueState;
    type Refusal = WrError;

    fn can_bypass(poller: &QueueState, handle: CqHandle) -> bool {
        poller.can_bypass_queue(handle)
    }

    #[inline]
    fn on_bypass(poller: &QueueState, completion: &Completion) {
        poller.slots.retire(completion);
    }

    fn has_channel(poller: &QueueState) -> bool {
        poller.has_channel()
    }

    #[inline]
    fn fault_of_post(
        &mut self,
        queue_pair: Qpn,
        send_cq: impl FnOnce() -> Option<CqHandle>,
    ) -> Option<CallFault<WrError>> {
        let faults = self.verb_faults.as_ref()?;
        Some(faults.fault_of_call(VerbMoment::PostSend, Some(queue_pair), send_cq))
    }

    #[inline]
    fn fault_of(&mut self, handle: CqHandle, completion: &Completion) -> Option<CompletionFault> {
        self.verb_faults.as_ref()?.fault_of(handle, completion)
    }

    fn push(&mut self, handle: CqHandle, completion: Completion, now: Instant) -> Pushed {
        let Some(queue) = self.queues.get(&handle) else { return Pushed::Queued };
        if queue.shards.take_overrun(self.shard) {
            return Pushed::Full;
        }
        let pushed = queue.push(completion, now);
        if pushed == Pushed::Full && !queue.ignores_overrun() {
            queue.shards.note_overrun(self.shard);
        }
        pushed
    }

    fn drop_oldest(&mut self, handle: CqHandle) -> bool {
        self.queues.get(&handle).is_some_and(|queue| queue.drop_oldest())
    }

    fn on_lost(&mut self, handle: CqHandle, completion: &Completion) {
        if let Some(queue) = self.queues.get(&handle) {
            queue.lose(completion);
        }
    }

    fn push_event(&mut self, event: AsyncEvent) {
        let event = self.named(event);
        match event.source() {
            EventSource::CompletionQueue(cq) => {
                if let Some(queue) = self.queues.get(&cq) {
                    queue.push_event(event);
                }
            }
            _ => self.events.push(event),
        }
    }

    fn may_mistake_reports(&self) -> bool {
        self.queues.values().any(|queue| queue.is_armed_beside_others())
    }

    #[inline]
    fn publish_counters(&self, counters: impl FnOnce() -> Vec<(&'static str, u64)>) {
        if let Some(file) = &self.counter_file {
            counter_file::write(file, self.shard, &counters());
        }
    }
}
