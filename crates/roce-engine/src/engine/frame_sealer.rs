//! Outer headers and ICRCs of frames that the endpoint writes.

use roce_transport::{PacketSealer, PathHandle, Transmit, TransmitQueue};
use roce_wire::{PayloadCrc, Qpn, SealError, Sealing, UdpChecksum};

use super::link_pauses::LinkPauses;
use super::source_ports::SourcePorts;
use super::transmit_queues::{LO_QUEUE, LOOPBACK_QUEUE, WIRE_QUEUE};
use crate::own_numbers::OwnNumbers;
use crate::path_table::{PathEntry, PathTable, Via};

/// Bytes of the smallest set of outer headers: Ethernet, IPv4, UDP.
const MIN_HEADROOM: usize = 42;

/// IPv4 identification of a packet, and of the first one of a train: those behind it count up. The ICRC
/// covers it, and it is what the kernel gives the packets of UDP sockets, which do not tell it to their
/// receivers. No packet is ever cut into fragments, so it has no other use.
pub(super) const IDENTIFICATION: u16 = 0;

/// What the making of frames keeps from one to the next.
pub(super) struct Framing {
    /// The ICRC covers the source port, so it is chosen here.
    pub(super) source_ports: SourcePorts,
    /// State of the ICRC over the headers of the last train.
    pub(super) sealing: Option<Sealing>,
    /// Offset of the last frame's transport header: the best guess for the next one.
    pub(super) headroom: usize,
    /// Buffer in which frames for this host are built while the interface is full.
    pub(super) scratch: Vec<u8>,
}

impl Framing {
    pub(super) fn new(source_ports: Vec<u16>) -> Self {
        let source_ports = SourcePorts::new(source_ports);
        Self { source_ports, sealing: None, headroom: MIN_HEADROOM, scratch: Vec::new() }
    }
}

/// Seals the packets of one frame while they are written, then the frame.
pub(super) struct FrameSealer<'a> {
    paths: &'a PathTable,
    numbers: &'a OwnNumbers,
    pauses: &'a LinkPauses,
    source_ports: &'a SourcePorts,
    /// State of the last train; the next one often takes the same path.
    sealing: &'a mut Option<Sealing>,
    begun: Option<Begun<'a>>,
}

struct Begun<'a> {
    entry: &'a PathEntry,
    source_port: u16,
    /// Whether all packets so far were sealed.
    sealed: Result<(), SealError>,
}

impl<'a> FrameSealer<'a> {
    #[inline]
    pub(super) fn new(
        paths: &'a PathTable,
        numbers: &'a OwnNumbers,
        pauses: &'a LinkPauses,
        source_ports: &'a SourcePorts,
        sealing: &'a mut Option<Sealing>,
    ) -> Self {
        Self { paths, numbers, pauses, source_ports, sealing, begun: None }
    }

    /// Returns the path of the last train, once that is written; `None` if there is none.
    #[inline]
    pub(super) fn path_entry(&self) -> Option<&'a PathEntry> {
        self.begun.as_ref().map(|begun| begun.entry)
    }

    /// Puts the outer headers in front of the last train, which stands behind the headroom.
    #[inline]
    pub(super) fn finish(
        &mut self,
        transmit: &Transmit,
        frame: &mut [u8],
    ) -> Result<(), SealError> {
        let Begun { entry, source_port, sealed } = self.begun.take().ok_or(SealError::NoPacket)?;
        sealed?;
        let checksum = match transmit.packets {
            1 => UdpChecksum::Zero,
            _ => UdpChecksum::PartialForOffload,
        };
        match transmit.traffic_class {
            None => entry.sealer.put_headers(source_port, IDENTIFICATION, frame, checksum)?,
            Some(traffic_class) => {
                let sealer = entry.sealer.clone().with_traffic_class(traffic_class);
                sealer.put_headers(source_port, IDENTIFICATION, frame, checksum)?;
            }
        }
        Ok(())
    }
}

impl PacketSealer for FrameSealer<'_> {
    #[inline]
    fn begin(&mut self, qpn: Qpn, dest_qpn: Qpn, path: PathHandle) {
        self.begun = self.paths.find(path).map(|entry| {
            let source_port = self.source_ports.port_for(qpn, dest_qpn, entry.flow_label());
            match self.sealing.as_mut() {
                Some(last) => entry.sealer.resume(last, source_port, IDENTIFICATION),
                None => *self.sealing = Some(entry.sealer.begin(source_port, IDENTIFICATION)),
            }
            Begun { entry, source_port, sealed: Ok(()) }
        });
    }

    #[inline]
    fn transmit_queue(
        &self,
        dest_qpn: Qpn,
        path: PathHandle,
        traffic_class: Option<u8>,
    ) -> Option<TransmitQueue> {
        let entry = self.paths.find(path)?;
        match entry.via {
            Via::Interface | Via::Group => {
                let traffic_class = traffic_class.unwrap_or(entry.traffic_class());
                Some(self.pauses.queue_of(traffic_class).unwrap_or(WIRE_QUEUE))
            }
            Via::ThisHost if self.numbers.owns(dest_qpn) => Some(LOOPBACK_QUEUE),
            Via::ThisHost => Some(LO_QUEUE),
            Via::NoRoute => None,
        }
    }

    #[inline]
    fn seal(&mut self, packet: &mut [u8], payload: Option<PayloadCrc>) {
        if let Some(begun) = &mut self.begun {
            let sealed = match (self.sealing.as_mut(), payload) {
                (Some(sealing), Some(payload)) => sealing.seal_around(packet, payload),
                (Some(sealing), None) => sealing.seal(packet),
                (None, _) => Err(SealError::NoPacket),
            };
            if sealed.is_err() {
                begun.sealed = sealed;
            }
        }
    }

    #[inline]
    fn seal_single(&mut self, qpn: Qpn, dest_qpn: Qpn, path: PathHandle, packet: &mut [u8]) {
        self.begun = self.paths.find(path).map(|entry| {
            let source_port = self.source_ports.port_for(qpn, dest_qpn, entry.flow_label());
            let sealed = entry.sealer.seal_single(source_port, IDENTIFICATION, packet);
            Begun { entry, source_port, sealed }
        });
    }
}
