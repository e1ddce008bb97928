//! What engines exchange when programs connect, refuse and disconnect, and when datagrams are lost.

use std::net::IpAddr;
use std::time::Duration;

use roce_cm::{
    AcceptParameters, Event, ListenParameters, MAX_REQUESTS_IN_FLIGHT, REQUEST_FLIGHT_TIME,
    RejectParameters,
};
use roce_engine::policy::Cause;
use roce_transport::Instant;
use roce_wire::management::{PortSpace, RejectReason};
use roce_wire::{Frame, Qpn};

use super::host::{Frames, Host, listen, pair, settle};

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
    let time = hosts[1].engine.last_now();
    hosts[1].engine.agent().unwrap().accept(time, passive, &accept).unwrap();
    settle(now, &mut hosts);
    let Some(Event::ConnectResponse { id: active, response }) = hosts[0].event() else {
        panic!("no response");
    };
    assert_eq!(response.remote_qpn, Qpn::new(0x22).unwrap());
    hosts[0].engine.agent().unwrap().establish(active, &[]).unwrap();
    settle(now, &mut hosts);
    assert_eq!(hosts[1].event(), Some(Event::Established { id: passive }));

    let time = hosts[0].engine.last_now();
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
    let (time, no) = (hosts[1].engine.last_now(), RejectParameters { reason, private_data: b"" });
    hosts[1].engine.agent().unwrap().reject(time, id, &no).unwrap();
    hosts[1].engine.run(now, Cause::Call, None);
    hosts[0].engine.run(now, Cause::Call, None);
    assert!(matches!(hosts[0].event(), Some(Event::Rejected { .. })));
}

#[test]
fn a_program_hears_of_a_request_and_its_end_in_order_although_its_answer_has_no_path() {
    let now = Instant::from_nanos(1000);
    let mut hosts = pair_with_request(now);
    let time = hosts[0].engine.last_now();
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

#[test]
fn a_program_that_asks_again_as_soon_as_it_is_refused_is_refused_each_time_within_two_milliseconds()
{
    let mut hosts = pair();
    let mut now = Instant::from_nanos(1000);
    let remote = hosts[1].address;
    for request in 0..1000 {
        hosts[0].connect(now, remote, 7);
        let asked = now;
        let refused = loop {
            settle(now, &mut hosts);
            while let Some(stray) = { hosts[1].port.strays.lock().unwrap().pop_front() } {
                hosts[1].engine.answer_stray(&stray);
            }
            settle(now, &mut hosts);
            if let Some(event) = hosts[0].event() {
                break event;
            }
            // Nothing repeats a request so soon: it is the end that it has come to that has work.
            let at = hosts[1].engine.management_timeout().expect("it waits for its turn");
            assert!(at > now && at.saturating_since(asked) < Duration::from_millis(2), "{request}");
            now = at;
        };
        assert!(matches!(refused, Event::Rejected { .. }), "{refused:?}");
        hosts[0].engine.agent().unwrap().destroy(now, refused.id()).unwrap();
        now += Duration::from_micros(100);
    }
    assert_eq!(hosts[1].counter("cm_stray_dropped"), 0);
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
    let most = MAX_REQUESTS_IN_FLIGHT as u64;
    for _ in 0..most + 2 {
        host.connect(now, lonely, 7);
    }
    host.engine.run(now, Cause::Call, None);
    // All that may be in flight wait, and the path is asked for once.
    assert_eq!((host.port.wanted.lock().unwrap().len(), host.counter("cm_no_path")), (1, 0));
    let now = now + REQUEST_FLIGHT_TIME;
    host.engine.run(now, Cause::Call, None);
    assert_eq!((host.port.wanted.lock().unwrap().len(), host.counter("cm_no_path")), (1, 2));
    let destination = host.port.wanted.lock().unwrap().pop_front().unwrap();
    assert_eq!(host.engine.set_management_path(destination, None), None);
    assert_eq!(host.counter("cm_no_path"), most + 2);
    // The next datagram asks again.
    host.connect(now, lonely, 7);
    host.engine.run(now, Cause::Call, None);
    assert_eq!(host.port.wanted.lock().unwrap().len(), 1);

    for last in 0..600_u16 {
        host.connect(now, [10, 1, (last / 250) as u8, (last % 250) as u8].into(), 7);
        host.engine.run(now, Cause::Call, None);
    }
    let wanted = host.port.wanted.lock().unwrap().len();
    assert_eq!((wanted, host.counter("cm_no_path")), (512, most + 2 + 89));
    assert!(there.lock().unwrap().is_empty());
}

#[test]
fn a_thousand_requests_at_once_leave_without_a_loss_though_no_path_is_known_to_the_first() {
    let mut hosts = pair();
    let now = Instant::from_nanos(1000);
    let address = hosts[1].address;
    let listen = ListenParameters { space: PortSpace::TCP, port: 7, address, backlog: 0 };
    hosts[1].engine.agent().unwrap().listen(&listen).unwrap();
    for number in 0..1000 {
        hosts[0].connect_as(Qpn::new(0x11 + number).unwrap(), now, address, 7);
        hosts[0].engine.run(now, Cause::Call, None);
    }
    // The other program refuses all.
    let (mut refused, no) = (0, RejectParameters::new());
    for _ in 0..100 {
        settle(now, &mut hosts);
        while let Some(event) = hosts[1].event() {
            let time = hosts[1].engine.last_now();
            hosts[1].engine.agent().unwrap().reject(time, event.id(), &no).unwrap();
        }
        while let Some(event) = hosts[0].event() {
            refused += usize::from(matches!(event, Event::Rejected { .. }));
        }
    }
    let lost = hosts.each_ref().map(|host| host.counter("cm_no_path"));
    assert_eq!((refused, lost), (1000, [0, 0]));
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
    assert_eq!(host.engine.paths().iter().count(), 1024);
    assert_eq!(there.lock().unwrap().len(), 1100);
    // The first destination has lost its path, the last has it.
    for (number, wanted) in [(1099_u16, 0), (0, 1)] {
        host.connect(now, [10, 1, (number >> 8) as u8, number as u8].into(), 7);
        host.engine.run(now, Cause::Call, None);
        assert_eq!(host.port.wanted.lock().unwrap().len(), wanted);
    }
}
