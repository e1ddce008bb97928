//! AF_XDP sockets on veth pairs (tier 1).

use std::{
    io::{Read, Write},
    net::{IpAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Frame, MODES, Outcome, collect, config, counter, ipv4, ipv6, open, payload, send,
    send_until_gone, single, train,
};
use roce_io::{
    AfPacket, AfPacketConfig, DeviceError, Filter, FrameDevice, QpnBlocks, RefusedByXdp, XdpConfig,
    XdpError, XdpSocket,
};
use roce_netns::{Host, Link, VirtualNetwork, is_in_user_namespace};
use roce_test_macros::tier1;

type Device = XdpSocket<AfPacket>;
type Ends = (Host, Host, [u8; 6]);

/// Two hosts on a cable, `10.0.0.1` and `10.0.0.2`, and the address of the second one's interface.
/// None in a user namespace, which may not load programs.
fn cable(mtu: u32) -> Result<Option<Ends>, Box<dyn std::error::Error>> {
    if is_in_user_namespace() {
        return Ok(None);
    }
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu })?;
    for (host, number) in [(&left, 1), (&right, 2)] {
        host.address("eth0", format!("10.0.0.{number}/24").parse()?)?;
        host.address("eth0", format!("fd00::{number}/64").parse()?)?;
    }
    let all = right.run(roce_io::interfaces)?;
    let to = all.iter().find(|it| it.name == "eth0").and_then(|it| it.mac).ok_or("no MAC")?;
    Ok(Some((left, right, to)))
}

fn filter(blocks: &[u16]) -> Filter {
    Filter {
        qpn_blocks: QpnBlocks::Only(blocks.to_vec()),
        general_services: true,
        multicast: true,
        ..Filter::default()
    }
}

fn try_open(host: &Host, blocks: &[u16]) -> Result<Device, Box<RefusedByXdp<AfPacket>>> {
    let filter = filter(blocks);
    let packet = AfPacketConfig { filter: filter.clone(), ..config("eth0", MODES[0]) };
    host.run(|| {
        let packet = AfPacket::open(&packet).expect("a packet socket");
        let interface = packet.interface().clone();
        XdpSocket::around(packet, &interface, &XdpConfig { filter, ..XdpConfig::default() })
    })
}

fn open_xdp(host: &Host, blocks: &[u16]) -> Device {
    try_open(host, blocks).unwrap_or_else(|refused| panic!("{}", refused.error))
}

/// Frames to block 1, which end as the filter ends: of a few lengths.
fn frames(to: [u8; 6], longest: usize) -> Vec<Frame> {
    let to_right = |mut frame: Vec<u8>| {
        // The addresses of `common` are others.
        if frame[12] == 0x86 {
            let address: IpAddr = "fd00::2".parse().expect("an address");
            let IpAddr::V6(address) = address else { unreachable!() };
            frame[38..54].copy_from_slice(&address.octets());
        }
        frame
    };
    let mut all = Vec::new();
    for len in [16, 100, 1000, longest] {
        all.push(ipv4(to, 0, &payload(0x1001, len)));
        all.push(to_right(ipv6(to, &payload(0x1fff, len.min(longest - 20)))));
    }
    all.into_iter().map(single).collect()
}

fn bytes(arrived: Vec<crate::common::Arrived>) -> Vec<Vec<u8>> {
    arrived.into_iter().map(|frame| frame.bytes).collect()
}

