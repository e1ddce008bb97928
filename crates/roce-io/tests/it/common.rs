//! What the tier 1 tests share: frames to send, and waiting for frames to come.

#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    error::Error,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_io::{AfPacket, AfPacketConfig, DeviceError, FrameDevice, ReceiveMode, TxFrame};
use roce_netns::Host;

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// A frame to be sent, and what to say of it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tx_frame: TxFrame,
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) bytes: Vec<u8>,
    pub(crate) segment_len: Option<usize>,
    pub(crate) partial: bool,
}

/// Both ways to receive.
pub(crate) const MODES: [ReceiveMode; 2] =
    [ReceiveMode::Ring { slots: 64 }, ReceiveMode::Mmsg { batch: 16 }];

pub(crate) fn config(ifname: &str, receive: ReceiveMode) -> AfPacketConfig {
    AfPacketConfig { receive, ..AfPacketConfig::new(ifname) }
}

pub(crate) fn open(
    host: &Host,
    ifname: &str,
    receive: ReceiveMode,
) -> Result<AfPacket, Box<dyn Error>> {
    Ok(host.run(|| AfPacket::open(&config(ifname, receive)))?)
}

pub(crate) fn mac(device: &AfPacket) -> [u8; 6] {
    device.interface().mac.expect("an Ethernet interface has a MAC address")
}

/// A payload whose bytes say where they belong, to queue pair `qpn`.
pub(crate) fn payload(qpn: u32, len: usize) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    payload[4..8].copy_from_slice(&qpn.to_be_bytes());
    payload
}

pub(crate) fn ipv4(to: [u8; 6], identification: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = etherparse::Ipv4Header::new(
        8 + payload.len() as u16,
        64,
        etherparse::ip_number::UDP,
        [10, 0, 0, 1],
        [10, 0, 0, 2],
    )
    .expect("it fits");
    ip.identification = identification;
    ip.dont_fragment = true;
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], to)
        .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        .udp(0xc001, roce_wire::ROCE_V2_PORT);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("it fits");
    frame
}

pub(crate) fn ipv6(to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], to)
        .ipv6([0xfd; 16], [0xfe; 16], 64)
        .udp(0xc001, roce_wire::ROCE_V2_PORT);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("it fits");
    frame
}

pub(crate) fn single(bytes: Vec<u8>) -> Frame {
    Frame { tx_frame: TxFrame::single(bytes.len()), bytes }
}

/// A train: the sum over the pseudo-header is in place of the checksum.
pub(crate) fn train(mut bytes: Vec<u8>, headers_len: usize, segment_len: usize) -> Frame {
    let udp_len = bytes.len() - headers_len + 8;
    let addresses = if headers_len == 42 { &bytes[26..34] } else { &bytes[22..54] };
    let mut sum = 17 + udp_len as u32;
    sum +=
        addresses.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    bytes[headers_len - 2..headers_len].copy_from_slice(&(sum as u16).to_be_bytes());
    Frame { tx_frame: TxFrame::train(bytes.len(), headers_len, segment_len), bytes }
}

/// Offers all frames; returns how many the kernel took.
pub(crate) fn send(device: &mut dyn FrameDevice, frames: &[Frame]) -> std::io::Result<usize> {
    let mut frames = frames.iter();
    let (mut sent, mut offered) = (0, true);
    while offered {
        offered = false;
        sent += device.transmit(&mut |slot| {
            let frame = frames.next()?;
            offered = true;
            slot[..frame.bytes.len()].copy_from_slice(&frame.bytes);
            Some(frame.tx_frame)
        })?;
    }
    Ok(sent)
}

/// Receives until so many frames came.
///
/// # Panics
/// When they do not come within ten seconds.
pub(crate) fn collect(device: &mut dyn FrameDevice, count: usize) -> Vec<Arrived> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut arrived = Vec::new();
    while arrived.len() < count {
        let budget = count - arrived.len();
        let received = device
            .receive(budget, &mut |frame| {
                arrived.push(Arrived {
                    bytes: frame.bytes.to_vec(),
                    segment_len: frame.segment_len,
                    partial: frame.udp_checksum_partial,
                });
            })
            .expect("the interface is up");
        if received == 0 {
            assert!(Instant::now() < deadline, "{} of {count} frames came", arrived.len());
            is_readable_within(device.wait_fds()[0], 100);
        }
    }
    arrived
}

/// Whether the descriptor is, or becomes, readable (or in error) within so many milliseconds.
pub(crate) fn is_readable_within(fd: BorrowedFd<'_>, milliseconds: u16) -> bool {
    let events = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::from(milliseconds));
    events.expect("polling works") > 0
}

pub(crate) fn counter(device: &dyn FrameDevice, name: &str) -> u64 {
    let counters = device.counters();
    let found = counters.iter().find(|(counter, _)| *counter == name);
    found.unwrap_or_else(|| panic!("no counter {name} in {counters:?}")).1
}

/// The UDP payload of a single packet and its IPv4 identification, its checksums verified.
pub(crate) fn opened(packet: &[u8]) -> (Vec<u8>, u16) {
    let sliced = SlicedPacket::from_ethernet(packet).expect("its lengths agree");
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
    let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("no IPv4") };
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert!(header.dont_fragment);
    let sum = udp
        .to_header()
        .calc_checksum_ipv4_raw(header.source, header.destination, udp.payload())
        .expect("it fits");
    assert_eq!(udp.checksum(), sum, "the UDP checksum was completed");
    (udp.payload().to_vec(), header.identification)
}

/// Sends until the device says that its interface is gone.
pub(crate) fn send_until_gone(device: &mut impl FrameDevice) {
    let frames = [single(ipv4([2, 0, 0, 0, 0, 1], 1, &payload(5, 100)))];
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match send(device, &frames) {
            Err(error)
                if matches!(DeviceError::of(&error), Some(DeviceError::InterfaceGone { .. })) =>
            {
                return;
            }
            outcome => assert!(Instant::now() < deadline, "{outcome:?}"),
        }
    }
}
