//! Channels of events.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use roce_cm::ServiceResponse;
use roce_wire::Gid;
use roce_wire::management::{PortSpace, SidrStatus};

use super::event::{DatagramPeer, Event, EventKind, PeerParameters, Unreachable};
use super::id::{Id, IdHandle};
use super::opener::Opener;
use crate::cm_router::{
    Error, EventList, EventNotifier, EventTarget, JoinName, Queued, Signal, What,
};
use crate::device::Device;
use crate::device_config::DeviceConfig;
use crate::driver::Driver;
use crate::process::purpose::Purpose;

/// A channel on which identifiers report events; as `rdma_event_channel`.
///
/// A clone is the same channel. Identifiers do not keep it: once the last clone is gone, requests
/// that wait are refused, and events of identifiers that live on go nowhere.
///
/// ```no_run
/// use roce_verbs::DeviceConfig;
/// use roce_verbs::cm::{Error, EventChannel, EventKind, PortSpace};
///
/// # fn main() -> Result<(), Error> {
/// let channel = EventChannel::new(DeviceConfig::default())?;
/// let id = channel.create_id(PortSpace::TCP, 0)?;
/// id.resolve_addr(None, "10.0.0.2:7174".parse().unwrap(), std::time::Duration::from_secs(2))?;
/// let event = channel.next(None)?.expect("an event, since there is no timeout");
/// assert_eq!((event.id, event.kind), (id, EventKind::AddressResolved));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EventChannel(Arc<Channel>);

#[derive(Debug)]
struct Channel {
    list: Arc<EventList<Queued>>,
    opener: Opener,
    /// The identifiers, whose devices a waiting thread drives.
    ids: Mutex<Vec<Weak<IdHandle>>>,
}

impl EventChannel {
    /// Makes a channel. Devices that are not open are opened with `config` when an identifier needs them.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no descriptor left.
    pub fn new(config: DeviceConfig) -> Result<Self, Error> {
        Ok(Self::of(Opener::with_config(config), Signal::descriptor()?))
    }

    /// As [`new`](Self::new), with a function that opens a device by the name of its interface.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no descriptor left.
    pub fn with_opener(
        open: impl Fn(&str, Purpose) -> Result<Device, crate::Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Ok(Self::of(Opener::new(open), Signal::descriptor()?))
    }

    /// As [`with_opener`](Self::with_opener), with a notifier in place of a descriptor.
    pub fn with_notifier(
        open: impl Fn(&str, Purpose) -> Result<Device, crate::Error> + Send + Sync + 'static,
        notifier: Arc<dyn EventNotifier>,
    ) -> Self {
        Self::of(Opener::new(open), Signal::Notifier(notifier))
    }

    fn of(opener: Opener, signal: Signal) -> Self {
        let list = Arc::new(EventList::new(signal));
        Self(Arc::new(Channel { list, opener, ids: Mutex::default() }))
    }

    /// Makes an identifier, with a number of the program's own.
    ///
    /// # Errors
    /// [`Error::Device`] in a child process after `fork`.
    pub fn create_id(&self, space: PortSpace, context: u64) -> Result<Id, Error> {
        if !self.0.list.is_current() {
            return Err(crate::Error::Forked.into());
        }
        let id = Id::new(space, context, Arc::clone(&self.0.list), self.0.opener.clone());
        self.add(&id);
        Ok(id)
    }

    fn add(&self, id: &Id) {
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() == ids.capacity() {
            ids.retain(|it| it.strong_count() > 0);
        }
        ids.push(Arc::downgrade(&id.0));
    }

    fn has(&self, id: &Id) -> bool {
        let ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().any(|it| std::ptr::eq(it.as_ptr(), Arc::as_ptr(&id.0)))
    }

