//! Identifiers: connections, listeners, and the ends of resolutions.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roce_cm::{Agent, ListenerHandle};
use roce_transport::Instant;
use roce_wire::management::{CommunicationId, PortSpace};

use super::join::Join;
use super::opener::Opener;
use crate::cm_router::{
    DeviceNumber, Error, EventList, EventTarget, PortClaim, Queued, Resolution, Router, What,
    address::{self, Place},
    automatic_port, errno_of_route, is_of_datagrams,
};
use crate::device::Device;
use crate::process::fork;
use crate::process::purpose::Purpose;

/// A connection, a listener, or the end of a resolution of a datagram service; as `rdma_cm_id`.
///
/// A clone is the same identifier. It is destroyed with the last clone, or by
/// [`destroy`](Self::destroy): its connection ends, and the peer is told.
///
/// The calls are made in this order:
///
/// | active side | passive side |
/// |---|---|
/// | [`resolve_addr`](Self::resolve_addr) → `AddressResolved` | [`bind`](Self::bind), [`listen`](Self::listen) |
/// | [`resolve_route`](Self::resolve_route) → `RouteResolved` | |
/// | [`connect`](Self::connect) | → `ConnectRequest` with a new identifier |
/// | | [`accept`](Self::accept) or [`reject`](Self::reject) of that |
/// | → `ConnectResponse`, or `Rejected` | |
/// | [`establish`](Self::establish) | → `Established` |
/// | [`disconnect`](Self::disconnect) | → `Disconnected` |
///
/// Identifiers of [`PortSpace::UDP`] ask for the queue pair of a datagram service: the active side gets
/// `Established` with that, and there is no connection.
#[derive(Clone, Debug)]
pub struct Id(pub(super) Arc<IdHandle>);

/// What all clones of an identifier share.
#[derive(Debug)]
pub(super) struct IdHandle {
    pub(super) target: Arc<EventTarget>,
    opener: Opener,
    state: Mutex<State>,
    /// A child after fork waits for none of the locks, which a thread of its parent may hold.
    generation: fork::Generation,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) device: Option<Device>,
    pub(super) claim: Option<PortClaim>,
    /// Devices that are open for a later `listen`.
    pub(super) ready: Vec<Device>,
    pub(super) listeners: Vec<(Device, ListenerHandle)>,
    pub(super) joins: Vec<Join>,
    pub(super) type_of_service: u8,
    pub(super) ack_timeout: Option<u8>,
    reuses_address: bool,
    pub(super) is_v6_only: bool,
}

/// How far an identifier is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Bound,
    ResolvingAddress,
    AddressResolved,
    RouteResolved,
    Listening,
    /// The agent has a connection, or a resolution.
    Active(CommunicationId),
    /// The agent has the request of a peer.
    Passive(CommunicationId),
}

impl Phase {
    pub(super) fn id(self) -> Option<CommunicationId> {
        match self {
            Self::Active(id) | Self::Passive(id) => Some(id),
            _ => None,
        }
    }
}

impl Id {
    pub(super) fn new(
        space: PortSpace,
        context: u64,
        list: Arc<EventList<Queued>>,
        opener: Opener,
    ) -> Self {
        let target = Arc::new(EventTarget::new(space, context, list));
        Self::of(target, opener, State::default())
    }

    fn of(target: Arc<EventTarget>, opener: Opener, state: State) -> Self {
        let (state, generation) = (Mutex::new(state), fork::Generation::current());
        let handle = Arc::new(IdHandle { target, opener, state, generation });
        let weak: Weak<IdHandle> = Arc::downgrade(&handle);
        handle.target.set_handle(weak);
        Self(handle)
    }

    /// Makes the identifier of a request to this listener. `None` if the listener has ended meanwhile.
    pub(super) fn of_request(
        &self,
        target: Arc<EventTarget>,
        device: DeviceNumber,
        id: CommunicationId,
        ends: roce_cm::ConnectionAddresses,
    ) -> Option<Self> {
        let opener = self.0.opener.clone();
        let device = {
            let state = self.0.state();
            let known = state.listeners.iter().find(|(it, _)| it.number() == device);
            known.map(|(device, _)| device.clone())?
        };
        let state = State {
            phase: Phase::Passive(id),
            local: Some(ends.local),
            peer: Some(ends.remote),
            device: Some(device),
            ..State::default()
        };
        Some(Self::of(target, opener, state))
    }

