//! The packets of the raw programs: those of a RoCEv2 WRITE in its middle, or those that are a
//! whole one, over IPv4.

use crc32fast::Hasher;

use super::crc_tables::{CrcTables, FixedPart};

/// Bytes from the Ethernet header to the UDP header.
pub(crate) const OUTER_LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
/// Bytes of a BTH.
pub(crate) const BTH_LEN: usize = 12;
/// Bytes of an ICRC.
pub(crate) const ICRC_LEN: usize = 4;
/// UDP payload bytes of a packet that are not payload of the message.
pub(crate) const PACKET_OVERHEAD: usize = BTH_LEN + ICRC_LEN;
/// IP and UDP header: what counts against the MTU besides.
pub(crate) const IP_UDP_LEN: usize = IPV4_LEN + UDP_LEN;
/// RoCEv2's UDP port.
pub(crate) const ROCE_PORT: u16 = 4791;

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
/// Bytes of a RETH, which a packet that is a whole WRITE has behind its BTH.
pub(crate) const RETH_LEN: usize = 16;
/// `RC RDMA WRITE Middle`.
const WRITE_MIDDLE: u8 = 0x07;
/// `RC RDMA WRITE Only`.
const WRITE_ONLY: u8 = 0x0a;
const KEY: u32 = 0x4567_89ab;
/// The destination queue pair of all packets.
const QPN: u32 = 0x123;

/// Source and destination of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) source_mac: [u8; 6],
    pub(crate) destination_mac: [u8; 6],
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
}

impl Addresses {
    /// The headers in front of `udp_payload` bytes, sent with this IPv4 identification.
    ///
    /// The UDP checksum holds the sum of the pseudo header; segmentation completes it.
    pub(crate) fn outer(&self, identification: u16, udp_payload: usize) -> [u8; OUTER_LEN] {
        let mut bytes = [0; OUTER_LEN];
        bytes[..6].copy_from_slice(&self.destination_mac);
        bytes[6..12].copy_from_slice(&self.source_mac);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        let udp_len = (UDP_LEN + udp_payload) as u16;
        let ip = &mut bytes[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(IPV4_LEN as u16 + udp_len).to_be_bytes());
        ip[4..6].copy_from_slice(&identification.to_be_bytes());
        ip[6] = 0x40; // do not fragment
        ip[8] = 64;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&self.source);
        ip[16..20].copy_from_slice(&self.destination);
        let checksum = !ones_sum(ip, 0);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        let pseudo = ones_sum(&ip[12..20], u32::from(UDP) + u32::from(udp_len));
        let udp = &mut bytes[ETHERNET_LEN + IPV4_LEN..];
        udp[..2].copy_from_slice(&SOURCE_PORT.to_be_bytes());
        udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        udp[6..8].copy_from_slice(&pseudo.to_be_bytes());
        bytes
    }
}

/// A BTH with this packet sequence number, of which 24 bits count.
pub(crate) fn bth(psn: u32) -> [u8; BTH_LEN] {
    bth_of(WRITE_MIDDLE, psn)
}

/// The BTH and RETH of a packet that is a whole WRITE of `len` bytes to `address`.
pub(crate) fn bth_and_reth(psn: u32, address: u64, len: u32) -> [u8; BTH_LEN + RETH_LEN] {
    let mut bytes = [0; BTH_LEN + RETH_LEN];
    bytes[..BTH_LEN].copy_from_slice(&bth_of(WRITE_ONLY, psn));
    bytes[BTH_LEN..BTH_LEN + 8].copy_from_slice(&address.to_be_bytes());
    bytes[BTH_LEN + 8..BTH_LEN + 12].copy_from_slice(&KEY.to_be_bytes());
    bytes[BTH_LEN + 12..].copy_from_slice(&len.to_be_bytes());
    bytes
}

fn bth_of(opcode: u8, psn: u32) -> [u8; BTH_LEN] {
    let [_, q0, q1, q2] = QPN.to_be_bytes();
    let [_, p0, p1, p2] = psn.to_be_bytes();
    [opcode, 0, 0xff, 0xff, 0, q0, q1, q2, 0, p0, p1, p2]
}

