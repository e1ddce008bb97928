//! Calls of identifiers that have a peer.

use std::net::SocketAddr;

use roce_cm::{
    AcceptParameters, ConnectParameters, ConnectionAddresses, InitAttributes, RejectParameters,
    ResolveParameters, RtrAttributes, RtsAttributes, ServiceAnswer, UDP_Q_KEY,
};
use roce_transport::{AccessFlags, AckTimeout, ModifyError, QpAttributes, QpState};
use roce_wire::management::{
    CmTimeout, CommunicationId, RejectReason, SidrStatus, TransportService,
};
use roce_wire::{Gid, PathMtu, RnrTimer};

use super::id::{Id, Phase, State};
use super::parameters::ConnectionParameters;
use crate::cm_router::{Error, is_of_datagrams};
use crate::device::Device;
use crate::path::AddressVector;
use crate::queue_pair::QueuePair;

impl Id {
    fn ends_of(state: &State, call: &'static str) -> Result<(Device, ConnectionAddresses), Error> {
        let ends = state.local.zip(state.peer).zip(state.device.clone());
        let ((local, remote), device) = ends.ok_or(Error::WrongState { call })?;
        Ok((device, ConnectionAddresses { local, remote }))
    }

    /// Asks for the connection, or for the queue pair of a datagram service. `ConnectResponse`,
    /// `Rejected` or `Unreachable` follows; for a datagram service `Established` or `Unreachable`.
    ///
    /// # Errors
    /// [`Error::WrongState`] before the route is resolved; [`Error::Agent`] for too much private data.
    pub fn connect(&self, parameters: &ConnectionParameters<'_>) -> Result<(), Error> {
        let mut state = self.0.checked_state()?;
        if state.phase != Phase::RouteResolved {
            return Err(Error::WrongState { call: "connect" });
        }
        let (device, addresses) = Self::ends_of(&state, "connect")?;
        let (space, traffic_class) = (self.space(), state.type_of_service);
        let path_mtu = device.driver().port().connection_mtu().unwrap_or(PathMtu::B256);
        let ack_timeout = state.ack_timeout.map(CmTimeout::from_code);
        let id = device.with_agent(|agent, router, now| {
            let id = if is_of_datagrams(space) {
                let asked = ResolveParameters {
                    space,
                    traffic_class,
                    private_data: parameters.private_data,
                    ..ResolveParameters::new(addresses)
                };
                agent.resolve(now, &asked)?
            } else {
                let asked = ConnectParameters {
                    addresses,
                    space,
                    qpn: parameters.qpn,
                    transport_service: TransportService::Rc,
                    responder_resources: parameters.responder_resources,
                    initiator_depth: parameters.initiator_depth,
                    end_to_end_flow_control: parameters.flow_control,
                    retry_count: parameters.retry_count.min(7),
                    rnr_retry_count: parameters.rnr_retry_count.min(7),
                    srq: parameters.srq,
                    path_mtu,
                    traffic_class,
                    ack_timeout,
                    private_data: parameters.private_data,
                };
                agent.connect(now, &asked)?
            };
            router.add(id, &self.0.target);
            Ok(id)
        })?;
        state.phase = Phase::Active(id);
        Ok(())
    }

    /// Returns the device and the agent's name of the connection.
    fn connection(&self, call: &'static str) -> Result<(Device, Phase, CommunicationId), Error> {
        let state = self.0.checked_state()?;
        let id = state.phase.id().ok_or(Error::WrongState { call })?;
        let device = state.device.clone().ok_or(Error::WrongState { call })?;
        Ok((device, state.phase, id))
    }

    /// Accepts the request of a peer. For a connection `Established` follows.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Agent`].
    pub fn accept(&self, parameters: &ConnectionParameters<'_>) -> Result<(), Error> {
        let (device, phase, id) = self.connection("accept")?;
        if !matches!(phase, Phase::Passive(_)) {
            return Err(Error::WrongState { call: "accept" });
        }
        let private_data = parameters.private_data;
        device.with_agent(|agent, _, now| {
            if is_of_datagrams(self.space()) {
                let q_key = parameters.q_key.unwrap_or(UDP_Q_KEY);
                let answer =
                    ServiceAnswer { q_key, private_data, ..ServiceAnswer::new(parameters.qpn) };
                return Ok(agent.answer(now, id, &answer)?);
            }
            let accepted = AcceptParameters {
                qpn: parameters.qpn,
                responder_resources: parameters.responder_resources,
                initiator_depth: parameters.initiator_depth,
                end_to_end_flow_control: parameters.flow_control,
                rnr_retry_count: parameters.rnr_retry_count.min(7),
                srq: parameters.srq,
                private_data,
            };
            Ok(agent.accept(now, id, &accepted)?)
        })
    }

