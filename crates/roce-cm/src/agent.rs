//! The agent of a device.

use std::net::IpAddr;

use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, RejectReason};
use roce_wire::{Instant, PathMtu};

use crate::addresses::DatagramAddresses;
use crate::config::AgentConfig;
use crate::connection::State;
use crate::counters::{Counters, DropReason};
use crate::disposition::Disposition;
use crate::error::AgentError;
use crate::event::Event;
use crate::listener::ListenerHandle;
use crate::messages;
use crate::outputs::Transmit;
use crate::parameters::{
    AcceptParameters, ConnectParameters, ListenParameters, RejectParameters, ResolveParameters,
    ServiceAnswer,
};
use crate::queue_pair_attributes::{self, InitAttributes, RtrAttributes, RtsAttributes};
use crate::record::{Change, ConnectionRecord};
use crate::resolution::ResolutionState;
use crate::strays::StrayDatagram;
use crate::tables::Tables;
use crate::{active, ending, orphan, passive, services};

/// The connection manager of a device.
///
/// It makes and ends connections of the device's queue pairs with datagrams of queue pair 1. It has no
/// clock and no socket: the caller passes datagrams in, takes datagrams and [`Event`]s out, and calls
/// [`handle_timeout`](Self::handle_timeout), and [`poll_stray`](Self::poll_stray) until it returns none, at
/// [`poll_timeout`](Self::poll_timeout). `now` is the time since any fixed moment, and never goes
/// backwards. The same calls have the same results.
///
/// Each connection and each resolution has a communication id, which is its handle. It lives until
/// [`destroy`](Self::destroy), whatever the peer does.
///
/// # Progress
/// Every message that waits for the peer is repeated at most 15 times: after 98 s without an answer
/// [`Event::Unreachable`] or [`Event::Disconnected`] tells the program, unless the peer has asked for
/// more time with MRA. Of the requests to one peer [`MAX_REQUESTS_IN_FLIGHT`](crate::MAX_REQUESTS_IN_FLIGHT) are
/// in flight at a time. The others wait, in their order, for answers, or for
/// [`REQUEST_FLIGHT_TIME`](crate::REQUEST_FLIGHT_TIME): 1000 requests to a peer that does not answer take 0.8 s
/// to leave.
///
/// ```
/// use roce_cm::{Agent, AgentConfig, ConnectParameters, ConnectionAddresses, Event};
/// use roce_wire::{Instant, Qpn};
///
/// let local: std::net::IpAddr = [10, 0, 0, 1].into();
/// let mut agent = Agent::new(AgentConfig::new(1, 1, vec![local]));
/// let addresses =
///     ConnectionAddresses { local: (local, 40_000).into(), remote: ([10, 0, 0, 2], 7174).into() };
/// let parameters = ConnectParameters::new(addresses, Qpn::new(0x11).unwrap());
/// let id = agent.connect(Instant::START, &parameters)?;
///
/// // No peer answers.
/// let mut requests = 0;
/// while let Some(next) = agent.poll_timeout() {
///     while agent.poll_transmit().is_some() {
///         requests += 1;
///     }
///     agent.handle_timeout(next);
/// }
/// assert_eq!(requests, 16);
/// assert_eq!(agent.poll_event(), Some(Event::Unreachable { id }));
/// agent.destroy(Instant::from_nanos(99_000_000_000), id)?;
/// # Ok::<(), roce_cm::AgentError>(())
/// ```
#[derive(Debug)]
pub struct Agent {
    pub(crate) tables: Tables,
}

impl Agent {
    /// Creates an agent without connections.
    pub fn new(config: AgentConfig) -> Self {
        Self { tables: Tables::new(config) }
    }

