//! Connection management on real interfaces: agents that speak over queue pairs 1, and the queue pairs
//! that they connect.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use roce_cm::{
    AcceptParameters, Agent, AgentConfig, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, Event, ListenParameters, RejectParameters, ResolveParameters,
    ServiceAnswer, UDP_Q_KEY,
};
use roce_test_macros::tier1;
use roce_tests::datagrams::{DatagramEnd, address_handle};
use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, pattern};
use roce_verbs::{
    AccessFlags, AckTimeout, AddressHandle, AddressVector, Completion, CompletionOperation,
    CompletionQueue, CompletionStatus, DeviceConfig, GRH_LEN, GSI_Q_KEY, Gid, QpAttributes,
    QpState, Qpn, QueuePair, RecvWr, RnrTimer, SendOperation, SendWr, Service,
};
use roce_wire::management::{CommunicationId, PortSpace, RejectReason, SidrStatus};

const PORT: u16 = 7174;
const SLOTS: usize = 8;

/// A device with an agent that answers on its queue pair 1.
struct ManagedHost {
    end: TestDevice,
    services: DatagramEnd,
    services_cq: CompletionQueue,
    agent: Agent,
    local: IpAddr,
    remote: IpAddr,
    to_peer: AddressHandle,
    /// Time of the agent, which may be ahead of the clock.
    now: roce_wire::Instant,
    /// Datagrams to receive before the next is lost; `None` loses none.
    until_loss: Option<usize>,
}

impl ManagedHost {
    fn new(host: &roce_netns::Host, number: u64, local: &str, remote: &str) -> Self {
        let end = TestDevice::on(host, DeviceConfig::default());
        let services_cq = end.device.create_cq(64, None).unwrap();
        let builder = end.pd.queue_pair(&services_cq, &services_cq).general_services();
        let services = DatagramEnd::of(&end, SLOTS, builder.max_inline(256), GSI_Q_KEY);
        (0..SLOTS).for_each(|slot| services.post_receive(slot));
        let to_peer = address_handle(&end, remote, None);
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        let agent = Agent::new(AgentConfig::new(number, number, vec![local]));
        let (now, until_loss) = (roce_wire::Instant::START, None);
        Self { end, services, services_cq, agent, local, remote, to_peer, now, until_loss }
    }

    /// Passes datagrams and time to the agent, and sends what it has to send.
    fn run(&mut self) {
        while let Some(completion) = self.services_cq.poll_one() {
            assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
            if completion.operation == CompletionOperation::Recv {
                self.receive(&completion);
            }
        }
        if self.agent.poll_timeout().is_some_and(|at| at <= self.now) {
            self.agent.handle_timeout(self.now);
        }
        while let Some(transmit) = self.agent.poll_transmit() {
            let DatagramAddresses { local, remote } = transmit.addresses;
            assert_eq!((local, remote), (self.local, self.remote));
            let work = SendWr::inline(0, SendOperation::send(), &transmit.datagram[..]).signaled();
            self.services.qp.post_send_to([work], &self.to_peer, Qpn::GSI, GSI_Q_KEY).unwrap();
        }
    }

    fn receive(&mut self, completion: &Completion) {
        let slot = completion.wr_id as usize;
        let back = self.end.pd.create_ah_from_completion(completion, &self.services.grh(slot));
        let back = back.unwrap();
        let addresses = DatagramAddresses { local: back.local(), remote: back.remote() };
        assert_eq!((addresses.local, addresses.remote), (self.local, self.remote));
        assert_eq!(completion.source_qpn, Some(Qpn::GSI));
        let datagram = self.services.contents(slot, completion);
        self.services.post_receive(slot);
        if let Some(left) = self.until_loss {
            self.until_loss = left.checked_sub(1);
            if left == 0 {
                return;
            }
        }
        match self.agent.handle_datagram(self.now, addresses, &datagram) {
            Disposition::Handled => {}
            Disposition::Stray => self.agent.answer_stray(addresses, &datagram),
            other => panic!("not for this host: {other:?}"),
        }
    }

