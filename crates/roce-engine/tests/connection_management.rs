//! Connection management in two engines that are joined by a wire, in virtual time.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roce_cm::{
    AcceptParameters, Agent, AgentConfig, ConnectParameters, ConnectionAddresses, Event,
    ListenParameters, RejectParameters,
};
use roce_engine::policy::Cause;
use roce_engine::{
    Consumer, Engine, EngineParts, GidTable, ManagementDestination, ManagementPort, NextHop,
    PathEntry, PlainRegion, Pushed, StrayDatagram,
};
use roce_io::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame};
use roce_transport::{AsyncEvent, Completion, CqHandle, Endpoint, EndpointConfig, Instant};
use roce_wire::management::{PortSpace, RejectReason};
use roce_wire::{Frame, MacAddr, OuterHeaders, Qpn};

/// Takes no completion and no event.
struct NoConsumer;

impl Consumer for NoConsumer {
    type Observer = ();
    type Region = Rc<PlainRegion>;
    type Queue = ();

    fn can_bypass((): &(), _: CqHandle) -> bool {
        false
    }
    fn can_hold((): &(), _: CqHandle) -> bool {
        false
    }
    fn push(&mut self, _: CqHandle, _: Completion, _: Instant) -> Pushed {
        Pushed::Queued
    }
    fn drop_oldest(&mut self, _: CqHandle) -> bool {
        false
    }
    fn push_event(&mut self, _: AsyncEvent) {}
    fn may_mistake_reports(&self) -> bool {
        false
    }
    fn publish_counters(&self, _: impl FnOnce() -> Vec<(&'static str, u64)>) {}
}

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// An interface on queues in memory.
struct Interface {
    incoming: Frames,
    outgoing: Frames,
}

impl FrameDevice for Interface {
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { max_frame_len: 2048, mtu: 1500, max_train_packets: 1 }
    }
    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        for received in 0..budget {
            let Some(frame) = self.incoming.lock().unwrap().pop_front() else {
                return Ok(received);
            };
            each(RxFrame {
                bytes: &frame,
                segment_len: None,
                udp_checksum_partial: false,
                vlan_tag: None,
            });
        }
        Ok(budget)
    }
    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let (mut slot, mut sent) = ([0; 2048], 0);
        while let Some(frame) = fill(&mut slot) {
            self.outgoing.lock().unwrap().push_back(slot[..frame.len].to_vec());
            sent += 1;
        }
        Ok(sent)
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// What an engine has told its owner.
#[derive(Clone, Default)]
struct Port {
    events: Arc<Mutex<VecDeque<Event>>>,
    wanted: Arc<Mutex<VecDeque<ManagementDestination>>>,
    strays: Arc<Mutex<VecDeque<StrayDatagram>>>,
}

impl ManagementPort for Port {
    fn push_event(&mut self, event: Event) {
        self.events.lock().unwrap().push_back(event);
    }
    fn push_stray(&mut self, stray: StrayDatagram) -> bool {
        let mut strays = self.strays.lock().unwrap();
        strays.push_back(stray);
        strays.len() <= 4
    }
    fn resolve(&mut self, destination: ManagementDestination) {
        self.wanted.lock().unwrap().push_back(destination);
    }
}

/// A host: its engine, and what that has told.
struct Host {
    engine: Engine<NoConsumer>,
    port: Port,
    address: IpAddr,
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

impl Host {
    fn new(last: u8, incoming: &Frames, outgoing: &Frames) -> Self {
        let address = IpAddr::from([10, 0, 0, last]);
        let (incoming, outgoing) = (Arc::clone(incoming), Arc::clone(outgoing));
        let mut engine = Engine::new(EngineParts {
            endpoint: Endpoint::new(EndpointConfig::default()),
            wire: Box::new(Interface { incoming, outgoing }),
            lo: None,
            loopback: None,
            gids: GidTable::of(mac(last), &[address]),
            consumer: NoConsumer,
            identification: 0,
        });
        let port = Port::default();
        let agent = Agent::new(AgentConfig::new(last.into(), last.into(), vec![address]));
        engine.manage_connections(agent, Box::new(port.clone())).unwrap();
        Self { engine, port, address }
    }

