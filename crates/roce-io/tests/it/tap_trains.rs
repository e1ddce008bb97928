//! What a virtual machine behind a tap sees of trains, and a tap without a reader (tier 1).

use roce_test_macros::tier1;
use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use crate::common::{
    MODES, Outcome, counter, ipv4, is_readable_within, open, opened, payload, send,
};
use crate::common::{single, train};
use roce_io::{AfPacket, DeviceError, FrameDevice, InterfaceKind};
use roce_netns::{Host, Link, VirtualNetwork};
use tappers::{Interface, Tap};

const MACHINE: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// A host with a tap, and the machine's end of it.
fn host_with_tap(mtu: u32) -> Result<(Host, Tap), Box<dyn std::error::Error>> {
    let host = VirtualNetwork::new()?.host("host")?;
    let tap = host.run(|| Tap::new_named(Interface::new("tap0")?))?;
    host.set_mtu("tap0", mtu)?;
    host.set_up("tap0")?;
    Ok((host, tap))
}

/// The next packets of ours that the machine would see.
fn read(tap: &Tap, count: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut packets = Vec::new();
    let mut buffer = vec![0; 70_000];
    while packets.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} packets came", packets.len());
        if is_readable_within(tap.as_fd(), 100) {
            let len = tap.recv(&mut buffer).expect("a readable tap has a packet");
            // The kernel itself has things to say on a fresh interface.
            if buffer[..6] == MACHINE {
                packets.push(buffer[..len].to_vec());
            }
        }
    }
    packets
}

#[tier1]
fn a_train_comes_out_of_a_tap_as_packets_that_count_up() -> Outcome {
    let (host, tap) = host_with_tap(1500)?;
    let mut device = open(&host, "tap0", MODES[0])?;
    assert_eq!(device.interface().kind, InterfaceKind::Tap);
    assert_eq!(device.capabilities().max_train_packets, 64);
    let body = payload(5, 4 * 1040 + 100);
    let frames =
        [train(ipv4(MACHINE, 0xfffe, &body), 42, 1040), single(ipv4(MACHINE, 9, &body[..16]))];
    send(&mut device, &frames)?;
    let packets = read(&tap, 6);
    for (number, part) in body.chunks(1040).enumerate() {
        let (payload, identification) = opened(&packets[number]);
        assert_eq!(payload, part);
        assert_eq!(identification, 0xfffe_u16.wrapping_add(number as u16));
    }
    assert_eq!(packets[5], frames[1].bytes);
    Ok(())
}

#[tier1]
fn a_segment_beyond_the_mtu_is_refused_on_a_tap() -> Outcome {
    let (host, tap) = host_with_tap(1500)?;
    let mut device = open(&host, "tap0", MODES[0])?;
    let error = send(&mut device, &[train(ipv4(MACHINE, 1, &payload(5, 4000)), 42, 1473)]);
    let error = error.unwrap_err();
    assert!(
        matches!(
            DeviceError::of(&error),
            Some(DeviceError::SegmentTooLong { packet_len: 1501, mtu: 1500, .. })
        ),
        "{error}"
    );
    // The first packet out is what was sent next.
    let next = single(ipv4(MACHINE, 2, &payload(5, 50)));
    send(&mut device, std::slice::from_ref(&next))?;
    assert_eq!(read(&tap, 1), [next.bytes]);
    Ok(())
}

#[tier1]
fn a_tap_that_no_machine_has_taken_has_no_carrier_and_frames_to_it_are_dropped() -> Outcome {
    let network = VirtualNetwork::new()?;
    let host = network.host("host")?;
    network.tap(&host, "tap0", Link { mtu: 1500 })?;
    let mut device = open(&host, "tap0", MODES[0])?;
    let frames = vec![train(ipv4(MACHINE, 1, &payload(5, 50)), 42, 20); 3];
    assert_eq!(send(&mut device, &frames)?, 0);
    offer_until_dropped(&mut device);
    assert_eq!(counter(&device, "socket_sent_no_carrier"), 3);
    Ok(())
}

/// Offers the frames that wait whenever it is time; returns how long that took and how often.
fn offer_until_dropped(device: &mut AfPacket) -> (Duration, u32) {
    let (began, mut attempts) = (Instant::now(), 0);
    while let Some(at) = device.wake_at() {
        assert!(device.has_unsent() && began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        device.transmit(&mut |_| None).expect("a full queue is no error");
        attempts += 1;
    }
    assert!(!device.has_unsent());
    (began.elapsed(), attempts)
}

#[tier1]
fn frames_for_a_queue_that_stays_full_are_dropped_after_the_bound_and_counted() -> Outcome {
    let (host, tap) = host_with_tap(1500)?;
    let mut device = open(&host, "tap0", MODES[0])?;
    let frame = single(ipv4(MACHINE, 1, &payload(5, 500)));
    while !device.has_unsent() {
        send(&mut device, std::slice::from_ref(&frame))?;
    }
    let (took, attempts) = offer_until_dropped(&mut device);
    println!("a queue that stays full: dropped after {took:?}, bound 100 ms; {attempts} attempts");
    assert!(took >= Duration::from_millis(99), "{took:?}");
    assert!(attempts <= 120, "{attempts} attempts");
    assert_eq!(counter(&device, "socket_sent_stalled"), 1);
    // From now on nothing waits.
    for dropped in 2..10 {
        assert_eq!(send(&mut device, std::slice::from_ref(&frame))?, 0);
        assert!(!device.has_unsent());
        assert_eq!(counter(&device, "socket_sent_stalled"), dropped);
    }
    // With room again the queue is one that may fill: the next refusal waits. (The kernel shows
    // room in a tap once a batch of packets was read.)
    read(&tap, 100);
    while !device.has_unsent() {
        send(&mut device, std::slice::from_ref(&frame))?;
    }
    assert_eq!(counter(&device, "socket_sent_stalled"), 9);
    Ok(())
}

#[tier1]
fn a_queue_that_is_full_holds_frames_back_and_loses_none() -> Outcome {
    let (host, tap) = host_with_tap(1500)?;
    let mut device = open(&host, "tap0", MODES[0])?;
    // More than a tap's queue of a thousand packets holds without a reader.
    let mut numbers = 0..u16::MAX;
    for _ in 0..1000 {
        device.transmit(&mut |slot| {
            let frame = ipv4(MACHINE, numbers.next()?, &payload(5, 500));
            slot[..frame.len()].copy_from_slice(&frame);
            Some(single(frame).tx_frame)
        })?;
        if device.has_unsent() {
            break;
        }
    }
    assert!(device.has_unsent(), "the queue never filled");
    let offered = numbers.start;
    let mut seen = Vec::new();
    while seen.len() < usize::from(offered) {
        seen.extend(
            read(&tap, 1).iter().map(|packet| u16::from_be_bytes([packet[18], packet[19]])),
        );
        device.transmit(&mut |_| None)?;
    }
    assert!(seen.into_iter().eq(0..offered), "each once, in order");
    Ok(())
}

#[tier1]
fn packets_from_a_machine_come_in_through_its_tap() -> Outcome {
    let (host, tap) = host_with_tap(1500)?;
    let mut device = open(&host, "tap0", MODES[0])?;
    let frame = ipv4(crate::common::mac(&device), 3, &payload(5, 1000));
    tap.send(&frame)?;
    let arrived = crate::common::collect(&mut device, 1);
    assert_eq!((arrived[0].segment_len, &arrived[0].bytes), (None, &frame));
    Ok(())
}
