//! What cannot be, and how it is said.

use roce_test_macros::tier1;
use std::net::UdpSocket;
use std::process::Command;

use roce_netns::IpNet;
use roce_tests::fixtures::{Cable, TestDevice, connect};
use roce_tests::verbs_program::expect_success;
use roce_verbs::{
    AccessFlags, AddressVector, AsyncEvent, ConnectOptions, Device, DeviceConfig, Error, Gid,
    PathMtu, Psn, QpAttributes, QpState, Qpn, RegisterOptions, RnrTimer,
};

#[tier1]
fn a_program_on_port_4791_is_named_and_the_device_does_not_open() {
    let cable = Cable::with_mtu(1500);
    let _holder = cable.left.run(|| UdpSocket::bind("0.0.0.0:4791")).unwrap();
    let refused = cable.left.run(|| Device::open("eth0", DeviceConfig::default())).unwrap_err();
    assert!(matches!(&refused, Error::Port(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("another program holds UDP port 4791"), "{text}");
}

#[tier1]
fn a_path_mtu_that_the_interface_cannot_carry_is_refused_before_anything_is_sent() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let qp = left.queue_pair();
    let options = ConnectOptions { path_mtu: Some(PathMtu::B2048), ..ConnectOptions::default() };
    let refused = qp.connect(&qp.dest(None).unwrap(), &options).unwrap_err();
    assert!(matches!(refused, Error::PathMtuTooLarge { allowed: 1024, .. }), "{refused}");
}

#[tier1]
fn a_peer_that_nobody_answers_for_is_named() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let qp = left.queue_pair();
    let mut absent = qp.dest(None).unwrap();
    absent.gid = std::net::IpAddr::from([10, 1, 0, 77]).into();
    let text = qp.connect(&absent, &ConnectOptions::default()).unwrap_err().to_string();
    assert!(text.contains("10.1.0.77") && text.contains("eth0"), "{text}");
    let qp = left.queue_pair();
    absent.gid = std::net::IpAddr::from([192, 0, 2, 1]).into();
    let text = qp.connect(&absent, &ConnectOptions::default()).unwrap_err().to_string();
    assert!(text.contains("no route to 192.0.2.1"), "{text}");
}

#[tier1]
fn looking_for_a_neighbour_sends_nothing_to_its_roce_port() {
    // A datagram shorter than a BTH there takes a host with rdma_rxe down.
    let cable = Cable::with_mtu(1500);
    let neighbour = cable.right.run(|| UdpSocket::bind("10.1.0.2:4791")).unwrap();
    neighbour.set_nonblocking(true).unwrap();
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let peer = std::net::IpAddr::from([10, 1, 0, 2]).into();
    let path = left.device.resolve(&AddressVector::new(1, peer)).unwrap();
    assert_eq!(path.remote(), std::net::IpAddr::from([10, 1, 0, 2]));
    let nothing = neighbour.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[tier1]
fn an_interface_without_carrier_or_name_is_refused_with_what_to_do() {
    let cable = Cable::with_mtu(1500);
    let text = cable.left.run(|| Device::open("eth7", DeviceConfig::default())).unwrap_err();
    assert!(text.to_string().contains("eth0"), "{text}");
    cable.left.set_down("eth0").unwrap();
    let text = cable.left.run(|| Device::open("eth0", DeviceConfig::default())).unwrap_err();
    assert!(text.to_string().contains("ip link set eth0 up"), "{text}");
}

#[tier1]
fn the_same_interface_is_one_device_and_with_other_settings_refused() {
    let cable = Cable::with_mtu(1500);
    let open = |config| cable.left.run(|| Device::open("eth0", config));
    let first = open(DeviceConfig::default()).unwrap();
    let second = TestDevice::of(open(DeviceConfig::default()).unwrap());
    connect(&TestDevice::of(first), &second, &ConnectOptions::default());
    let other = DeviceConfig { gso: roce_verbs::GsoMode::Off, ..DeviceConfig::default() };
    assert!(matches!(open(other.clone()), Err(Error::OpenedDifferently { .. })));
    drop(second);
    open(other).expect("closed with its last object");
}

#[tier1]
fn memory_that_is_not_there_cannot_be_registered() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let access = AccessFlags::LOCAL_WRITE;
    // SAFETY: nothing is mapped at page one, which is what must be found.
    let refused =
        unsafe { left.pd.register_memory(4096 as *mut u8, 64, access, RegisterOptions::default()) };
    assert!(matches!(refused, Err(Error::Register { .. })));
    let remote_only = left.pd.register(64, AccessFlags::REMOTE_WRITE);
    assert!(matches!(remote_only, Err(Error::RemoteWithoutLocalWrite)));
}

#[tier1]
fn addresses_that_come_and_go_are_told_and_keep_their_rows() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    // Whether a row can be used may change by itself: the link-local address takes a while.
    let rows = || -> Vec<_> {
        let table = left.device.gid_table().unwrap();
        table.iter().map(|row| (row.index, row.gid.ip())).collect()
    };
    let before = rows();
    let added: IpNet = "10.1.0.50/24".parse().unwrap();
    cable.left.address("eth0", added).unwrap();
    let deadline = std::time::Instant::now() + roce_tests::fixtures::COMPLETION_TIMEOUT;
    let mut told = false;
    while rows().len() == before.len() {
        assert!(std::time::Instant::now() < deadline, "the new address never came");
        told |= left.device.poll_event() == Some(AsyncEvent::GidChange);
    }
    assert!(told || left.device.poll_event() == Some(AsyncEvent::GidChange));
    let after = rows();
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after.last().unwrap().1, added.addr());
}

#[tier1]
fn a_path_that_was_dropped_is_refused_and_one_that_a_queue_pair_uses_lives() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    // Resolved at once: these addresses are the host's own.
    for last in [50, 51] {
        cable.left.address("eth0", format!("10.1.0.{last}/24").parse().unwrap()).unwrap();
    }
    let index = left.device.default_gid_index().unwrap().unwrap();
    let path = |last| {
        let peer = Gid::from(std::net::IpAddr::from([10, 1, 0, last]));
        left.device.resolve(&AddressVector::new(index, peer)).unwrap()
    };
    let to_rtr = |path| QpAttributes {
        state: Some(QpState::ReadyToReceive),
        path: Some(path),
        path_mtu: Some(PathMtu::B1024),
        dest_qpn: Some(Qpn::new(77).unwrap()),
        rq_psn: Some(Psn::ZERO),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(RnrTimer::DEFAULT),
        ..QpAttributes::default()
    };
    let (here, there) = (left.queue_pair(), left.queue_pair());
    [&here, &there].into_iter().for_each(|qp| qp.init(&ConnectOptions::default()).unwrap());
    let dropped = path(50).attributes();
    // It takes the place of the one before, and leads to another peer.
    let other = path(51);
    assert!(matches!(here.modify(&to_rtr(dropped)), Err(Error::NoSuchPath)));
    here.modify(&to_rtr(other.attributes())).unwrap();
    let used = other.attributes();
    drop(other);
    let _third = path(50);
    there.modify(&to_rtr(used)).unwrap();
}

#[tier1]
fn after_a_fork_the_parent_is_untouched_and_the_child_starts_anew() {
    let cable = Cable::with_mtu(1500);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce-test-fork"));
    command.arg("eth0");
    expect_success("a fork", &cable.left, command);
}
