//! What is left of an AF_XDP socket in the kernel: nothing.

use std::{
    thread,
    time::{Duration, Instant},
};

use roce_netns::process::{Launch, Running};
use roce_netns::{Host, Link, VirtualNetwork, is_in_user_namespace};
use roce_test_macros::tier1;

use super::*;
use crate::{
    AfPacket, AfPacketConfig,
    sys::bpf::{self, ObjectKind},
};

type Objects = Vec<(ObjectKind, u32)>;

fn open() -> Result<XdpSocket<AfPacket>, Box<RefusedByXdp<AfPacket>>> {
    let packet = AfPacket::open(&AfPacketConfig::new("eth0")).expect("a packet socket");
    let interface = packet.interface().clone();
    XdpSocket::around(packet, &interface, &XdpConfig::default())
}

fn cable() -> (Host, Host) {
    let network = VirtualNetwork::new().expect("tier 1 may make namespaces");
    let (left, right) = (network.host("left").unwrap(), network.host("right").unwrap());
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 1500 }).unwrap();
    (left, right)
}

/// Waits until none of the objects is there.
fn expect_gone(objects: &Objects) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while objects.iter().any(|(kind, id)| bpf::exists(*kind, *id)) {
        assert!(Instant::now() < deadline, "of {objects:?} some are left");
        thread::sleep(Duration::from_millis(1));
    }
}

#[tier1]
fn link_program_and_maps_go_with_the_device() {
    if is_in_user_namespace() {
        return;
    }
    let (_left, right) = cable();
    for _ in 0..5 {
        let device = right.run(open).unwrap_or_else(|refused| panic!("{}", refused.error));
        let objects = device.attachment.objects().unwrap();
        assert!(objects.iter().all(|(kind, id)| bpf::exists(*kind, *id)), "{objects:?}");
        drop(device);
        expect_gone(&objects);
    }
}

const HOLDER: &str = "ROCE_IO_TEST_HOLDS_INTERFACE";

/// No test, but the program of a [`Holder`].
#[tier1]
fn holder_of_an_interface() {
    if is_in_user_namespace() {
        return;
    }
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let device = open();
    match &device {
        Ok(device) => {
            let objects = device.attachment.objects().unwrap();
            let ids: Vec<_> = objects.iter().map(|(_, id)| id.to_string()).collect();
            println!("holds {}", ids.join(" "));
        }
        Err(refused) => println!("refused: {}", refused.error),
    }
    loop {
        thread::park();
    }
}

/// A process with a device, which is killed when this is dropped.
struct Holder(#[expect(dead_code, reason = "dropped")] Running);

impl Holder {
    /// Starts one, and returns the objects that it has; none if it was refused.
    fn start(host: &Host) -> (Self, Objects) {
        let launch = Launch::new(std::env::current_exe().unwrap()).env(HOLDER, "1").args([
            "--exact",
            "xdp_socket::tests::holder_of_an_interface",
            "--include-ignored",
            "--nocapture",
        ]);
        // As `kill -9` does: it cannot clean up.
        let running = launch.grace(Duration::ZERO).start_in(host).unwrap();
        while let Some(line) = running.read_line(Duration::MAX).unwrap() {
            if line.contains("refused: ") {
                assert!(line.contains("another process has an XDP program"), "{line}");
                return (Self(running), Vec::new());
            }
            if let Some((_, ids)) = line.split_once("holds ") {
                let kinds = [ObjectKind::Link, ObjectKind::Program]
                    .into_iter()
                    .chain(std::iter::repeat(ObjectKind::Map));
                let ids = ids.split(' ').map(|id| id.parse().unwrap());
                return (Self(running), kinds.zip(ids).collect());
            }
        }
        panic!("the process ended");
    }
}

#[tier1]
fn link_program_and_maps_go_with_the_process_that_is_killed_and_another_may_begin() {
    if is_in_user_namespace() {
        return;
    }
    let (_left, right) = cable();
    for round in 0..10 {
        let (first, objects) = Holder::start(&right);
        assert_eq!(objects.len(), 5, "round {round}: no other process is there");
        let (second, none) = Holder::start(&right);
        assert!(none.is_empty());
        assert!(objects.iter().all(|(kind, id)| bpf::exists(*kind, *id)), "{objects:?}");
        if round % 2 == 0 {
            drop(first);
            expect_gone(&objects);
            drop(second);
        } else {
            drop(second);
            assert!(objects.iter().all(|(kind, id)| bpf::exists(*kind, *id)), "{objects:?}");
            drop(first);
            expect_gone(&objects);
        }
    }
}