#[tier1]
fn frames_of_all_lengths_pass_from_and_to_each_kind_of_socket() -> Outcome {
    for mtu in [1500, 4300, 9000] {
        let Some((left, right, to)) = cable(mtu)? else { return Ok(()) };
        let mut receiver = open_xdp(&right, &[1]);
        assert!(receiver.is_native() && !receiver.is_zero_copy());
        let sent = frames(to, mtu as usize - 28);
        let expected: Vec<_> = sent.iter().map(|frame| frame.bytes.clone()).collect();
        {
            let mut sender = open(&left, "eth0", MODES[0])?;
            assert_eq!(send(&mut sender, &sent)?, sent.len());
            assert_eq!(bytes(collect(&mut receiver, sent.len())), expected, "from a packet socket");
        }
        let mut sender = open_xdp(&left, &[7]);
        assert_eq!(send(&mut sender, &sent)?, sent.len());
        assert_eq!(bytes(collect(&mut receiver, sent.len())), expected, "from an AF_XDP socket");
        assert_eq!(counter(&receiver, "xdp_rcvd_frames"), 2 * sent.len() as u64);
        assert_eq!(counter(&sender, "xdp_sent_frames"), sent.len() as u64);
        drop(receiver);
        let mut receiver = open(&right, "eth0", MODES[0])?;
        send(&mut sender, &sent)?;
        assert_eq!(bytes(collect(&mut receiver, sent.len())), expected, "to a packet socket");
        assert_eq!(counter(&sender, "socket_sent_dropped"), 0);
    }
    Ok(())
}

#[tier1]
fn what_the_program_passes_on_comes_by_the_packet_socket_and_nothing_comes_twice() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let mut receiver = open_xdp(&right, &[1]);
    let mut neighbour = open(&right, "eth0", MODES[0])?;
    let mut sender = open(&left, "eth0", MODES[0])?;
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0xe0, 0], &frame[12..]].concat();
    let with_tag = ipv4(to, 3, &payload(0x1003, 100));
    let to_group = ipv4([1, 0, 0x5e, 1, 2, 3], 4, &payload(0xff_ffff, 100));
    let other_address = {
        let mut frame = ipv4(to, 5, &payload(0x1004, 100));
        frame[33] = 77;
        frame
    };
    let frames = [
        ipv4(to, 1, &payload(1, 100)),
        ipv4(to, 2, &payload(0x1002, 100)),
        tagged(&with_tag),
        to_group.clone(),
        other_address.clone(),
        ipv4(to, 6, &payload(0x2001, 100)),
        ipv4([2, 0, 0, 0, 7, 7], 7, &payload(0x1001, 100)),
        ipv4(to, 8, &payload(0x1005, 100)),
    ];
    send(&mut sender, &frames.clone().map(single))?;
    let mut arrived = bytes(collect(&mut receiver, 6));
    arrived.sort_unstable_by_key(|frame| frame[18..20].to_vec());
    let expected = [&frames[0], &frames[1], &with_tag, &to_group, &other_address, &frames[7]]
        .map(Clone::clone);
    assert!(arrived == expected, "{arrived:?}");
    assert_eq!(counter(&receiver, "xdp_rcvd_frames"), 3);
    assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
    // The neighbour has all but what the program has taken, and what is for another host.
    let others = bytes(collect(&mut neighbour, 4));
    assert_eq!(others, [&frames[0], &to_group, &other_address, &frames[5]].map(Clone::clone));
    assert_eq!(neighbour.receive(8, &mut |_| ())?, 0);
    Ok(())
}

#[tier1]
fn filter_and_addresses_change_while_the_device_is_open() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let mut receiver = open_xdp(&right, &[]);
    let mut sender = open(&left, "eth0", MODES[0])?;
    let mut by_xdp = 0;
    for block in [1_u16, 2, 0xfff, 0] {
        receiver.set_filter(&filter(&[block, 0x333]))?;
        let numbers = [0x0002, 0x1001, 0x2001, 0xff_f001];
        let frames = numbers.map(|qpn| single(ipv4(to, 1, &payload(qpn, 64))));
        send(&mut sender, &frames)?;
        let arrived = bytes(collect(&mut receiver, 1));
        assert_eq!(
            arrived[0][46..50],
            (u32::from(block) << 12 | if block == 0 { 2 } else { 1 }).to_be_bytes()
        );
        assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
        by_xdp += 1;
        assert_eq!(counter(&receiver, "xdp_rcvd_frames"), by_xdp);
    }
    receiver.set_filter(&Filter::default())?;
    let frame = [single(ipv4(to, 1, &payload(0x777_001, 64)))];
    for (addresses, is_taken) in
        [(&[][..], 0), (&["10.0.0.2".parse()?], 1), (&["10.0.0.3".parse()?], 0)]
    {
        receiver.set_addresses(addresses);
        send(&mut sender, &frame)?;
        collect(&mut receiver, 1);
        by_xdp += is_taken;
        assert_eq!(counter(&receiver, "xdp_rcvd_frames"), by_xdp, "{addresses:?}");
    }
    Ok(())
}