    fn listen(&mut self, space: PortSpace) {
        let listen = ListenParameters { space, port: PORT, address: self.local, backlog: 4 };
        self.agent.listen(&listen).unwrap();
    }

    fn ends(&self) -> ConnectionAddresses {
        let local = SocketAddr::new(self.local, 40_000);
        ConnectionAddresses { local, remote: SocketAddr::new(self.remote, PORT) }
    }

    fn connect(&mut self, qp: &QueuePair) -> CommunicationId {
        let parameters = ConnectParameters {
            responder_resources: 4,
            initiator_depth: 4,
            private_data: b"hello",
            ..ConnectParameters::new(self.ends(), qp.number())
        };
        self.agent.connect(self.now, &parameters).unwrap()
    }

    fn init(&self, qp: &QueuePair, id: CommunicationId) {
        let init = self.agent.init_attributes(id).unwrap();
        assert!(init.remote_write && init.remote_read && init.remote_atomic);
        let rights = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        qp.modify(&QpAttributes {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(rights | AccessFlags::REMOTE_ATOMIC),
            ..QpAttributes::default()
        })
        .unwrap();
    }

    /// Moves a queue pair from INIT to RTS with the attributes of its connection.
    fn make_ready(&self, qp: &QueuePair, id: CommunicationId) {
        let rtr = self.agent.rtr_attributes(id).unwrap();
        assert_eq!((rtr.local, rtr.remote), (self.local, self.remote));
        let row = if rtr.local.is_ipv4() { 1 } else { 2 };
        let path = AddressVector {
            flow_label: rtr.flow_label,
            hop_limit: rtr.hop_limit,
            traffic_class: rtr.traffic_class,
            ..AddressVector::new(row, Gid::from(rtr.remote))
        };
        let path = self.end.device.resolve(&path).unwrap();
        let reliable = rtr.reliable.unwrap();
        let attributes = QpAttributes {
            state: Some(QpState::ReadyToReceive),
            path_mtu: Some(rtr.path_mtu),
            dest_qpn: Some(rtr.dest_qpn),
            rq_psn: Some(rtr.rq_psn),
            max_dest_rd_atomic: Some(reliable.max_dest_rd_atomic),
            min_rnr_timer: RnrTimer::new(reliable.min_rnr_timer),
            ..QpAttributes::default()
        };
        qp.modify_with_path(&attributes, &path).unwrap();
        let rts = self.agent.rts_attributes(id).unwrap();
        let reliable = rts.reliable.unwrap();
        qp.modify(&QpAttributes {
            state: Some(QpState::ReadyToSend),
            sq_psn: Some(rts.sq_psn),
            max_rd_atomic: Some(reliable.max_rd_atomic),
            retry_count: Some(reliable.retry_count),
            rnr_retry: Some(reliable.rnr_retry),
            ack_timeout: AckTimeout::new(reliable.ack_timeout.code()),
            ..QpAttributes::default()
        })
        .unwrap();
    }

    /// Sends a message on a connected queue pair, and checks it at the other end.
    fn send(&self, qp: &QueuePair, to: &Self, peer: &QueuePair, seed: u8) {
        let message = pattern(3000, seed);
        let (source, target) = (self.end.region(3000, seed), to.end.region(3000, !seed));
        peer.post_recv([RecvWr::new(1, [target.sge(..).unwrap()])]).unwrap();
        let work = SendWr::new(2, SendOperation::send(), [source.sge(..).unwrap()]).signaled();
        qp.post_send([work]).unwrap();
        for end in [&self.end, &to.end] {
            assert_eq!(end.completion().status, CompletionStatus::Success);
        }
        assert!(roce_tests::fixtures::contents(&target) == message, "the message differs");
    }
}

/// Two hosts of a cable with an agent each.
fn two_hosts(cable: &Cable, addresses: [&str; 2]) -> [ManagedHost; 2] {
    let [left, right] = addresses;
    [ManagedHost::new(&cable.left, 1, left, right), ManagedHost::new(&cable.right, 2, right, left)]
}

const V4: [&str; 2] = ["10.1.0.1", "10.1.0.2"];
const V6: [&str; 2] = ["fd00:1::1", "fd00:1::2"];