    /// Replaces the addresses that requests may be sent to.
    pub fn set_local_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.tables.config.local_addresses = addresses;
    }

    /// Replaces the largest path MTU of the interface.
    pub fn set_path_mtu(&mut self, path_mtu: PathMtu) {
        self.tables.config.path_mtu = path_mtu;
    }

    /// Takes a payload of a packet to queue pair 1.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        addresses: DatagramAddresses,
        datagram: &[u8],
    ) -> Disposition {
        let tables = &mut self.tables;
        tables.outputs.counters.received += 1;
        let disposition = match CmDatagram::decode(datagram) {
            Ok(decoded) => match handle(tables, now, addresses, &decoded) {
                Ok(()) => Disposition::Handled,
                Err(Disposition::Stray) => {
                    tables.pass_on(now, addresses, &decoded.message, datagram)
                }
                Err(disposition) => disposition,
            },
            Err(error) => DropReason::from(error).into(),
        };
        tables.send_held_back(now);
        match disposition {
            Disposition::Handled => {}
            Disposition::Stray | Disposition::HeldStray => tables.outputs.counters.stray += 1,
            Disposition::Foreign => tables.outputs.counters.foreign += 1,
            Disposition::Dropped(reason) => tables.outputs.counters.count_drop(reason),
        }
        disposition
    }

    /// Returns a datagram that was [`Disposition::HeldStray`], if its turn has come.
    pub fn poll_stray(&mut self, now: Instant) -> Option<StrayDatagram> {
        self.tables.strays.next_due(now)
    }

    /// Answers a datagram that was [`Disposition::Stray`] or that [`poll_stray`](Self::poll_stray) has
    /// returned, and that no other agent of the host takes: there is no listener, or no such connection.
    /// Other datagrams are not answered.
    ///
    /// ```
    /// use roce_cm::*;
    /// use roce_wire::Instant;
    ///
    /// let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    /// let mut asking = Agent::new(AgentConfig::new(1, 1, vec![local]));
    /// let mut agent = Agent::new(AgentConfig::new(2, 2, vec![remote]));
    /// let ends = ConnectionAddresses { local: (local, 1).into(), remote: (remote, 7).into() };
    /// asking.resolve(Instant::START, &ResolveParameters::new(ends))?;
    /// let request = asking.poll_transmit().unwrap();
    ///
    /// let addresses = DatagramAddresses { local: remote, remote: local };
    /// let disposition = agent.handle_datagram(Instant::START, addresses, &request.datagram[..]);
    /// assert_eq!(disposition, Disposition::Stray);
    /// // No other process of this host listens, either.
    /// agent.answer_stray(addresses, &request.datagram[..]);
    /// assert!(agent.poll_transmit().is_some());
    /// # Ok::<(), AgentError>(())
    /// ```
    //= rule cm-no-listener: cm.c: cm_req_handler; cm.c: cm_sidr_req_handler
    //# A REQ without listener is rejected with the reason 8, and a SIDR_REQ answered with the status 1.
    pub fn answer_stray(&mut self, addresses: DatagramAddresses, datagram: &[u8]) {
        let Ok(CmDatagram { transaction, message }) = CmDatagram::decode(datagram) else {
            return;
        };
        let reply = match &message {
            CmMessage::Req(req) => {
                let reason = RejectReason::INVALID_SERVICE_ID;
                messages::rej_of_req(transaction, req.local_id, reason)
            }
            CmMessage::SidrReq(req) => services::without_listener(addresses, transaction, req),
            CmMessage::Dreq(dreq) => messages::drep(transaction, dreq.remote_id, dreq.local_id),
            _ => return,
        };
        self.tables.outputs.send(addresses, 0, reply);
    }

    /// Notes that a datagram that could be passed to [`answer_stray`](Self::answer_stray) is not looked
    /// at, because too many wait.
    pub fn drop_stray(&mut self) {
        self.tables.outputs.counters.count_drop(DropReason::Strays);
    }

    /// Returns a datagram to send, if one waits. At most 8192 wait.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.tables.outputs.next_transmit()
    }

    /// Returns true if a datagram waits to be sent.
    pub fn has_transmit(&self) -> bool {
        self.tables.outputs.has_transmit()
    }

    /// Returns true if an event, a changed connection or a forgotten request waits to be taken.
    pub fn has_news(&self) -> bool {
        let Tables { outputs, changed, forgotten, .. } = &self.tables;
        outputs.has_events() || !changed.is_empty() || !forgotten.is_empty()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let tables = &self.tables;
        let next = [
            tables.resends.next(),
            tables.timewaits.next(),
            tables.request_windows.next_end(),
            tables.kept_rejects.next_end(),
            tables.kept_answers.next_end(),
            tables.strays.next_turn(),
        ];
        next.into_iter().flatten().min()
    }

    /// Repeats messages, gives up, and ends timewaits whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        let tables = &mut self.tables;
        while let Some(id) = tables.timewaits.pop_due(now) {
            tables.leave_timewait(now, id);
        }
        while let Some(id) = tables.resends.pop_due(now) {
            if tables.resolutions.contains_key(&id) {
                services::handle_timeout(tables, now, id);
            } else {
                ending::handle_timeout(tables, now, id);
            }
        }
        tables.send_held_back(now);
        tables.kept_rejects.handle_timeout(now);
        tables.kept_answers.handle_timeout(now);
    }

    /// Returns the next event, if one waits.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.take_event()?;
        self.note_reported(&event);
        Some(event)
    }

    /// Takes the next event to keep it for the program. Until [`note_reported`](Self::note_reported) a
    /// request has its place in the backlog of its listener, with which it ends, and the program counts
    /// as not told.
    pub fn take_event(&mut self) -> Option<Event> {
        self.tables.outputs.next_event()
    }

    /// Notes that the program has got an event from [`take_event`](Self::take_event).
    pub fn note_reported(&mut self, event: &Event) {
        let id = event.id();
        if let Some(it) = self.tables.connections.get_mut(&id) {
            it.is_reported |=
                matches!(event, Event::ConnectRequest { .. } | Event::ConnectResponse { .. });
            if let Event::ConnectRequest { listener, .. } = event
                && it.backlog_of.is_some()
            {
                it.backlog_of = None;
                self.tables.listeners.remove_waiting(*listener);
            }
        }
        if let Event::ServiceRequest { listener, .. } = event
            && let Some(it) = self.tables.resolutions.get_mut(&id)
            && let ResolutionState::Received { backlog_of, .. } = &mut it.state
            && backlog_of.is_some()
        {
            *backlog_of = None;
            self.tables.listeners.remove_waiting(*listener);
        }
    }

    /// Notes that the answer to a request has no path yet, and the program is told of the request later. Until
    /// [`path_is_known`](Self::path_is_known) it gives up its place if the listener's backlog is full:
    /// [`poll_forgotten`](Self::poll_forgotten) tells.
    pub fn await_path(&mut self, id: CommunicationId) {
        if let Some(listener) = self.tables.backlog_of(id) {
            self.tables.listeners.add_without_path(listener, id);
        }
    }

    /// Notes that the path of the answer to a request is known, or that there is none.
    pub fn path_is_known(&mut self, id: CommunicationId) {
        if let Some(listener) = self.tables.backlog_of(id) {
            self.tables.listeners.remove_without_path(listener, id);
        }
    }

    /// Returns a request that has given up its place, so that the program is not told of it.
    pub fn poll_forgotten(&mut self) -> Option<CommunicationId> {
        self.tables.forgotten.pop_front()
    }

    /// Waits for requests to a port.
    ///
    /// # Errors
    /// The port is 0, or has a listener for an address in common.
    pub fn listen(&mut self, parameters: &ListenParameters) -> Result<ListenerHandle, AgentError> {
        self.tables.listeners.add(parameters)
    }

    /// Ends a listener. Requests whose event was not taken are refused; other connections go on.
    pub fn close_listener(&mut self, now: Instant, listener: ListenerHandle) {
        let tables = &mut self.tables;
        if !tables.listeners.remove(listener) {
            return;
        }
        for id in tables.waiting_requests(listener) {
            ending::destroy(tables, now, id);
            services::destroy(tables, now, id);
        }
    }

    /// Asks for a connection: sends a REQ until it is answered. Returns the connection.
    ///
    /// # Errors
    /// Too much private data, addresses of two versions, or no communication id left.
    pub fn connect(
        &mut self,
        now: Instant,
        parameters: &ConnectParameters<'_>,
    ) -> Result<CommunicationId, AgentError> {
        active::connect(&mut self.tables, now, parameters)
    }

    /// Accepts a request: sends a REP until it is answered.
    ///
    /// # Errors
    /// The connection waits for nothing like that, or too much private data.
    pub fn accept(
        &mut self,
        now: Instant,
        id: CommunicationId,
        parameters: &AcceptParameters<'_>,
    ) -> Result<(), AgentError> {
        passive::accept(&mut self.tables, now, id, parameters)
    }

    /// Confirms the peer's response: sends an RTU, with at most 224 bytes for the peer's program. The
    /// connection is established.
    ///
    /// # Errors
    /// The connection waits for nothing like that, or too much private data.
    pub fn establish(
        &mut self,
        id: CommunicationId,
        private_data: &[u8],
    ) -> Result<(), AgentError> {
        active::establish(&mut self.tables, id, private_data)
    }

    /// Establishes an accepted connection whose RTU has not arrived, because the peer's queue pair has
    /// sent something; as `rdma_notify`.
    ///
    /// # Errors
    /// [`AgentError::Established`], and others where the connection does not wait for an RTU.
    pub fn communication_established(&mut self, id: CommunicationId) -> Result<(), AgentError> {
        let may_be = |state| matches!(state, State::RepSent | State::Established);
        if self.tables.for_call(id, may_be)?.state == State::Established {
            return Err(AgentError::Established(id));
        }
        passive::become_established(&mut self.tables, id);
        Ok(())
    }

    /// Refuses a request, or a response, with a REJ, or takes back a request or a response that the peer has
    /// not answered. The connection is over, and no event follows.
    ///
    /// # Errors
    /// The connection is established, ends, or was not asked for; too much private data.
    pub fn reject(
        &mut self,
        now: Instant,
        id: CommunicationId,
        parameters: &RejectParameters<'_>,
    ) -> Result<(), AgentError> {
        ending::reject(&mut self.tables, now, id, parameters)
    }

    /// Ends a connection with DREQ, or confirms with DREP that the peer has ended it.
    ///
    /// # Errors
    /// The connection is not established.
    pub fn disconnect(&mut self, now: Instant, id: CommunicationId) -> Result<(), AgentError> {
        ending::disconnect(&mut self.tables, now, id)
    }

    /// Asks for the queue pair of a datagram service: sends a SIDR_REQ until it is answered. Returns the
    /// resolution.
    ///
    /// # Errors
    /// Too much private data, addresses of two versions, or no communication id left.
    pub fn resolve(
        &mut self,
        now: Instant,
        parameters: &ResolveParameters<'_>,
    ) -> Result<CommunicationId, AgentError> {
        services::resolve(&mut self.tables, now, parameters)
    }

    /// Answers the request for a datagram service. The answer is kept for 70 s, and sent again if the
    /// request arrives again.
    ///
    /// # Errors
    /// The resolution waits for nothing like that, or too much private data.
    pub fn answer(
        &mut self,
        now: Instant,
        id: CommunicationId,
        answer: &ServiceAnswer<'_>,
    ) -> Result<(), AgentError> {
        services::answer(&mut self.tables, now, id, answer)
    }

    /// Gives up a connection or resolution in any state, and tells the peer. No event follows.
    ///
    /// # Errors
    /// There is none.
    pub fn destroy(&mut self, now: Instant, id: CommunicationId) -> Result<(), AgentError> {
        if self.tables.resolutions.contains_key(&id) {
            services::destroy(&mut self.tables, now, id);
        } else {
            self.tables.for_call(id, |_| true)?;
            ending::destroy(&mut self.tables, now, id);
        }
        self.tables.send_held_back(now);
        Ok(())
    }

    /// Gives up all connections and resolutions, as [`destroy`](Self::destroy) does: the program ends.
    pub fn destroy_all(&mut self, now: Instant) {
        let tables = &mut self.tables;
        let resolutions: Vec<_> = tables.resolutions.keys().copied().collect();
        resolutions.into_iter().for_each(|id| services::destroy(tables, now, id));
        let alive = tables.connections.iter().filter(|(_, it)| !it.is_destroyed);
        let connections: Vec<_> = alive.map(|(id, _)| *id).collect();
        connections.into_iter().for_each(|id| ending::destroy(tables, now, id));
        tables.send_held_back(now);
    }

    /// Returns the next connection whose record has changed, if the [configuration](AgentConfig) keeps
    /// records: what another agent needs to [end it](Self::end_orphan) if this one's process dies. A datagram
    /// that follows from a change waits to be taken not before the change does, so that an owner that
    /// writes down all changes before it sends leaves no peer unknown.
    pub fn poll_change(&mut self) -> Option<Change> {
        let id = self.tables.changed.pop_first()?;
        let connection = self.tables.connections.get(&id);
        Some(Change { id, record: connection.and_then(|it| ConnectionRecord::of(id, it)) })
    }

    /// Ends a connection of a process that has died, as [`destroy`](Self::destroy) does: its peer is told.
    /// A DREQ is repeated every 250 ms until the peer answers. A REJ has no answer: the caller may call
    /// this again, so that it is sent again.
    ///
    /// ```
    /// use roce_cm::{Agent, AgentConfig, ConnectParameters, ConnectionAddresses};
    /// use roce_wire::{Instant, Qpn};
    ///
    /// let local: std::net::IpAddr = [10, 0, 0, 1].into();
    /// let config = AgentConfig::new(1, 1, vec![local]);
    /// let mut agent = Agent::new(AgentConfig { keeps_records: true, id_prefix: 5, ..config.clone() });
    /// let addresses =
    ///     ConnectionAddresses { local: (local, 40_000).into(), remote: ([10, 0, 0, 2], 7174).into() };
    /// let parameters = ConnectParameters::new(addresses, Qpn::new(0x11).unwrap());
    /// agent.connect(Instant::START, &parameters)?;
    /// let record = agent.poll_change().and_then(|change| change.record).unwrap();
    /// // The process dies, and another one finds the record.
    /// drop(agent);
    /// let mut other = Agent::new(AgentConfig { id_prefix: 6, ..config });
    /// other.end_orphan(Instant::START, &record);
    /// assert!(other.poll_transmit().is_some());
    /// # Ok::<(), roce_cm::AgentError>(())
    /// ```
    pub fn end_orphan(&mut self, now: Instant, record: &ConnectionRecord) {
        orphan::end(&mut self.tables, now, record);
    }

    /// Returns true while a DREQ of the connection waits for its answer.
    pub fn is_disconnecting(&self, id: CommunicationId) -> bool {
        self.tables.connections.get(&id).is_some_and(|it| it.state == State::DreqSent)
    }

    /// Returns true while datagrams wait to be taken, or requests for answers to others: what a process that
    /// ends has not told yet.
    pub fn has_unsent(&self) -> bool {
        self.tables.outputs.has_transmit() || self.tables.request_windows.waiting() > 0
    }

    /// Returns the attributes for INIT of the connection's queue pair.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn init_attributes(&self, id: CommunicationId) -> Result<InitAttributes, AgentError> {
        queue_pair_attributes::init(&self.tables, id)
    }

    /// Returns the attributes for RTR of the connection's queue pair.
    ///
    /// # Errors
    /// The peer has not answered, or the connection has ended.
    pub fn rtr_attributes(&self, id: CommunicationId) -> Result<RtrAttributes, AgentError> {
        queue_pair_attributes::rtr(&self.tables, id)
    }

    /// Returns the attributes for RTS of the connection's queue pair.
    ///
    /// # Errors
    /// The peer has not answered, or the connection has ended.
    pub fn rts_attributes(&self, id: CommunicationId) -> Result<RtsAttributes, AgentError> {
        queue_pair_attributes::rts(&self.tables, id)
    }

    /// Returns between which addresses the datagrams of a connection or resolution go, and with which
    /// traffic class; `None` if there is none.
    pub fn route_of(&self, id: CommunicationId) -> Option<(DatagramAddresses, u8)> {
        let tables = &self.tables;
        let of_connection = tables.connections.get(&id).map(|it| (it.addresses, it.traffic_class));
        of_connection
            .or_else(|| tables.resolutions.get(&id).map(|it| (it.addresses, it.traffic_class)))
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.tables.outputs.counters
    }

    /// Returns what the agent keeps.
    pub fn usage(&self) -> AgentUsage {
        let tables = &self.tables;
        AgentUsage {
            listeners: tables.listeners.len(),
            connections: tables.connections.len(),
            resolutions: tables.resolutions.len(),
            unanswered_requests: tables.unanswered_requests,
            timewaits: tables.timewaits.len(),
            kept_replies: tables.kept_rejects.len() + tables.kept_answers.len(),
            timers: tables.resends.len(),
            requests_in_flight: tables.request_windows.in_flight(),
            requests_held_back: tables.request_windows.waiting(),
            remote_names: tables.remote_names.len(),
        }
    }
}