#[tier1]
fn a_tcp_connection_over_the_same_interface_passes_beside_a_flood() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let mut receiver = open_xdp(&right, &[1]);
    let mut sender = open_xdp(&left, &[2]);
    let listener = right.run(|| TcpListener::bind("10.0.0.2:7000"))?;
    let mut client = left.run(|| TcpStream::connect("10.0.0.2:7000"))?;
    let (mut server, _) = listener.accept()?;
    let message: Vec<u8> = (0..8 << 20).map(|at: u32| (at % 253) as u8).collect();
    let expected = message.clone();
    let writer = thread::spawn(move || client.write_all(&message).map(|()| client));
    let reader = thread::spawn(move || {
        let mut received = vec![0; 8 << 20];
        server.read_exact(&mut received).map(|()| received)
    });
    let frames: Vec<_> = (0..32).map(|_| single(ipv4(to, 0, &payload(0x1001, 1000)))).collect();
    let (mut sent, mut received) = (0, 0);
    while !reader.is_finished() || sent < 1000 {
        sent += send(&mut sender, &frames)?;
        receiver.receive(64, &mut |_| received += 1)?;
    }
    writer.join().expect("no panic")?;
    assert!(reader.join().expect("no panic")? == expected, "TCP carries what it was given");
    let lost =
        || counter(&receiver, "socket_rcvd_dropped") + counter(&sender, "socket_sent_dropped");
    println!("{sent} frames beside 8 MiB of TCP, {received} received, {} lost", lost());
    assert!(received > 0);
    Ok(())
}

#[tier1]
fn the_rings_go_round_many_times_without_a_frame_lost_or_changed() -> Outcome {
    let Some((left, right, to)) = cable(9000)? else { return Ok(()) };
    let mut receiver = open_xdp(&right, &[1]);
    let mut sender = open_xdp(&left, &[2]);
    for round in 0..600_usize {
        let frames: Vec<_> = (0..7)
            .map(|number| {
                let len = 16 + (round * 7 + number) * 89 % 8900;
                single(ipv4(to, (round * 7 + number) as u16, &payload(0x1005, len)))
            })
            .collect();
        assert_eq!(send(&mut sender, &frames)?, 7, "round {round}");
        for (arrived, sent) in collect(&mut receiver, 7).iter().zip(&frames) {
            assert!(arrived.bytes == sent.bytes, "round {round}");
        }
    }
    assert_eq!(counter(&receiver, "socket_rcvd_dropped"), 0);
    assert_eq!(counter(&receiver, "socket_rcvd_unusable"), 0);
    Ok(())
}

#[tier1]
fn a_flood_that_nobody_receives_is_dropped_and_counted_and_what_comes_next_comes_in() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let mut receiver = open_xdp(&right, &[1]);
    let mut sender = open_xdp(&left, &[2]);
    let frames: Vec<_> = (0..5000).map(|_| single(ipv4(to, 0, &payload(0x1001, 64)))).collect();
    let began = Instant::now();
    let mut sent = 0;
    while sent < 5000 {
        sent += send(&mut sender, &frames[sent..])?;
        assert!(began.elapsed() < Duration::from_secs(10), "{sent} sent");
    }
    let mut count = 0;
    while receiver.receive(64, &mut |_| count += 1)? > 0 {}
    let dropped =
        counter(&receiver, "socket_rcvd_dropped") + counter(&sender, "socket_sent_dropped");
    assert_eq!(count + dropped, 5000);
    assert_eq!(count, 2048, "as many as there is room for");
    send(&mut sender, &frames[..1])?;
    collect(&mut receiver, 1);
    Ok(())
}

