//! The IPv4 identifications of received packets, which the ICRC covers and the kernel does not tell.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use roce_wire::IdentificationSolver;

use super::headers::{self, Headers, IPV4_LEN, UDP_LEN};

/// What to do with a packet whose ICRC is right for an identification that is neither 0 nor near the last
/// one of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherIdentifications {
    /// It is received, and counted as `udp_identification_solved`. Of packets that are damaged on the way,
    /// past the UDP checksum if there is one, one in 65 536 is so received.
    #[default]
    Accept,
    /// It is dropped, and counted as `udp_identification_refused` beside `drop_icrc`. A source whose
    /// identifications count loses its first packet, and one after a long pause; one whose identifications
    /// are random loses nearly all.
    Refuse,
}

/// What is known of the identifications of each source.
#[derive(Debug)]
pub(super) struct Identifications {
    others: OtherIdentifications,
    solver: IdentificationSolver,
    sources: HashMap<Ipv4Addr, Last>,
    predicted: u64,
    solved: u64,
    refused: u64,
}

/// The last identification of a source.
#[derive(Clone, Copy, Debug)]
struct Last {
    identification: u16,
    at: Instant,
}

/// Most sources that are remembered.
const MAX_SOURCES: usize = 1024;
/// Packets that may be missing or late between two of a source whose identifications count.
const NEAR: u16 = 64;
/// The kernel counts up by a random number of at most the time since the last packet, in its ticks, of
/// which a millisecond has at most one.
const MAX_TICKS: Duration = Duration::from_millis(4096);

impl Identifications {
    pub(super) fn new(others: OtherIdentifications) -> Self {
        Self {
            others,
            solver: IdentificationSolver::default(),
            sources: HashMap::new(),
            predicted: 0,
            solved: 0,
            refused: 0,
        }
    }

    /// Sets the identification of a frame that has 0 so far. It stays 0 if that is right, if no other is,
    /// or if the other one is refused: the ICRC shows then that the packet is not to be used.
    pub(super) fn complete(
        &mut self,
        frame: &mut [u8],
        headers: &Headers,
        segment_len: Option<usize>,
        clock: fn() -> Instant,
    ) {
        let IpAddr::V4(source) = headers.source else { return };
        let Some(before) = frame.first_chunk::<{ 14 + IPV4_LEN + UDP_LEN }>() else { return };
        let (ip, udp) = before[14..].split_at(IPV4_LEN);
        let (Ok(ip), Ok(udp)) = (ip.try_into(), udp.try_into()) else { return };
        let payload = &frame[headers.payload_at..];
        let segment_len = segment_len.unwrap_or(payload.len()).max(1);
        // Usually the first packet has the answer. If it is damaged, a later one of its train has it.
        let segments = (0_u16..).zip(payload.chunks(segment_len));
        let Some((number, found)) = segments
            .take(MAX_TRIED)
            .find_map(|(number, segment)| Some((number, self.solver.solve(ip, udp, segment)?)))
        else {
            return;
        };
        // A train of packets that all have 0, or that count up from it.
        if found == 0 || found == number {
            return;
        }
        let packets = payload.len().div_ceil(segment_len).max(1) as u16;
        let first = found.wrapping_sub(number);
        if self.admit(source, first, packets, clock()) {
            headers::set_identification(frame, first);
        }
    }

    /// Notes the identification of the first of some packets; returns whether they are received.
    fn admit(&mut self, source: Ipv4Addr, first: u16, packets: u16, now: Instant) -> bool {
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.sources.clear();
        }
        let last = Last { identification: first.wrapping_add(packets - 1), at: now };
        let before = self.sources.insert(source, last);
        if before.is_some_and(|before| before.predicts(first, now)) {
            self.predicted += 1;
            return true;
        }
        match self.others {
            OtherIdentifications::Accept => self.solved += 1,
            OtherIdentifications::Refuse => self.refused += 1,
        }
        self.others == OtherIdentifications::Accept
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 3] {
        [
            ("udp_identification_predicted", self.predicted),
            ("udp_identification_solved", self.solved),
            ("udp_identification_refused", self.refused),
        ]
    }
}

/// Most packets of a train that are tried, if those before them are damaged.
const MAX_TRIED: usize = 8;

impl Last {
    /// Returns true if a packet with this identification may be the next one, or one that is late.
    fn predicts(self, identification: u16, now: Instant) -> bool {
        let ticks = now.saturating_duration_since(self.at).min(MAX_TICKS).as_millis() as u16;
        identification.wrapping_sub(self.identification) <= NEAR + ticks
            || self.identification.wrapping_sub(identification) <= NEAR
    }
}

