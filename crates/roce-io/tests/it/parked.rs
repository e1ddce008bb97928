//! Sockets that are kept between two devices of an interface (tier 1).

use roce_test_macros::tier1;
use std::process::Command;

use crate::common::{MODES, Outcome, collect, config, ipv4, mac, open, payload, send, single};
use roce_io::{AfPacket, FrameDevice, ParkedSocket};
use roce_netns::{Host, Link, VirtualNetwork};

fn cable() -> Result<(Host, Host), Box<dyn std::error::Error>> {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 1500 })?;
    Ok((left, right))
}

fn ip(host: &Host, arguments: &str) {
    let mut command = Command::new("ip");
    let status = host.run(|| command.args(arguments.split(' ')).status()).expect("ip");
    assert!(status.success(), "ip {arguments}");
}

fn count(device: &impl FrameDevice, name: &str) -> u64 {
    device.counters().iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
}

#[tier1]
fn a_device_of_a_kept_socket_receives_no_frame_of_before() -> Outcome {
    let (left, right) = cable()?;
    for mode in MODES {
        let config = config("eth0", mode);
        let receiver = right.run(|| AfPacket::open(&config))?;
        let mut sender = open(&left, "eth0", mode)?;
        let to = mac(&receiver);
        let frame = |id| ipv4(to, id, &payload(0x12_001, 64));
        // Some wait when the socket is parked, more than the ring has slots; others come later.
        for id in 0..200 {
            send(&mut sender, &[single(frame(id))])?;
        }
        let parked = ParkedSocket::of(receiver).expect("not promiscuous");
        assert!(parked.fits(&config));
        for id in 200..210 {
            send(&mut sender, &[single(frame(id))])?;
        }
        let mut again = right.run(|| parked.reopen(&config)).expect("nothing has changed");
        assert_eq!(again.receive(64, &mut |_| ())?, 0);
        assert_eq!(count(&again, "socket_rcvd_dropped") + count(&again, "socket_rcvd_unusable"), 0);
        // All of its slots are free again.
        for id in 300..360 {
            send(&mut sender, &[single(frame(id))])?;
        }
        let arrived = collect(&mut again, 60);
        assert!(
            arrived.iter().map(|it| &it.bytes).eq((300..360).map(frame).collect::<Vec<_>>().iter())
        );
        assert_eq!(again.receive(64, &mut |_| ())?, 0);
    }
    Ok(())
}

#[tier1]
fn a_kept_socket_follows_its_interface_and_none_of_the_same_name() -> Outcome {
    let (left, right) = cable()?;
    let mode = MODES[0];
    let config = config("eth0", mode);
    let park = || ParkedSocket::of(right.run(|| AfPacket::open(&config)).expect("opens"));
    let reopen = |parked: Option<ParkedSocket>| {
        right.run(|| parked.expect("not promiscuous").reopen(&config))
    };
    let works = |device: Option<AfPacket>| {
        let mut receiver = device.expect("the interface is the same");
        let mut sender = open(&left, "eth0", mode).expect("opens");
        let frame = ipv4(mac(&receiver), 1, &payload(0x12_001, 64));
        send(&mut sender, &[single(frame.clone())]).expect("sent");
        assert_eq!(collect(&mut receiver, 1)[0].bytes, frame);
        receiver.capabilities().mtu
    };
    assert_eq!(works(reopen(park())), 1500);
    let parked = park();
    ip(&right, "link set eth0 down");
    ip(&right, "link set eth0 up");
    ip(&right, "link set eth0 mtu 1400 address 02:00:00:00:00:99");
    assert_eq!(works(reopen(parked)), 1400);
    let parked = park();
    ip(&right, "link set eth0 down");
    assert!(reopen(parked).is_none(), "it is down");
    ip(&right, "link set eth0 up");
    let parked = park();
    // Another interface takes the name.
    ip(&right, "link set eth0 down");
    ip(&right, "link set eth0 name eth7");
    ip(&right, "link add eth0 type veth peer name eth9");
    ip(&right, "link set eth0 up");
    assert!(reopen(parked).is_none(), "it is bound to eth7");
    let parked = park();
    ip(&right, "link del eth0");
    assert!(reopen(parked).is_none(), "it is bound to none");
    Ok(())
}

#[tier1]
fn a_socket_is_kept_for_the_same_configuration_and_not_if_it_is_promiscuous() -> Outcome {
    let (_left, right) = cable()?;
    let config = config("eth0", MODES[0]);
    let mut promiscuous = config.clone();
    promiscuous.promiscuous = true;
    assert!(ParkedSocket::of(right.run(|| AfPacket::open(&promiscuous))?).is_none());
    let parked = ParkedSocket::of(right.run(|| AfPacket::open(&config))?).expect("kept");
    let mut filtered = config.clone();
    filtered.filter.udp_port = 1;
    assert!(parked.fits(&config) && parked.fits(&filtered));
    let mut other = config.clone();
    other.receive = MODES[1];
    assert!(!parked.fits(&other) && !parked.fits(&promiscuous));
    Ok(())
}
