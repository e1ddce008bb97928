//! Invariant CRC: covers the fields of a packet that no router may change.
//!
//! A CRC-32 over eight bytes of ones (in place of a header that Ethernet does not have), the IP
//! header, the UDP header, and the packet from the BTH to the last pad byte. Fields that a router
//! may change count as ones: TOS, TTL and header checksum of IPv4, traffic class, flow label and
//! hop limit of IPv6, the UDP checksum, and byte 4 of the BTH. The IPv4 identification and DF are
//! covered. It is sent least significant byte first.

use crc32fast::Hasher;

use crate::{BTH_LEN, GRH_LEN, Layer, LenError, PayloadCrc, WireError};

/// Splits the ICRC off the end of a packet.
//= rule icrc-byte-order: rxe_icrc.c: rxe_icrc_generate
//# The ICRC is sent least significant byte first.
#[inline]
pub(crate) fn split_icrc(bytes: &[u8]) -> Result<(&[u8], u32), WireError> {
    match bytes.split_last_chunk() {
        Some((packet, icrc)) => Ok((packet, u32::from_le_bytes(*icrc))),
        None => Err(LenError::new(Layer::Icrc, ICRC_LEN, bytes.len()).into()),
    }
}

/// The IP and UDP headers that the ICRC covers. The packets of a train differ only in their lengths
/// and IPv4 identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcrcPseudoHeader {
    bytes: [u8; IPV6_LEN + UDP_LEN],
    ip_len: usize,
}

impl IcrcPseudoHeader {
    //= rule icrc-ipv4: RoCEv2, clause not known; rxe_icrc.c: rxe_icrc_hdr
    //# TOS, TTL and header checksum of IPv4 count as ones in the ICRC.
    #[inline]
    pub(crate) fn ipv4(ip: &[u8; IPV4_LEN], udp: &[u8; UDP_LEN]) -> Self {
        let mut ip = *ip;
        ip[1] = 0xff; // TOS
        ip[8] = 0xff; // TTL
        ip[10..12].fill(0xff); // header checksum
        Self::new(&ip, udp)
    }

    pub(crate) fn ipv6(ip: &[u8; IPV6_LEN], udp: &[u8; UDP_LEN]) -> Self {
        Self::new(&masked_ipv6(ip), udp)
    }

    #[inline]
    fn new(ip: &[u8], udp: &[u8; UDP_LEN]) -> Self {
        let ip_len = ip.len();
        let mut bytes = [0; IPV6_LEN + UDP_LEN];
        bytes[..ip_len].copy_from_slice(ip);
        bytes[ip_len..ip_len + UDP_LEN].copy_from_slice(udp);
        //= rule icrc-udp-checksum: RoCEv2, clause not known; rxe_icrc.c: rxe_icrc_hdr
        //# The UDP checksum counts as ones in the ICRC.
        bytes[ip_len + 6..ip_len + UDP_LEN].fill(0xff); // UDP checksum
        Self { bytes, ip_len }
    }

    /// Returns the headers with another UDP source port.
    pub(crate) fn with_source_port(mut self, port: u16) -> Self {
        self.bytes[self.ip_len..self.ip_len + 2].copy_from_slice(&port.to_be_bytes());
        self
    }

    /// Returns the ICRC of `packet`, from its BTH to its last pad byte, sent as an IP packet of its
    /// own. `identification` is that of an IPv4 header, and ignored for IPv6.
    ///
    /// `packet` has at least a BTH and fits an IP packet.
    pub(crate) fn icrc(&self, identification: u16, packet: &[u8]) -> u32 {
        if self.ip_len == IPV4_LEN && packet.len() <= MAX_SHORT {
            return self.icrc_of_short(identification, packet);
        }
        let head = self.with(identification, packet.len());
        // With lengths known to the compiler the copies become a few moves.
        match self.ip_len {
            IPV4_LEN => finish(&head[..IPV4_LEN + UDP_LEN], packet),
            _ => finish(&head, packet),
        }
    }

