//! Everything that an agent knows, and what all messages and calls do with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use roce_wire::management::{CmMessage, CommunicationId, RejectReason};
use roce_wire::{Instant, Psn};

use crate::addresses::DatagramAddresses;
use crate::config::AgentConfig;
use crate::connection::{Connection, Resend, Role, State};
use crate::counters::DropReason;
use crate::disposition::Disposition;
use crate::duplicates::{KeptReplies, RemoteKey, RemoteNames};
use crate::error::AgentError;
use crate::event::Event;
use crate::identifier::Identifiers;
use crate::limits::{KEPT_ANSWER_TIME, KEPT_REJECT_TIME, MAX_TIMEWAITS};
use crate::listener::{ListenerHandle, Listeners};
use crate::messages;
use crate::outputs::{Bytes, Outputs};
use crate::random::Random;
use crate::request_window::RequestWindows;
use crate::resolution::{Resolution, ResolutionState, ServiceKey};
use crate::strays::{Strays, Turn};
use crate::timers::{Timers, wait_of};

/// Everything that an agent knows.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) config: AgentConfig,
    pub(crate) identifiers: Identifiers,
    random: Random,
    next_transaction: u64,
    pub(crate) connections: BTreeMap<CommunicationId, Connection>,
    pub(crate) resolutions: BTreeMap<CommunicationId, Resolution>,
    pub(crate) listeners: Listeners,
    pub(crate) remote_names: RemoteNames,
    /// Replies to REQs, by the peer's name for the connection, and the transaction.
    pub(crate) kept_rejects: KeptReplies<(RemoteKey, u64)>,
    /// Replies to SIDR_REQs.
    pub(crate) kept_answers: KeptReplies<ServiceKey>,
    /// SIDR_REQs that wait for the program's answer.
    pub(crate) service_requests: BTreeMap<ServiceKey, CommunicationId>,
    /// When messages are repeated.
    pub(crate) resends: Timers<CommunicationId>,
    pub(crate) timewaits: Timers<CommunicationId>,
    /// Our REQs, DREQs and SIDR_REQs that wait for the peers' answers, or to leave.
    pub(crate) request_windows: RequestWindows,
    /// REQs and SIDR_REQs that wait for the program's answer.
    pub(crate) unanswered_requests: usize,
    /// Requests that gave up their place in a backlog, for the owner.
    pub(crate) forgotten: VecDeque<CommunicationId>,
    /// Connections whose record is to be written, if the owner keeps records.
    pub(crate) changed: BTreeSet<CommunicationId>,
    pub(crate) strays: Strays,
    pub(crate) outputs: Outputs,
}

impl Tables {
    pub(crate) fn new(config: AgentConfig) -> Self {
        let mut random = Random::new(config.seed);
        Self {
            identifiers: Identifiers::new(config.id_prefix & 0xfff, &mut random),
            next_transaction: random.number(),
            random,
            config,
            connections: BTreeMap::new(),
            resolutions: BTreeMap::new(),
            listeners: Listeners::new(),
            remote_names: RemoteNames::new(),
            kept_rejects: KeptReplies::new(KEPT_REJECT_TIME),
            kept_answers: KeptReplies::new(KEPT_ANSWER_TIME),
            service_requests: BTreeMap::new(),
            resends: Timers::new(),
            timewaits: Timers::new(),
            request_windows: RequestWindows::new(),
            unanswered_requests: 0,
            forgotten: VecDeque::new(),
            changed: BTreeSet::new(),
            strays: Strays::default(),
            outputs: Outputs::default(),
        }
    }

    /// Notes that the record of a connection is out of date.
    pub(crate) fn note_change(&mut self, id: CommunicationId) {
        if self.config.keeps_records {
            self.changed.insert(id);
        }
    }

    /// Returns a number for an exchange that we begin.
    pub(crate) fn new_transaction(&mut self) -> u64 {
        self.next_transaction = self.next_transaction.wrapping_add(1);
        self.next_transaction
    }

    pub(crate) fn new_psn(&mut self) -> Psn {
        Psn::wrapping(self.random.number() as u32)
    }

