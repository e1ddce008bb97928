//! Devices over UDP sockets, between themselves and with devices over packet sockets.

use std::process::Command;

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::services::{Caller, by, datagrams, over, reliable, unreliable};
use roce_verbs::{
    Backend, Device, DeviceConfig, Error, FaultConfig, OpenError, OtherIdentifications,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

#[tier1]
fn back_ends_exchange_messages_of_all_services_in_trains_over_ipv4_and_ipv6() {
    for (one, other) in [
        (Backend::Udp, Backend::Udp),
        (Backend::Udp, Backend::AfPacket),
        (Backend::AfPacket, Backend::Udp),
    ] {
        let cable = Cable::with_mtu(4200);
        let left = TestDevice::on(&cable.left, by(one));
        let right = TestDevice::on(&cable.right, by(other));
        assert_eq!([left.device.backend(), right.device.backend()], [one, other]);
        for (gid, address) in [(1, "10.1.0.2"), (2, "fd00:1::2")] {
            println!("from {one} to {other}, {address}");
            reliable(&left, &right, &over(gid));
            unreliable(&left, &right, &over(gid));
            datagrams(&left, &right, address);
        }
        for end in [&left, &right] {
            let count = |name| end.device.counter(name).unwrap();
            assert!(count("device_sent_trains") > 0 && count("device_rcvd_trains") > 0);
            let wrong = ["drop_icrc", "udp_identification_solved", "udp_untrusted"];
            assert_eq!(wrong.map(count), [0; 3], "every ICRC is right for identification 0");
        }
    }
}

#[tier1]
fn losses_and_damage_reach_no_memory_and_no_application() {
    for (one, other) in [(Backend::AfPacket, Backend::Udp), (Backend::Udp, Backend::AfPacket)] {
        let cable = Cable::with_mtu(1500);
        let faults: FaultConfig =
            "loss=0.01,duplicate=0.01,reorder=0.01,corrupt=0.02,seed=3".parse().unwrap();
        let config = DeviceConfig { faults: Some(faults), ..by(one) };
        let left = TestDevice::on(&cable.left, config);
        // Of damaged packets one in 65 536 would pass otherwise.
        let strict = OtherIdentifications::Refuse;
        let right = TestDevice::on(
            &cable.right,
            DeviceConfig { other_identifications: strict, ..by(other) },
        );
        for _ in 0..5 {
            reliable(&left, &right, &over(1));
        }
        let dropped = [&left, &right].map(|end| end.device.counter("drop_icrc").unwrap());
        assert!(dropped[1] > 0, "damaged packets have arrived: {dropped:?}");
    }
}

#[tier1]
fn a_device_with_faults_sends_every_packet_that_they_spare() {
    let cable = Cable::with_mtu(1500);
    let faults: FaultConfig = "duplicate=0.001,seed=3".parse().unwrap();
    let left =
        TestDevice::on(&cable.left, DeviceConfig { faults: Some(faults), ..by(Backend::Udp) });
    let right = TestDevice::on(&cable.right, by(Backend::Udp));
    for gid in [1, 2] {
        reliable(&left, &right, &over(gid));
        reliable(&right, &left, &over(gid));
    }
    assert_eq!(left.device.counter("socket_sent_refused").unwrap(), 0);
}

fn start_echo(host: &Host, port: u16) -> Echo {
    let address = format!("10.1.0.1:{port}").parse().unwrap();
    Echo::start_with(env!("CARGO_BIN_EXE_roce-test-echo"), host, "eth0", address, &["udp"])
}

/// `ROCE_ROUNDS` says how often three processes start and die.
#[tier1]
fn processes_that_share_a_port_serve_a_peer_and_each_other_and_survive_kills_in_any_order() {
    let cable = Cable::with_mtu(1500);
    let far = TestDevice::on(&cable.right, by(Backend::Udp));
    let near = TestDevice::on(&cable.left, by(Backend::Udp));
    let rounds = std::env::var("ROCE_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let orders = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [1, 0, 2], [2, 0, 1]];
    for victims in orders.into_iter().cycle().take(rounds) {
        let mut servers: Vec<_> =
            (7001..7004).map(|port| Some(start_echo(&cable.left, port))).collect();
        let callers: Vec<_> = servers
            .iter()
            .flatten()
            .map(|echo| {
                let of = |host, end| Caller::connect(host, end, echo);
                [of(&cable.right, &far), of(&cable.left, &near)]
            })
            .collect();
        for victim in victims {
            for round in 0..10 {
                for (number, [by_wire, by_host]) in callers.iter().enumerate() {
                    if servers[number].is_some() {
                        by_wire.call(&far, round);
                        by_host.call(&near, !round);
                    }
                }
            }
            servers[victim].take().unwrap().process.kill();
        }
    }
    assert!(near.device.counter("udp_passed_on").unwrap() > 0, "the kernel spreads by a hash");
}

#[tier1]
fn processes_that_share_a_port_soon_receive_without_a_detour() {
    let cable = Cable::with_mtu(1500);
    let far = TestDevice::on(&cable.right, by(Backend::Udp));
    let near = TestDevice::on(&cable.left, by(Backend::Udp));
    let passed_on = || near.device.counter("udp_passed_on").unwrap();
    // Whether this process gets anything of the others' is up to the kernel's hash.
    for _ in 0..32 {
        let servers: Vec<_> = (7001..7004).map(|port| start_echo(&cable.left, port)).collect();
        let callers: Vec<_> =
            servers.iter().map(|echo| Caller::connect(&cable.right, &far, echo)).collect();
        let call = |rounds| {
            for round in 0..rounds {
                callers.iter().for_each(|caller| caller.call(&far, round));
            }
        };
        call(100);
        let begin = passed_on();
        call(100);
        assert_eq!(passed_on(), begin, "their sources have sockets by now");
        for echo in servers {
            echo.process.kill();
        }
        if begin > 0 {
            return;
        }
    }
    panic!("this process has passed on nothing at all");
}

#[tier1]
fn a_process_that_has_passed_on_packets_of_others_takes_its_own_from_its_first_queue_pair_on() {
    let cable = Cable::with_mtu(1500);
    let first = TestDevice::on(&cable.left, by(Backend::Udp));
    let far = TestDevice::on(&cable.right, by(Backend::Udp));
    // The kernel chooses by a hash of the source port, which is mostly another one for each process.
    let passed = (0..100).any(|round| {
        let echo = start_echo(&cable.left, 7001);
        Caller::connect(&cable.right, &far, &echo).call(&far, round);
        echo.process.kill();
        first.device.counter("udp_passed_on").unwrap() > 0
    });
    assert!(passed, "the kernel gave all to the other process");
    for _ in 0..4 {
        reliable(&first, &far, &over(1));
        reliable(&far, &first, &over(1));
    }
}

/// As two containers of one pod, whose programs have the number 1.
#[tier1]
fn processes_of_equal_numbers_in_two_pid_namespaces_share_the_port() {
    let cable = Cable::with_mtu(1500);
    let start = |port: u16| {
        let address = format!("10.1.0.1:{port}");
        let echo = [env!("CARGO_BIN_EXE_roce-test-echo"), "eth0", &address, "udp"];
        let line = [&["unshare", "--pid", "--fork", "--kill-child"][..], &echo].concat();
        Echo::start_by(&cable.left, address.parse().unwrap(), &line)
    };
    let servers = [start(7001), start(7002)];
    let far = TestDevice::on(&cable.right, by(Backend::Udp));
    for echo in &servers {
        Caller::connect(&cable.right, &far, echo).call(&far, 1);
    }
}

#[tier1]
fn a_process_of_another_user_is_told_that_the_port_is_taken() {
    let cable = Cable::with_mtu(1500);
    let _ours = TestDevice::on(&cable.left, by(Backend::Udp));
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(env!("CARGO_BIN_EXE_roce-test-echo")).args(["eth0", "10.1.0.1:7009", "udp"]);
    let output = cable.left.run(|| command.output()).unwrap();
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(output.contains("OtherUser { port: 4791, uid: 0 }"), "{output}");
}

#[tier1]
fn without_privileges_an_interface_is_opened_by_udp_sockets_unless_packet_sockets_are_demanded() {
    let cable = Cable::with_mtu(1500);
    let outcome = |backend| {
        cable.left.run(|| {
            // Those of this thread, which ends with the closure.
            let none = CapabilitySet::empty();
            set_capabilities(
                None,
                CapabilitySets { effective: none, permitted: none, inheritable: none },
            )
            .unwrap();
            Device::open("eth0", by(backend)).map(|it| it.backend())
        })
    };
    assert_eq!(outcome(Backend::Auto).unwrap(), Backend::Udp);
    let refused = outcome(Backend::AfPacket).unwrap_err();
    assert!(matches!(refused, Error::Open(OpenError::NotPermitted { .. })), "{refused}");
}