    /// As [`icrc`](Self::icrc) for IPv4 and at most [`MAX_SHORT`] bytes, gathered in one block:
    /// half as many instructions. [`finish`] describes the block.
    fn icrc_of_short(&self, identification: u16, packet: &[u8]) -> u32 {
        let mut block = [0; BLOCK];
        let (front, place) = block.split_at_mut(BLOCK - packet.len());
        place.copy_from_slice(packet);
        //= also icrc-bth
        place[4] = 0xff; // FECN, BECN and six reserved bits
        if let Some(head) = front.last_chunk_mut::<{ ONES + IPV4_LEN + UDP_LEN }>() {
            head[..ONES].fill(0xff);
            let head = &mut head[ONES..];
            head.copy_from_slice(&self.bytes[..IPV4_LEN + UDP_LEN]);
            let udp_len = (UDP_LEN + packet.len() + ICRC_LEN) as u16;
            let total_len = IPV4_LEN as u16 + udp_len;
            head[2..4].copy_from_slice(&total_len.to_be_bytes());
            head[4..6].copy_from_slice(&identification.to_be_bytes());
            head[IPV4_LEN + 4..IPV4_LEN + 6].copy_from_slice(&udp_len.to_be_bytes());
        }
        let mut crc = Hasher::new_with_initial(ZERO_REGISTER);
        crc.update(&block);
        crc.finalize()
    }

    /// As [`icrc`](Self::icrc), of a packet of `headers` and a payload with a known CRC.
    pub(crate) fn icrc_around(
        &self,
        identification: u16,
        headers: &[u8],
        payload: PayloadCrc,
    ) -> u32 {
        let head = self.with(identification, headers.len() + payload.mtu().bytes());
        payload.after(finish(&head[..self.ip_len + UDP_LEN], headers))
    }

    /// Returns the headers of a packet of `packet_len` bytes from its BTH to its last pad byte.
    #[inline(always)]
    fn with(&self, identification: u16, packet_len: usize) -> [u8; IPV6_LEN + UDP_LEN] {
        let udp_len = (UDP_LEN + packet_len + ICRC_LEN) as u16;
        let udp = self.ip_len;
        let mut head = [0; IPV6_LEN + UDP_LEN];
        head.copy_from_slice(&self.bytes);
        if self.ip_len == IPV4_LEN {
            let total_len = IPV4_LEN as u16 + udp_len;
            head[2..4].copy_from_slice(&total_len.to_be_bytes());
            head[4..6].copy_from_slice(&identification.to_be_bytes());
        } else {
            head[4..6].copy_from_slice(&udp_len.to_be_bytes());
        }
        head[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        head
    }
}

/// The common start of the ICRCs of equally long packets of a train.
///
/// Their headers differ only in the IPv4 identification and the BTH, and a CRC is linear: the
/// contribution of a byte depends only on its value and its offset. So the CRC of the headers is
/// that of headers with zeros there, plus one table entry for each byte. That takes a third of the
/// time of computing it anew, which is a tenth of a sender's time for a packet of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrainStart {
    packet_len: usize,
    has_identification: bool,
    /// CRC of the headers with zeros where they change.
    crc: u32,
}

impl TrainStart {
    /// Creates it for packets of `packet_len` bytes from their BTH to their last pad byte.
    pub(crate) fn new(covered: &IcrcPseudoHeader, packet_len: usize) -> Self {
        let bytes = covered.with(0, packet_len);
        let mut crc = Hasher::new();
        crc.update(&[0xff; 8]);
        crc.update(&bytes[..covered.ip_len + UDP_LEN]);
        crc.update(&[0; BTH_LEN]);
        let has_identification = covered.ip_len == IPV4_LEN;
        Self { packet_len, has_identification, crc: crc.finalize() }
    }