/// Runs both hosts until `hosts[at]` has an event.
fn event(hosts: &mut [ManagedHost; 2], at: usize) -> Event {
    let deadline = Instant::now() + COMPLETION_TIMEOUT;
    loop {
        hosts.iter_mut().for_each(ManagedHost::run);
        if let Some(event) = hosts[at].agent.poll_event() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event at host {at}");
    }
}

/// Connects two queue pairs, the first of `hosts[0]`; returns them and their connections.
fn connected(hosts: &mut [ManagedHost; 2]) -> [(QueuePair, CommunicationId); 2] {
    let [client, server] = [0, 1].map(|at| hosts[at].end.queue_pair());
    let client_id = hosts[0].connect(&client);
    let Event::ConnectRequest { id: server_id, request, .. } = event(hosts, 1) else { panic!() };
    assert_eq!(request.remote_qpn, client.number());
    assert_eq!(request.addresses.remote, SocketAddr::new(hosts[0].local, 40_000));
    assert_eq!(request.private_data[..6], *b"hello\0");
    hosts[1].init(&server, server_id);
    let accept = AcceptParameters {
        responder_resources: request.responder_resources,
        initiator_depth: request.initiator_depth,
        private_data: b"welcome",
        ..AcceptParameters::new(server.number())
    };
    // As librdmacm does it: ready before the REP leaves.
    hosts[1].make_ready(&server, server_id);
    let now = hosts[1].now;
    hosts[1].agent.accept(now, server_id, &accept).unwrap();
    let Event::ConnectResponse { id, response } = event(hosts, 0) else { panic!() };
    assert_eq!((id, response.remote_qpn), (client_id, server.number()));
    assert_eq!(response.private_data[..8], *b"welcome\0");
    hosts[0].init(&client, client_id);
    hosts[0].make_ready(&client, client_id);
    hosts[0].agent.establish(client_id, &[]).unwrap();
    assert_eq!(event(hosts, 1), Event::Established { id: server_id });
    [(client, client_id), (server, server_id)]
}

#[tier1]
fn connections_are_made_carry_messages_and_end_over_ipv4_and_ipv6() {
    let cable = Cable::with_mtu(1500);
    for addresses in [V4, V6] {
        let mut hosts = two_hosts(&cable, addresses);
        hosts[1].listen(PortSpace::TCP);
        let [(client, client_id), (server, server_id)] = connected(&mut hosts);
        hosts[0].send(&client, &hosts[1], &server, 1);
        hosts[1].send(&server, &hosts[0], &client, 2);
        let now = hosts[0].now;
        hosts[0].agent.disconnect(now, client_id).unwrap();
        assert_eq!(event(&mut hosts, 1), Event::Disconnected { id: server_id });
        hosts[1].agent.disconnect(now, server_id).unwrap();
        assert_eq!(event(&mut hosts, 0), Event::Disconnected { id: client_id });
        // The timewait, in the time of the agents.
        hosts.iter_mut().for_each(|host| host.now += Duration::from_secs(3));
        assert_eq!(event(&mut hosts, 0), Event::TimewaitExit { id: client_id });
        assert_eq!(event(&mut hosts, 1), Event::TimewaitExit { id: server_id });
        for (host, id) in hosts.iter_mut().zip([client_id, server_id]) {
            host.agent.destroy(host.now, id).unwrap();
            let usage = host.agent.usage();
            assert_eq!((usage.connections, usage.timers, usage.timewaits), (0, 0, 0));
        }
    }
}

