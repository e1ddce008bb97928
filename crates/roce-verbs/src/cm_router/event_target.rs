//! What events of an identifier go to, without the identifier's device.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use roce_wire::management::PortSpace;

use super::event_list::EventList;
use super::join_name::JoinName;

/// Returns true for a port space of datagram services.
pub(crate) fn is_of_datagrams(space: PortSpace) -> bool {
    matches!(space, PortSpace::UDP | PortSpace::IPOIB)
}

/// The part of an identifier that threads may hold which drive a device: they must not be the last
/// to hold the device itself.
#[derive(Debug)]
pub(crate) struct EventTarget {
    /// Number of the identifier, of which the process has no other.
    pub(crate) number: u64,
    pub(crate) space: PortSpace,
    pub(crate) context: AtomicU64,
    /// The list of its channel.
    list: Mutex<Arc<EventList<Queued>>>,
    /// Events that the program has got.
    pub(crate) reported: AtomicU32,
    is_destroyed: AtomicBool,
    /// Events are lost: see [`Id::ignore_events`](crate::cm::Id::ignore_events). Changed with the lock of `list` held.
    ignores_events: AtomicBool,
    resolution: AtomicU8,
    /// The identifier, once the program has it. Its type is not known here.
    handle: Mutex<Weak<dyn Any + Send + Sync>>,
}

/// An event that waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) target: Arc<EventTarget>,
    /// Listener of a request, of which the program does not have the identifier yet, and its device.
    pub(crate) listener: Option<(Arc<EventTarget>, DeviceNumber)>,
    pub(crate) what: What,
}

/// A number that tells the devices of one identifier apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber(pub(crate) usize);

/// What has happened.
#[derive(Debug)]
pub(crate) enum What {
    AddressResolved,
    /// The number of an error.
    AddressError(i32),
    RouteResolved,
    MulticastJoin(JoinName),
    /// The number of an error.
    MulticastError(JoinName, i32),
    Agent(roce_cm::Event),
}

/// The state of the resolution of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Resolution {
    Pending,
    Resolved,
    Failed,
}

/// Numbers of identifiers so far.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl EventTarget {
    pub(crate) fn new(space: PortSpace, context: u64, list: Arc<EventList<Queued>>) -> Self {
        let nothing: Weak<()> = Weak::new();
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            space,
            context: AtomicU64::new(context),
            list: Mutex::new(list),
            reported: AtomicU32::new(0),
            is_destroyed: AtomicBool::new(false),
            ignores_events: AtomicBool::new(false),
            resolution: AtomicU8::new(Resolution::Pending as u8),
            handle: Mutex::new(nothing),
        }
    }

    /// Returns the list of its channel.
    pub(crate) fn list(&self) -> Arc<EventList<Queued>> {
        Arc::clone(&self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Moves to the list of another channel, with the events that wait, also those of requests.
    pub(crate) fn move_to(&self, list: &Arc<EventList<Queued>>) {
        let mut requested = Vec::new();
        {
            let mut own = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&own, list) {
                return;
            }
            // New ones wait for the lock.
            for queued in own.take(|queued| queued.is_of(self)) {
                requested.extend(queued.requested());
                list.push(queued);
            }
            *own = Arc::clone(list);
        }
        // What follows a request goes where the program fetches it.
        requested.into_iter().for_each(|target| target.move_to(list));
    }

    /// Adds an event, unless the identifier was destroyed.
    pub(crate) fn push(self: &Arc<Self>, what: What) {
        self.push_queued(Queued { target: Arc::clone(self), listener: None, what });
    }

    fn push_queued(&self, queued: Queued) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_destroyed() && !self.ignores_events.load(Ordering::Relaxed) {
            list.push(queued);
        }
    }

    /// Adds the request of a new identifier, which has the channel of this one. Returns the new one.
    pub(crate) fn push_request(
        self: &Arc<Self>,
        device: DeviceNumber,
        event: roce_cm::Event,
    ) -> Arc<Self> {
        let target = Arc::new(Self::new(self.space, 0, self.list()));
        let listener = Some((Arc::clone(self), device));
        let what = What::Agent(event);
        self.push_queued(Queued { target: Arc::clone(&target), listener, what });
        target
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.is_destroyed.load(Ordering::Acquire)
    }

    /// Ends its events: those that wait are gone, and none follows. Returns false if that was done
    /// before.
    pub(crate) fn destroy(&self) -> bool {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_destroyed.swap(true, Ordering::AcqRel) {
            return false;
        }
        let gone = list.take(|queued| queued.is_of(self));
        drop(list);
        // Requests whose listener has ended never reach the program, so neither does what follows them.
        for target in gone.iter().filter_map(Queued::requested) {
            target.destroy();
        }
        true
    }

    /// Loses the events that wait, and those that follow, until `ignores` is false.
    pub(crate) fn ignore_events(&self, ignores: bool) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.ignores_events.store(ignores, Ordering::Relaxed);
        let lost = if ignores { list.take(|queued| queued.is_of(self)) } else { Vec::new() };
        drop(list);
        drop(lost);
    }

    /// Removes events of this identifier that wait.
    pub(crate) fn take_events(&self, leaves: impl Fn(&What) -> bool) {
        let taken = self.list().take(|queued| queued.is_of(self) && leaves(&queued.what));
        drop(taken);
    }

    pub(crate) fn resolution(&self) -> Resolution {
        match self.resolution.load(Ordering::Acquire) {
            0 => Resolution::Pending,
            1 => Resolution::Resolved,
            _ => Resolution::Failed,
        }
    }

    pub(crate) fn set_resolution(&self, resolution: Resolution) {
        self.resolution.store(resolution as u8, Ordering::Release);
    }

    pub(crate) fn set_handle(&self, handle: Weak<dyn Any + Send + Sync>) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    /// Returns the identifier, if the program has it.
    pub(crate) fn handle<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        handle.upgrade()?.downcast().ok()
    }
}

impl Queued {
    /// Returns the identifier of a request, which the program does not have yet.
    fn requested(&self) -> Option<Arc<EventTarget>> {
        self.listener.as_ref().map(|_| Arc::clone(&self.target))
    }

    /// Returns true for an event of an identifier, or of a request of a listener.
    fn is_of(&self, target: &EventTarget) -> bool {
        let listener = self.listener.as_ref().map(|(listener, _)| listener);
        let mut both = std::iter::once(&self.target).chain(listener);
        both.any(|it| std::ptr::eq(&**it, target))
    }
}