    /// As [`IcrcPseudoHeader::icrc`]; `None` for a packet of another length.
    #[inline]
    pub(crate) fn icrc(&self, identification: u16, packet: &[u8]) -> Option<u32> {
        if packet.len() != self.packet_len {
            return None;
        }
        let (bth, rest) = packet.split_first_chunk::<BTH_LEN>()?;
        let mut crc = Hasher::new_with_initial(self.crc_of_headers(identification, bth));
        crc.update(rest);
        Some(crc.finalize())
    }

    /// Returns the CRC up to the end of the BTH.
    #[inline]
    pub(crate) fn crc_of_headers(&self, identification: u16, bth: &[u8; BTH_LEN]) -> u32 {
        let mut crc = self.crc;
        if self.has_identification {
            let [high, low] = identification.to_be_bytes();
            crc ^= IDENTIFICATION[0][usize::from(high)] ^ IDENTIFICATION[1][usize::from(low)];
        }
        for (place, byte) in bth.iter().enumerate() {
            //= also icrc-bth
            let byte = if place == 4 { 0xff } else { *byte }; // FECN, BECN, reserved bits
            crc ^= BTH[place][usize::from(byte)];
        }
        crc
    }

    /// Returns the length of the packets, from their BTH to their last pad byte.
    pub(crate) fn packet_len(&self) -> usize {
        self.packet_len
    }
}

/// Returns the contribution of each value of a byte to a CRC if `more` bytes follow.
const fn contributions(more: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let mut crc = value as u32;
        let mut bits = 8 * (more + 1);
        while bits > 0 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bits -= 1;
        }
        table[value] = crc;
        value += 1;
    }
    table
}

/// Contributions of the bytes of a BTH.
static BTH: [[u32; 256]; BTH_LEN] = {
    let mut tables = [[0; 256]; BTH_LEN];
    let mut place = 0;
    while place < BTH_LEN {
        tables[place] = contributions(BTH_LEN - 1 - place);
        place += 1;
    }
    tables
};

/// Contributions of the identification, bytes 4 and 5 of an IPv4 header.
static IDENTIFICATION: [[u32; 256]; 2] = [
    contributions(IPV4_LEN + UDP_LEN + BTH_LEN - 5),
    contributions(IPV4_LEN + UDP_LEN + BTH_LEN - 6),
];

/// Returns the right ICRC of a RoCEv2 packet.
///
/// `ip` is the IP header without options or extension headers (20 or 40 bytes), `udp` the UDP
/// header; their lengths are replaced by those of `packet`, which reaches from its BTH to its last
/// pad byte. `identification` replaces that of an IPv4 header, as each packet of a captured train
/// had its own; it is ignored for IPv6.
///
/// `None` if no IP header has that length, or if `packet` is shorter than a BTH or too long.
///
/// ```
/// use roce_wire::*;
/// let outer = OuterHeaders::new("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap());
/// let mut frame = [0u8; 62];
/// let bth = Bth::new(opcode::RC_ACKNOWLEDGE, Qpn::new(0x12).unwrap(), Psn::ZERO);
/// Headers { aeth: Some(Aeth::from_bytes(&[0x1f, 0, 0, 1])), ..Headers::new(bth) }
///     .emit_around(&mut frame[42..], 0);
/// seal(&outer, 7, &mut frame, 20, UdpChecksum::Zero).unwrap();
/// let udp = frame[34..42].try_into().unwrap();
/// let expected = expected_icrc(&frame[14..34], udp, 7, &frame[42..58]).unwrap();
/// assert_eq!(expected.to_le_bytes(), frame[58..]);
/// ```
pub fn expected_icrc(
    ip: &[u8],
    udp: &[u8; UDP_LEN],
    identification: u16,
    packet: &[u8],
) -> Option<u32> {
    let fits = (BTH_LEN..=MAX_PACKET).contains(&packet.len());
    let covered = match ip.len() {
        IPV4_LEN => IcrcPseudoHeader::ipv4(ip.first_chunk()?, udp),
        IPV6_LEN => IcrcPseudoHeader::ipv6(ip.first_chunk()?, udp),
        _ => return None,
    };
    fits.then(|| covered.icrc(identification, packet))
}

