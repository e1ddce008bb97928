//! The room in work queues: how many requests a program may have outstanding, as
//! [`DeviceConfig::queue_rule`](crate::DeviceConfig::queue_rule) counts them. Under [`QueueRule::Done`] the endpoint
//! counts them alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use roce_transport::{PostError, QpCap, QpInfo, WorkQueueNumbers};

use crate::QueueRule;
use crate::driver::Driver;
use crate::error::Error;
use crate::run::environment::QUEUES;
use crate::work_slots::{WorkSlot, WorkSlots};

/// The places in the work queues of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePairPlaces {
    slot: Option<OwnSlot>,
    max_sends: u32,
    max_receives: u32,
}

/// The places in a shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceivePlaces {
    slot: Option<OwnSlot>,
    capacity: AtomicU32,
}

/// A slot of the device.
#[derive(Debug)]
struct OwnSlot {
    driver: Arc<Driver>,
    slots: Arc<WorkSlots>,
    number: u32,
}

impl OwnSlot {
    /// Takes one, if the device counts places.
    fn take(driver: &Arc<Driver>, is_shared: bool) -> Result<Option<Self>, Error> {
        if driver.device().config.queue_rule == QueueRule::Done {
            return Ok(None);
        }
        let slots = Arc::clone(driver.slots());
        let number = slots.allocate(is_shared).ok_or(Error::OutOfMemory)?;
        Ok(Some(Self { driver: Arc::clone(driver), slots, number }))
    }

    #[inline]
    fn get(&self) -> &WorkSlot {
        self.slots.get(self.number).expect("it was allocated")
    }
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        // In a child after fork the list of free slots may be locked for ever.
        if self.driver.check_alive().is_ok() {
            self.slots.free(self.number);
        }
    }
}

/// Returns what completions call the work queues of a slot.
fn number_of(slot: Option<&OwnSlot>) -> u32 {
    slot.map_or(WorkSlots::NO_NUMBER, |slot| slot.number)
}

impl QueuePairPlaces {
    /// Makes the places of a new queue pair, which are freed with it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(driver: &Arc<Driver>, capacities: &QpCap) -> Result<Self, Error> {
        let QpCap { max_send_wr: max_sends, max_recv_wr: max_receives, .. } = *capacities;
        Ok(Self { slot: OwnSlot::take(driver, false)?, max_sends, max_receives })
    }

    /// Returns what its completions call its work queues; `shared` is the number of its shared receive queue.
    pub(crate) fn numbers(&self, shared: Option<u32>) -> WorkQueueNumbers {
        let send = number_of(self.slot.as_ref());
        WorkQueueNumbers { send, receive: shared.unwrap_or(send) }
    }

    /// Fails if the send queue has no place behind `ahead` more requests. `info` returns the state of the
    /// queue pair. The caller holds the lock of the engine.
    #[inline]
    pub(crate) fn check_send(
        &self,
        ahead: u32,
        info: impl FnOnce() -> Option<QpInfo>,
    ) -> Result<(), PostError> {
        let Self { slot, max_sends, .. } = self;
        let Some(slot) = slot else { return Ok(()) };
        if slot.get().sends.taken() + ahead < *max_sends {
            return Ok(());
        }
        if notes_refused() && info().is_some_and(|info| info.sends_outstanding + ahead < *max_sends)
        {
            note_refused("send", *max_sends);
        }
        Err(PostError::SendQueueFull { capacity: *max_sends })
    }

    /// As [`check_send`](Self::check_send), for the queue pair's own receive queue.
    #[inline]
    pub(crate) fn check_receive(
        &self,
        info: impl FnOnce() -> Option<QpInfo>,
    ) -> Result<(), PostError> {
        let Self { slot, max_receives, .. } = self;
        let Some(slot) = slot else { return Ok(()) };
        if slot.get().receives.taken() < *max_receives {
            return Ok(());
        }
        if notes_refused() && info().is_some_and(|info| info.receives_posted < *max_receives) {
            note_refused("receive", *max_receives);
        }
        Err(PostError::ReceiveQueueFull { capacity: *max_receives })
    }

    /// A request was posted to the send queue.
    #[inline]
    pub(crate) fn take_send(&self) {
        self.slot.iter().for_each(|slot| slot.get().sends.take());
    }

    /// A receive was posted to the queue pair's own queue.
    #[inline]
    pub(crate) fn take_receive(&self) {
        self.slot.iter().for_each(|slot| slot.get().receives.take());
    }

    /// Returns true if no place is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| slot.get().is_empty())
    }

    /// As [`WorkSlot::clear`].
    pub(crate) fn clear(&self) {
        self.slot.iter().for_each(|slot| slot.get().clear());
    }
}

impl SharedReceivePlaces {
    /// Makes the places of a new queue, which are freed with it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(driver: &Arc<Driver>, capacity: u32) -> Result<Self, Error> {
        Ok(Self { slot: OwnSlot::take(driver, true)?, capacity: AtomicU32::new(capacity) })
    }

    /// Returns what completions of its receives call it.
    pub(crate) fn number(&self) -> u32 {
        number_of(self.slot.as_ref())
    }

    /// Changes the capacity. The caller holds the lock of the engine.
    pub(crate) fn set_capacity(&self, capacity: u32) {
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// Fails if no receive can be posted. `posted` returns how many no message has taken. The caller
    /// holds the lock of the engine.
    #[inline]
    pub(crate) fn check_room(&self, posted: impl FnOnce() -> u32) -> Result<(), PostError> {
        let Some(slot) = &self.slot else { return Ok(()) };
        let capacity = self.capacity.load(Ordering::Relaxed);
        if slot.get().receives.taken() < capacity {
            return Ok(());
        }
        if notes_refused() && posted() < capacity {
            note_refused("shared receive", capacity);
        }
        Err(PostError::ReceiveQueueFull { capacity })
    }

    /// A receive was posted.
    #[inline]
    pub(crate) fn take(&self) {
        self.slot.iter().for_each(|slot| slot.get().receives.take());
    }

    /// As [`WorkSlot::lose_shared_receive`].
    pub(crate) fn lose_receive(&self) {
        self.slot.iter().for_each(|slot| slot.get().lose_shared_receive());
    }
}

/// Returns true if [`note_refused`] writes its line: without it the state of the queue need not be asked for.
fn notes_refused() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// A request is refused that would be posted under [`QueueRule::Done`].
#[cold]
fn note_refused(queue: &str, capacity: u32) {
    tracing::debug!(
        "a {queue} queue is full: {capacity} requests are posted whose completions were not polled; some are done, and {QUEUES}=rxe would not count these"
    );
}