    /// Takes the next event, if one waits. Runs no round of a device.
    pub fn try_next(&self) -> Option<Event> {
        loop {
            let queued = self.0.list.pop()?;
            // The identifier may have been destroyed meanwhile.
            if let Some(event) = self.event_of(queued) {
                return Some(event);
            }
        }
    }

    /// As [`try_next`](Self::try_next), after a round of the devices of the channel's identifiers.
    pub fn poll(&self) -> Option<Event> {
        if self.0.list.is_empty() {
            self.devices().iter().for_each(Device::run_round);
        }
        self.try_next()
    }

    /// Returns true if no event waits.
    pub fn is_empty(&self) -> bool {
        self.0.list.is_empty()
    }

    /// Sleeps until an event comes, and takes it; `None` after `timeout`. Meanwhile this thread
    /// drives the devices of the channel's identifiers.
    ///
    /// # Errors
    /// [`Error::Device`] in a child process after `fork`; what `poll(2)` says otherwise.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        let deadline = timeout.and_then(|span| Instant::now().checked_add(span));
        loop {
            if !self.0.list.is_current() {
                return Err(crate::Error::Forked.into());
            }
            if let Some(event) = self.try_next() {
                return Ok(Some(event));
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Ok(None);
            }
            let devices = self.devices();
            let shards: Vec<_> = devices.iter().map(|it| it.driver().first()).collect();
            let fds: Vec<_> = self.0.list.fd().into_iter().collect();
            // A channel without a descriptor is looked at again after a while: events come from
            // other threads, too.
            let recheck = fds.is_empty().then(|| Instant::now() + RECHECK);
            let until = deadline.into_iter().chain(recheck).min();
            Driver::drive_all_until(&shards, until, &fds, |_| !self.is_empty())?;
        }
    }

    /// Returns the descriptor that is readable while events wait; `None` for a channel with a notifier.
    ///
    /// A program that sleeps on it leaves the devices to their own threads.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.list.fd()
    }

    /// Returns the devices of the channel's identifiers, each once.
    pub fn devices(&self) -> Vec<Device> {
        if !self.0.list.is_current() {
            return Vec::new();
        }
        let ids: Vec<_> = {
            let ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
            ids.iter().filter_map(Weak::upgrade).collect()
        };
        let mut devices: Vec<Device> = Vec::new();
        for device in ids.iter().flat_map(|id| id.devices()) {
            if !devices.iter().any(|known| Arc::ptr_eq(known.driver(), device.driver())) {
                devices.push(device);
            }
        }
        devices
    }

    /// Makes the event of one that waited; `None` if its identifier was destroyed.
    fn event_of(&self, queued: Queued) -> Option<Event> {
        let Queued { target, listener, what } = queued;
        let listener = match listener {
            None => None,
            Some((of_listener, device)) => match of_listener.handle() {
                Some(handle) => Some((Id(handle), device)),
                None => return lost(&target),
            },
        };
        let id = match (&listener, &what) {
            (None, _) => Id(target.handle()?),
            (Some((listener, device)), What::Agent(event)) => {
                let ends = match event {
                    roce_cm::Event::ConnectRequest { request, .. } => request.addresses,
                    roce_cm::Event::ServiceRequest { request, .. } => request.addresses,
                    _ => return None,
                };
                let made = listener.of_request(Arc::clone(&target), *device, event.id(), ends);
                let Some(id) = made else { return lost(&target) };
                // The listener may have moved while the request was added.
                target.move_to(&self.0.list);
                self.add(&id);
                id
            }
            (Some(_), _) => return None,
        };
        let kind = match what {
            What::AddressResolved => EventKind::AddressResolved,
            What::AddressError(errno) => EventKind::AddressError { errno },
            What::RouteResolved => EventKind::RouteResolved,
            What::MulticastJoin(name) => EventKind::MulticastJoin(id.members_of(name)?),
            What::MulticastError(JoinName { group, context }, errno) => {
                EventKind::MulticastError { context, group, errno }
            }
            What::Agent(event) => kind_of(&id, event)?,
        };
        let listener = listener.map(|(listener, _)| listener);
        let counted = listener.as_ref().unwrap_or(&id);
        counted.0.target.reported.fetch_add(1, Ordering::AcqRel);
        Some(Event { id, listener, kind })
    }
}

