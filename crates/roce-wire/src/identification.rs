//! The IPv4 identification of a packet whose header was not kept, from its ICRC.

use crate::icrc::{ICRC_LEN, IPV4_LEN, IcrcPseudoHeader, UDP_LEN};
use crate::{BTH_LEN, OuterHeaders};

/// Finds the IPv4 identification with which the ICRC of a packet is right.
///
/// A UDP socket does not tell the identification of what it receives, and the ICRC covers it. A CRC is
/// linear: the difference between the ICRC that a packet carries and that with identification 0 depends
/// on nothing but the identification and the number of bytes behind it. Of 2^32 differences 2^16 belong
/// to an identification, each to one. So an ICRC that fits some identification protects 16 bits less
/// than one that fits a known identification: of damaged packets one in 65 536 passes.
///
/// The solver keeps a factor for packets of one length; another length costs about a microsecond.
///
/// ```
/// use roce_wire::*;
/// let outer = OuterHeaders::new("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap());
/// let mut frame = [0u8; 62];
/// let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(0x12).unwrap(), Psn::ZERO);
/// Headers::new(bth).emit_around(&mut frame[42..], 4);
/// seal(&outer, 0xabcd, &mut frame, 20, UdpChecksum::Zero).unwrap();
/// let (ip, udp) = (frame[14..34].try_into().unwrap(), frame[34..42].try_into().unwrap());
/// let mut solver = IdentificationSolver::default();
/// assert_eq!(solver.solve(ip, udp, &frame[42..]), Some(0xabcd));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentificationSolver {
    /// Bytes of the packets that the factor is for, from the BTH to the ICRC.
    segment_len: usize,
    /// Takes a difference of ICRCs back to the start of the identification.
    factor: u32,
}

impl IdentificationSolver {
    /// Returns the identification of the IPv4 packet `segment`, from its BTH to its ICRC; `None` if the
    /// ICRC fits none. `ip` and `udp` are its headers, of which identification and lengths do not count.
    ///
    /// Time O(length), in one pass; no allocation.
    pub fn solve(
        &mut self,
        ip: &[u8; IPV4_LEN],
        udp: &[u8; UDP_LEN],
        segment: &[u8],
    ) -> Option<u16> {
        self.solve_behind(&IcrcPseudoHeader::ipv4(ip, udp), segment)
    }

    /// Returns the identification of the packet that a UDP socket received from there as `datagram`: see
    /// [`Frame::of_datagram`](crate::Frame::of_datagram). `None` if the ICRC fits none, or over IPv6.
    ///
    /// Time O(length), no allocation.
    pub fn solve_datagram(&mut self, outer: &OuterHeaders, datagram: &[u8]) -> Option<u16> {
        let covered = outer.covered().ok().filter(|_| outer.source.is_ipv4())?;
        self.solve_behind(&covered, datagram)
    }

    fn solve_behind(&mut self, headers: &IcrcPseudoHeader, segment: &[u8]) -> Option<u16> {
        if !(BTH_LEN + ICRC_LEN..=MAX_SEGMENT).contains(&segment.len()) {
            return None;
        }
        let (packet, carried) = segment.split_last_chunk::<ICRC_LEN>()?;
        let with_zero = headers.icrc(0, packet);
        let difference = with_zero ^ u32::from_le_bytes(*carried);
        if difference == 0 {
            return Some(0);
        }
        if self.segment_len != segment.len() {
            let behind = IPV4_LEN - IDENTIFICATION_AT + UDP_LEN + packet.len();
            *self = Self { segment_len: segment.len(), factor: power_of_inverse_byte(behind) };
        }
        // What the register held before the identification, had it been in the register already: its
        // first byte is the low one there.
        let at_start = product(difference, self.factor);
        u16::try_from(at_start).ok().map(u16::swap_bytes)
    }
}

/// Offset of the identification in an IPv4 header.
const IDENTIFICATION_AT: usize = 4;
/// Maximum bytes from BTH to ICRC in an IPv4 packet.
const MAX_SEGMENT: usize = u16::MAX as usize - IPV4_LEN - UDP_LEN;

/// The polynomial of the CRC without its highest term; the highest bit stands for x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// Returns the product of two polynomials modulo that of the CRC.
fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for term in (0..32).rev() {
        if a >> term & 1 == 1 {
            sum ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    sum
}

/// Returns x^(-8 · `bytes`) modulo the polynomial.
fn power_of_inverse_byte(bytes: usize) -> u32 {
    let mut square = (0..8).fold(ONE, |power, _| {
        // Divided by x: a constant term borrows the polynomial.
        if power & ONE == 0 { power << 1 } else { (power ^ POLYNOMIAL) << 1 | 1 }
    });
    let (mut power, mut rest) = (ONE, bytes);
    while rest > 0 {
        if rest & 1 == 1 {
            power = product(power, square);
        }
        square = product(square, square);
        rest >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Bth, Headers, OuterHeaders, Psn, Qpn, UdpChecksum, opcode, seal};

    /// Returns a sealed packet of a SEND with this payload.
    fn packet(payload: &[u8], identification: u16) -> Vec<u8> {
        let outer = OuterHeaders::new([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
        let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(0x12).unwrap(), Psn::ZERO);
        let mut frame = vec![0; 42 + BTH_LEN + payload.len() + ICRC_LEN];
        let len = Headers::new(bth).emit_around(&mut frame[42..], payload.len());
        frame[42 + BTH_LEN..42 + BTH_LEN + payload.len()].copy_from_slice(payload);
        seal(&outer, identification, &mut frame, len, UdpChecksum::Zero).unwrap();
        frame
    }

    fn solve(solver: &mut IdentificationSolver, frame: &[u8]) -> Option<u16> {
        let mut ip: [u8; 20] = frame[14..34].try_into().unwrap();
        ip[4..6].fill(0);
        solver.solve(&ip, frame[34..42].try_into().unwrap(), &frame[42..])
    }

    proptest! {
        #[test]
        fn the_identification_of_a_packet_is_found(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4),
            identification in any::<u16>(),
        ) {
            let mut solver = IdentificationSolver::default();
            for payload in payloads {
                let whole = [&payload[..], &[0; 3][..(4 - payload.len() % 4) % 4]].concat();
                let frame = packet(&whole, identification);
                prop_assert_eq!(solve(&mut solver, &frame), Some(identification));
            }
        }
    }

    #[test]
    fn one_damaged_packet_in_65_536_fits_an_identification() {
        let (mut passed, mut solver, mut state) = (0, IdentificationSolver::default(), 1_u64);
        for _ in 0..1 << 20 {
            let mut frame = packet(&[], 0x1234);
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            frame[54..58].copy_from_slice(&(state >> 32).to_le_bytes()[..4]);
            passed += usize::from(solve(&mut solver, &frame).is_some());
        }
        assert!((2..=64).contains(&passed), "{passed} of 2^20 instead of about 16");
    }

    #[test]
    fn what_is_too_short_or_too_long_has_no_identification() {
        let (ip, udp) = ([0; 20], [0; 8]);
        for len in [0, 1, 15, 65_508, 70_000] {
            assert_eq!(IdentificationSolver::default().solve(&ip, &udp, &vec![0; len]), None);
        }
    }
}