#[tier1]
fn a_connection_is_refused_by_the_program_and_where_no_program_listens() {
    let cable = Cable::with_mtu(1500);
    let mut hosts = two_hosts(&cable, V4);
    let qp = hosts[0].end.queue_pair();
    let id = hosts[0].connect(&qp);
    let no_listener = RejectReason::INVALID_SERVICE_ID;
    let rejected = event(&mut hosts, 0);
    assert!(
        matches!(rejected, Event::Rejected { id: it, reason, .. } if it == id && reason == no_listener)
    );
    hosts[1].listen(PortSpace::TCP);
    let id = hosts[0].connect(&qp);
    let Event::ConnectRequest { id: request, .. } = event(&mut hosts, 1) else { panic!() };
    let reject = RejectParameters { private_data: b"not today", ..RejectParameters::new() };
    hosts[1].agent.reject(roce_wire::Instant::START, request, &reject).unwrap();
    let Event::Rejected { id: rejected, reason, private_data } = event(&mut hosts, 0) else {
        panic!()
    };
    assert_eq!((rejected, reason), (id, RejectReason::CONSUMER));
    assert_eq!(private_data[..10], *b"not today\0");
}

#[tier1]
fn each_lost_datagram_is_repeated_until_the_connection_is_there() {
    let cable = Cable::with_mtu(1500);
    // Which host loses which of its datagrams: REQ, RTU; REP.
    for (at, number) in [(1, 0), (1, 1), (0, 0)] {
        let mut hosts = two_hosts(&cable, V4);
        hosts[1].listen(PortSpace::TCP);
        hosts[at].until_loss = Some(number);
        let [client, server] = [0, 1].map(|at| hosts[at].end.queue_pair());
        let client_id = hosts[0].connect(&client);
        let deadline = Instant::now() + COMPLETION_TIMEOUT;
        let mut is_established = false;
        while !is_established {
            assert!(Instant::now() < deadline, "not established");
            hosts.iter_mut().for_each(ManagedHost::run);
            if hosts[at].until_loss.is_none() {
                // It is lost: from here time passes quickly.
                hosts.iter_mut().for_each(|host| host.now += Duration::from_millis(1));
            }
            match hosts[1].agent.poll_event() {
                Some(Event::ConnectRequest { id, .. }) => {
                    let accept = AcceptParameters::new(server.number());
                    let now = hosts[1].now;
                    hosts[1].agent.accept(now, id, &accept).unwrap();
                }
                Some(Event::Established { .. }) => is_established = true,
                other => assert_eq!(other, None),
            }
            match hosts[0].agent.poll_event() {
                Some(Event::ConnectResponse { .. }) => {
                    hosts[0].agent.establish(client_id, &[]).unwrap();
                }
                other => assert_eq!(other, None),
            }
        }
        assert_eq!(hosts[at].until_loss, None);
        let resent: u64 = hosts.iter().map(|host| host.agent.counters().resent).sum();
        assert!(resent >= 1);
    }
}

#[tier1]
fn a_datagram_service_is_resolved_and_its_queue_pair_receives() {
    let cable = Cable::with_mtu(1500);
    let mut hosts = two_hosts(&cable, V4);
    hosts[1].listen(PortSpace::UDP);
    let [client, server] = [0, 1].map(|at| {
        let end = &hosts[at].end;
        let builder = end.pd.queue_pair(&end.cq, &end.cq).service(Service::Ud);
        DatagramEnd::of(end, 2, builder, UDP_Q_KEY)
    });
    let resolve =
        ResolveParameters { private_data: b"where", ..ResolveParameters::new(hosts[0].ends()) };
    hosts[0].agent.resolve(roce_wire::Instant::START, &resolve).unwrap();
    let Event::ServiceRequest { id, request, .. } = event(&mut hosts, 1) else { panic!() };
    assert_eq!(request.private_data[..6], *b"where\0");
    let answer = ServiceAnswer::new(server.qp.number());
    hosts[1].agent.answer(roce_wire::Instant::START, id, &answer).unwrap();
    let Event::ServiceResponse { response, .. } = event(&mut hosts, 0) else { panic!() };
    assert_eq!(response.status, SidrStatus::VALID);
    server.post_receive(0);
    let work = SendWr::inline(1, SendOperation::send(), b"datagram").signaled();
    client.qp.post_send_to([work], &hosts[0].to_peer, response.qpn, response.q_key).unwrap();
    assert_eq!(hosts[0].end.completion().status, CompletionStatus::Success);
    let received = hosts[1].end.completion();
    assert_eq!(received.byte_len as usize, GRH_LEN + b"datagram".len());
    assert_eq!(server.contents(0, &received), b"datagram");
}
