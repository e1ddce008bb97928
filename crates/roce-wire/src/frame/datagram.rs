//! A frame from what a UDP socket tells of it.

use super::{Frame, Ip};
use crate::OuterHeaders;
use crate::icrc::{ICRC_LEN, MAX_PACKET};
use crate::link::Link;

impl<'a> Frame<'a> {
    /// Returns the frame of a datagram that a UDP socket received: `datagram` is its payload. The socket hides the
    /// headers, but the ICRC covers them; so `outer` and `identification` say what they were.
    ///
    /// Addresses and source port have to be the sender's, whatever translates them on the way. The destination port
    /// counts as 4791, which every sender of RoCEv2 puts into the ICRC, also if the socket has another one.
    /// `identification` is that of the IPv4 header: 0 from Linux where the sender's socket is not connected and forbids
    /// fragments, or else what [`IdentificationSolver`](crate::IdentificationSolver) finds. It is ignored for IPv6.
    /// All else in `outer` is only reported: [`payload_offset`](Self::payload_offset) is 0, and the frame has no VLAN tag.
    ///
    /// `None` if no such datagram is possible: the addresses are of two IP versions, or the datagram is too long.
    ///
    /// Time O(1), no allocation.
    ///
    /// ```
    /// use roce_wire::*;
    ///
    /// // The sender seals for its own port, and sends what follows the headers.
    /// let outer = OuterHeaders {
    ///     source_port: 50_000,
    ///     ..OuterHeaders::new([127, 0, 0, 1].into(), [127, 0, 0, 1].into())
    /// };
    /// let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(0x12).unwrap(), Psn::ZERO);
    /// let mut datagram = [0; 20];
    /// Headers::new(bth).emit_around(&mut datagram, 4);
    /// Sealer::new(&outer)?.seal_single(outer.source_port, 0, &mut datagram)?;
    ///
    /// // The receiver gets addresses and source port from `recv_from`.
    /// let frame = Frame::of_datagram(&outer, 0, &datagram).unwrap();
    /// let packet = frame.packet().unwrap().verify_icrc().unwrap();
    /// assert_eq!(packet.payload(), [0; 4]);
    /// # Ok::<(), SealError>(())
    /// ```
    pub fn of_datagram(
        outer: &OuterHeaders,
        identification: u16,
        datagram: &'a [u8],
    ) -> Option<Self> {
        let covered = outer.covered().ok()?;
        let is_ipv4 = outer.source.is_ipv4();
        let ip = Ip {
            source: outer.source,
            destination: outer.destination,
            traffic_class: outer.traffic_class,
            hop_limit: outer.hop_limit,
            flow_label: if is_ipv4 { 0 } else { outer.flow_label & 0xf_ffff },
            identification: is_ipv4.then_some(identification),
        };
        let frame = Self {
            link: Link::without_tags(outer.source_mac, outer.destination_mac, is_ipv4),
            ip,
            source_port: outer.source_port,
            udp_checksum: 0,
            payload: datagram,
            payload_offset: 0,
            covered,
        };
        (datagram.len() <= MAX_PACKET + ICRC_LEN).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use proptest::prelude::*;

    use crate::{
        Bth, Frame, Headers, IdentificationSolver, MacAddr, OuterHeaders, Psn, Qpn, UdpChecksum,
        opcode, seal,
    };

    /// Returns a sealed frame with a SEND of this payload, which is a multiple of 4 bytes long.
    fn sealed(outer: &OuterHeaders, identification: u16, payload: &[u8]) -> Vec<u8> {
        let headers = Headers::new(Bth::new(opcode::UC_SEND_ONLY, Qpn::MAX, Psn::ZERO));
        let at = outer.len() + headers.len();
        let mut frame = vec![0; at + payload.len() + 4];
        frame[at..at + payload.len()].copy_from_slice(payload);
        let len = headers.emit_around(&mut frame[outer.len()..], payload.len());
        seal(outer, identification, &mut frame, len, UdpChecksum::Zero).unwrap();
        frame
    }

    fn outers() -> impl Strategy<Value = OuterHeaders> {
        let addresses = prop_oneof![
            any::<[[u8; 4]; 2]>().prop_map(|it| it.map(IpAddr::from)),
            any::<[[u8; 16]; 2]>().prop_map(|it| it.map(IpAddr::from)),
        ];
        (addresses, any::<(u16, u8, u8, u32)>(), any::<[[u8; 6]; 2]>()).prop_map(
            |([source, destination], (source_port, traffic_class, hop_limit, flow), macs)| {
                let flow_label = if source.is_ipv4() { 0 } else { flow & 0xf_ffff };
                let [source_mac, destination_mac] = macs.map(MacAddr);
                OuterHeaders {
                    source_mac,
                    destination_mac,
                    source_port,
                    traffic_class,
                    hop_limit,
                    flow_label,
                    ..OuterHeaders::new(source, destination)
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_datagram_is_what_its_whole_frame_is(
            outer in outers(), identification: u16, words in prop::collection::vec(any::<[u8; 4]>(), 0..40),
        ) {
            let bytes = sealed(&outer, identification, &words.concat());
            let whole = Frame::parse(&bytes).unwrap();
            let frame = Frame::of_datagram(&outer, identification, whole.payload()).unwrap();
            prop_assert_eq!(Frame { payload_offset: whole.payload_offset, covered: whole.covered, ..frame }, whole);
            prop_assert!(frame.packet().unwrap().verify_icrc().is_ok());
        }

        #[test]
        fn the_identification_that_a_socket_hides_is_found(identification: u16, port: u16) {
            let addresses = OuterHeaders::new([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
            let outer = OuterHeaders { source_port: port, ..addresses };
            let bytes = sealed(&outer, identification, b"four");
            let found = IdentificationSolver::default().solve_datagram(&outer, &bytes[outer.len()..]);
            prop_assert_eq!(found, Some(identification));
        }
    }

    #[test]
    fn addresses_of_two_ip_versions_and_what_no_ip_packet_holds_make_no_frame() {
        let ipv4 = OuterHeaders::new([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
        let mixed = OuterHeaders { source: [0; 16].into(), ..ipv4 };
        assert_eq!(Frame::of_datagram(&mixed, 0, &[0; 16]), None);
        assert_eq!(IdentificationSolver::default().solve_datagram(&mixed, &[0; 16]), None);
        let is_possible = |len| Frame::of_datagram(&ipv4, 0, &vec![0; len]).is_some();
        assert_eq!([0, 65_507, 65_508].map(is_possible), [true, true, false]);
        let short = Frame::of_datagram(&ipv4, 0, &[]).unwrap();
        assert!(short.packet().is_err());
    }
}
