//! Other users of the same host, which know all that the host shows them.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::datagrams::{DatagramEnd, address_handle};
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::services::{Caller, by, succeeded};
use roce_tests::stranger::{NEIGHBOUR, STRANGER, WITH_PACKET_SOCKETS, as_stranger, may_be_others};
use roce_verbs::cm::{ConnectionParameters, EventChannel, EventKind, PortSpace, RejectReason};
use roce_verbs::{Backend, Device, DeviceConfig, GSI_Q_KEY, Qpn, SendOperation, SendWr};
use roce_wire::ROCE_V2_PORT;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const BACKENDS: [Backend; 3] = [Backend::AfPacket, Backend::Udp, Backend::AfXdp];

/// A way to bind a socket to the port.
#[derive(Clone, Copy, Debug)]
struct Way {
    address: &'static str,
    interface: Option<&'static str>,
    shares_address: bool,
    shares_port: bool,
}

/// Addresses of this host, of all hosts, and some that it may get later.
const ADDRESSES: [&str; 14] = [
    "0.0.0.0",
    "10.1.0.1",
    "10.2.0.1",
    "127.0.0.1",
    "127.0.0.77",
    "10.1.0.99",
    "224.0.0.251",
    "::",
    "fd00:1::1",
    "fd00:1::99",
    "::1",
    "::ffff:0.0.0.0",
    "::ffff:10.1.0.1",
    "::ffff:10.1.0.99",
];

fn ways() -> impl Iterator<Item = Way> {
    let interfaces = [None, Some("eth0"), Some("eth1"), Some("lo")];
    let sharing = [(false, false), (true, false), (false, true), (true, true)];
    ADDRESSES.into_iter().flat_map(move |address| {
        interfaces.into_iter().flat_map(move |interface| {
            sharing.into_iter().map(move |(shares_address, shares_port)| Way {
                address,
                interface,
                shares_address,
                shares_port,
            })
        })
    })
}

impl Way {
    fn bind(self) -> std::io::Result<Socket> {
        let address = SocketAddr::new(self.address.parse::<IpAddr>().unwrap(), ROCE_V2_PORT);
        let socket =
            Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).unwrap();
        if let Some(interface) = self.interface {
            socket.bind_device(Some(interface.as_bytes())).unwrap();
        }
        match address.is_ipv6() {
            true => socket.set_freebind_v6(true).unwrap(),
            false => socket.set_freebind_v4(true).unwrap(),
        }
        socket.set_reuse_address(self.shares_address).unwrap();
        socket.set_reuse_port(self.shares_port).unwrap();
        socket.bind(&address.into()).map(|()| socket)
    }
}

/// Opens `eth0` of a host by a back end; returns what the error says.
fn open(host: &Host, config: DeviceConfig) -> Result<Device, String> {
    host.run(|| Device::open("eth0", config)).map_err(|error| error.to_string())
}

#[tier1]
fn while_a_device_is_open_no_socket_of_another_user_is_bound_to_its_port() {
    if !may_be_others() {
        return;
    }
    for backend in BACKENDS {
        let cable = Cable::with_another();
        let _device = TestDevice::on(&cable.left, by(backend));
        let bound: Vec<_> = as_stranger(&cable.left, || {
            // One after the other, and with all that could be bound before.
            let all = ways().filter_map(|way| Some((way, way.bind().ok()?)));
            all.collect::<Vec<_>>().into_iter().map(|(way, _)| way).collect()
        });
        assert!(bound.is_empty(), "{backend}: {} ways, such as {:?}", bound.len(), bound[0]);
    }
}

#[tier1]
fn a_device_that_opens_is_told_which_other_user_has_a_socket_on_its_port() {
    if !may_be_others() {
        return;
    }
    let cable = Cable::with_another();
    let said = format!("user {STRANGER} holds UDP port {ROCE_V2_PORT}");
    let is_told = |way: &dyn std::fmt::Debug, backends: &[Backend]| {
        for backend in backends {
            let backend = *backend;
            let error = open(&cable.left, by(backend)).map(drop).expect_err("another user's");
            assert!(error.contains(&said), "{backend}, {way:?}: {error}");
        }
    };
    for (number, way) in ways().enumerate() {
        let _socket = as_stranger(&cable.left, || way.bind().expect("the port is free"));
        // Attaching a program takes long.
        is_told(&way, &BACKENDS[number % 2..][..1]);
    }
    // So many that the kernel compares a new socket only with those of its own address.
    for address in ["10.1.0.1", "10.1.0.99", "127.0.0.200"] {
        let _sockets: Vec<_> = as_stranger(&cable.left, || {
            let addresses = (1..20).map(|number| format!("127.0.0.{number}"));
            let addresses = addresses.chain([address.to_owned()]);
            let bind = |address: String| {
                let way = Way {
                    address: address.leak(),
                    interface: None,
                    shares_address: true,
                    shares_port: true,
                };
                way.bind().unwrap()
            };
            addresses.map(bind).collect()
        });
        is_told(&address, &BACKENDS);
    }
    for backend in BACKENDS {
        open(&cable.left, by(backend)).expect("the port is free again");
    }
}