#[tier1]
fn frames_beyond_the_mtu_and_trains_are_refused() -> Outcome {
    let Some((left, _right, _)) = cable(1500)? else { return Ok(()) };
    let mut sender = open_xdp(&left, &[2]);
    assert_eq!(sender.capabilities().max_train_packets, 1);
    let too_long = [single(ipv4([2; 6], 1, &payload(5, 1473)))];
    let error = send(&mut sender, &too_long).unwrap_err();
    assert!(
        matches!(DeviceError::of(&error), Some(DeviceError::SegmentTooLong { mtu: 1500, .. })),
        "{error}"
    );
    let of_three = [train(ipv4([2; 6], 1, &payload(5, 3000)), 42, 1000)];
    let error = send(&mut sender, &of_three).unwrap_err();
    assert!(matches!(DeviceError::of(&error), Some(DeviceError::BadFrame { .. })), "{error}");
    sender.set_mtu(1400);
    let too_long = [single(ipv4([2; 6], 1, &payload(5, 1373)))];
    assert!(send(&mut sender, &too_long).is_err());
    Ok(())
}

#[tier1]
fn a_second_user_of_an_interface_gets_its_device_back_and_the_next_may_try_again() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let mut first = open_xdp(&right, &[1]);
    let refused = try_open(&right, &[2]).expect_err("one at a time");
    let text = refused.error.to_string();
    assert!(matches!(refused.error, XdpError::Busy { .. }), "{text}");
    assert!(text.contains("another process has an XDP program") && text.contains("eth0"), "{text}");
    let mut second = refused.device;
    let mut sender = open(&left, "eth0", MODES[0])?;
    let frames = [0x1001, 0x2001].map(|qpn| single(ipv4(to, 1, &payload(qpn, 64))));
    send(&mut sender, &frames)?;
    assert_eq!(bytes(collect(&mut first, 1)), [frames[0].bytes.clone()]);
    assert_eq!(bytes(collect(&mut second, 1)), [frames[1].bytes.clone()]);
    for _ in 0..5 {
        drop(first);
        first = open_xdp(&right, &[1]);
    }
    send(&mut sender, &frames)?;
    assert_eq!(bytes(collect(&mut first, 1)), [frames[0].bytes.clone()]);
    assert_eq!(counter(&first, "xdp_rcvd_frames"), 1);
    Ok(())
}

#[tier1]
fn an_interface_that_goes_down_is_an_error_that_says_so_and_no_end() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let (mut sender, mut receiver) = (open_xdp(&left, &[2]), open_xdp(&right, &[1]));
    let frames = [single(ipv4(to, 1, &payload(0x1001, 100)))];
    let stale = [single(ipv4(to, 2, &payload(0x1001, 100)))];
    for round in 0..3 {
        right.set_down("eth0")?;
        let mut error = None;
        for _ in 0..1000 {
            error = error.or(receiver.receive(8, &mut |_| ()).err());
        }
        let error = error.expect("it is noticed").to_string();
        assert!(error.contains("eth0 is down"), "{error}");
        for _ in 0..3000 {
            let error = send(&mut receiver, &stale).unwrap_err();
            assert!(matches!(DeviceError::of(&error), Some(DeviceError::InterfaceDown { .. })));
            assert!(!receiver.has_unsent(), "what was to be sent would be stale");
        }
        right.set_up("eth0")?;
        // The carrier of the other end follows.
        let began = Instant::now();
        while bytes(collect_within(&mut receiver, &mut sender, &frames)?)
            != [frames[0].bytes.clone()]
        {
            assert!(began.elapsed() < Duration::from_secs(10));
        }
        send(&mut receiver, &frames)?;
        println!("round {round}: {:?}", receiver.counters());
    }
    Ok(())
}

