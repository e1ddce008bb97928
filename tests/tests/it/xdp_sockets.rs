//! Devices over AF_XDP sockets, between themselves and with devices of other back ends.

use std::collections::BTreeSet;
use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use roce_netns::{Host, is_in_user_namespace};
use roce_test_macros::tier1;
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::kernel_objects::{self, Kind};
use roce_tests::services::{Caller, by, datagrams, over, reliable, unreliable};
use roce_verbs::{Backend, Device, DeviceConfig, Error, FaultConfig, OpenError, XdpError};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// None in a user namespace, which may not load programs.
fn cable(mtu: u32) -> Option<Cable> {
    (!is_in_user_namespace()).then(|| Cable::with_mtu(mtu))
}

/// Opens an interface by AF_XDP, once no process has it any more.
fn open_xdp(host: &Host) -> TestDevice {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let end = TestDevice::on(host, by(Backend::AfXdp));
        match end.device.backend() {
            Backend::AfXdp => return end,
            other => assert!(
                Instant::now() < deadline,
                "{other}, since {}",
                end.device.backend_refusal().unwrap()
            ),
        }
    }
}

#[tier1]
fn back_ends_exchange_messages_of_all_services_over_ipv4_and_ipv6() {
    let xdp = Backend::AfXdp;
    for (one, other, mtu) in [
        (xdp, xdp, 1500),
        (xdp, xdp, 4200),
        (xdp, xdp, 9000),
        (xdp, Backend::AfPacket, 4200),
        (Backend::AfPacket, xdp, 4200),
        (xdp, Backend::Udp, 4200),
        (Backend::Udp, xdp, 1500),
    ] {
        let Some(cable) = cable(mtu) else { return };
        let left = TestDevice::on(&cable.left, by(one));
        let right = TestDevice::on(&cable.right, by(other));
        assert_eq!([left.device.backend(), right.device.backend()], [one, other]);
        for (gid, address) in [(1, "10.1.0.2"), (2, "fd00:1::2")] {
            println!("from {one} to {other}, {address}, MTU {mtu}");
            reliable(&left, &right, &over(gid));
            unreliable(&left, &right, &over(gid));
            datagrams(&left, &right, address);
        }
        for (backend, end) in [(one, &left), (other, &right)] {
            let count = |name| end.device.counter(name).unwrap_or(0);
            assert_eq!(["drop_icrc", "socket_rcvd_unusable"].map(count), [0; 2]);
            if backend == xdp {
                assert!(count("xdp_rcvd_frames") > 100, "{}", count("xdp_rcvd_frames"));
                assert!(count("xdp_sent_frames") > 100, "{}", count("xdp_sent_frames"));
            }
        }
    }
}

#[tier1]
fn losses_and_damage_reach_no_memory_and_no_application() {
    let Some(cable) = cable(1500) else { return };
    let faults: FaultConfig =
        "loss=0.01,duplicate=0.01,reorder=0.01,corrupt=0.02,seed=3".parse().unwrap();
    let config = DeviceConfig { faults: Some(faults), ..by(Backend::AfXdp) };
    let left = TestDevice::on(&cable.left, config);
    let right = TestDevice::on(&cable.right, by(Backend::AfXdp));
    for _ in 0..5 {
        reliable(&left, &right, &over(1));
    }
    let dropped = [&left, &right].map(|end| end.device.counter("drop_icrc").unwrap());
    assert!(dropped[1] > 0, "damaged packets have arrived: {dropped:?}");
}

#[tier1]
fn several_processes_share_an_interface_that_one_of_them_uses_by_af_xdp() {
    let Some(cable) = cable(1500) else { return };
    let far = TestDevice::on(&cable.right, by(Backend::AfPacket));
    let first = TestDevice::on(&cable.left, by(Backend::AfXdp));
    assert_eq!(first.device.backend(), Backend::AfXdp);
    assert_eq!(first.device.backend_refusal(), None);
    let second = start_echo(&cable.left, 7001);
    let third = start_echo(&cable.left, 7002);
    let callers = [&second, &third].map(|echo| Caller::connect(&cable.right, &far, echo));
    for round in 0..20 {
        callers.iter().for_each(|caller| caller.call(&far, round));
    }
    reliable(&far, &first, &over(1));
    datagrams(&far, &first, "10.1.0.1");
    assert!(first.device.counter("xdp_rcvd_frames").unwrap() > 0);
}

#[tier1]
fn all_shards_exchange_messages_where_the_first_has_af_xdp() {
    let Some(cable) = cable(1500) else { return };
    let far = TestDevice::on(&cable.right, by(Backend::AfXdp));
    let two = DeviceConfig { shards: 2, ..by(Backend::AfXdp) };
    let device = cable.left.run(|| Device::open("eth0", two)).unwrap();
    assert_eq!(device.backend(), Backend::AfXdp);
    let shards = [(); 2].map(|()| TestDevice {
        pd: device.alloc_pd().unwrap(),
        cq: device.create_cq(4096, None).unwrap(),
        device: device.clone(),
    });
    for end in &shards {
        reliable(end, &far, &over(1));
        reliable(&far, end, &over(2));
    }
    assert!(device.counter("xdp_rcvd_frames").unwrap() > 0);
}

fn start_echo(host: &Host, port: u16) -> Echo {
    let address = format!("10.1.0.1:{port}").parse().unwrap();
    Echo::start_with(env!("CARGO_BIN_EXE_roce-test-echo"), host, "eth0", address, &["af-xdp"])
}