    /// Returns the time that peers have to answer.
    //= rule cm-resend-times: cma.c: cma_connect_ib; cm.c: ib_send_cm_req
    //# The active side repeats its messages after twice the packet life time and the response
    //# timeout of its peer.
    pub(crate) fn answer_time(&self) -> Duration {
        2 * wait_of(self.config.packet_life_time) + wait_of(self.config.response_timeout)
    }

    /// Returns the connection that a message is for, which is not over.
    pub(crate) fn find(
        &self,
        addresses: DatagramAddresses,
        local_id: CommunicationId,
        remote_id: CommunicationId,
    ) -> Result<CommunicationId, Disposition> {
        let connection = self
            .connections
            .get(&local_id)
            .filter(|it| it.state != State::Idle && it.remote.is_none_or(|it| it.id == remote_id));
        match connection {
            None if !self.identifiers.owns(local_id) => Err(Disposition::Stray),
            None => Err(DropReason::UnknownId.into()),
            Some(it) if it.addresses.remote != addresses.remote => {
                Err(DropReason::WrongSource.into())
            }
            Some(_) => Ok(local_id),
        }
    }

    /// Returns what becomes of a message that no connection and no listener of this agent takes.
    pub(crate) fn pass_on(
        &mut self,
        now: Instant,
        addresses: DatagramAddresses,
        message: &CmMessage,
        datagram: &[u8],
    ) -> Disposition {
        match message {
            CmMessage::Req(_) | CmMessage::SidrReq(_) | CmMessage::Dreq(_) => {
                match self.strays.take(now, addresses, datagram) {
                    Turn::Now => Disposition::Stray,
                    Turn::Later => Disposition::HeldStray,
                    Turn::Never => DropReason::Strays.into(),
                }
            }
            _ => Disposition::Foreign,
        }
    }

    /// Returns the connection `id` for a call of the program.
    ///
    /// # Errors
    /// There is none, or none in a state that `allows`.
    pub(crate) fn for_call(
        &self,
        id: CommunicationId,
        allows: impl Fn(State) -> bool,
    ) -> Result<&Connection, AgentError> {
        let connection = self.connections.get(&id).filter(|it| !it.is_destroyed);
        let connection = connection.ok_or(AgentError::UnknownId(id))?;
        let state = connection.state;
        if allows(state) {
            Ok(connection)
        } else {
            Err(AgentError::WrongState { id, state: state.name() })
        }
    }

    /// Returns the requests in the backlog of a listener.
    pub(crate) fn waiting_requests(&self, listener: ListenerHandle) -> Vec<CommunicationId> {
        let connections = self.connections.iter().filter(|(_, it)| it.backlog_of == Some(listener));
        let resolutions = self.resolutions.iter().filter(|(_, it)| it.is_waiting_for(listener));
        connections.map(|(id, _)| *id).chain(resolutions.map(|(id, _)| *id)).collect()
    }

    /// Returns true if a listener takes one more request.
    pub(crate) fn has_space(&self, listener: ListenerHandle) -> bool {
        self.listeners.has_space(listener) || self.listeners.has_without_path(listener)
    }

    /// Lets the request give up its place in a full backlog whose answer has waited for a path for the longest
    /// time: a host that answers is found in less time than a flood takes to fill the backlog, and a forged
    /// address never.
    pub(crate) fn make_space(&mut self, now: Instant, listener: ListenerHandle) {
        while !self.listeners.has_space(listener) {
            let Some(id) = self.listeners.pop_without_path(listener) else { return };
            if self.backlog_of(id) == Some(listener) {
                self.forget_request(now, id);
            }
        }
    }

