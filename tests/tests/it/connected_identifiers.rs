//! Identifiers of connection management on real interfaces: `roce_verbs::cm` between hosts and processes.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, device_config};
use roce_tests::identified_ends::{End, LIMIT, PORT, Side, connect};
use roce_verbs::cm::{
    ConnectionParameters, Error, Event, EventChannel, EventKind, Id, PortSpace, RejectReason,
    SidrStatus, Unreachable,
};
use roce_verbs::{Device, DeviceConfig, Qpn};

#[tier1]
fn two_hosts_connect_by_address_and_port_exchange_messages_and_disconnect_from_either_end() {
    let cable = Cable::with_mtu(1500);
    for (listens, remote) in
        [("0.0.0.0", "10.1.0.2"), ("::", "fd00:1::2"), ("10.1.0.2", "10.1.0.2")]
    {
        let (client, server) = (End::on(&cable.left), End::on(&cable.right));
        let listener = server.listen(PortSpace::TCP, listens);
        for client_ends in [true, false] {
            let ends = connect(&client, &server, remote);
            ends[0].1.send(3);
            ends[1].1.receive(3);
            ends[1].1.send(5);
            ends[0].1.receive(5);
            let (first, second) = if client_ends { (0, 1) } else { (1, 0) };
            let channels = [&client.channel, &server.channel];
            ends[first].0.disconnect().unwrap();
            let event = channels[second].next(Some(LIMIT)).unwrap().unwrap();
            assert_eq!((&event.id, &event.kind), (&ends[second].0, &EventKind::Disconnected));
            ends[second].0.disconnect().unwrap();
            let event = channels[first].next(Some(LIMIT)).unwrap().unwrap();
            assert_eq!((&event.id, &event.kind), (&ends[first].0, &EventKind::Disconnected));
            for (channel, (id, _)) in channels.into_iter().zip(&ends) {
                let event = channel.next(Some(LIMIT)).unwrap().unwrap();
                assert_eq!((&event.id, &event.kind), (id, &EventKind::TimewaitExit));
            }
            // Address, route, response, end, timewait; established, end, timewait.
            assert_eq!(ends.each_ref().map(|(id, _)| id.destroy()), [5, 3]);
        }
        assert_eq!(listener.destroy(), 2);
    }
}

#[tier1]
fn requests_are_refused_where_nothing_listens_and_where_the_program_says_so() {
    let cable = Cable::with_mtu(1500);
    let (client, server) = (End::on(&cable.left), End::on(&cable.right));
    let parameters = ConnectionParameters::new(Qpn::new(0x123).unwrap());
    let listener = server.listen(PortSpace::TCP, "0.0.0.0");
    // The service of another port space has no listener.
    let id = client.resolved(PortSpace::IB, "10.1.0.2");
    id.connect(&parameters).unwrap();
    let event = client.event();
    let EventKind::Rejected { reason, .. } = &event.kind else { panic!("{event:?}") };
    assert_eq!((*reason, event.status()), (RejectReason::INVALID_SERVICE_ID, 8));

    let id = client.resolved(PortSpace::TCP, "10.1.0.2");
    id.connect(&parameters).unwrap();
    let (request, _) = server.request();
    request.reject(RejectReason::CONSUMER, b"go away").unwrap();
    let event = client.event();
    let EventKind::Rejected { reason, private_data } = &event.kind else { panic!("{event:?}") };
    assert_eq!((*reason, &private_data[..7]), (RejectReason::CONSUMER, &b"go away"[..]));

    // A listener that ends refuses what waits, and so does a channel that is dropped.
    let id = client.resolved(PortSpace::TCP, "10.1.0.2");
    id.connect(&parameters).unwrap();
    let deadline = Instant::now() + LIMIT;
    while server.channel.is_empty() {
        assert!(Instant::now() < deadline, "no request");
        server.channel.devices().iter().for_each(Device::run_round);
    }
    listener.destroy();
    assert!(server.channel.is_empty());
    let event = client.event();
    assert!(matches!(event.kind, EventKind::Rejected { .. }), "{event:?}");
    drop(id);

    let refusing = server.listen(PortSpace::TCP, "0.0.0.0");
    let id = client.resolved(PortSpace::TCP, "10.1.0.2");
    id.connect(&parameters).unwrap();
    while server.channel.is_empty() {
        assert!(Instant::now() < deadline, "no request");
        server.channel.devices().iter().for_each(Device::run_round);
    }
    drop(server.channel);
    let event = client.event();
    assert!(matches!(event.kind, EventKind::Rejected { .. }), "{event:?}");
    drop(refusing);
}