#[cfg(test)]
mod tests {
    use roce_wire::{
        Bth, Frame, Headers as RoceHeaders, OuterHeaders, Psn, Qpn, UdpChecksum, opcode, seal,
    };

    use super::*;

    const SEGMENT: usize = 20;

    /// A frame of packets whose headers have been read by a socket, which has lost the identification.
    fn received(first: u16, packets: usize) -> Vec<u8> {
        let outer = OuterHeaders::new([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
        let mut frame = vec![0; 42 + packets * SEGMENT];
        for (number, packet) in frame[42..].chunks_mut(SEGMENT).enumerate() {
            let psn = Psn::new(number as u32).unwrap();
            let bth = Bth::new(opcode::RC_SEND_MIDDLE, Qpn::new(0x11).unwrap(), psn);
            RoceHeaders::new(bth).emit_around(packet, 4);
        }
        seal(&outer, first, &mut frame, SEGMENT, UdpChecksum::Zero).unwrap();
        headers::set_identification(&mut frame, 0);
        frame
    }

    /// Completes a frame; returns its identification, and how many of its packets are right then.
    fn complete(all: &mut Identifications, mut frame: Vec<u8>) -> (u16, usize) {
        let headers = headers::read(&frame).unwrap();
        all.complete(&mut frame, &headers, Some(SEGMENT), Instant::now);
        let frame = Frame::parse(&frame).unwrap();
        let right = frame.packets(Some(SEGMENT)).filter(|it| it.unwrap().verify_icrc().is_ok());
        (frame.identification().unwrap(), right.count())
    }

    fn counts(all: &Identifications) -> [u64; 3] {
        all.counters().map(|(_, count)| count)
    }

    #[test]
    fn identification_0_is_exact_and_counts_nothing() {
        let mut all = Identifications::new(OtherIdentifications::Refuse);
        assert_eq!(complete(&mut all, received(0, 1)), (0, 1));
        assert_eq!(complete(&mut all, received(0, 5)), (0, 5));
        assert_eq!(counts(&all), [0, 0, 0]);
    }

    #[test]
    fn a_source_that_counts_is_predicted_after_its_first_packet() {
        let mut all = Identifications::new(OtherIdentifications::Accept);
        assert_eq!(complete(&mut all, received(0xfffe, 4)), (0xfffe, 4));
        assert_eq!(counts(&all), [0, 1, 0]);
        for first in [2, 3, 9] {
            assert_eq!(complete(&mut all, received(first, 1)), (first, 1));
        }
        assert_eq!(counts(&all), [3, 1, 0]);
        assert_eq!(complete(&mut all, received(0x7000, 1)), (0x7000, 1));
        assert_eq!(counts(&all), [3, 2, 0]);
    }

    #[test]
    fn where_others_are_refused_a_source_that_counts_loses_its_first_packet() {
        let mut all = Identifications::new(OtherIdentifications::Refuse);
        assert_eq!(complete(&mut all, received(0x100, 1)), (0, 0));
        assert_eq!(complete(&mut all, received(0x101, 1)), (0x101, 1));
        assert_eq!(counts(&all), [1, 0, 1]);
    }

    #[test]
    fn a_damaged_packet_stays_wrong_and_leaves_the_rest_of_its_train_right() {
        let mut all = Identifications::new(OtherIdentifications::Accept);
        for first in [0, 0x100] {
            let mut frame = received(first, 4);
            frame[42 + 13] ^= 1;
            assert_eq!(complete(&mut all, frame), (first, 3));
        }
    }

    #[test]
    fn what_is_known_of_sources_is_bounded() {
        let mut all = Identifications::new(OtherIdentifications::Accept);
        for number in 0..3000_u32 {
            all.admit(Ipv4Addr::from(number), 7, 1, Instant::now());
        }
        assert!(all.sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn a_pause_widens_what_is_predicted_up_to_a_limit() {
        let start = Instant::now();
        let last = Last { identification: 100, at: start };
        let after = |millis| start + Duration::from_millis(millis);
        assert!(last.predicts(101, start) && last.predicts(36, start) && last.predicts(164, start));
        assert!(!last.predicts(165, start) && !last.predicts(35, start));
        assert!(last.predicts(165, after(1)) && !last.predicts(1165, after(1000)));
        assert!(last.predicts(1164, after(1000)) && !last.predicts(5000, after(1_000_000)));
    }
}
