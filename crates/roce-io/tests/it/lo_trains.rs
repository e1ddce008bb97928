//! A second device on the loopback, for this host's own addresses (tier 1).

use crate::common::{MODES, Outcome, collect, config, ipv4, open, payload, send, single, train};
use roce_io::{
    AfPacket, AfPacketConfig, DeviceError, Filter, FrameDevice, InterfaceKind, LO_SOURCE,
    PortReservation, PortReservationConfig, QpnBlocks,
};
use roce_netns::VirtualNetwork;
use roce_test_macros::tier1;

/// A frame as processes send it to each other on `lo`.
fn on_lo(to: [u8; 6], identification: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = ipv4(to, identification, payload);
    frame[6..12].copy_from_slice(&LO_SOURCE.0);
    frame
}

#[tier1]
fn what_is_sent_on_lo_comes_once_to_every_device_there() -> Outcome {
    let host = VirtualNetwork::new()?.host("host")?;
    let _holder = host.run(|| PortReservation::bind(&PortReservationConfig::default()))?;
    for mode in MODES {
        let [mut sender, mut one, mut other] =
            [open(&host, "lo", mode)?, open(&host, "lo", mode)?, open(&host, "lo", mode)?];
        assert_eq!(sender.interface().kind, InterfaceKind::Loopback);
        for to in [[0; 6], [2, 0, 0, 0, 0, 7]] {
            let frames = [
                train(on_lo(to, 77, &payload(5, 60 * 1040)), 42, 1040),
                single(on_lo(to, 78, &payload(5, 100))),
                train(on_lo(to, 79, &payload(5, 15 * 4112)), 42, 4112),
            ];
            assert_eq!(send(&mut sender, &frames)?, 3);
            for receiver in [&mut one, &mut other, &mut sender] {
                let arrived = collect(receiver, 3);
                for (arrived, sent) in arrived.iter().zip(&frames) {
                    assert_eq!(arrived.bytes, sent.bytes);
                    assert_eq!(arrived.segment_len, sent.tx_frame.segment_len);
                }
                assert_eq!(receiver.receive(8, &mut |_| ())?, 0, "exactly once");
            }
        }
    }
    Ok(())
}

#[tier1]
fn a_filter_parts_the_programs_that_share_lo() -> Outcome {
    let host = VirtualNetwork::new()?.host("host")?;
    let block = |block| {
        let filter = Filter { qpn_blocks: QpnBlocks::Only(vec![block]), ..Filter::default() };
        let config = AfPacketConfig { filter, ..config("lo", MODES[0]) };
        host.run(|| AfPacket::open(&config))
    };
    let (mut one, mut two) = (block(1)?, block(2)?);
    let frame = |qpn| single(on_lo([0; 6], 1, &payload(qpn, 100)));
    send(&mut one, &[frame(0x2_001), frame(0x3_001)])?;
    send(&mut two, &[frame(0x1_001)])?;
    assert_eq!(collect(&mut one, 1)[0].bytes, frame(0x1_001).bytes);
    assert_eq!(collect(&mut two, 1)[0].bytes, frame(0x2_001).bytes);
    assert_eq!(one.receive(8, &mut |_| ())? + two.receive(8, &mut |_| ())?, 0);
    Ok(())
}

#[tier1]
fn a_segment_beyond_the_mtu_is_refused_on_lo() -> Outcome {
    let host = VirtualNetwork::new()?.host("host")?;
    host.set_mtu("lo", 1500)?;
    let (mut sender, mut receiver) = (open(&host, "lo", MODES[0])?, open(&host, "lo", MODES[0])?);
    let error = send(&mut sender, &[train(on_lo([0; 6], 1, &payload(5, 4000)), 42, 1473)]);
    let error = error.unwrap_err();
    assert!(
        matches!(
            DeviceError::of(&error),
            Some(DeviceError::SegmentTooLong { packet_len: 1501, mtu: 1500, .. })
        ),
        "{error}"
    );
    let next = train(on_lo([0; 6], 1, &payload(5, 4000)), 42, 1472);
    send(&mut sender, std::slice::from_ref(&next))?;
    assert_eq!(collect(&mut receiver, 1)[0].bytes, next.bytes);
    Ok(())
}
