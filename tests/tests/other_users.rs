//! Other users of the same host, which know all that the host shows them.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;
use roce_tests::datagrams::{DatagramEnd, address_handle};
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::services::{Caller, by, succeeded};
use roce_tests::stranger::{NEIGHBOUR, STRANGER, WITH_PACKET_SOCKETS, as_stranger, may_be_others};
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

/// Two hosts as [`Cable`] lays one, with a second cable at `eth1`.
fn two_cables() -> Cable {
    let network = VirtualNetwork::new().unwrap();
    let [left, right] = ["left", "right"].map(|name| network.host(name).unwrap());
    for (cable, name) in [(1, "eth0"), (2, "eth1")] {
        network.veth((&left, name), (&right, name), Link { mtu: 1500 }).unwrap();
        for (host, number) in [(&left, 1), (&right, 2)] {
            host.address(name, format!("10.{cable}.0.{number}/24").parse().unwrap()).unwrap();
            host.address(name, format!("fd00:{cable}::{number}/64").parse().unwrap()).unwrap();
        }
    }
    Cable { left, right }
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
        let cable = two_cables();
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
    let cable = two_cables();
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
    let cable = two_cables();
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
