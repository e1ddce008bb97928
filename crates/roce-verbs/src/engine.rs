//! The engine of a device, and what it delivers to.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::sync::Arc;

use roce_engine::{Consumer, KeyHasher, OwnNumbers, Pushed, Region};
use roce_transport::{
    AsyncEvent, AtomicChange, Completion, CqHandle, EventSource, Instant, MemoryFault,
};
use roce_wire::PayloadCrc;

use crate::completion_queue;
use crate::counter_file::{self, SharedCounterFile};
use crate::events::EventRouter;
use crate::qpn_allocator::QpnAllocator;
use crate::region::Mapping;
use crate::trace::TraceObserver;

/// The engine of a device.
pub(crate) type Engine = roce_engine::Engine<Objects>;

/// The objects of a device that the lock of its engine guards.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The completion queues.
    pub(crate) queues:
        HashMap<CqHandle, Arc<completion_queue::Inner>, BuildHasherDefault<KeyHasher>>,
    /// The receivers of asynchronous events.
    pub(crate) events: EventRouter,
    /// The queue pair numbers of this process.
    pub(crate) numbers: QpnAllocator,
    /// File to which each round with work publishes the counters.
    pub(crate) counter_file: Option<SharedCounterFile>,
}

/// Sets the packet filters of the devices to the present queue pair numbers.
///
/// # Errors
/// The kernel's error; the previous filter stays in force.
pub(crate) fn update_filters(engine: &mut Engine) -> io::Result<()> {
    let numbers = &engine.consumer.numbers;
    let (blocks, general_services) = (numbers.blocks(), numbers.has_general_services());
    engine.set_numbers(OwnNumbers { blocks, general_services })
}

impl Consumer for Objects {
    type Observer = TraceObserver;
    type Region = Arc<Mapping>;
    type Queue = completion_queue::Inner;

    fn can_bypass(poller: &completion_queue::Inner, handle: CqHandle) -> bool {
        poller.can_bypass_queue(handle)
    }

    fn can_hold(poller: &completion_queue::Inner, handle: CqHandle) -> bool {
        poller.can_hold(handle)
    }

    fn push(&mut self, handle: CqHandle, completion: Completion, now: Instant) -> Pushed {
        self.queues.get(&handle).map_or(Pushed::Queued, |queue| queue.push(completion, now))
    }

    fn drop_oldest(&mut self, handle: CqHandle) -> bool {
        self.queues.get(&handle).is_some_and(|queue| queue.drop_oldest())
    }

    fn push_event(&mut self, event: AsyncEvent) {
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
            counter_file::write(file, &counters());
        }
    }
}

impl Region for Mapping {
    #[inline]
    fn holds(&self, offset: usize, len: usize) -> bool {
        self.holds(offset, len)
    }

    #[inline]
    fn has_word(&self, offset: usize) -> bool {
        self.has_word(offset)
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.write(offset, bytes)
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryFault> {
        self.read(offset, into)
    }

    #[inline]
    fn read_summed(
        &self,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Option<PayloadCrc>, MemoryFault> {
        self.read_summed(offset, into)
    }

    #[inline]
    fn atomic(&self, offset: usize, change: AtomicChange) -> Result<u64, MemoryFault> {
        self.atomic(offset, change)
    }
}
