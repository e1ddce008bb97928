//! Trains and single packets over veth pairs and bridges (tier 1).

use roce_test_macros::tier1;
use std::{
    io,
    time::{Duration, Instant},
};

use crate::common::{
    MODES, Outcome, collect, config, counter, ipv4, ipv6, mac, open, payload, send,
    send_until_gone, single, train,
};
use roce_io::{AfPacket, AfPacketConfig, DeviceError, FrameDevice, GsoMode, OpenError};
use roce_netns::{Host, Link, VirtualNetwork};

fn cable(mtu: u32) -> Result<(Host, Host), Box<dyn std::error::Error>> {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu })?;
    Ok((left, right))
}

#[tier1]
fn a_train_crosses_a_cable_whole_over_both_versions_of_ip() -> Outcome {
    for (mtu, segment_len, packets) in [(1500, 1040, 62), (4300, 4112, 15), (9000, 272, 64)] {
        let (left, right) = cable(mtu)?;
        for mode in MODES {
            let (mut sender, mut receiver) =
                (open(&left, "eth0", mode)?, open(&right, "eth0", mode)?);
            let body = payload(5, segment_len * packets - 3);
            let sent = [
                train(ipv4(mac(&receiver), 77, &body), 42, segment_len),
                train(ipv6(mac(&receiver), &body), 62, segment_len),
            ];
            assert_eq!(send(&mut sender, &sent)?, 2);
            for (arrived, sent) in collect(&mut receiver, 2).iter().zip(&sent) {
                assert_eq!(arrived.segment_len, Some(segment_len));
                assert!(arrived.partial);
                assert_eq!(arrived.bytes, sent.bytes);
            }
        }
    }
    Ok(())
}

#[tier1]
fn a_train_crosses_a_bridge_whole() -> Outcome {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    let _switch = network.bridge(&[(&left, "eth0"), (&right, "eth0")], Link::default())?;
    let (mut sender, mut receiver) =
        (open(&left, "eth0", MODES[0])?, open(&right, "eth0", MODES[0])?);
    let sent = train(ipv4(mac(&receiver), 77, &payload(5, 60 * 1040)), 42, 1040);
    send(&mut sender, std::slice::from_ref(&sent))?;
    let arrived = collect(&mut receiver, 1);
    assert_eq!((arrived[0].segment_len, &arrived[0].bytes), (Some(1040), &sent.bytes));
    Ok(())
}

#[tier1]
fn single_packets_arrive_in_order_and_untouched() -> Outcome {
    let (left, right) = cable(4300)?;
    for mode in MODES {
        let (mut sender, mut receiver) = (open(&left, "eth0", mode)?, open(&right, "eth0", mode)?);
        let frames: Vec<_> = (0..40)
            .map(|number| {
                single(ipv4(mac(&receiver), number, &payload(5, 16 + 100 * number as usize)))
            })
            .collect();
        assert_eq!(send(&mut sender, &frames)?, 40);
        for (arrived, sent) in collect(&mut receiver, 40).iter().zip(&frames) {
            assert_eq!((arrived.segment_len, arrived.partial), (None, false));
            assert_eq!(arrived.bytes, sent.bytes);
        }
    }
    Ok(())
}

#[tier1]
fn the_ring_goes_round_many_times_without_a_frame_lost_or_changed() -> Outcome {
    let (left, right) = cable(4300)?;
    for mode in MODES {
        let (mut sender, mut receiver) = (open(&left, "eth0", mode)?, open(&right, "eth0", mode)?);
        for round in 0..100u16 {
            let frames: Vec<_> = (0..7)
                .map(|number| {
                    let len = 40 + usize::from(round * 7 + number) * 37;
                    train(ipv4(mac(&receiver), round * 7 + number, &payload(5, len)), 42, 1024)
                })
                .collect();
            assert_eq!(send(&mut sender, &frames)?, 7);
            for (arrived, sent) in collect(&mut receiver, 7).iter().zip(&frames) {
                assert_eq!(arrived.bytes, sent.bytes, "round {round}");
            }
        }
        assert_eq!(counter(&receiver, "socket_rcvd_dropped"), 0);
        assert_eq!(counter(&receiver, "socket_rcvd_unusable"), 0);
    }
    Ok(())
}

