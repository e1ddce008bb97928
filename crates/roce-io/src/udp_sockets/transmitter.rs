//! Sends frames as datagrams: slots are filled, handed to the kernel in batches, and kept while a socket's
//! buffer is full, within the bounds of [`Stall`].

use std::{collections::VecDeque, io, net::IpAddr, time::Instant};

use roce_wire::ROCE_V2_PORT;

use super::{
    headers::{self, Headers},
    senders::UdpSenders,
};
use crate::{
    device::{DeviceCapabilities, TxFrame},
    error::DeviceError,
    stall::{Stall, Verdict},
    sys::udp::{self, Outgoing},
    vnet_hdr::{self, MAX_FRAME_LEN},
};

/// Every slot is either free or ready.
#[derive(Debug)]
pub(super) struct Transmitter {
    senders: UdpSenders,
    /// Index of the interface through which datagrams leave; 0: the kernel chooses.
    interface: u32,
    slots: Vec<Vec<u8>>,
    free: Vec<usize>,
    /// In sending order.
    ready: VecDeque<Ready>,
    stall: Stall,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    slot: usize,
    len: usize,
    headers: Headers,
    segment_len: Option<u16>,
}

#[derive(Debug, Default)]
struct Counts {
    queue_full: u64,
    too_long: u64,
    refused: u64,
    stalled: u64,
    down: u64,
    gone: u64,
}

/// Bytes of a full batch: two trains, as for packet sockets.
const MAX_BATCH_LEN: usize = 96 << 10;

impl Transmitter {
    pub(super) fn new(senders: UdpSenders, interface: u32, slots: usize) -> Self {
        Self {
            senders,
            interface,
            slots: vec![vec![0; MAX_FRAME_LEN]; slots],
            free: (0..slots).collect(),
            ready: VecDeque::with_capacity(slots),
            stall: Stall::default(),
            counts: Counts::default(),
        }
    }

    /// Lends free slots to `fill` until it returns `None`, none is free, the batch is full, or the frame
    /// may not be sent.
    pub(super) fn fill(
        &mut self,
        capabilities: &DeviceCapabilities,
        interface: &str,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> Result<(), DeviceError> {
        let mut staged = 0;
        while let Some(&slot) = self.free.last().filter(|_| staged < MAX_BATCH_LEN) {
            let buffer = &mut self.slots[slot];
            let Some(tx_frame) = fill(buffer) else { break };
            let checked = vnet_hdr::check(buffer, &tx_frame, capabilities, interface)
                .and_then(|frame| self.senders.datagram(frame));
            let headers = checked.inspect_err(|error| match error {
                DeviceError::SegmentTooLong { .. } => self.counts.too_long += 1,
                _ => self.counts.refused += 1,
            })?;
            staged += tx_frame.len;
            if self.interface == 0 && headers.destination.is_multicast() {
                // It has left through the interface, too, and the kernel gives this host a copy of that.
                continue;
            }
            let payload = tx_frame.len - headers.payload_at;
            let segment_len = tx_frame.segment_len.filter(|len| *len < payload);
            let segment_len = segment_len.and_then(|len| u16::try_from(len).ok());
            self.free.pop();
            self.ready.push_back(Ready { slot, len: tx_frame.len, headers, segment_len });
        }
        Ok(())
    }

    /// Hands the ready frames to the kernel; returns how many it took.
    pub(super) fn flush(&mut self, clock: fn() -> Instant) -> io::Result<usize> {
        let (mut sent, mut refusal) = (0, None);
        while let Some(first) = self.ready.front() {
            match self.send(first.headers.source_port) {
                Ok(count) => {
                    sent += count;
                    self.stall.on_taken();
                    self.release(count);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                        self.counts.queue_full += 1;
                        if self.stall.on_refused(clock(), true) != Verdict::Keep {
                            self.counts.stalled += self.ready.len() as u64;
                            self.release(self.ready.len());
                        }
                        break;
                    }
                    code @ Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        let counter = match code {
                            Some(libc::ENETDOWN) => &mut self.counts.down,
                            _ => &mut self.counts.gone,
                        };
                        *counter += self.ready.len() as u64;
                        self.release(self.ready.len());
                        return Err(error);
                    }
                    // The kernel refuses the first frame only.
                    code => {
                        match code {
                            Some(libc::EMSGSIZE) => self.counts.too_long += 1,
                            _ => self.counts.refused += 1,
                        }
                        self.release(1);
                        refusal = Some(error);
                    }
                },
            }
        }
        refusal.map_or(Ok(sent), Err)
    }

    /// Hands at least one of the first frames with a source port to the kernel, or returns its error.
    fn send(&self, port: u16) -> io::Result<usize> {
        let Some(socket) = self.senders.socket(port) else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let datagrams =
            self.ready.iter().take_while(|ready| ready.headers.source_port == port).map(|ready| {
                Outgoing {
                    payload: &self.slots[ready.slot][ready.headers.payload_at..ready.len],
                    source: ready.headers.source,
                    destination: ready.headers.destination,
                    port: ready.headers.destination_port,
                    interface: self.interface,
                    traffic_class: ready.headers.traffic_class,
                    hop_limit: ready.headers.hop_limit,
                    segment_len: ready.segment_len,
                }
            });
        udp::send(socket, self.senders.is_v6(), datagrams)
    }

    fn release(&mut self, count: usize) {
        self.free.extend(self.ready.drain(..count).map(|ready| ready.slot));
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns when to offer refused frames again.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.stall.next_attempt().filter(|_| self.has_unsent())
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 6] {
        let Counts { queue_full, too_long, refused, stalled, down, gone } = self.counts;
        [
            ("socket_sent_queue_full", queue_full),
            ("socket_sent_too_long", too_long),
            ("socket_sent_refused", refused),
            ("socket_sent_stalled", stalled),
            ("socket_sent_down", down),
            ("socket_sent_gone", gone),
        ]
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