    /// Returns a number that no other identifier of this process has or had.
    pub fn number(&self) -> u64 {
        self.0.target.number
    }

    /// Returns the program's own number for the identifier.
    pub fn context(&self) -> u64 {
        self.0.target.context.load(Ordering::Acquire)
    }

    /// Sets the program's own number for the identifier.
    pub fn set_context(&self, context: u64) {
        self.0.target.context.store(context, Ordering::Release);
    }

    /// Returns the port space.
    pub fn space(&self) -> PortSpace {
        self.0.target.space
    }

    /// Returns the own address and port, as far as they are known.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.is_current().then(|| self.0.state().local).flatten()
    }

    /// Returns the peer's address and port, once they are known.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.0.is_current().then(|| self.0.state().peer).flatten()
    }

    /// Returns the device, once the identifier is bound to one: to an address of it, by the address
    /// of a peer, or by a request. The queue pair of the connection is made from this device.
    pub fn device(&self) -> Option<Device> {
        self.0.is_current().then(|| self.0.state().device.clone()).flatten()
    }

    /// Binds the identifier to an address and a port. The unspecified and the loopback address
    /// stand for all addresses of this host, port 0 for any that is free. Devices with these addresses are
    /// opened.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::NoDevice`], [`Error::WrongState`]; those of
    /// [`Device::open`](crate::Device::open).
    pub fn bind(&self, address: SocketAddr) -> Result<(), Error> {
        let mut state = self.0.checked_state()?;
        if state.phase != Phase::Idle {
            return Err(Error::WrongState { call: "bind" });
        }
        let (mut bound, mut device) = (address, None);
        if !address::is_any(address.ip()) {
            let place = address::place_of(address)?;
            if self.space() == PortSpace::IPOIB {
                return Err(Error::NoIpoib);
            }
            device = Some(self.0.open(&place)?);
        }
        if !state.reuses_address || address.port() == 0 {
            let claim = PortClaim::new(self.space(), address, state.is_v6_only)?;
            bound.set_port(claim.address().port());
            state.claim = Some(claim);
        }
        if address::is_any(address.ip()) {
            // A program may tell its clients the port before it listens. Opening devices takes some 30 ms, and a
            // request is lost for 6 s if they are not open; where they are, one that comes before `listen` is
            // refused at once, as by the kernel. `listen` reports what is wrong.
            state.ready = self.0.open_all(address.ip()).unwrap_or_default();
        }
        (state.local, state.device, state.phase) = (Some(bound), device, Phase::Bound);
        Ok(())
    }

    /// Resolves the address of a peer, and binds the identifier to the device that reaches it. The event
    /// `AddressResolved` or `AddressError` follows. An address of this host, or the loopback address, is
    /// reached over the device that has it.
    ///
    /// Where no neighbour answers, the error comes after `timeout`, or when the kernel gives up: by
    /// default after three seconds, at most four.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::NoDevice`], [`Error::FamiliesDiffer`], [`Error::WrongState`];
    /// those of [`Device::open`](crate::Device::open).
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut state = self.0.checked_state()?;
        let is_bound = match state.phase {
            Phase::Idle => false,
            Phase::Bound => true,
            _ => return Err(Error::WrongState { call: "resolve_addr" }),
        };
        let source = if is_bound { state.local } else { source };
        // The kernel binds to a source before it resolves.
        let is_ipoib = self.space() == PortSpace::IPOIB;
        if is_ipoib && source.is_some_and(|it| !address::is_any(it.ip())) {
            return Err(Error::NoIpoib);
        }
        let ends = address::ends_to(source, destination)?;
        let device = self.0.open(&ends.local)?;
        let port = source.map(|it| it.port()).filter(|port| *port != 0);
        let target = Arc::clone(&self.0.target);
        if let Some(errno) = self.0.refused_resolution(source, destination) {
            // The kernel has bound it by then, so that it may listen.
            let any = || SocketAddr::new(address::any_of(destination.ip()), 0);
            state.local = Some(source.unwrap_or_else(any));
            state.phase = Phase::Bound;
            target.push(What::AddressError(errno));
            return Ok(());
        }
        target.set_resolution(Resolution::Pending);
        let done = move |outcome: Result<(), roce_engine::RouteError>| match outcome {
            Ok(()) => {
                target.set_resolution(Resolution::Resolved);
                target.push(What::AddressResolved);
            }
            Err(error) => {
                target.set_resolution(Resolution::Failed);
                target.push(What::AddressError(errno_of_route(&error)));
            }
        };
        let (own, remote) = (ends.local.address, ends.remote);
        device.driver().reach(own, remote, state.type_of_service, timeout, done)?;
        state.local = Some(SocketAddr::new(own, port.unwrap_or_else(automatic_port)));
        state.peer = Some(SocketAddr::new(remote, destination.port()));
        state.ready.clear();
        (state.device, state.phase) = (Some(device), Phase::ResolvingAddress);
        Ok(())
    }

    /// Resolves the route to the peer. The event `RouteResolved` follows at once: a route of RoCE
    /// is that of IP.
    ///
    /// # Errors
    /// [`Error::WrongState`] before the address is resolved.
    pub fn resolve_route(&self) -> Result<(), Error> {
        let mut state = self.0.checked_state()?;
        if state.phase != Phase::AddressResolved {
            return Err(Error::WrongState { call: "resolve_route" });
        }
        state.phase = Phase::RouteResolved;
        self.0.target.push(What::RouteResolved);
        Ok(())
    }

    /// Sets the type of service, or traffic class, of the connection's packets.
    pub fn set_type_of_service(&self, type_of_service: u8) {
        if self.0.is_current() {
            self.0.state().type_of_service = type_of_service;
        }
    }

    /// Sets whether the port is claimed only by [`listen`](Self::listen). An identifier that is bound keeps its
    /// claim.
    ///
    /// # Errors
    /// [`Error::WrongState`] for false once the identifier is bound, and for a listener.
    pub fn set_reuse_address(&self, reuses: bool) -> Result<(), Error> {
        let mut state = self.0.checked_state()?;
        let may_set = state.phase == Phase::Idle || reuses && state.phase != Phase::Listening;
        if !may_set {
            return Err(Error::WrongState { call: "set_reuse_address" });
        }
        state.reuses_address = reuses;
        Ok(())
    }

    /// Sets whether any IPv6 address is no IPv4 address.
    ///
    /// # Errors
    /// [`Error::WrongState`] for what is more than bound.
    pub fn set_ipv6_only(&self, is_v6_only: bool) -> Result<(), Error> {
        let mut state = self.0.checked_state()?;
        if !matches!(state.phase, Phase::Idle | Phase::Bound) {
            return Err(Error::WrongState { call: "set_ipv6_only" });
        }
        state.is_v6_only = is_v6_only;
        Ok(())
    }

    /// Sets the ACK timeout of the connection's queue pairs: 4.096 µs · 2^code.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] above 31; [`Error::NotAcknowledged`] for datagrams.
    pub fn set_ack_timeout(&self, code: u8) -> Result<(), Error> {
        if code > 31 {
            return Err(Error::OutOfRange { value: "the ACK timeout" });
        }
        if is_of_datagrams(self.space()) {
            return Err(Error::NotAcknowledged);
        }
        self.0.checked_state()?.ack_timeout = Some(code);
        Ok(())
    }

    /// With `ignores`, loses the events of the identifier that wait and those that follow, until it is called
    /// again without. The kernel's rdma_cm has none for the identifier of a request that the program has not
    /// accepted.
    pub fn ignore_events(&self, ignores: bool) {
        if self.0.is_current() {
            self.0.target.ignore_events(ignores);
        }
    }

    /// Destroys the identifier: a connection ends, requests that wait are refused, events that wait
    /// are gone. Returns how many events the program has got of it; those of requests count for the
    /// listener.
    pub fn destroy(&self) -> u32 {
        self.0.destroy();
        self.0.target.reported.load(Ordering::Acquire)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Id {}

impl IdHandle {
    /// Returns the error of a resolution that the kernel's rdma_cm begins and gives up. No device of RoCE has ports
    /// of IPoIB, but the loopback address is that of any device; and from that only this host is reached.
    fn refused_resolution(&self, source: Option<SocketAddr>, to: SocketAddr) -> Option<i32> {
        let is_from_loopback = source.is_some_and(|it| it.ip().is_loopback());
        if self.target.space == PortSpace::IPOIB && !address::is_any(to.ip()) {
            Some(libc::EINVAL)
        } else if is_from_loopback && !address::is_any(to.ip()) {
            Some(libc::ENODEV)
        } else {
            None
        }
    }

    /// Returns true in the process that made the identifier.
    pub(super) fn is_current(&self) -> bool {
        self.generation.is_current()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.phase == Phase::ResolvingAddress {
            state.phase = match self.target.resolution() {
                Resolution::Pending => Phase::ResolvingAddress,
                Resolution::Resolved => Phase::AddressResolved,
                Resolution::Failed => Phase::Bound,
            };
        }
        state
    }

    /// As [`state`](Self::state), of an identifier that this process has not destroyed.
    pub(super) fn checked_state(&self) -> Result<MutexGuard<'_, State>, Error> {
        if !self.is_current() {
            return Err(crate::Error::Forked.into());
        }
        match self.target.is_destroyed() {
            true => Err(Error::Destroyed),
            false => Ok(self.state()),
        }
    }

    /// Opens the device of a place, with connection management.
    fn open(&self, place: &Place) -> Result<Device, Error> {
        self.open_for(&place.interface, Purpose::Traffic)
    }

    fn open_for(&self, interface: &str, purpose: Purpose) -> Result<Device, Error> {
        let device = self.opener.open(interface, purpose)?;
        device.driver().manage_connections()?;
        Ok(device)
    }

    /// Opens all devices that have an address.
    pub(super) fn open_all(&self, address: IpAddr) -> Result<Vec<Device>, Error> {
        let mut devices = Vec::new();
        let mut first_error = None;
        for interface in address::all_with_addresses()? {
            match self.open_for(&interface, Purpose::Listening) {
                Ok(device) => devices.push(device),
                Err(error) => {
                    tracing::info!(%error, "a listener for all devices leaves one out");
                    first_error.get_or_insert(error);
                }
            }
        }
        match (devices.is_empty(), first_error) {
            (false, _) => Ok(devices),
            (true, Some(error)) => Err(error),
            (true, None) => Err(Error::NoDevice { address }),
        }
    }

    /// Returns the devices that report events of the identifier.
    pub(super) fn devices(&self) -> Vec<Device> {
        let state = self.state();
        let of_listeners = state.listeners.iter().map(|(device, _)| device.clone());
        state.device.iter().cloned().chain(of_listeners).collect()
    }

    /// Refuses a request to this listener that the program does not get.
    pub(super) fn refuse(&self, device: DeviceNumber, id: CommunicationId) {
        let device = self.devices().into_iter().find(|it| it.number() == device);
        let refused = device.map(|device| {
            device.with_agent(|agent, router, now| {
                router.remove(id);
                Ok(agent.destroy(now, id)?)
            })
        });
        // An agent that does not know it has ended it.
        refused.unwrap_or(Ok(())).unwrap_or_default();
    }

    fn destroy(&self) {
        // In a child after fork all of it is the parent's.
        if !self.is_current() || !self.target.destroy() {
            return;
        }
        let (listeners, joins, connection) = {
            let mut state = self.state();
            state.claim = None;
            let connection = state.phase.id().zip(state.device.clone());
            (std::mem::take(&mut state.listeners), std::mem::take(&mut state.joins), connection)
        };
        joins.into_iter().for_each(Join::end);
        end_listeners(&listeners);
        if let Some((id, device)) = connection {
            let ended = device.with_agent(|agent, router, now| {
                router.remove(id);
                Ok(agent.destroy(now, id)?)
            });
            // An agent that does not know it has ended it.
            ended.unwrap_or_default();
        }
    }
}

impl Drop for IdHandle {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Ends listeners of agents.
pub(super) fn end_listeners(listeners: &[(Device, ListenerHandle)]) {
    for (device, handle) in listeners {
        let ended = device.with_agent(|agent, router, now| {
            agent.close_listener(now, *handle);
            router.remove_listener(*handle);
            Ok(())
        });
        // In a child after fork there is nothing to end.
        ended.unwrap_or_default();
    }
}

impl Device {
    /// Does `work` with the agent of the device, which manages connections.
    pub(super) fn with_agent<T>(
        &self,
        work: impl FnOnce(&mut Agent, &mut Router, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = self.driver().with_agent(work)?;
        done.unwrap_or(Err(Error::WrongState { call: "this" }))
    }

    /// Returns the number that tells this device apart in its router.
    fn number(&self) -> DeviceNumber {
        DeviceNumber(Arc::as_ptr(self.driver()) as usize)
    }
}