/// Returns the right ICRC of a RoCEv1 packet; `packet` as in [`expected_icrc`]. `None` without a
/// whole BTH.
pub fn expected_icrc_v1(grh: &[u8; GRH_LEN], packet: &[u8]) -> Option<u32> {
    (packet.len() >= BTH_LEN).then(|| icrc_behind_grh(grh, packet))
}

/// The ICRC of a RoCEv1 packet, which covers the GRH instead of IP and UDP header.
//= rule icrc-grh: InfiniBand 7.8.1
//# In RoCEv1 the ICRC covers the GRH in place of the IP and UDP headers.
pub(crate) fn icrc_behind_grh(grh: &[u8; GRH_LEN], packet: &[u8]) -> u32 {
    finish(&masked_ipv6(grh), packet)
}

/// Masks an IPv6 header, or a GRH, which has the same layout.
//= rule icrc-ipv6: RoCEv2, clause not known; rxe_icrc.c: rxe_icrc_hdr
//# Traffic class, flow label and hop limit of IPv6 count as ones in the ICRC.
fn masked_ipv6(ip: &[u8; IPV6_LEN]) -> [u8; IPV6_LEN] {
    let mut ip = *ip;
    ip[0] |= 0x0f; // traffic class, upper half
    ip[1..4].fill(0xff); // traffic class, lower half, and flow label
    ip[7] = 0xff; // hop limit
    ip
}

/// The CRC of eight bytes of ones, the covered headers, and the packet with byte 4 of its BTH as
/// ones.
///
/// The fast path of the CRC needs at least 128 bytes and uses tables for the rest after the last
/// multiple of 16, which for short headers and short packets took longer than the payload. So the
/// headers are gathered at the *end* of a block of 128 bytes, with as much of the payload as leaves
/// a multiple of 16. Zeros before them have no effect while the register is zero, which it is after
/// the first four of the eight bytes of ones, where the computation begins.
//= rule icrc-crc: InfiniBand 7.8.1; RoCEv2, clause not known; rxe_icrc.c: rxe_icrc_hdr
//# The ICRC is the CRC-32 of Ethernet over eight bytes of ones in place of a local route header,
//# the IP and UDP headers, and the packet from its BTH to its last pad byte.
#[inline(always)]
fn finish(covered: &[u8], packet: &[u8]) -> u32 {
    let mut block = [0; BLOCK];
    let (bth, rest) = packet.split_at(BTH_LEN);
    let room = BLOCK - ONES - covered.len() - BTH_LEN;
    let near = match rest.len().checked_sub(room) {
        Some(beyond) => room - (16 - beyond % 16) % 16,
        None => rest.len(),
    };
    let (near, far) = rest.split_at(near);
    let at = room - near.len();
    block[at..at + ONES].fill(0xff);
    let at = at + ONES;
    block[at..at + covered.len()].copy_from_slice(covered);
    let at = at + covered.len();
    block[at..at + BTH_LEN].copy_from_slice(bth);
    //= rule icrc-bth: InfiniBand 7.8.1; rxe_icrc.c: rxe_icrc_hdr
    //# FECN, BECN and the six reserved bits behind them count as ones in the ICRC.
    block[at + 4] = 0xff; // FECN, BECN and six reserved bits
    block[at + BTH_LEN..].copy_from_slice(near);
    let mut crc = Hasher::new_with_initial(ZERO_REGISTER);
    crc.update(&block);
    if !far.is_empty() {
        crc.update(far);
    }
    crc.finalize()
}

/// Number of the eight bytes of ones that [`finish`] includes.
const ONES: usize = 4;

/// Maximum length of a packet whose covered bytes fit into a block, over IPv4.
const MAX_SHORT: usize = BLOCK - ONES - IPV4_LEN - UDP_LEN;

/// Bytes of the first block.
const BLOCK: usize = 128;