#[tier1]
fn the_peer_of_an_identifier_that_is_destroyed_in_any_state_learns_of_it() {
    let cable = Cable::with_mtu(1500);
    let (client, server) = (End::on(&cable.left), End::on(&cable.right));
    let _listener = server.listen(PortSpace::TCP, "0.0.0.0");
    let ended =
        |event: &Event| matches!(event.kind, EventKind::Rejected { .. } | EventKind::Disconnected);
    // The request is not answered: either end.
    for client_goes in [true, false] {
        let active = client.resolved(PortSpace::TCP, "10.1.0.2");
        let here = Side::of(&active);
        active.connect(&here.parameters()).unwrap();
        let (passive, _) = server.request();
        let event = match client_goes {
            true => {
                active.destroy();
                server.event()
            }
            false => {
                passive.destroy();
                client.event()
            }
        };
        assert!(ended(&event), "{event:?}");
    }
    // The response is not confirmed: either end.
    for client_goes in [true, false] {
        let active = client.resolved(PortSpace::TCP, "10.1.0.2");
        let here = Side::of(&active);
        active.connect(&here.parameters()).unwrap();
        let (passive, _) = server.request();
        let there = Side::of(&passive);
        passive.accept(&there.parameters()).unwrap();
        let event = client.event();
        assert!(matches!(event.kind, EventKind::ConnectResponse(_)), "{event:?}");
        let event = match client_goes {
            true => {
                active.destroy();
                server.event()
            }
            false => {
                passive.destroy();
                client.event()
            }
        };
        assert!(ended(&event), "{event:?}");
        assert!(
            matches!(active.connect(&here.parameters()), Err(Error::Destroyed)) || !client_goes
        );
    }
    // Established: either end, here by dropping the last clone.
    for client_goes in [true, false] {
        let [(active, here), (passive, there)] = connect(&client, &server, "10.1.0.2");
        let event = match client_goes {
            true => {
                drop(active);
                server.event()
            }
            false => {
                drop(passive);
                client.event()
            }
        };
        assert_eq!(event.kind, EventKind::Disconnected);
        drop((here, there));
    }
}

#[tier1]
fn a_datagram_service_tells_its_queue_pair_or_that_there_is_none() {
    let cable = Cable::with_mtu(1500);
    let (client, server) = (End::on(&cable.left), End::on(&cable.right));
    let listener = server.listen(PortSpace::UDP, "0.0.0.0");
    let qpn = Qpn::new(0x4567).unwrap();
    let asked = ConnectionParameters { private_data: b"who", ..ConnectionParameters::new(qpn) };

    let id = client.resolved(PortSpace::UDP, "10.1.0.2");
    id.connect(&asked).unwrap();
    let (request, event) = server.request();
    let EventKind::ConnectRequest(peer) = &event.kind else { unreachable!() };
    assert_eq!((peer.private_data.len(), &peer.private_data[..3]), (180, &b"who"[..]));
    request.accept(&ConnectionParameters { private_data: b"me", ..asked }).unwrap();
    let event = client.event();
    let EventKind::Established(peer) = &event.kind else { panic!("{event:?}") };
    let datagram = peer.datagram.expect("a queue pair");
    assert_eq!((datagram.qpn, datagram.q_key, datagram.gid_index), (qpn, 0x0123_4567, 1));
    assert_eq!((peer.private_data.len(), &peer.private_data[..2]), (136, &b"me"[..]));
    assert_eq!(id.q_key(), Some(0x0123_4567));

    let id = client.resolved(PortSpace::UDP, "10.1.0.2");
    id.connect(&asked).unwrap();
    let (request, _) = server.request();
    request.reject(RejectReason::CONSUMER, b"").unwrap();
    let kind = client.event().kind;
    let EventKind::Unreachable(Unreachable::Service { status, private_data }) = &kind else {
        panic!("{kind:?}")
    };
    assert_eq!((*status, &private_data[..]), (SidrStatus::REJECTED, &[0; 136][..]));

    // Without a listener the device that has had one says so, as long as it is open.
    let _open = server.channel.devices();
    listener.destroy();
    let id = client.resolved(PortSpace::UDP, "10.1.0.2");
    id.connect(&asked).unwrap();
    let event = client.event();
    assert!(matches!(event.kind, EventKind::Unreachable(Unreachable::Service { .. })), "{event:?}");
    assert_ne!(event.status(), 0);
}

