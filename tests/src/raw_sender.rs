//! Packets that no device has made.

use std::net::IpAddr;

use roce_io::{AfPacket, AfPacketConfig, FrameDevice, TxFrame};
use roce_netns::Host;
use roce_verbs::Device;
use roce_wire::{Headers, ICRC_LEN, MacAddr, OuterHeaders, UdpChecksum, seal};

/// A frame of one packet, or of a packet train.
#[derive(Clone, Debug)]
pub struct RawFrame {
    bytes: Vec<u8>,
    /// Bytes before the first packet.
    start: usize,
    segment_len: usize,
}

impl RawFrame {
    /// The bytes of a packet, from the BTH to the ICRC.
    ///
    /// # Panics
    /// When there are not so many packets.
    pub fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        let mut packets = self.bytes[self.start..].chunks_mut(self.segment_len);
        packets.nth(index).expect("a packet of the frame")
    }
}

/// Sends packets of RoCEv2 from one host to another, with any addresses, and receives none.
#[derive(Debug)]
pub struct RawSender {
    port: AfPacket,
    outer: OuterHeaders,
}

fn mac(host: &Host) -> MacAddr {
    let devices = host.run(Device::list).expect("the interfaces");
    let eth0 = devices.iter().find(|it| it.interface.name == "eth0").expect("eth0");
    MacAddr(eth0.interface.mac.expect("an Ethernet interface"))
}

impl RawSender {
    /// Opens `eth0` of the first host, for packets that show the first address as their source.
    ///
    /// # Panics
    /// When the hosts have no `eth0`.
    pub fn new((from, source): (&Host, IpAddr), (to, destination): (&Host, IpAddr)) -> Self {
        let port = from.run(|| AfPacket::open(&AfPacketConfig::new("eth0"))).expect("a socket");
        let mut outer = OuterHeaders::new(source, destination);
        (outer.source_mac, outer.destination_mac) = (mac(from), mac(to));
        Self { port, outer }
    }

    /// Returns the station that frames go to: at first `eth0` of the second host.
    pub fn station(&self) -> MacAddr {
        self.outer.destination_mac
    }

    /// Sends to another station from now on, which need not exist.
    pub fn set_station(&mut self, station: MacAddr) {
        self.outer.destination_mac = station;
    }

    /// Returns a whole frame with a right ICRC.
    ///
    /// # Panics
    /// When the payload does not fit into a packet.
    pub fn frame(&self, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        self.train(&[(*headers, payload)]).bytes
    }

    /// Returns a frame of packets with right ICRCs. All have the same length, but for a shorter last one.
    ///
    /// # Panics
    /// When the packets are none, or do not make a frame.
    pub fn train(&self, packets: &[(Headers, &[u8])]) -> RawFrame {
        let start = self.outer.len();
        let (mut bytes, mut lens) = (vec![0; start], Vec::new());
        for (headers, payload) in packets {
            let mut packet = vec![0; headers.len() + payload.len() + 4 + ICRC_LEN];
            packet[headers.len()..][..payload.len()].copy_from_slice(payload);
            let len = headers.emit_around(&mut packet, payload.len());
            bytes.extend_from_slice(&packet[..len]);
            lens.push(len);
        }
        let segment_len = *lens.first().expect("a packet");
        let last = lens.pop().expect("a packet");
        assert!(
            lens.iter().all(|len| *len == segment_len) && last <= segment_len,
            "{lens:?} {last}"
        );
        let checksum = match packets.len() {
            1 => UdpChecksum::Zero,
            _ => UdpChecksum::PartialForOffload,
        };
        seal(&self.outer, 0, &mut bytes, segment_len, checksum).expect("packets of one length");
        RawFrame { bytes, start, segment_len }
    }

    /// Sends a frame.
    ///
    /// # Panics
    /// When the interface is down.
    pub fn send_train(&mut self, frame: RawFrame) {
        let RawFrame { bytes, start, segment_len } = frame;
        let mut waits = true;
        while waits || self.port.has_unsent() {
            let taken = self.port.transmit(&mut |slot| {
                std::mem::take(&mut waits).then(|| {
                    slot[..bytes.len()].copy_from_slice(&bytes);
                    match bytes.len() - start {
                        len if len <= segment_len => TxFrame::single(bytes.len()),
                        _ => TxFrame::train(bytes.len(), start, segment_len),
                    }
                })
            });
            taken.expect("the interface is up");
        }
    }

    /// Sends frames, the last of them first, and waits for the interface where it is full.
    ///
    /// # Panics
    /// When the interface is down.
    pub fn send(&mut self, mut frames: Vec<Vec<u8>>) {
        while !frames.is_empty() {
            let taken = self.port.transmit(&mut |slot| {
                let frame = frames.pop()?;
                slot[..frame.len()].copy_from_slice(&frame);
                Some(TxFrame::single(frame.len()))
            });
            taken.expect("the interface is up");
        }
    }
}
