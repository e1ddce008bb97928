//! A packet in the making.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use roce_dissect::{
    Dissector, FieldPlace, Icrc, IcrcSkipped, LinkType, Options, Packet, PacketFields, RawFrame,
    RoceVersion,
};
use roce_wire::{
    Bth, Headers, ICRC_LEN, KnownOpcode, MacAddr, OuterHeaders, Psn, Qpn, UdpChecksum,
    expected_icrc, seal,
};

use crate::change::Series;
use crate::{Change, ChangeError, DraftError};

/// A frame with one packet, which [`finish`](Self::finish) makes ready to be sent.
#[derive(Clone, Debug)]
pub struct Draft {
    /// From the destination MAC address to the last byte of the ICRC.
    bytes: Vec<u8>,
    ip_at: usize,
    udp_at: usize,
    is_ipv4: bool,
    /// Name of the opcode, for messages.
    name: String,
    /// What the right ICRC is combined with by exclusive or; 0 leaves it right.
    icrc_error: u32,
    /// The ICRC was set by hand, or cannot be computed.
    keeps_icrc: bool,
    /// The IPv4 checksum was set by hand.
    keeps_checksum: bool,
    series: Vec<Series>,
}

impl Draft {
    /// Returns a packet of an opcode: the P_Key is the default one, queue pair, PSN and all extension
    /// headers are zeros, and the pad fits the payload. A payload is taken for every opcode, also for
    /// those that carry none. The UDP checksum is 0, the IPv4 identification 1.
    ///
    /// # Errors
    /// [`DraftError::Families`], [`DraftError::Seal`].
    pub fn of_opcode(
        opcode: KnownOpcode,
        payload: &[u8],
        outer: &OuterHeaders,
    ) -> Result<Self, DraftError> {
        if outer.source.is_ipv4() != outer.destination.is_ipv4() {
            return Err(DraftError::Families { from: outer.source, to: outer.destination });
        }
        let bth = Bth::new(opcode, Qpn::from_be_bytes([0; 3]), Psn::ZERO);
        let mut zeros = vec![0; opcode.headers_len()];
        zeros[..bth.to_bytes().len()].copy_from_slice(&bth.to_bytes());
        let headers = Headers::parse(&zeros).map_or(Headers::new(bth), |(headers, _)| headers);
        let start = outer.len();
        let mut bytes = vec![0; start + headers.len() + payload.len() + MAX_PAD + ICRC_LEN];
        bytes[start + headers.len()..][..payload.len()].copy_from_slice(payload);
        let len = headers.emit_around(&mut bytes[start..], payload.len());
        bytes.truncate(start + len);
        seal(outer, IDENTIFICATION, &mut bytes, len, UdpChecksum::Zero)?;
        Ok(Self {
            bytes,
            ip_at: outer.ip_offset(),
            udp_at: outer.udp_offset(),
            is_ipv4: outer.source.is_ipv4(),
            name: opcode.name().to_owned(),
            icrc_error: 0,
            keeps_icrc: false,
            keeps_checksum: false,
            series: Vec::new(),
        })
    }

    /// Returns a captured packet in a frame of its own, also one of a train. What is sent later has the
    /// ICRC right if it was right in the capture, and wrong by the same bits if it was wrong. The UDP
    /// checksum becomes 0. A packet that was captured without an Ethernet header gets one of zeros.
    ///
    /// # Errors
    /// [`DraftError::NotRoce`], [`DraftError::Cut`].
    pub fn of_packet(packet: &Packet<'_>) -> Result<Self, DraftError> {
        let frame = packet.frame;
        let roce = packet.roce().filter(|roce| roce.version == RoceVersion::V2);
        let roce = roce.ok_or(DraftError::NotRoce { frame: frame.number })?;
        let cut = DraftError::Cut { frame: frame.number };
        let offsets = roce.offsets;
        let part = |from: usize, to: usize| frame.bytes.get(from..to).ok_or(cut.clone());
        let is_ipv4 = roce.source.is_ipv4();
        let outer = part(offsets.ip, offsets.udp + UDP_LEN)?;
        let segment = part(offsets.bth, offsets.end)?;
        let mut bytes = match frame.link {
            LinkType::Ethernet => part(0, offsets.ip)?.to_vec(),
            _ => {
                let mut header = vec![0; 12];
                header.extend(if is_ipv4 { [0x08, 0x00] } else { [0x86, 0xdd] });
                header
            }
        };
        let ip_at = bytes.len();
        let udp_at = ip_at + offsets.udp - offsets.ip;
        bytes.extend_from_slice(outer);
        bytes.extend_from_slice(segment);
        let (icrc_error, keeps_icrc) = match roce.icrc {
            Icrc::Right => (0, false),
            Icrc::Wrong { carried, expected } => (carried ^ expected, false),
            Icrc::Unchecked(IcrcSkipped::Truncated) => return Err(cut),
            Icrc::Unchecked(_) => (0, true),
        };
        let name = roce.known_opcode().map_or("a packet of an unknown opcode", KnownOpcode::name);
        let mut draft = Self {
            bytes,
            ip_at,
            udp_at,
            is_ipv4,
            name: name.to_owned(),
            icrc_error,
            keeps_icrc,
            keeps_checksum: false,
            series: Vec::new(),
        };
        draft.write_lengths(roce.train.map_or(0, |train| train.index));
        Ok(draft)
    }