#[tier1]
fn packet_sockets_open_beside_the_superuser_and_take_the_port_when_it_has_closed_it() {
    if !may_be_others() {
        return;
    }
    let cable = Cable::with_another();
    let roots = TestDevice::on(&cable.left, by(Backend::AfPacket));
    let address = SocketAddr::from(([10, 1, 0, 1], 7001));
    let echo = [env!("CARGO_BIN_EXE_roce-test-echo"), "eth0", "10.1.0.1:7001", "af-packet"];
    // The superuser may read all packets anyway.
    let neighbours =
        Echo::start_by(&cable.left, address, &[&WITH_PACKET_SOCKETS[..], &echo].concat());
    Caller::connect(&cable.left, &roots, &neighbours).call(&roots, 1);
    let refused = as_stranger(&cable.left, || Device::open("eth1", by(Backend::Udp)));
    let refused = refused.map(drop).expect_err("UDP sockets need the port").to_string();
    assert!(refused.contains(&format!("user 0 holds UDP port {ROCE_V2_PORT}")), "{refused}");
    drop(roots);
    // The port is taken within some milliseconds, and then it is the superuser that is in the way of none.
    let said = format!("user {NEIGHBOUR} holds UDP port {ROCE_V2_PORT}");
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match open(&cable.left, by(Backend::AfPacket)) {
            Err(error) => {
                assert!(error.contains(&said), "{error}");
                break;
            }
            Ok(_again) => assert!(Instant::now() < deadline, "the port is not taken"),
        }
    }
    let trusting = DeviceConfig { trusts_port_holder: true, ..by(Backend::AfPacket) };
    let _trusting = open(&cable.left, trusting).expect("the neighbour is trusted");
    let of_stranger = as_stranger(&cable.left, || ways().find_map(|way| way.bind().ok()));
    assert!(of_stranger.is_none(), "the neighbour has the port: {of_stranger:?}");
    neighbours.process.kill();
}

#[tier1]
fn beside_a_socket_of_the_superuser_that_lets_all_share_its_port_devices_are_told_of_others_on_it()
{
    if !may_be_others() {
        return;
    }
    let cable = Cable::with_another();
    let shared = Way { address: "::", interface: None, shares_address: true, shares_port: true };
    // As devices of versions before the first release had one.
    let _roots = cable.left.run(|| shared.bind().unwrap());
    let line = |port: &str| {
        let echo = env!("CARGO_BIN_EXE_roce-test-echo").to_owned();
        let ends = [echo, "eth0".into(), format!("10.1.0.1:{port}"), "af-packet".into()];
        WITH_PACKET_SOCKETS.map(str::to_owned).into_iter().chain(ends).collect::<Vec<_>>()
    };
    let (first, address) = (line("7001"), SocketAddr::from(([10, 1, 0, 1], 7001)));
    let first: Vec<_> = first.iter().map(String::as_str).collect();
    let neighbours = Echo::start_by(&cable.left, address, &first);
    let _strangers = as_stranger(&cable.left, || shared.bind().expect("the superuser shares it"));
    let second = line("7002");
    let mut command = Command::new(&second[0]);
    let output = cable.left.run(|| command.args(&second[1..]).output()).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&STRANGER.to_string()), "{said}");
    neighbours.process.kill();
}