    /// Ends a request that the program does not know, without a word.
    fn forget_request(&mut self, now: Instant, id: CommunicationId) {
        if let Some(it) = self.connections.get_mut(&id) {
            // It is said no more about, and its peer asks again.
            (it.is_destroyed, it.is_confirmed) = (true, true);
            if let Some(listener) = it.backlog_of.take() {
                self.listeners.remove_waiting(listener);
            }
            self.settle_request(id);
            self.become_idle(now, id, None);
        } else if let Some(it) = self.resolutions.remove(&id) {
            if let ResolutionState::Received { key, backlog_of, .. } = it.state {
                if let Some(listener) = backlog_of {
                    self.listeners.remove_waiting(listener);
                }
                self.unanswered_requests -= 1;
                self.service_requests.remove(&key);
            }
            self.identifiers.release(id);
        } else {
            return;
        }
        self.outputs.counters.request_forgotten += 1;
        self.forgotten.push_back(id);
    }

    /// Returns the listener in whose backlog a request is.
    pub(crate) fn backlog_of(&self, id: CommunicationId) -> Option<ListenerHandle> {
        match (self.connections.get(&id), self.resolutions.get(&id)) {
            // Also one that its peer has given up.
            (Some(it), _) => it.backlog_of,
            (None, Some(it)) => match it.state {
                ResolutionState::Received { backlog_of, .. } => backlog_of,
                _ => None,
            },
            (None, None) => None,
        }
    }

    /// Sends a message of the connection `id` once.
    pub(crate) fn send_once(&mut self, id: CommunicationId, datagram: Bytes) {
        if let Some(it) = self.connections.get(&id) {
            self.outputs.send(it.addresses, it.traffic_class, datagram);
        }
    }

    /// Repeats `datagram`, which was not sent yet, until the peer answers, for the first time after the time
    /// for an answer.
    pub(crate) fn repeat_until_answered(
        &mut self,
        now: Instant,
        id: CommunicationId,
        datagram: Bytes,
    ) {
        if let Some(it) = self.connections.get_mut(&id) {
            let every = it.answer_time;
            it.sent = Some(datagram);
            let left = it.max_retries;
            it.resend = Some(Resend { every, left, has_left: false, is_lengthened: false });
            self.resends.set(id, now + every);
        }
    }

    /// Sends `datagram`, and again until the peer answers.
    pub(crate) fn send_until_answered(
        &mut self,
        now: Instant,
        id: CommunicationId,
        datagram: Bytes,
    ) {
        self.repeat_until_answered(now, id, datagram);
        self.send_repeated(now, id);
    }

    /// Sends the message of a connection or resolution that is repeated until the peer answers, now or when
    /// fewer others to the peer are without answer. The time until its next repetition starts when it
    /// leaves.
    pub(crate) fn send_repeated(&mut self, now: Instant, id: CommunicationId) {
        let of_connection = self.connections.get(&id).map(|it| (it.addresses, it.state));
        let of_resolution = || Some((self.resolutions.get(&id)?.addresses, State::ReqSent));
        let Some((addresses, state)) = of_connection.or_else(of_resolution) else { return };
        // A REP answers a REQ, and so there are no more of them than the peer lets leave.
        if state != State::RepSent && !self.request_windows.admit(now, addresses.remote, id) {
            self.outputs.counters.held_back += 1;
            self.resends.cancel(id);
            return;
        }
        self.transmit_repeated(now, id);
    }

    /// Sends what waited and may leave now.
    pub(crate) fn send_held_back(&mut self, now: Instant) {
        while let Some(id) = self.request_windows.next_open(now) {
            self.transmit_repeated(now, id);
        }
    }

    fn transmit_repeated(&mut self, now: Instant, id: CommunicationId) {
        let (addresses, traffic_class, datagram, resend) =
            match (self.connections.get_mut(&id), self.resolutions.get_mut(&id)) {
                (Some(it), _) => {
                    let (Some(sent), Some(resend)) = (&it.sent, &mut it.resend) else { return };
                    (it.addresses, it.traffic_class, sent, resend)
                }
                (None, Some(it)) => {
                    let ResolutionState::Asked { request, resend } = &mut it.state else { return };
                    (it.addresses, it.traffic_class, &*request, resend)
                }
                (None, None) => return,
            };
        let is_first = !std::mem::replace(&mut resend.has_left, true);
        self.outputs.send(addresses, traffic_class, datagram.clone());
        self.resends.set(id, now + resend.every);
        // A resolution has no record.
        if is_first && self.connections.contains_key(&id) {
            self.note_change(id);
        }
    }