/// What the CRC is when its register holds zero: the register is its complement.
const ZERO_REGISTER: u32 = u32::MAX;

/// Maximum bytes between UDP header and ICRC in an IPv4 packet.
pub(crate) const MAX_PACKET: usize = u16::MAX as usize - IPV4_LEN - UDP_LEN - ICRC_LEN;

/// Length of an ICRC on the wire, in bytes.
pub const ICRC_LEN: usize = 4;

pub(crate) const IPV4_LEN: usize = 20;
pub(crate) const IPV6_LEN: usize = 40;
pub(crate) const UDP_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_a_packet_have_no_icrc() {
        assert_eq!(expected_icrc(&[0; 20], &[0; 8], 0, &[0; 11]), None);
        assert_eq!(expected_icrc(&[0; 24], &[0; 8], 0, &[0; 12]), None);
        assert_eq!(expected_icrc(&[0; 20], &[0; 8], 0, &vec![0; 65_504]), None);
        assert!(expected_icrc(&[0; 20], &[0; 8], 0, &vec![0; 65_503]).is_some());
        assert_eq!(expected_icrc_v1(&[0; 40], &[0; 11]), None);
    }

    /// As [`finish`], over contiguous bytes.
    fn plainly(covered: &[u8], packet: &[u8]) -> u32 {
        let mut bytes = [&[0xff; 8], covered, packet].concat();
        bytes[8 + covered.len() + 4] = 0xff;
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
            })
        })
    }

    //= test icrc-bth
    #[test]
    fn the_icrc_of_a_packet_is_the_same_in_a_train_and_alone() {
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * i + 5 * i + 1) as u8).collect();
        let udp = bytes[50..].first_chunk().unwrap();
        let v4 = IcrcPseudoHeader::ipv4(bytes[60..].first_chunk().unwrap(), udp);
        let v6 = IcrcPseudoHeader::ipv6(bytes[90..].first_chunk().unwrap(), udp);
        for covered in [v4, v6] {
            for len in [12, 28, 40, 1036, 1052] {
                let start = TrainStart::new(&covered, len);
                for at in 0..500 {
                    let packet = &bytes[at..at + len];
                    let identification = (at * 1009) as u16;
                    let alone = covered.icrc(identification, packet);
                    assert_eq!(start.icrc(identification, packet), Some(alone), "{len} at {at}");
                }
                assert_eq!(start.icrc(0, &bytes[..len + 1]), None);
            }
        }
    }

    #[test]
    fn the_icrc_of_a_short_packet_is_the_crc_of_its_contiguous_bytes() {
        let bytes: Vec<u8> = (0..400u32).map(|i| (i * i + 11 * i + 1) as u8).collect();
        let udp = bytes[50..].first_chunk().unwrap();
        let v4 = IcrcPseudoHeader::ipv4(bytes[60..].first_chunk().unwrap(), udp);
        let v6 = IcrcPseudoHeader::ipv6(bytes[90..].first_chunk().unwrap(), udp);
        for covered in [v4, v6] {
            for len in BTH_LEN..2 * MAX_SHORT {
                let packet = &bytes[len..2 * len];
                let head = &covered.with(0xabcd, len)[..covered.ip_len + UDP_LEN];
                assert_eq!(covered.icrc(0xabcd, packet), plainly(head, packet), "{len} bytes");
            }
        }
    }

    //= test icrc-crc
    #[test]
    fn the_icrc_of_a_packet_of_any_length_is_the_crc_of_its_contiguous_bytes() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i + 7 * i + 3) as u8).collect();
        for covered in [IPV4_LEN + UDP_LEN, GRH_LEN, IPV6_LEN + UDP_LEN] {
            let covered = &bytes[100..100 + covered];
            for len in (BTH_LEN..400).chain([1036, 1040, 2060, 4108, 4111]) {
                let packet = &bytes[..len];
                assert_eq!(finish(covered, packet), plainly(covered, packet), "{len} bytes");
            }
        }
    }
}