#[tier1]
fn a_frame_that_no_slot_has_room_for_is_dropped_and_counted() -> Outcome {
    let (left, right) = cable(1500)?;
    for mode in MODES {
        let (mut sender, mut receiver) = (open(&left, "eth0", mode)?, open(&right, "eth0", mode)?);
        // The ring holds 75 frames; the socket buffer of the other mode is made small.
        let frames = vec![single(ipv4(mac(&receiver), 1, &payload(5, 1000))); 200];
        send(&mut sender, &frames)?;
        let mut count = 0;
        for _ in 0..200 {
            receiver.receive(64, &mut |_| count += 1)?;
        }
        let dropped = counter(&receiver, "socket_rcvd_dropped");
        assert_eq!(count + dropped, 200, "{mode:?}");
        // What comes next comes in all the same.
        send(&mut sender, &frames[..1])?;
        collect(&mut receiver, 1);
    }
    Ok(())
}

#[tier1]
fn a_segment_beyond_the_mtu_is_refused_on_veth_and_the_next_frame_passes() -> Outcome {
    let (left, right) = cable(1500)?;
    let (mut sender, mut receiver) =
        (open(&left, "eth0", MODES[0])?, open(&right, "eth0", MODES[0])?);
    let to = mac(&receiver);
    let too_long = [
        train(ipv4(to, 1, &payload(5, 4 * 1473)), 42, 1473),
        train(ipv6(to, &payload(5, 4 * 1453)), 62, 1453),
        single(ipv4(to, 1, &payload(5, 1473))),
    ];
    for frame in &too_long {
        let error = send(&mut sender, std::slice::from_ref(frame)).unwrap_err();
        let Some(DeviceError::SegmentTooLong { packet_len, mtu, .. }) = DeviceError::of(&error)
        else {
            panic!("{error:?}");
        };
        assert_eq!((*packet_len, *mtu), (1501, 1500));
    }
    assert_eq!(counter(&sender, "socket_sent_too_long"), 3);
    let longest = [
        train(ipv4(to, 1, &payload(5, 4 * 1472)), 42, 1472),
        train(ipv6(to, &payload(5, 4 * 1452)), 62, 1452),
        single(ipv4(to, 1, &payload(5, 1472))),
    ];
    send(&mut sender, &longest)?;
    let lens: Vec<_> = collect(&mut receiver, 3).iter().map(|frame| frame.bytes.len()).collect();
    assert_eq!(lens, longest.each_ref().map(|frame| frame.bytes.len()));
    Ok(())
}

#[tier1]
fn an_mtu_that_shrinks_is_noticed() -> Outcome {
    let (left, right) = cable(4300)?;
    let (mut sender, mut receiver) =
        (open(&left, "eth0", MODES[0])?, open(&right, "eth0", MODES[0])?);
    left.set_mtu("eth0", 1500)?;
    let frames = [single(ipv4(mac(&receiver), 1, &payload(5, 4000)))];
    let error = send(&mut sender, &frames).unwrap_err();
    assert!(
        matches!(DeviceError::of(&error), Some(DeviceError::SegmentTooLong { mtu: 1500, .. })),
        "{error}"
    );
    assert_eq!(sender.capabilities().mtu, 1500);
    left.set_mtu("eth0", 9000)?;
    sender.set_mtu(9000);
    send(&mut sender, &frames)?;
    collect(&mut receiver, 1);
    Ok(())
}

#[tier1]
fn a_device_that_sends_no_trains_says_so() -> Outcome {
    let (left, _right) = cable(1500)?;
    for (gso, packets) in [(GsoMode::Auto, 64), (GsoMode::On, 64), (GsoMode::Off, 1)] {
        let config = AfPacketConfig { gso, ..AfPacketConfig::new("eth0") };
        let mut device = left.run(|| AfPacket::open(&config))?;
        assert_eq!(device.capabilities().max_train_packets, packets);
        let frame = train(ipv4([2, 0, 0, 0, 0, 1], 1, &payload(5, 3000)), 42, 1000);
        assert_eq!(send(&mut device, &[frame]).is_ok(), packets > 1);
    }
    Ok(())
}

#[tier1]
fn an_interface_that_goes_down_is_an_error_that_says_so_and_no_end() -> Outcome {
    for mode in MODES {
        let (left, right) = cable(1500)?;
        let (mut sender, mut receiver) = (open(&left, "eth0", mode)?, open(&right, "eth0", mode)?);
        let frames = [single(ipv4(mac(&receiver), 1, &payload(5, 100)))];
        right.set_down("eth0")?;
        let mut error = None;
        for _ in 0..1000 {
            error = error.or(receiver.receive(8, &mut |_| ()).err());
        }
        let error = error.expect("it is noticed");
        assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
        assert!(error.to_string().contains("eth0 is down"), "{error}");
        let error = send(&mut receiver, &frames).unwrap_err();
        assert!(matches!(DeviceError::of(&error), Some(DeviceError::InterfaceDown { .. })));
        assert!(!receiver.has_unsent(), "what was to be sent would be stale");
        let error = right.run(|| AfPacket::open(&config("eth0", mode))).unwrap_err();
        assert!(matches!(error, OpenError::InterfaceDown { .. }), "{error}");

        right.set_up("eth0")?;
        send(&mut sender, &frames)?;
        collect(&mut receiver, 1);
        send(&mut receiver, &frames)?;
    }
    Ok(())
}