    /// Confirms the response of a peer, once the queue pair is ready: the connection is established.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Agent`].
    pub fn establish(&self) -> Result<(), Error> {
        let (device, _, id) = self.connection("establish")?;
        device.with_agent(|agent, _, _| Ok(agent.establish(id, &[])?))
    }

    /// Refuses the request or the response of a peer, or takes back one of its own that the peer has not answered.
    /// No event follows.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Agent`].
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), Error> {
        let (device, phase, id) = self.connection("reject")?;
        device.with_agent(|agent, _, now| {
            if is_of_datagrams(self.space()) && matches!(phase, Phase::Passive(_)) {
                let answer = ServiceAnswer { private_data, ..ServiceAnswer::rejected() };
                debug_assert_ne!(answer.status, SidrStatus::VALID);
                return Ok(agent.answer(now, id, &answer)?);
            }
            Ok(agent.reject(now, id, &RejectParameters { reason, private_data })?)
        })
    }

    /// Ends the connection, or confirms that the peer has ended it. `Disconnected` follows unless
    /// it has come before, and `TimewaitExit` some two seconds later. A connection that has ended, or was
    /// never established, stays as it is, and so does a listener on an address of a device.
    ///
    /// # Errors
    /// [`Error::WrongState`] before a connection was asked for.
    pub fn disconnect(&self) -> Result<(), Error> {
        {
            let state = self.0.checked_state()?;
            if state.phase == Phase::Listening && state.device.is_some() {
                return Ok(());
            }
        }
        let (device, _, id) = self.connection("disconnect")?;
        device.with_agent(|agent, _, now| {
            // The only error is that there is nothing to end, at which rdma_disconnect of the kernel succeeds.
            let _nothing = agent.disconnect(now, id);
            Ok(())
        })
    }

    /// Establishes an accepted connection of which the peer's queue pair has sent something, although its
    /// confirmation has not arrived; as `rdma_notify`.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Agent`].
    pub fn notify_established(&self) -> Result<(), Error> {
        let (device, _, id) = self.connection("notify_established")?;
        device.with_agent(|agent, _, _| Ok(agent.communication_established(id)?))
    }

    /// Returns the attributes for INIT of the connection's queue pair. Before the connection is
    /// asked for, the peer has no rights.
    ///
    /// # Errors
    /// [`Error::WrongState`] without a device, of a listener, or when the connection has ended.
    pub fn init_attributes(&self) -> Result<InitAttributes, Error> {
        {
            let state = self.0.checked_state()?;
            let is_listening = state.phase == Phase::Listening;
            if state.device.is_some() && state.phase.id().is_none() && !is_listening {
                let (remote_write, remote_read, remote_atomic) = Default::default();
                return Ok(InitAttributes { remote_write, remote_read, remote_atomic });
            }
        }
        let (device, _, id) = self.connection("init_attributes")?;
        device.with_agent(|agent, _, _| Ok(agent.init_attributes(id)?))
    }

    /// Returns true once this end or the peer has asked for the connection.
    pub fn has_connection(&self) -> bool {
        self.0.is_current() && self.0.state().phase.id().is_some()
    }

    /// Returns the attributes for RTR of the connection's queue pair.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Agent`]: the peer has not answered, or the connection has ended.
    pub fn rtr_attributes(&self) -> Result<RtrAttributes, Error> {
        let (device, _, id) = self.connection("rtr_attributes")?;
        device.with_agent(|agent, _, _| Ok(agent.rtr_attributes(id)?))
    }

    /// Returns the attributes for RTS of the connection's queue pair.
    ///
    /// # Errors
    /// As [`rtr_attributes`](Self::rtr_attributes).
    pub fn rts_attributes(&self) -> Result<RtsAttributes, Error> {
        let (device, _, id) = self.connection("rts_attributes")?;
        device.with_agent(|agent, _, _| Ok(agent.rts_attributes(id)?))
    }

    /// Returns the Q_Key of queue pairs of this port space, if it is one of datagrams.
    pub fn q_key(&self) -> Option<u32> {
        is_of_datagrams(self.space()).then_some(UDP_Q_KEY)
    }

    /// Moves a queue pair from RESET to INIT, in which receives can be posted.
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`].
    pub fn init_queue_pair(&self, queue_pair: &QueuePair) -> Result<(), Error> {
        let rights = self.init_attributes()?;
        Ok(queue_pair.modify(&QpAttributes::init(access_of(rights)))?)
    }

    /// Moves the connection's queue pair from INIT through RTR to RTS: before
    /// [`accept`](Self::accept) on the passive side, before [`establish`](Self::establish) on the
    /// active one.
    ///
    /// # Errors
    /// Those of [`rtr_attributes`](Self::rtr_attributes), [`Device::resolve`](crate::Device::resolve) and
    /// [`QueuePair::modify`].
    pub fn ready_queue_pair(&self, queue_pair: &QueuePair) -> Result<(), Error> {
        let (rtr, rts) = (self.rtr_attributes()?, self.rts_attributes()?);
        let device = self.device().ok_or(Error::WrongState { call: "ready_queue_pair" })?;
        let rows = device.gid_table()?;
        let own = Gid::from(rtr.local);
        let row = rows.iter().find(|row| row.usable && row.gid == own);
        let row = row.ok_or(Error::NoDevice { address: rtr.local })?;
        let path = device.resolve(&AddressVector {
            traffic_class: rtr.traffic_class,
            hop_limit: rtr.hop_limit,
            flow_label: rtr.flow_label,
            ..AddressVector::new(row.index, rtr.remote.into())
        })?;
        // The active side's queue pair is in INIT since before the connection was asked for.
        queue_pair.modify(&QpAttributes {
            state: Some(QpState::Init),
            access: Some(access_of(self.init_attributes()?)),
            ..QpAttributes::default()
        })?;
        let responder = rtr.reliable;
        let (path, mtu) = (path.attributes(), rtr.path_mtu);
        queue_pair.modify(&QpAttributes {
            max_dest_rd_atomic: responder.map(|it| it.max_dest_rd_atomic),
            min_rnr_timer: responder.and_then(|it| RnrTimer::new(it.min_rnr_timer)),
            ..QpAttributes::ready_to_receive(path, mtu, rtr.dest_qpn, rtr.rq_psn)
        })?;
        let requester = rts.reliable;
        let timeout = |code| {
            let outside = ModifyError::OutOfRange { attribute: "timeout" };
            AckTimeout::new(code).ok_or(crate::Error::Modify(outside))
        };
        queue_pair.modify(&QpAttributes {
            ack_timeout: requester.map(|it| timeout(it.ack_timeout.code())).transpose()?,
            retry_count: requester.map(|it| it.retry_count),
            rnr_retry: requester.map(|it| it.rnr_retry),
            max_rd_atomic: requester.map(|it| it.max_rd_atomic),
            ..QpAttributes::ready_to_send(rts.sq_psn)
        })?;
        Ok(())
    }

    /// Returns the path of the connection, as `rdma_route`.
    ///
    /// # Errors
    /// [`Error::WrongState`] without a device.
    pub fn route(&self) -> Result<super::Route, Error> {
        let state = self.0.checked_state()?;
        let device = state.device.clone().ok_or(Error::WrongState { call: "route" })?;
        let local = state.local.map(|it| it.ip()).ok_or(Error::WrongState { call: "route" })?;
        let rows = device.gid_table()?;
        let own = Gid::from(local);
        let row = rows.iter().find(|row| row.usable && row.gid == own);
        let row = row.ok_or(Error::NoDevice { address: local })?;
        let has_path =
            matches!(state.phase, Phase::RouteResolved | Phase::Active(_) | Phase::Passive(_));
        Ok(super::Route {
            interface: device.interface().to_owned(),
            gid_index: row.index,
            local: own,
            remote: state.peer.map(|peer: SocketAddr| Gid::from(peer.ip())),
            path_mtu: device.driver().port().connection_mtu(),
            traffic_class: state.type_of_service,
            has_path,
        })
    }
}

fn access_of(rights: InitAttributes) -> AccessFlags {
    let mut access = AccessFlags::LOCAL_WRITE;
    access.set(AccessFlags::REMOTE_WRITE, rights.remote_write);
    access.set(AccessFlags::REMOTE_READ, rights.remote_read);
    access.set(AccessFlags::REMOTE_ATOMIC, rights.remote_atomic);
    access
}