#[tier1]
fn addresses_that_no_device_has_or_that_no_neighbour_answers_for_are_errors() {
    let cable = Cable::with_mtu(1500);
    let client = End::on(&cable.left);
    let id = client.channel.create_id(PortSpace::TCP, 0).unwrap();
    let errno = |result: Result<(), Error>| result.unwrap_err().errno();
    let bind = |address: &str| {
        let address = address.parse().unwrap();
        cable.left.run(|| id.bind(address))
    };
    assert_eq!(errno(bind("10.1.0.77:1")), libc::EADDRNOTAVAIL);
    let resolve = |id: &Id, address: &str| {
        let address = address.parse().unwrap();
        cable.left.run(|| id.resolve_addr(None, address, LIMIT))
    };
    assert_eq!(errno(resolve(&id, "192.0.2.1:1")), libc::ENETUNREACH);
    let id = client.channel.create_id(PortSpace::TCP, 0).unwrap();
    assert_eq!(errno(id.resolve_route()), libc::EINVAL);
    resolve(&id, "10.1.0.77:1").unwrap();
    let event = client.event();
    assert_eq!(event.kind, EventKind::AddressError { errno: libc::ETIMEDOUT });
    assert_eq!(event.status(), -libc::ETIMEDOUT);
    // The program may have less patience than the kernel.
    let id = client.channel.create_id(PortSpace::TCP, 0).unwrap();
    let (begun, timeout) = (Instant::now(), Duration::from_millis(300));
    let address = "10.1.0.78:1".parse().unwrap();
    cable.left.run(|| id.resolve_addr(None, address, timeout)).unwrap();
    assert_eq!(client.event().kind, EventKind::AddressError { errno: libc::ETIMEDOUT });
    assert!((timeout..Duration::from_secs(2)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(errno(id.resolve_route()), libc::EINVAL);
}

#[tier1]
fn a_port_belongs_to_one_identifier_of_a_network_namespace() {
    let cable = Cable::with_mtu(1500);
    let (one, other) = (End::on(&cable.right), End::on(&cable.right));
    let first = one.listen(PortSpace::TCP, "0.0.0.0");
    let second = other.channel.create_id(PortSpace::TCP, 0).unwrap();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    for text in ["0.0.0.0:7174", "10.1.0.2:7174", "[::]:7174"] {
        let refused = cable.right.run(|| second.bind(address(text))).unwrap_err();
        // One of the two is unspecified.
        assert_eq!(refused.errno(), libc::EADDRNOTAVAIL, "{text}");
    }
    // The other host has ports of its own.
    let there = End::on(&cable.left);
    there.listen(PortSpace::TCP, "0.0.0.0");
    first.destroy();
    cable.right.run(|| second.bind(address("10.1.0.2:7174"))).unwrap();

    let automatic = other.channel.create_id(PortSpace::TCP, 0).unwrap();
    cable.right.run(|| automatic.bind(address("0.0.0.0:0"))).unwrap();
    assert!(automatic.local_address().unwrap().port() >= 32_768);
}

#[tier1]
fn the_devices_of_an_identifier_for_any_address_are_open_before_it_listens() {
    let cable = Cable::with_mtu(1500);
    let end = End::on(&cable.left);
    let udp = || cable.left.run(|| std::net::UdpSocket::bind(("0.0.0.0", roce_wire::ROCE_V2_PORT)));
    drop(udp().expect("a device that is not open reserves no port"));
    let id = end.channel.create_id(PortSpace::TCP, 1).unwrap();
    end.host.run(|| id.bind(SocketAddr::from(([0, 0, 0, 0], 0)))).unwrap();
    assert_eq!(udp().unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    end.host.run(|| id.listen(4)).unwrap();
}

#[tier1]
fn a_host_connects_to_itself_and_an_identifier_moves_to_another_channel_with_its_events() {
    let cable = Cable::with_mtu(1500);
    let end = End::on(&cable.left);
    let server = End::on(&cable.left);
    let _listener = server.listen(PortSpace::TCP, "0.0.0.0");
    for address in ["10.1.0.1", "127.0.0.1"] {
        let [(active, here), (passive, there)] = connect(&end, &server, address);
        here.send(7);
        there.receive(7);
        passive.disconnect().unwrap();
        let deadline = Instant::now() + LIMIT;
        while end.channel.is_empty() {
            assert!(Instant::now() < deadline, "no event");
            end.channel.devices().iter().for_each(Device::run_round);
        }
        // Address, route, response so far.
        let elsewhere = EventChannel::new(DeviceConfig::default()).unwrap();
        assert_eq!(active.migrate(&elsewhere), 3);
        assert!(end.channel.is_empty());
        assert_eq!(elsewhere.next(Some(LIMIT)).unwrap().unwrap().kind, EventKind::Disconnected);
        active.disconnect().unwrap();
        assert_eq!(server.event().kind, EventKind::Disconnected);
    }
}

#[tier1]
fn a_program_that_sleeps_on_the_descriptor_gets_its_events_from_the_devices_threads() {
    let cable = Cable::with_mtu(1500);
    let (client, server) = (End::on(&cable.left), End::on(&cable.right));
    let _listener = server.listen(PortSpace::TCP, "0.0.0.0");
    let sleep = |channel: &EventChannel| {
        let fd = channel.fd().expect("a descriptor");
        let mut fds = [nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN)];
        let readable = nix::poll::poll(&mut fds, nix::poll::PollTimeout::from(20_000_u16)).unwrap();
        assert_eq!(readable, 1, "an event within the time allowed");
        channel.try_next().expect("an event")
    };
    let active = client.resolved(PortSpace::TCP, "10.1.0.2");
    active.connect(&ConnectionParameters::new(Qpn::new(0x123).unwrap())).unwrap();
    let event = sleep(&server.channel);
    assert!(matches!(event.kind, EventKind::ConnectRequest(_)), "{event:?}");
    event.id.reject(RejectReason::CONSUMER, b"").unwrap();
    let event = sleep(&client.channel);
    assert!(matches!(event.kind, EventKind::Rejected { .. }), "{event:?}");
}

#[tier1]
fn queue_pair_1_is_the_connection_managements_or_the_applications() {
    let cable = Cable::with_mtu(1500);
    let end = End::on(&cable.left);
    let device = cable.left.run(|| Device::open("eth0", device_config())).unwrap();
    let (cq, pd) = (device.create_cq(4, None).unwrap(), device.alloc_pd().unwrap());
    let own = pd.queue_pair(&cq, &cq).general_services().build().unwrap();
    let id = end.channel.create_id(PortSpace::TCP, 0).unwrap();
    let address = "10.1.0.1:7174".parse().unwrap();
    let refused = cable.left.run(|| id.bind(address)).unwrap_err();
    assert_eq!(refused.errno(), libc::EBUSY);
    drop(own);
    cable.left.run(|| id.bind(address)).unwrap();
    assert!(pd.queue_pair(&cq, &cq).general_services().build().is_err());
}

#[tier1]
fn identifiers_of_active_sides_cost_no_descriptors() {
    let cable = Cable::with_mtu(1500);
    let client = End::on(&cable.left);
    let first = client.resolved(PortSpace::TCP, "10.1.0.2");
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let ids: Vec<_> = (0..100).map(|_| client.resolved(PortSpace::TCP, "10.1.0.2")).collect();
    assert!(descriptors() < before + 10, "{before}, then {}", descriptors());
    assert!(ids.iter().all(|id| id.device().is_some()) && client.channel.devices().len() == 1);
    drop(first);
}

/// There are more of them than one round sends, or than may wait for answers of one peer at a time.
#[tier1]
fn the_end_of_a_process_by_exit_ends_all_its_connections() {
    const COUNT: usize = 200;
    let cable = Cable::with_mtu(1500);
    let server = End::on(&cable.right);
    let _listener = server.listen(PortSpace::TCP, "0.0.0.0");
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce-test-connect-and-exit"));
    command.args(["10.1.0.2:7174", &COUNT.to_string()]);
    let mut child = cable.left.spawn(command).unwrap();
    let accepted: Vec<_> = (0..COUNT)
        .map(|_| {
            let (passive, _) = server.request();
            let there = Side::of(&passive);
            passive.ready_queue_pair(&there.qp).unwrap();
            passive.accept(&there.parameters()).unwrap();
            assert!(matches!(server.event().kind, EventKind::Established(_)));
            (passive, there)
        })
        .collect();
    let begun = Instant::now();
    for told in 0..COUNT {
        assert_eq!(server.event().kind, EventKind::Disconnected, "after {told}");
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(child.wait().unwrap().success());
    accepted.iter().for_each(|(passive, _)| passive.disconnect().unwrap());
}

#[tier1]
fn requests_that_a_program_sends_at_once_are_all_sent_at_once() {
    let cable = Cable::with_mtu(1500);
    let (client, server) = (End::on(&cable.left), End::on(&cable.right));
    let listener = server.channel.create_id(PortSpace::TCP, 1).unwrap();
    let address = SocketAddr::new("0.0.0.0".parse().unwrap(), PORT);
    cable.right.run(|| listener.bind(address).and_then(|()| listener.listen(200))).unwrap();
    let ids: Vec<_> = (0..100).map(|_| client.resolved(PortSpace::TCP, "10.1.0.2")).collect();
    for (id, number) in ids.iter().zip(0x123..) {
        id.connect(&ConnectionParameters::new(Qpn::new(number).unwrap())).unwrap();
    }
    let begun = Instant::now();
    for _ in &ids {
        let (request, _) = server.request();
        request.reject(RejectReason::CONSUMER, b"").unwrap();
    }
    for _ in &ids {
        let event = client.event();
        assert!(matches!(event.kind, EventKind::Rejected { .. }), "{event:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "a request was repeated");
}