/// Sends, and receives what comes within some milliseconds.
fn collect_within(
    receiver: &mut Device,
    sender: &mut Device,
    frames: &[Frame],
) -> std::io::Result<Vec<crate::common::Arrived>> {
    send(sender, frames)?;
    thread::sleep(Duration::from_millis(5));
    let mut arrived = Vec::new();
    receiver.receive(64, &mut |frame| {
        arrived.push(crate::common::Arrived {
            bytes: frame.bytes.to_vec(),
            segment_len: frame.segment_len,
            partial: frame.udp_checksum_partial,
        });
    })?;
    Ok(arrived)
}

#[tier1]
fn without_a_carrier_frames_are_dropped_and_with_one_they_pass_again() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let (mut sender, mut receiver) = (open_xdp(&left, &[2]), open_xdp(&right, &[1]));
    let frames: Vec<_> =
        (0..40).map(|number| single(ipv4(to, number, &payload(0x1001, 50)))).collect();
    right.set_down("eth0")?;
    let began = Instant::now();
    let lost = |sender: &Device| {
        ["no_carrier", "stalled", "dropped"]
            .map(|why| counter(sender, &format!("socket_sent_{why}")))
            .iter()
            .sum::<u64>()
    };
    for _ in 0..100 {
        send(&mut sender, &frames)?;
        while let Some(at) = sender.wake_at() {
            assert!(began.elapsed() < Duration::from_secs(10));
            thread::sleep(at.saturating_duration_since(Instant::now()));
            sender.transmit(&mut |_| None)?;
        }
    }
    assert!(!sender.has_unsent());
    assert_eq!(lost(&sender), 4000, "{:?}", sender.counters());
    right.set_up("eth0")?;
    let began = Instant::now();
    while collect_within(&mut receiver, &mut sender, &frames[..1])?.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    Ok(())
}

#[tier1]
fn an_interface_that_is_removed_is_an_error_that_says_so() -> Outcome {
    let Some((left, right, _)) = cable(1500)? else { return Ok(()) };
    let mut device = open_xdp(&left, &[1]);
    // Its other end goes with the host, and takes it along.
    drop(right);
    send_until_gone(&mut device);
    Ok(())
}

#[tier1]
fn an_idle_wait_uses_no_processor_and_ends_with_a_frame() -> Outcome {
    let Some((left, right, to)) = cable(1500)? else { return Ok(()) };
    let mut receiver = open_xdp(&right, &[1]);
    let mut sender = open(&left, "eth0", MODES[0])?;
    // The packet socket is first, the AF_XDP socket second.
    for (qpn, which) in [(0x1001, 1), (1, 0)] {
        assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
        for fd in receiver.wait_fds() {
            assert!(!crate::common::is_readable_within(fd, 50), "nothing wakes it");
        }
        assert!(!receiver.may_receive());
        send(&mut sender, &[single(ipv4(to, 1, &payload(qpn, 40)))])?;
        assert!(crate::common::is_readable_within(receiver.wait_fds()[which], 1000));
        assert!(receiver.may_receive());
        assert_eq!(receiver.receive(8, &mut |_| ())?, 1);
        assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
        assert!(!crate::common::is_readable_within(receiver.wait_fds()[which], 0));
    }
    Ok(())
}

#[tier1]
fn the_loopback_and_a_process_without_rights_are_refused_in_a_line() -> Outcome {
    let Some((left, _right, _)) = cable(1500)? else { return Ok(()) };
    let refusal = |name: &str| {
        left.run(|| {
            let packet = AfPacket::open(&config(name, MODES[0])).expect("a packet socket");
            let interface = packet.interface().clone();
            if name != "lo" {
                without_rights();
            }
            let refused = XdpSocket::around(packet, &interface, &XdpConfig::default());
            refused.expect_err("it is refused").error
        })
    };
    assert!(matches!(refusal("lo"), XdpError::Loopback { .. }));
    let error = refusal("eth0");
    assert!(matches!(error, XdpError::NotPermitted { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("setcap cap_bpf,cap_net_admin,cap_net_raw+ep") && !text.contains('\n'));
    Ok(())
}

/// Takes all capabilities from this thread, which ends with the closure.
fn without_rights() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .expect("rights may be given up");
}