/// The packet sequence number of the BTH at the start of a packet.
pub(crate) fn psn(packet: &[u8]) -> Option<u32> {
    let &[_, _, _, _, _, _, _, _, _, p0, p1, p2] = packet.first_chunk::<BTH_LEN>()?;
    Some(u32::from_be_bytes([0, p0, p1, p2]))
}

/// What an ICRC covers of the headers of a frame's packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered<'t> {
    head: [u8; COVERED_LEN],
    identification: u16,
    tables: Option<(&'t CrcTables, FixedPart)>,
}

/// Bytes of the headers that an ICRC covers.
pub(crate) const COVERED_LEN: usize = IPV4_LEN + UDP_LEN + BTH_LEN;

impl<'t> Covered<'t> {
    /// Of the headers of a frame, for packets of `packet_len` UDP payload bytes.
    pub(crate) fn new(
        outer: &[u8; OUTER_LEN],
        packet_len: usize,
        tables: Option<&'t CrcTables>,
    ) -> Self {
        let mut head = [0; COVERED_LEN];
        head[..IPV4_LEN + UDP_LEN].copy_from_slice(&outer[ETHERNET_LEN..]);
        let identification = u16::from_be_bytes([head[4], head[5]]);
        let udp_len = (UDP_LEN + packet_len) as u16;
        head[1] = 0xff; // TOS
        head[2..4].copy_from_slice(&(IPV4_LEN as u16 + udp_len).to_be_bytes());
        head[8] = 0xff; // TTL
        head[10..12].fill(0xff); // header checksum
        head[IPV4_LEN + 4..IPV4_LEN + 6].copy_from_slice(&udp_len.to_be_bytes());
        head[IPV4_LEN + 6..IPV4_LEN + 8].fill(0xff); // UDP checksum
        let tables = tables.map(|tables| (tables, CrcTables::fixed(&head)));
        Self { head, identification, tables }
    }

    /// The ICRC of the frame's packet with this number, given its BTH and what is between that and
    /// the ICRC.
    #[inline]
    pub(crate) fn icrc(&mut self, number: usize, bth: &[u8; BTH_LEN], payload: &[u8]) -> u32 {
        let identification = self.identification.wrapping_add(number as u16);
        if let Some((tables, fixed)) = self.tables {
            let head = tables.crc(fixed, identification, bth);
            let mut crc = Hasher::new_with_initial(head);
            crc.update(payload);
            return crc.finalize();
        }
        self.head[4..6].copy_from_slice(&identification.to_be_bytes());
        self.head[COVERED_LEN - BTH_LEN..].copy_from_slice(bth);
        self.head[COVERED_LEN - BTH_LEN + 4] = 0xff; // FECN, BECN and six reserved bits
        let mut crc = Hasher::new_with_initial(AFTER_EIGHT_ONES);
        crc.update(&self.head);
        crc.update(payload);
        crc.finalize()
    }
}

/// Where a train's virtio header starts in its buffer: the payload behind it and the headers of 54 bytes is
/// then aligned to 64.
pub(crate) const TRAIN_START: usize = 128 - super::sys::VIRTIO_LEN - OUTER_LEN - BTH_LEN;
/// Bytes of a train's buffer.
pub(crate) const TRAIN_BUFFER_LEN: usize = 66 << 10;

/// The virtio header of a frame: a train of packets of `segment_len` UDP payload bytes, or (as
/// `None`) a single packet.
pub(crate) fn virtio(segment_len: Option<usize>) -> [u8; super::sys::VIRTIO_LEN] {
    let Some(segment_len) = segment_len else { return [0; super::sys::VIRTIO_LEN] };
    let mut header = [0; super::sys::VIRTIO_LEN];
    header[..2].copy_from_slice(&[NEEDS_CHECKSUM, UDP_SEGMENTATION]);
    let fields = [OUTER_LEN as u16, segment_len as u16, (ETHERNET_LEN + IPV4_LEN) as u16, 6];
    for (to, from) in header[2..].chunks_exact_mut(2).zip(fields) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    header
}