    /// Sets fields, in this order; those of a series begin with the value that the packet then has. Call
    /// it once. IPv4 checksum and ICRC are written by [`finish`](Self::finish), unless they are set here.
    ///
    /// A field is found in the packet as it was before, so a change of the EtherType or of the opcode
    /// moves nothing. Only the destination queue pair and fields of management datagrams may add
    /// layers: `qp=1`, `mad.class=7` and `mad.attribute=0x10` make the fields `cm_req.…` known.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn change(&mut self, changes: &[Change]) -> Result<(), ChangeError> {
        let places = self.places(changes)?;
        let missing = |change: &Change| ChangeError::NoSuchField {
            packet: self.name.clone(),
            field: change.field().name(),
        };
        let found = changes.iter().zip(places);
        let found =
            found.map(|(change, place)| Ok((change, place.ok_or_else(|| missing(change))?)));
        let found = found.collect::<Result<Vec<_>, ChangeError>>()?;
        self.write(found)
    }

    /// As [`change`](Self::change), but leaves out the fields that the packet does not have.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn change_known(&mut self, changes: &[Change]) -> Result<(), ChangeError> {
        let places = self.places(changes)?;
        let known = changes.iter().zip(places);
        self.write(known.filter_map(|(change, place)| Some((change, place?))).collect())
    }

    /// Returns where the packet has the fields.
    fn places(&self, changes: &[Change]) -> Result<Vec<Option<FieldPlace>>, ChangeError> {
        let mut places = vec![None; changes.len()];
        let mut trial = self.clone();
        // Each round but the last finds another field.
        for _ in 0..=changes.len() {
            let found = trial.read(|packet| {
                let fields = PacketFields::new(packet);
                changes.iter().map(|change| fields.place(change.field())).collect::<Vec<_>>()
            });
            let mut is_new = false;
            for ((change, place), found) in changes.iter().zip(&mut places).zip(found) {
                let Some(found) = found.filter(|_| place.is_none()) else { continue };
                if let Some(value) = change.value().filter(|_| change.adds_layers()) {
                    found.write(&mut trial.bytes, value)?;
                }
                *place = Some(found);
                is_new = true;
            }
            if !is_new || places.iter().all(Option::is_some) {
                break;
            }
            trial.finish();
        }
        Ok(places)
    }

    fn write(&mut self, found: Vec<(&Change, FieldPlace)>) -> Result<(), ChangeError> {
        for (change, place) in &found {
            if let Some(value) = change.value() {
                place.write(&mut self.bytes, value)?;
            }
            self.keeps_icrc |= change.field().name() == "icrc.icrc";
            self.keeps_checksum |= change.field().name() == "ipv4.checksum";
        }
        for (change, place) in found {
            self.series.extend(change.series(&place, &self.bytes)?);
        }
        Ok(())
    }

    /// Sets the MAC addresses.
    pub fn set_macs(&mut self, source: MacAddr, destination: MacAddr) {
        self.bytes[..6].copy_from_slice(&destination.0);
        self.bytes[6..12].copy_from_slice(&source.0);
    }

    /// Sets the addresses of the IP header.
    ///
    /// # Errors
    /// [`DraftError::OtherVersion`] if the packet is one of the other IP version.
    pub fn set_addresses(&mut self, source: IpAddr, destination: IpAddr) -> Result<(), DraftError> {
        let mut put = |at: usize, address: IpAddr| match (self.is_ipv4, address) {
            (true, IpAddr::V4(address)) => {
                self.bytes[self.ip_at + 12 + 4 * at..][..4].copy_from_slice(&address.octets());
                Ok(())
            }
            (false, IpAddr::V6(address)) => {
                self.bytes[self.ip_at + 8 + 16 * at..][..16].copy_from_slice(&address.octets());
                Ok(())
            }
            _ => Err(DraftError::OtherVersion { address }),
        };
        put(1, destination)?;
        put(0, source)
    }

    /// Returns the destination address of the IP header.
    pub fn destination(&self) -> IpAddr {
        let ip = &self.bytes[self.ip_at..];
        match self.is_ipv4 {
            true => ip[16..].first_chunk::<4>().copied().unwrap_or_default().into(),
            false => ip[24..].first_chunk::<16>().copied().unwrap_or_default().into(),
        }
    }

    /// Makes the ICRC wrong.
    pub fn spoil_icrc(&mut self) {
        self.icrc_error = u32::MAX;
    }

    /// Raises the fields of series, for the next packet.
    ///
    /// # Errors
    /// None that [`change`](Self::change) has not found.
    pub fn advance(&mut self) -> Result<(), ChangeError> {
        self.series.iter().try_for_each(|series| series.advance(&mut self.bytes))
    }

    /// Writes the IPv4 checksum and the ICRC.
    pub fn finish(&mut self) {
        if self.is_ipv4 && !self.keeps_checksum {
            let header = &mut self.bytes[self.ip_at..self.udp_at];
            header[10..12].fill(0);
            let sum = Sum16BitWords::new().add_slice(header).ones_complement();
            header[10..12].copy_from_slice(&sum.to_ne_bytes());
        }
        if self.keeps_icrc {
            return;
        }
        let icrc_at = self.bytes.len() - ICRC_LEN;
        let ip = &self.bytes[self.ip_at..self.udp_at];
        let identification = u16::from_be_bytes([ip[4], ip[5]]);
        let udp = self.bytes[self.udp_at..].first_chunk();
        let packet = &self.bytes[self.udp_at + UDP_LEN..icrc_at];
        let right = udp.and_then(|udp| expected_icrc(ip, udp, identification, packet));
        if let Some(right) = right {
            let carried = right ^ self.icrc_error;
            self.bytes[icrc_at..].copy_from_slice(&carried.to_le_bytes());
        }
    }

    /// Returns the bytes of the frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the frame as one that was captured.
    pub fn frame(&self) -> RawFrame<'_> {
        RawFrame::ethernet(1, &self.bytes)
    }

    /// Calls a function with the packet, and returns its result.
    pub(crate) fn read<T>(&self, mut look: impl FnMut(&Packet<'_>) -> T) -> T
    where
        T: Default,
    {
        let mut found = None;
        let options = Options { follow: false, ..Options::default() };
        Dissector::new(options).handle_frame(self.frame(), |packet| {
            found.get_or_insert_with(|| look(packet));
        });
        found.unwrap_or_default()
    }

    /// Returns the bytes for a change by a rewriting.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Writes the lengths of a frame of one packet, the identification of the train's packet with this
    /// index, and no UDP checksum.
    fn write_lengths(&mut self, index: u16) {
        let len = self.bytes.len();
        let ip = &mut self.bytes[self.ip_at..];
        let put = |place: &mut [u8], value: usize| {
            place.copy_from_slice(&u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes());
        };
        match self.is_ipv4 {
            true => {
                put(&mut ip[2..4], len - self.ip_at);
                let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index);
                ip[4..6].copy_from_slice(&identification.to_be_bytes());
            }
            false => put(&mut ip[4..6], len - self.ip_at - IPV6_LEN),
        }
        let udp = &mut self.bytes[self.udp_at..];
        put(&mut udp[4..6], len - self.udp_at);
        udp[6..8].fill(0);
    }
}

const IDENTIFICATION: u16 = 1;
const UDP_LEN: usize = 8;
const IPV6_LEN: usize = 40;
const MAX_PAD: usize = 3;
