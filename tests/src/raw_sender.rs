//! Packets that no device has made.

use std::net::IpAddr;

use roce_io::{AfPacket, AfPacketConfig, FrameDevice, TxFrame};
use roce_netns::Host;
use roce_verbs::Device;
use roce_wire::{Headers, ICRC_LEN, MacAddr, OuterHeaders, UdpChecksum, seal};

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

    /// Returns a whole frame with a right ICRC.
    ///
    /// # Panics
    /// When the payload does not fit into a packet.
    pub fn frame(&self, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let start = self.outer.len();
        let mut frame = vec![0; start + headers.len() + payload.len() + 4 + ICRC_LEN];
        frame[start + headers.len()..][..payload.len()].copy_from_slice(payload);
        let len = headers.emit_around(&mut frame[start..], payload.len());
        frame.truncate(start + len);
        seal(&self.outer, 1, &mut frame, len, UdpChecksum::Zero).expect("one packet");
        frame
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