#[tier1]
fn processes_that_are_killed_in_any_order_disturb_none_of_the_others() {
    let Some(cable) = cable(1500) else { return };
    let far = TestDevice::on(&cable.right, by(Backend::AfXdp));
    let near = TestDevice::on(&cable.left, by(Backend::AfPacket));
    let begin = |number: u16| {
        let echo = start_echo(&cable.left, 7000 + number);
        let by_wire = Caller::connect(&cable.right, &far, &echo);
        let by_host = Caller::connect(&cable.left, &near, &echo);
        (echo, by_wire, by_host)
    };
    let mut servers: Vec<_> = (0..3).map(begin).collect();
    for round in 0..100_u16 {
        // The oldest, which has the sockets at first, the newest, or the one between.
        let victim = [0, 2, 1, 1, 0][usize::from(round) % 5];
        let (echo, ..) = servers.remove(victim);
        echo.process.kill();
        for (number, (_, by_wire, by_host)) in servers.iter().enumerate() {
            by_wire.call(&far, round as u8 ^ number as u8);
            by_host.call(&near, round as u8);
        }
        servers.push(begin(round + 3));
    }
    for (echo, ..) in servers {
        echo.process.kill();
    }
    drop(near);
    let again = open_xdp(&cable.left);
    reliable(&again, &far, &over(1));
}

/// `ROCE_XDP_KILL_ROUNDS` runs it longer; six rounds have each order.
#[tier1]
fn nothing_is_left_in_the_kernel_when_all_processes_are_killed() {
    let Some(cable) = cable(1500) else { return };
    let rounds = env::var("ROCE_XDP_KILL_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let far = TestDevice::on(&cable.right, by(Backend::AfPacket));
    let mut ids = BTreeSet::new();
    for round in 0..rounds {
        let begin = |number: u16| {
            let echo = start_echo(&cable.left, 7000 + number);
            let caller = Caller::connect(&cable.right, &far, &echo);
            (echo, caller)
        };
        let mut servers: Vec<_> = (0..3).map(begin).collect();
        let had = servers.iter().map(|(echo, _)| kernel_objects::of_process(echo.process.id()));
        let [first, second, third] = had.collect::<Vec<_>>().try_into().unwrap();
        let kinds: Vec<_> = first.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Program, Kind::Map, Kind::Map, Kind::Map, Kind::Link]);
        assert_eq!([second, third], [[], []]);
        assert!(xdp_of(&cable.left).contains("name roce_xdp"), "{}", xdp_of(&cable.left));
        assert!(first.iter().all(|object| kernel_objects::exists(*object) && ids.insert(*object)));
        // Each order of the three.
        for victim in [round / 2 % 3, round % 2, 0] {
            servers.iter().for_each(|(_, caller)| caller.call(&far, round as u8));
            servers.remove(victim).0.process.kill();
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        let left =
            || first.iter().filter(|object| kernel_objects::exists(**object)).collect::<Vec<_>>();
        while !left().is_empty() {
            assert!(Instant::now() < deadline, "round {round}: {:?}", left());
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(xdp_of(&cable.left), "", "round {round}");
    }
    println!("{rounds} rounds, {} objects, all gone", ids.len());
}

/// Returns what `ip` says of XDP on `eth0`.
fn xdp_of(host: &Host) -> String {
    let output = host.run(|| Command::new("ip").args(["-d", "link", "show", "eth0"]).output());
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.lines().filter(|line| line.contains("xdp")).collect()
}

#[tier1]
fn tcp_over_the_interface_of_a_busy_device_carries_what_it_is_given() {
    let Some(cable) = cable(1500) else { return };
    let left = TestDevice::on(&cable.left, by(Backend::AfXdp));
    let right = TestDevice::on(&cable.right, by(Backend::AfXdp));
    let listener = cable.right.run(|| TcpListener::bind("10.1.0.2:7000")).unwrap();
    let mut client = cable.left.run(|| TcpStream::connect("10.1.0.2:7000")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let message: Vec<u8> = (0..16 << 20).map(|at: u32| (at % 253) as u8).collect();
    let expected = message.clone();
    let writer = thread::spawn(move || client.write_all(&message).map(|()| client));
    let reader = thread::spawn(move || {
        let mut received = vec![0; 16 << 20];
        server.read_exact(&mut received).map(|()| received)
    });
    while !reader.is_finished() {
        reliable(&left, &right, &over(1));
    }
    writer.join().unwrap().unwrap();
    assert!(reader.join().unwrap().unwrap() == expected);
}

#[tier1]
fn without_rights_the_back_end_is_refused_in_a_line_that_says_what_to_do() {
    let Some(cable) = cable(1500) else { return };
    let refused = |kept: CapabilitySet| {
        cable.left.run(|| {
            // Those of this thread, which ends with the closure.
            set_capabilities(
                None,
                CapabilitySets { effective: kept, permitted: kept, inheritable: kept },
            )
            .unwrap();
            Device::open("eth0", by(Backend::AfXdp)).unwrap_err()
        })
    };
    // A packet socket that another test has left may do; an AF_XDP socket is new.
    for kept in [
        CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN,
        CapabilitySet::NET_RAW | CapabilitySet::BPF,
        CapabilitySet::BPF | CapabilitySet::NET_ADMIN,
        CapabilitySet::empty(),
    ] {
        let error = refused(kept);
        let is_of_rights =
            matches!(error, Error::Open(OpenError::Xdp(XdpError::NotPermitted { .. })));
        let text = error.to_string();
        assert!(is_of_rights && !text.contains('\n'), "{kept:?}: {text}");
        for part in ["needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW", "setcap", "run as root"] {
            assert!(text.contains(part), "{kept:?}: {text}");
        }
    }
}