    /// Resolves the paths that the engine asks for. Returns how many.
    fn resolve_wanted(&mut self) -> usize {
        let mut resolved = 0;
        while let Some(it) = self.port.wanted.lock().unwrap().pop_front() {
            let entry = PathEntry::new(OuterHeaders::new(it.local, it.remote)).unwrap();
            let hop = Some(NextHop::Neighbour(mac(9)));
            let handle = self.engine.paths.insert(entry.with_next_hop(hop, mac(1)));
            if let Some(old) = self.engine.set_management_path(it, Some(handle)) {
                self.engine.paths.release(old);
            }
            resolved += 1;
        }
        resolved
    }

    fn connect(&mut self, now: Instant, remote: IpAddr, port: u16) {
        let addresses = ConnectionAddresses {
            local: (self.address, 40_000).into(),
            remote: (remote, port).into(),
        };
        let parameters = ConnectParameters::new(addresses, Qpn::new(0x11).unwrap());
        self.engine.set_now(now);
        let time = self.engine.agent_now();
        self.engine.agent().unwrap().connect(time, &parameters).unwrap();
    }

    fn event(&mut self) -> Option<Event> {
        let event = self.port.events.lock().unwrap().pop_front()?;
        self.engine.agent().unwrap().note_reported(&event);
        Some(event)
    }