    /// Stops repeating the last message.
    pub(crate) fn stop_resending(&mut self, id: CommunicationId) {
        self.resends.cancel(id);
        self.request_windows.settle(id);
        if let Some(it) = self.connections.get_mut(&id) {
            it.resend = None;
        }
    }

    /// Tells the program about a connection, unless that was destroyed.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.connections.get(&event.id()).is_some_and(|it| !it.is_destroyed) {
            self.outputs.raise(event);
        }
    }

    /// Tells the program that the connection has ended.
    pub(crate) fn tell_disconnected(&mut self, id: CommunicationId) {
        if let Some(it) = self.connections.get_mut(&id)
            && !it.is_taken_back
        {
            it.is_end_reported = true;
            self.tell(Event::Disconnected { id });
        }
    }

    /// The program has answered a request, or has no more interest in it.
    pub(crate) fn settle_request(&mut self, id: CommunicationId) {
        if let Some(it) = self.connections.get_mut(&id)
            && it.is_unanswered
        {
            it.is_unanswered = false;
            self.unanswered_requests -= 1;
        }
    }

    /// Ends the exchange with the peer, but keeps the names of both ends for a while.
    pub(crate) fn enter_timewait(&mut self, now: Instant, id: CommunicationId) {
        self.stop_resending(id);
        let Some(it) = self.connections.get_mut(&id) else { return };
        it.sent = None;
        it.state = State::Timewait;
        let timewait = it.timewait();
        self.release_queue_pair(id);
        self.timewaits.set(id, now + timewait);
        self.note_change(id);
        if self.timewaits.len() > MAX_TIMEWAITS
            && let Some(first) = self.timewaits.pop_first()
        {
            self.outputs.counters.timewait_dropped += 1;
            self.leave_timewait(now, first);
        }
    }

    /// Lets the peer connect its queue pair again.
    pub(crate) fn release_queue_pair(&mut self, id: CommunicationId) {
        let Some(it) = self.connections.get(&id) else { return };
        if let (Some(remote), Some(qpn)) = (it.remote, it.remote_qpn) {
            self.remote_names.remove_queue_pair(it.addresses.remote, remote.ca_guid, qpn, id);
        }
    }

    /// Ends the timewait of a connection whose timer was taken.
    pub(crate) fn leave_timewait(&mut self, now: Instant, id: CommunicationId) {
        if self.connections.get(&id).is_some_and(|it| it.is_end_reported) {
            self.tell(Event::TimewaitExit { id });
        }
        self.become_idle(now, id, None);
    }

    /// Ends a connection. Repetitions of the request of a peer that never took our REP are answered
    /// with `reject`, or as stale.
    pub(crate) fn become_idle(&mut self, now: Instant, id: CommunicationId, reject: Option<Bytes>) {
        self.stop_resending(id);
        self.timewaits.cancel(id);
        let Some(it) = self.connections.get_mut(&id) else { return };
        it.sent = None;
        // An ended one that is destroyed keeps the answer that it had.
        let has_ended = std::mem::replace(&mut it.state, State::Idle) == State::Idle;
        if let Some(remote) = it.remote
            && !has_ended
        {
            let peer = it.addresses.remote;
            self.remote_names.remove_id(peer, remote, id);
            if let Some(qpn) = it.remote_qpn {
                self.remote_names.remove_queue_pair(peer, remote.ca_guid, qpn, id);
            }
            if it.role == Role::Passive && !it.is_confirmed {
                let stale = RejectReason::STALE_CONNECTION;
                let reply = reject
                    .unwrap_or_else(|| messages::rej_of_req(it.transaction, remote.id, stale));
                if self.kept_rejects.keep(now, (remote, it.transaction), reply) {
                    self.outputs.counters.kept_reply_dropped += 1;
                }
            }
        }
        let is_destroyed = it.is_destroyed;
        self.note_change(id);
        if is_destroyed {
            self.connections.remove(&id);
            self.identifiers.release(id);
        }
    }
}