/// Binds an abstract name as a socket of a kind, which takes connections where the kind has them.
fn take_name(name: &str, kind: Type) -> Socket {
    let socket = Socket::new(Domain::UNIX, kind, None).unwrap();
    socket.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
    if kind != Type::DGRAM {
        socket.listen(64).unwrap();
    }
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Returns how many bytes have come to such a socket.
fn bytes_at(mut socket: Socket) -> usize {
    let mut bytes = vec![0; 1 << 16];
    let mut all = socket.read(&mut bytes).unwrap_or(0);
    while let Ok((mut connection, _)) = socket.accept() {
        connection.set_nonblocking(true).unwrap();
        all += connection.read(&mut bytes).unwrap_or(0);
    }
    all
}

#[tier1]
fn names_that_another_user_has_taken_get_no_datagram_and_are_told_to_the_user_they_are_for() {
    if !may_be_others() {
        return;
    }
    let cable = Cable::with_mtu(1500);
    let kinds = [Type::DGRAM, Type::SEQPACKET, Type::STREAM];
    let taken: Vec<_> = as_stranger(&cable.left, || {
        // Management datagrams go to all that have such a name.
        let of = |(number, kind)| take_name(&format!("roce/udp/0/management/{number}"), kind);
        (1..).zip(kinds).map(of).collect()
    });
    let [near, far] = [&cable.left, &cable.right].map(|it| TestDevice::on(it, by(Backend::Udp)));
    let [to, from] = [&near, &far].map(|end| DatagramEnd::general_services(end, 8));
    let ah = address_handle(&far, "10.1.0.1", None);
    for slot in 0..8 {
        to.post_receive(slot);
        let work = SendWr::inline(7, SendOperation::send(), b"secret");
        from.qp.post_send_to([work], &ah, Qpn::GSI, GSI_Q_KEY).unwrap();
        succeeded(near.completion());
    }
    assert!(near.device.counter("udp_untrusted").unwrap() > 0, "the names were looked at");
    let seen = as_stranger(&cable.left, || taken.into_iter().map(bytes_at).sum::<usize>());
    assert_eq!(seen, 0, "bytes of datagrams that another user got");
    drop((to, from));
    drop((near, far));

    let taken: Vec<_> = as_stranger(&cable.left, || {
        let of = |(block, kind)| take_name(&format!("roce/udp/0/{block:03x}"), kind);
        (1..4096).zip(kinds.into_iter().cycle()).take(1000).map(of).collect()
    });
    // A device has a random block, and one in four of them is taken.
    let message = (0..200).find_map(|_| {
        let near = TestDevice::on(&cable.left, by(Backend::Udp));
        near.pd.queue_pair(&near.cq, &near.cq).build().err().map(|error| error.to_string())
    });
    let message = message.expect("one of the blocks was taken");
    assert!(
        message.contains("another user holds the abstract unix socket roce/udp/0/"),
        "{message}"
    );
    drop(taken);
}

#[tier1]
fn requests_without_listener_are_refused_beside_a_user_that_has_taken_the_name_for_that() {
    if !may_be_others() {
        return;
    }
    const LIMIT: Duration = Duration::from_secs(20);
    for kind in [Type::DGRAM, Type::SEQPACKET] {
        let cable = Cable::with_mtu(1500);
        let _taken: Vec<_> = as_stranger(&cable.left, || {
            (1..64)
                .map(|interface| take_name(&format!("roce/cm/stray/{interface}"), kind))
                .collect()
        });
        let [server, client] = [0, 1].map(|_| EventChannel::new(DeviceConfig::default()).unwrap());
        let listener = server.create_id(PortSpace::TCP, 1).unwrap();
        let address = SocketAddr::from(([10, 1, 0, 1], 7174));
        cable.left.run(|| listener.bind(address).and_then(|()| listener.listen(1))).unwrap();
        let id = client.create_id(PortSpace::TCP, 2).unwrap();
        let closed = SocketAddr::from(([10, 1, 0, 1], 7175));
        cable.right.run(|| id.resolve_addr(None, closed, LIMIT)).unwrap();
        let event = || client.next(Some(LIMIT)).unwrap().expect("an event");
        assert_eq!(event().kind, EventKind::AddressResolved);
        id.resolve_route().unwrap();
        assert_eq!(event().kind, EventKind::RouteResolved);
        let device = id.device().unwrap();
        let cq = device.create_cq(16, None).unwrap();
        let qp = device.alloc_pd().unwrap().queue_pair(&cq, &cq).build().unwrap();
        id.init_queue_pair(&qp).unwrap();
        id.connect(&ConnectionParameters::new(qp.number())).unwrap();
        let event = event();
        assert!(
            matches!(&event.kind, EventKind::Rejected { reason, .. } if *reason == RejectReason::INVALID_SERVICE_ID),
            "{kind:?}: {event:?}"
        );
    }
}