    fn counter(&self, name: &str) -> u64 {
        self.engine.counters().iter().filter(|(known, _)| *known == name).map(|(_, n)| n).sum()
    }
}

fn pair() -> [Host; 2] {
    let (there, back) = (Frames::default(), Frames::default());
    [Host::new(1, &back, &there), Host::new(2, &there, &back)]
}

/// Runs rounds until all that was due has arrived: an exchange has four datagrams at most, and two paths.
fn settle(now: Instant, hosts: &mut [Host; 2]) {
    for _ in 0..8 {
        for host in &mut *hosts {
            host.engine.run(now, Cause::Call, None);
            host.resolve_wanted();
        }
    }
}

fn listen(host: &mut Host) {
    let address = host.address;
    let listen = ListenParameters { space: PortSpace::TCP, port: 7, address, backlog: 8 };
    host.engine.agent().unwrap().listen(&listen).unwrap();
}

/// Two hosts, of which the second has received the request of the first, and knows no path to it.
fn pair_with_request(now: Instant) -> [Host; 2] {
    let mut hosts = pair();
    listen(&mut hosts[1]);
    let remote = hosts[1].address;
    hosts[0].connect(now, remote, 7);
    hosts[0].engine.run(now, Cause::Call, None);
    assert_eq!(hosts[0].resolve_wanted(), 1);
    hosts[1].engine.run(now, Cause::Call, None);
    hosts
}

#[test]
fn two_engines_connect_and_disconnect() {
    let mut hosts = pair();
    let now = Instant::from_nanos(1000);
    listen(&mut hosts[1]);
    let remote = hosts[1].address;
    hosts[0].connect(now, remote, 7);
    settle(now, &mut hosts);

    let Some(Event::ConnectRequest { id: passive, .. }) = hosts[1].event() else {
        panic!("no request");
    };
    let accept = AcceptParameters::new(Qpn::new(0x22).unwrap());
    let time = hosts[1].engine.agent_now();
    hosts[1].engine.agent().unwrap().accept(time, passive, &accept).unwrap();
    settle(now, &mut hosts);
    let Some(Event::ConnectResponse { id: active, response }) = hosts[0].event() else {
        panic!("no response");
    };
    assert_eq!(response.remote_qpn, Qpn::new(0x22).unwrap());
    hosts[0].engine.agent().unwrap().establish(active, &[]).unwrap();
    settle(now, &mut hosts);
    assert_eq!(hosts[1].event(), Some(Event::Established { id: passive }));

    let time = hosts[0].engine.agent_now();
    hosts[0].engine.agent().unwrap().disconnect(time, active).unwrap();
    settle(now, &mut hosts);
    assert_eq!(hosts[1].event(), Some(Event::Disconnected { id: passive }));
    hosts[1].engine.agent().unwrap().disconnect(time, passive).unwrap();
    settle(now, &mut hosts);
    assert_eq!(hosts[0].event(), Some(Event::Disconnected { id: active }));
    assert_eq!((hosts[0].counter("cm_sent"), hosts[1].counter("cm_sent")), (3, 2));
    assert_eq!(hosts[0].counter("cm_resent") + hosts[1].counter("cm_resent"), 0);
}

#[test]
fn a_program_hears_of_a_request_when_the_path_of_its_answer_is_known() {
    let now = Instant::from_nanos(1000);
    let mut hosts = pair_with_request(now);
    assert_eq!(hosts[1].event(), None);
    assert_eq!(hosts[1].resolve_wanted(), 1);
    let Some(Event::ConnectRequest { id, .. }) = hosts[1].event() else { panic!("no request") };
    // One round, after which the process may end.
    let reason = RejectReason::CONSUMER;
    let (time, no) = (hosts[1].engine.agent_now(), RejectParameters { reason, private_data: b"" });
    hosts[1].engine.agent().unwrap().reject(time, id, &no).unwrap();
    hosts[1].engine.run(now, Cause::Call, None);
    hosts[0].engine.run(now, Cause::Call, None);
    assert!(matches!(hosts[0].event(), Some(Event::Rejected { .. })));
}

#[test]
fn a_program_hears_of_a_request_and_its_end_in_order_although_its_answer_has_no_path() {
    let now = Instant::from_nanos(1000);
    let mut hosts = pair_with_request(now);
    let time = hosts[0].engine.agent_now();
    hosts[0].engine.agent().unwrap().destroy_all(time);
    hosts[0].engine.run(now, Cause::Call, None);
    hosts[1].engine.run(now, Cause::Call, None);
    assert_eq!(hosts[1].event(), None);
    let wanted = hosts[1].port.wanted.lock().unwrap().pop_front().unwrap();
    assert_eq!(hosts[1].engine.set_management_path(wanted, None), None);
    assert!(matches!(hosts[1].event(), Some(Event::ConnectRequest { .. })));
    assert!(matches!(hosts[1].event(), Some(Event::Rejected { .. })));
    assert_eq!(hosts[1].event(), None);
}

#[test]
fn a_request_without_listener_is_refused_when_the_owner_says_that_it_is_no_other_processs() {
    let mut hosts = pair();
    let now = Instant::from_nanos(1000);
    let remote = hosts[1].address;
    hosts[0].connect(now, remote, 7);
    settle(now, &mut hosts);
    assert_eq!(hosts[0].event(), None);
    let stray = hosts[1].port.strays.lock().unwrap().pop_front().expect("a stray");
    hosts[1].engine.answer_stray(&stray);
    settle(now, &mut hosts);
    let Some(Event::Rejected { reason, .. }) = hosts[0].event() else { panic!("not refused") };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

//= test gsi-sent-datagrams
#[test]
fn what_an_engine_sends_from_queue_pair_1_is_a_datagram_of_256_bytes_to_queue_pair_1() {
    let (there, back) = (Frames::default(), Frames::default());
    let mut host = Host::new(1, &back, &there);
    let now = Instant::from_nanos(1000);
    host.connect(now, [10, 0, 0, 2].into(), 7);
    host.engine.run(now, Cause::Call, None);
    assert!(there.lock().unwrap().is_empty(), "no path is known");
    host.resolve_wanted();
    let frame = there.lock().unwrap().pop_front().expect("sent as soon as the path is known");
    let frame = Frame::parse(&frame).unwrap();
    let packet = frame.packet().unwrap().verify_icrc().unwrap();
    let headers = packet.headers();
    assert_eq!((headers.bth.dest_qp, packet.payload().len()), (Qpn::GSI, 256));
    let deth = headers.deth.unwrap();
    assert_eq!((deth.q_key, deth.source_qp), (0x8001_0000, Qpn::GSI));
}

#[test]
fn a_lost_request_is_repeated_when_the_engines_timer_says_so() {
    let mut hosts = pair();
    let now = Instant::from_nanos(1000);
    listen(&mut hosts[1]);
    let remote = hosts[1].address;
    hosts[0].connect(now, remote, 7);
    hosts[0].engine.run(now, Cause::Call, None);
    hosts[0].resolve_wanted();
    let (there, back) = (Frames::default(), Frames::default());
    // The peer starts anew, and has received nothing.
    hosts[1] = Host::new(2, &there, &back);
    let later = hosts[0].engine.management_timeout().expect("a timer");
    assert_eq!(later.saturating_since(now).as_millis(), 6144);
    hosts[0].engine.run(now + Duration::from_secs(6), Cause::Call, None);
    assert_eq!(hosts[0].counter("cm_resent"), 0);
    hosts[0].engine.run(later, Cause::Call, None);
    assert_eq!(hosts[0].counter("cm_resent"), 1);
}

#[test]
fn datagrams_that_wait_for_paths_are_bounded_and_counted_where_there_is_none() {
    let (there, back) = (Frames::default(), Frames::default());
    let mut host = Host::new(1, &back, &there);
    let now = Instant::from_nanos(1000);
    let lonely = IpAddr::from([10, 0, 0, 2]);
    for _ in 0..10 {
        host.connect(now, lonely, 7);
    }
    host.engine.run(now, Cause::Call, None);
    // Eight wait, and the path is asked for once.
    assert_eq!((host.port.wanted.lock().unwrap().len(), host.counter("cm_no_path")), (1, 2));
    let destination = host.port.wanted.lock().unwrap().pop_front().unwrap();
    assert_eq!(host.engine.set_management_path(destination, None), None);
    assert_eq!(host.counter("cm_no_path"), 10);
    // The next datagram asks again.
    host.connect(now, lonely, 7);
    host.engine.run(now, Cause::Call, None);
    assert_eq!(host.port.wanted.lock().unwrap().len(), 1);

    for last in 0..300_u16 {
        host.connect(now, [10, 1, (last / 250) as u8, (last % 250) as u8].into(), 7);
        host.engine.run(now, Cause::Call, None);
    }
    let wanted = host.port.wanted.lock().unwrap().len();
    assert_eq!((wanted, host.counter("cm_no_path")), (256, 10 + 45));
    assert!(there.lock().unwrap().is_empty());
}

#[test]
fn the_paths_of_an_engines_datagrams_are_bounded_and_the_oldest_is_given_back() {
    let (there, back) = (Frames::default(), Frames::default());
    let mut host = Host::new(1, &back, &there);
    let now = Instant::from_nanos(1000);
    for number in 0..1100_u16 {
        host.connect(now, [10, 1, (number >> 8) as u8, number as u8].into(), 7);
        host.engine.run(now, Cause::Call, None);
        host.resolve_wanted();
    }
    assert_eq!(host.engine.paths.iter().count(), 1024);
    assert_eq!(there.lock().unwrap().len(), 1100);
    // The first destination has lost its path, the last has it.
    for (number, wanted) in [(1099_u16, 0), (0, 1)] {
        host.connect(now, [10, 1, (number >> 8) as u8, number as u8].into(), 7);
        host.engine.run(now, Cause::Call, None);
        assert_eq!(host.port.wanted.lock().unwrap().len(), wanted);
    }
}