/// Ends the events of a request whose listener has ended meanwhile.
fn lost(request: &EventTarget) -> Option<Event> {
    request.destroy();
    None
}

/// Longest sleep on a channel without a descriptor.
const RECHECK: Duration = Duration::from_millis(10);

/// Tells the agent that the program has an event, and converts it; `None` if the device is gone.
fn kind_of(id: &Id, event: roce_cm::Event) -> Option<EventKind> {
    use roce_cm::Event as Agent;
    if matches!(
        event,
        Agent::ConnectRequest { .. } | Agent::ConnectResponse { .. } | Agent::ServiceRequest { .. }
    ) {
        let told = id.device()?.with_agent(|agent, router, _| {
            agent.note_reported(&event);
            router.note_reported(event.id());
            Ok(())
        });
        told.ok()?;
    }
    Some(match event {
        Agent::ConnectRequest { request, .. } => EventKind::ConnectRequest((*request).into()),
        Agent::ServiceRequest { request, .. } => EventKind::ConnectRequest((*request).into()),
        Agent::ConnectResponse { response, .. } => EventKind::ConnectResponse((*response).into()),
        Agent::Established { .. } => EventKind::Established(PeerParameters::default()),
        Agent::Rejected { reason, private_data, .. } => {
            EventKind::Rejected { reason, private_data }
        }
        Agent::Unreachable { .. } => EventKind::Unreachable(Unreachable::TimedOut),
        Agent::Disconnected { .. } => EventKind::Disconnected,
        Agent::TimewaitExit { .. } => EventKind::TimewaitExit,
        Agent::ServiceResponse { response, .. } if response.status == SidrStatus::VALID => {
            EventKind::Established(datagram_peer(id, *response)?)
        }
        Agent::ServiceResponse { response, .. } => {
            let ServiceResponse { status, private_data, .. } = *response;
            EventKind::Unreachable(Unreachable::Service { status, private_data })
        }
    })
}

fn datagram_peer(id: &Id, response: ServiceResponse) -> Option<PeerParameters> {
    let (local, remote) = (id.local_address()?, id.peer_address()?);
    let rows = id.device()?.gid_table().ok()?;
    let own = Gid::from(local.ip());
    let gid_index = rows.iter().find(|row| row.gid == own).map_or(0, |row| row.index);
    let datagram = DatagramPeer {
        qpn: response.qpn,
        q_key: response.q_key,
        gid_index,
        local: local.ip(),
        remote: remote.ip(),
        traffic_class: id.0.state().type_of_service,
        flow_label: 0,
        hop_limit: 64,
    };
    Some(PeerParameters {
        qpn: Some(response.qpn),
        private_data: response.private_data,
        datagram: Some(datagram),
        ..PeerParameters::default()
    })
}

impl Id {
    /// Moves the identifier to another channel, with its events that wait. Returns how many events
    /// the program has got of it.
    pub fn migrate(&self, channel: &EventChannel) -> u32 {
        if self.0.is_current() {
            self.0.target.move_to(&channel.0.list);
            if !channel.has(self) {
                channel.add(self);
            }
        }
        self.0.target.reported.load(Ordering::Acquire)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // In a child after fork the list may be locked by a thread that does not exist.
        if !self.list.is_current() {
            return;
        }
        for queued in self.list.close() {
            let Some((listener, device)) = queued.listener else { continue };
            let What::Agent(event) = queued.what else { continue };
            // A request that no program answers: its listener refuses it.
            if let Some(listener) = listener.handle::<IdHandle>() {
                listener.refuse(device, event.id());
            }
        }
    }
}