/// A classic BPF program that lets in UDP to RoCE's port over IPv4, for this host, to our queue
/// pair: as many questions as a RoCE device asks.
pub(crate) fn filter() -> [libc::sock_filter; 14] {
    let op = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    [
        op(LD_WORD, PACKET_TYPE, 0, 0),
        op(JEQ, OTHER_HOST, 11, 0),
        op(LD_HALF, 12, 0, 0),
        op(JEQ, 0x0800, 0, 9),
        op(LD_BYTE, 14, 0, 0),
        op(JEQ, 0x45, 0, 7),
        op(LD_BYTE, 23, 0, 0),
        op(JEQ, UDP.into(), 0, 5),
        op(LD_HALF, 36, 0, 0),
        op(JEQ, ROCE_PORT.into(), 0, 3),
        op(LD_WORD, OUTER_LEN as u32 + 4, 0, 0),
        op(JEQ, QPN, 0, 1),
        op(RET, u32::MAX, 0, 0),
        op(RET, 0, 0, 0),
    ]
}

/// The ones' complement sum of big-endian halves, from `initial` on.
fn ones_sum(bytes: &[u8], initial: u32) -> u16 {
    let halves =
        bytes.chunks_exact(2).map(|half| u32::from(u16::from_be_bytes([half[0], half[1]])));
    let sum = initial + halves.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

const SOURCE_PORT: u16 = 0xc123;
/// The state of the CRC behind the eight bytes of ones that it starts with.
pub(crate) const AFTER_EIGHT_ONES: u32 = 0x2144_df1c;
const NEEDS_CHECKSUM: u8 = 1;
const UDP_SEGMENTATION: u8 = 5;

const LD_WORD: u16 = 0x20;
const LD_HALF: u16 = 0x28;
const LD_BYTE: u16 = 0x30;
const JEQ: u16 = 0x15;
const RET: u16 = 0x06;
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const OTHER_HOST: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: Addresses = Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
    };

    #[test]
    fn the_icrc_of_each_packet_of_a_train_is_what_the_wire_format_says() {
        let payload: Vec<u8> = (0..1024).map(|i| i as u8).collect();
        let packet_len = payload.len() + PACKET_OVERHEAD;
        let outer = ADDRESSES.outer(0xfffe, 3 * packet_len);
        let tables = CrcTables::new();
        let mut covered = Covered::new(&outer, packet_len, None);
        let mut looked_up = Covered::new(&outer, packet_len, Some(&tables));
        for number in 0..3 {
            let bth = bth(77 + number as u32);
            let identification = 0xfffe_u16.wrapping_add(number as u16);
            let packet = [&bth[..], &payload].concat();
            let udp = outer[34..42].try_into().unwrap();
            let expected = roce_wire::expected_icrc(&outer[14..34], udp, identification, &packet);
            assert_eq!(Some(covered.icrc(number, &bth, &payload)), expected);
            assert_eq!(Some(looked_up.icrc(number, &bth, &payload)), expected);
        }
    }

    #[test]
    fn a_packet_that_is_a_whole_write_says_where_it_goes_and_its_icrc_covers_that() {
        let head = bth_and_reth(5, 0x1_0000_0008, 8);
        let packet = [&head[..], &[7; 8]].concat();
        assert_eq!((packet[0], psn(&packet)), (0x0a, Some(5)));
        assert_eq!(packet[12..20], 0x1_0000_0008_u64.to_be_bytes());
        assert_eq!(packet[24..28], 8_u32.to_be_bytes());
        let outer = ADDRESSES.outer(9, packet.len() + ICRC_LEN);
        let udp = outer[34..42].try_into().unwrap();
        let expected = roce_wire::expected_icrc(&outer[14..34], udp, 9, &packet);
        let tables = CrcTables::new();
        let (bth, rest) = packet.split_first_chunk().unwrap();
        for tables in [None, Some(&tables)] {
            let mut covered = Covered::new(&outer, packet.len() + ICRC_LEN, tables);
            assert_eq!(Some(covered.icrc(0, bth, rest)), expected);
        }
    }

    #[test]
    fn the_headers_are_understood_by_the_parser() {
        let mut frame = ADDRESSES.outer(7, BTH_LEN + 8 + ICRC_LEN).to_vec();
        frame.extend_from_slice(&bth(5));
        frame.extend_from_slice(&[0; 8 + ICRC_LEN]);
        let sum = ones_sum(&frame[14..34], 0);
        assert_eq!(sum, 0xffff, "a right header sums to ones");
        assert_eq!(psn(&frame[OUTER_LEN..]), Some(5));
        assert_eq!(psn(&frame[OUTER_LEN..][..11]), None);
    }
}
