//! Hands frames to the kernel as datagrams.

use std::{io, net::IpAddr};

use roce_wire::ROCE_V2_PORT;

use super::{
    headers::{self, Headers},
    senders::UdpSenders,
};
use crate::{
    device::TxFrame,
    error::DeviceError,
    sys::udp::{self, Outgoing},
    transmitter::{Full, Kernel, ReadyFrames},
};

/// The sockets that datagrams leave from.
#[derive(Debug)]
pub(super) struct UdpKernel {
    pub(super) senders: UdpSenders,
    /// Index of the interface through which datagrams leave; 0: the kernel chooses.
    pub(super) interface: u32,
}

/// What is known of a frame that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    headers: Headers,
    segment_len: Option<u16>,
}

impl Kernel for UdpKernel {
    type Note = Note;

    const FRAME_AT: usize = 0;

    fn prepare(&self, slot: &mut [u8], frame: &TxFrame) -> Result<Option<Note>, DeviceError> {
        let headers = self.senders.datagram(&slot[..frame.len])?;
        if self.interface == 0 && headers.destination.is_multicast() {
            // It has left through the interface, too, and the kernel gives this host a copy of that.
            return Ok(None);
        }
        let payload = frame.len - headers.payload_at;
        let segment_len = frame.segment_len.filter(|len| *len < payload);
        let segment_len = segment_len.and_then(|len| u16::try_from(len).ok());
        Ok(Some(Note { headers, segment_len }))
    }

    /// Sends the first frames with one source port.
    fn send(&mut self, ready: &ReadyFrames<Note>) -> io::Result<usize> {
        let port = ready.first().map(|first| first.headers.source_port);
        let Some((port, socket)) = port.and_then(|port| Some((port, self.senders.socket(port)?)))
        else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let of_port = ready.iter().take_while(|(_, _, note)| note.headers.source_port == port);
        let datagrams = of_port.map(|(slot, len, Note { headers, segment_len })| Outgoing {
            payload: &slot[headers.payload_at..len],
            source: headers.source,
            destination: headers.destination,
            port: headers.destination_port,
            interface: self.interface,
            traffic_class: headers.traffic_class,
            hop_limit: headers.hop_limit,
            segment_len: *segment_len,
        });
        udp::send(socket, self.senders.is_v6(), datagrams)
    }

    fn on_full(&mut self, _: &ReadyFrames<Note>) -> Full {
        // The queue is that of a socket, whose datagrams leave without a carrier, too.
        Full::Waits { has_carrier: true }
    }
}

impl UdpSenders {
    /// Reads the headers of a frame that a datagram can carry.
    fn datagram(&self, frame: &[u8]) -> Result<Headers, DeviceError> {
        let bad = |what| DeviceError::BadFrame { what };
        let headers = headers::read(frame)
            .ok_or(bad("it is not UDP over IP without VLAN tags, options and extension headers"))?;
        if headers.destination_port != ROCE_V2_PORT {
            return Err(bad("its destination port is not that of RoCEv2"));
        }
        if self.socket(headers.source_port).is_none() {
            return Err(bad("no UDP socket has its source port"));
        }
        if frame.get(14 + 4..14 + 6).is_none_or(|id| headers.source.is_ipv4() && id != [0, 0]) {
            return Err(bad("UDP sockets send IPv4 packets with identification 0 only"));
        }
        if matches!((headers.source, headers.destination), (IpAddr::V6(_), IpAddr::V6(_)))
            && !self.is_v6()
        {
            return Err(bad("this host has no IPv6"));
        }
        Ok(headers)
    }
}