#[tier1]
fn without_a_carrier_frames_are_dropped_within_the_bound_and_with_one_they_pass_again() -> Outcome {
    let (left, right) = cable(1500)?;
    let (mut sender, mut receiver) =
        (open(&left, "eth0", MODES[0])?, open(&right, "eth0", MODES[0])?);
    let to = mac(&receiver);
    right.set_down("eth0")?;
    let frames: Vec<_> =
        (0..3).map(|number| train(ipv4(to, number, &payload(5, 50)), 42, 20)).collect();
    let began = Instant::now();
    assert_eq!(send(&mut sender, &frames)?, 0);
    while let Some(at) = sender.wake_at() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        sender.transmit(&mut |_| None)?;
    }
    println!("without a carrier: dropped after {:?}, bound 100 ms", began.elapsed());
    assert!(!sender.has_unsent());
    assert_eq!(dropped(&sender), 3, "{:?}", sender.counters());
    // The flags have followed by now, or the bound is over: no frame waits any more.
    let more: Vec<_> = (0..20).map(|number| single(ipv4(to, number, &payload(5, 50)))).collect();
    let began = Instant::now();
    while dropped(&sender) < 23 {
        assert!(began.elapsed() < Duration::from_secs(10));
        let next = (dropped(&sender) - 3) as usize;
        send(&mut sender, &more[next..])?;
    }
    right.set_up("eth0")?;
    let began = Instant::now();
    // The first one that passes is the one that is sent next.
    while send(&mut sender, &frames[..1])? == 0 && !sender.has_unsent() {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    let arrived = collect(&mut receiver, 1);
    assert_eq!(arrived[0].bytes, frames[0].bytes);
    Ok(())
}

fn dropped(device: &AfPacket) -> u64 {
    counter(device, "socket_sent_no_carrier") + counter(device, "socket_sent_stalled")
}

#[tier1]
fn an_interface_that_is_removed_is_an_error_that_says_so() -> Outcome {
    let (left, right) = cable(1500)?;
    let mut device = left.run(|| AfPacket::open(&config("eth0", MODES[0])))?;
    // Its other end goes with the host, and takes it along.
    drop(right);
    send_until_gone(&mut device);
    Ok(())
}

#[tier1]
fn an_interface_that_is_not_there_is_named_among_those_that_are() -> Outcome {
    let (left, _right) = cable(1500)?;
    let error = left.run(|| AfPacket::open(&AfPacketConfig::new("eth9"))).unwrap_err();
    let OpenError::NoSuchInterface { mut known, .. } = error else { panic!("{error}") };
    known.sort();
    assert_eq!(known, ["eth0", "lo"]);
    Ok(())
}

#[tier1]
fn an_idle_wait_uses_no_processor() -> Outcome {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike,
    };
    let (left, _right) = cable(1500)?;
    for mode in MODES {
        let mut device = open(&left, "eth0", mode)?;
        let used = || -> nix::Result<i64> {
            let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
            Ok((usage.user_time() + usage.system_time()).num_microseconds())
        };
        let before = used()?;
        assert_eq!(device.receive(8, &mut |_| ())?, 0);
        assert!(!crate::common::is_readable_within(device.wait_fds()[0], 300), "nothing wakes it");
        let spent = used()? - before;
        assert!(spent < 15_000, "{spent} µs of 300 ms");
    }
    Ok(())
}

#[tier1]
fn who_has_received_until_nothing_waits_may_sleep_until_the_next_frame() -> Outcome {
    let (left, right) = cable(1500)?;
    for mode in MODES {
        let (mut sender, mut receiver) = (open(&left, "eth0", mode)?, open(&right, "eth0", mode)?);
        for number in 0..3 {
            let frame = single(ipv4(mac(&receiver), number, &payload(5, 40)));
            send(&mut sender, std::slice::from_ref(&frame))?;
            assert!(crate::common::is_readable_within(receiver.wait_fds()[0], 1000));
            assert!(receiver.may_receive());
            assert_eq!(receiver.receive(8, &mut |_| ())?, 1);
            assert_eq!(receiver.receive(8, &mut |_| ())?, 0);
            assert!(!crate::common::is_readable_within(receiver.wait_fds()[0], 0));
        }
    }
    Ok(())
}