fn handle(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    datagram: &CmDatagram,
) -> Result<(), Disposition> {
    let transaction = datagram.transaction;
    match &datagram.message {
        CmMessage::Req(it) => passive::handle_req(tables, now, addresses, transaction, it),
        CmMessage::Rep(it) => active::handle_rep(tables, now, addresses, transaction, it),
        CmMessage::Rtu(it) => passive::handle_rtu(tables, addresses, it),
        CmMessage::Mra(it) => active::handle_mra(tables, now, addresses, it),
        CmMessage::Rej(it) => ending::handle_rej(tables, now, addresses, it),
        CmMessage::Dreq(it) => ending::handle_dreq(tables, now, addresses, transaction, it),
        CmMessage::Drep(it) => ending::handle_drep(tables, now, addresses, it),
        CmMessage::SidrReq(it) => {
            services::handle_sidr_req(tables, now, addresses, transaction, it)
        }
        CmMessage::SidrRep(it) => services::handle_sidr_rep(tables, addresses, it),
        CmMessage::Lap(_) | CmMessage::Apr(_) => Err(DropReason::AlternatePath.into()),
    }
}

/// What an agent keeps: numbers of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentUsage {
    /// Listeners.
    pub listeners: usize,
    /// Connections, destroyed ones that still end their exchange included.
    pub connections: usize,
    /// Resolutions.
    pub resolutions: usize,
    /// Requests that wait for the program's answer.
    pub unanswered_requests: usize,
    /// Connections in timewait.
    pub timewaits: usize,
    /// Replies for repeated requests.
    pub kept_replies: usize,
    /// Messages that are repeated.
    pub timers: usize,
    /// REQs, DREQs and SIDR_REQs that left a short while ago, and are not answered.
    pub requests_in_flight: usize,
    /// REQs, DREQs and SIDR_REQs that wait until fewer are in flight.
    pub requests_held_back: usize,
    /// Peers' names for connections and their queue pairs.
    pub remote_names: usize,
}
