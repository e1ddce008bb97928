//! The packet filter, the port holder and the list of interfaces on veth (tier 1).

use roce_test_macros::tier1;
use std::net::UdpSocket;

use crate::common::{
    MODES, Outcome, collect, config, ipv4, ipv6, mac, open, payload, send, single,
};
use roce_io::{
    AfPacket, AfPacketConfig, Filter, FrameDevice, InterfaceKind, PortReservation,
    PortReservationConfig, QpnBlocks, interfaces,
};
use roce_netns::{Host, Link, VirtualNetwork};

fn cable() -> Result<(Host, Host), Box<dyn std::error::Error>> {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 1500 })?;
    left.address("eth0", "10.0.0.1/24".parse()?)?;
    right.address("eth0", "10.0.0.2/24".parse()?)?;
    right.address("eth0", "fd00::2/64".parse()?)?;
    Ok((left, right))
}

fn tagged(frame: &[u8], tag: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &tag.to_be_bytes(), &frame[12..]].concat()
}

#[tier1]
fn ours_comes_in_and_nothing_else_does() -> Outcome {
    let (left, right) = cable()?;
    for mode in MODES {
        let filter = Filter { qpn_blocks: QpnBlocks::Only(vec![0x12, 0x77]), ..Filter::default() };
        let ours = AfPacketConfig { filter, ..config("eth0", mode) };
        let mut receiver = right.run(|| AfPacket::open(&ours))?;
        let mut sender = open(&left, "eth0", mode)?;
        let to = mac(&receiver);
        let body = |qpn| payload(qpn, 64);
        let other_port = {
            let mut frame = ipv4(to, 2, &body(0x12_001));
            frame[36..38].copy_from_slice(&4792u16.to_be_bytes());
            frame
        };
        let frames = [
            ipv4(to, 1, &body(0x12_001)),
            other_port,
            ipv4(to, 3, &body(0x13_001)),
            ipv4([2, 0, 0, 0, 7, 7], 4, &body(0x12_001)),
            tagged(&ipv4(to, 5, &body(0x12_001)), 5),
            tagged(&ipv4(to, 6, &body(0x77_fff)), 0xe000),
            ipv6(to, &body(0x77_000)),
        ];
        send(&mut sender, &frames.clone().map(single))?;
        // The last is one of ours, and frames keep their order: nothing else is on its way.
        let arrived: Vec<_> =
            collect(&mut receiver, 3).into_iter().map(|frame| frame.bytes).collect();
        assert_eq!(arrived[0], frames[0]);
        assert_eq!(arrived[1][18..22], frames[5][22..26], "the priority tag alone is no VLAN");
        assert_eq!(arrived[2], frames[6]);
        assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
    }
    Ok(())
}

#[tier1]
fn a_filter_can_be_changed_while_the_device_is_open() -> Outcome {
    let (left, right) = cable()?;
    let (mut sender, mut receiver) =
        (open(&left, "eth0", MODES[0])?, open(&right, "eth0", MODES[0])?);
    let to = mac(&receiver);
    let only = |block| Filter { qpn_blocks: QpnBlocks::Only(vec![block]), ..Filter::default() };
    for block in [1u16, 2, 3] {
        receiver.set_filter(&only(block))?;
        let frames = [1, 2, 3].map(|of: u32| single(ipv4(to, 1, &payload(of << 12, 64))));
        send(&mut sender, &frames)?;
        let arrived = collect(&mut receiver, 1);
        assert_eq!(arrived[0].bytes, frames[usize::from(block) - 1].bytes);
        assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
    }
    Ok(())
}

#[tier1]
fn what_a_device_sends_comes_in_neither_to_itself_nor_to_its_neighbour() -> Outcome {
    let (left, right) = cable()?;
    // Past the queueing discipline nothing listens to what goes out: the other way is the test.
    for qdisc_bypass in [true, false] {
        let config = AfPacketConfig { qdisc_bypass, ..config("eth0", MODES[0]) };
        let mut sender = left.run(|| AfPacket::open(&config))?;
        let mut neighbour = open(&left, "eth0", MODES[0])?;
        let mut receiver = open(&right, "eth0", MODES[0])?;
        send(&mut sender, &[single(ipv4(mac(&receiver), 1, &payload(5, 64)))])?;
        collect(&mut receiver, 1);
        assert_eq!(sender.receive(8, &mut |_| ())?, 0);
        assert_eq!(neighbour.receive(8, &mut |_| ())?, 0);
        // And what comes in comes to both.
        send(&mut receiver, &[single(ipv4(mac(&sender), 1, &payload(5, 64)))])?;
        collect(&mut sender, 1);
        collect(&mut neighbour, 1);
    }
    Ok(())
}

#[tier1]
fn the_kernel_answers_for_the_port_unless_it_is_held() -> Outcome {
    let (left, right) = cable()?;
    let socket = left.run(|| UdpSocket::bind("10.0.0.1:0"))?;
    socket.connect("10.0.0.2:4791")?;
    // With interrupts handled before `send` returns or a moment later: wait for it.
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    socket.send(b"to no QP")?;
    let refused = socket.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    let _holder = right.run(|| PortReservation::bind(&PortReservationConfig::default()))?;
    let mut receiver = open(&right, "eth0", MODES[0])?;
    socket.send(&payload(5, 64))?;
    collect(&mut receiver, 1);
    // An answer would have been made in the same breath as the frame above came in.
    socket.set_read_timeout(Some(std::time::Duration::from_millis(100)))?;
    let silence = socket.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    Ok(())
}

#[tier1]
fn interfaces_are_listed_as_this_namespace_has_them() -> Outcome {
    let (_left, right) = cable()?;
    right.set_mtu("eth0", 4200)?;
    let all = right.run(interfaces)?;
    let eth0 = all.iter().find(|interface| interface.name == "eth0").ok_or("no eth0")?;
    assert_eq!(eth0.kind, InterfaceKind::Veth);
    assert_eq!(eth0.mtu, 4200);
    assert!(eth0.flags.up && eth0.flags.ethernet && eth0.flags.broadcast && !eth0.flags.loopback);
    let addresses: Vec<_> = eth0
        .addresses
        .iter()
        .map(|address| format!("{}/{}", address.address, address.prefix_len))
        .collect();
    for expected in ["10.0.0.2/24", "fd00::2/64"] {
        assert!(addresses.iter().any(|address| address == expected), "{addresses:?}");
    }
    assert_eq!(all.len(), 2, "{all:?}");
    Ok(())
}
