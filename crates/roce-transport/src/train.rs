//! Packet trains: packets of one queue pair, behind each other in the driver's buffer.

use roce_wire::{BTH_LEN, Headers, ICRC_LEN, Pad, PathMtu, PayloadCrc};

use crate::PacketSealer;

/// Writes a train: segments of one length, of which the last may be shorter.
///
/// [`room_for`](Self::room_for) returns the room for a packet; one that does not fit behind the
/// packets already there waits for the next train.
pub(crate) struct TrainWriter<'b> {
    buf: &'b mut [u8],
    sealer: &'b mut (dyn PacketSealer + 'b),
    max_packets: usize,
    used: usize,
    packets: usize,
    segment_len: usize,
    /// The last packet, which is not sealed yet: it may still be changed.
    last_at: usize,
    /// Its payload's, where it is known already.
    last_crc: Option<PayloadCrc>,
    is_closed: bool,
    is_too_short: bool,
}

/// A UDP datagram over IPv4 or IPv6 holds no more.
const MAX_TRAIN_LEN: usize = 65_535 - 40 - 8;

/// Where in the BTH the AckReq bit stands.
const ACK_REQUEST: (usize, u8) = (8, 0x80);

impl<'b> TrainWriter<'b> {
    pub(crate) fn new(
        buf: &'b mut [u8],
        sealer: &'b mut (dyn PacketSealer + 'b),
        max_packets: usize,
    ) -> Self {
        let room = buf.len().min(MAX_TRAIN_LEN);
        Self {
            buf: &mut buf[..room],
            sealer,
            max_packets: max_packets.max(1),
            used: 0,
            packets: 0,
            segment_len: 0,
            last_at: 0,
            last_crc: None,
            is_closed: false,
            is_too_short: false,
        }
    }

    /// A train whose first packet stands in the first `len` bytes of `buf`, with room for one more.
    pub(crate) fn behind(
        len: usize,
        buf: &'b mut [u8],
        sealer: &'b mut (dyn PacketSealer + 'b),
    ) -> Self {
        let mut train = Self::new(buf, sealer, 2);
        train.note(len, None);
        train
    }

    /// Room for a segment with headers of `headers_len` bytes around a payload of
    /// `payload_len`; `None` if it cannot be the next one of this train.
    pub(crate) fn room_for(&mut self, headers_len: usize, payload_len: usize) -> Option<&mut [u8]> {
        let len = headers_len + payload_len + Pad::for_payload(payload_len).bytes() + ICRC_LEN;
        if self.used + len > self.buf.len() {
            self.is_too_short |= self.packets == 0;
            return None;
        }
        let fits = self.packets == 0
            || (!self.is_closed && self.packets < self.max_packets && len <= self.segment_len);
        if fits { Some(&mut self.buf[self.used..self.used + len]) } else { None }
    }

    /// Adds a packet whose payload already stands in the room it was offered; `crc`, if the payload
    /// was summed already.
    pub(crate) fn push(&mut self, headers: &Headers, payload_len: usize, crc: Option<PayloadCrc>) {
        let len = headers.emit_around(&mut self.buf[self.used..], payload_len);
        self.note(len, crc);
    }

    /// Adds a packet of nothing but a BTH and a payload that needs no pad: what most packets
    /// of a long message are.
    pub(crate) fn push_bth_only(
        &mut self,
        bth: [u8; BTH_LEN],
        payload_len: usize,
        crc: Option<PayloadCrc>,
    ) {
        self.buf[self.used..self.used + BTH_LEN].copy_from_slice(&bth);
        self.note(BTH_LEN + payload_len + ICRC_LEN, crc);
    }

    /// Takes no more packets.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The packet added last is the first of a message of `len` bytes, and longer than the
    /// `behind` packets that follow, of which the last has `trailer` bytes more around its payload
    /// than the others. At most one of them fits behind it: one goes there if that saves a train.
    // Once in a message: kept out of the loops that write its packets.
    #[inline(never)]
    pub(crate) fn pack_second_if_useful(
        &mut self,
        behind: u32,
        len: u64,
        trailer: usize,
        mtu: PathMtu,
    ) {
        let whole = mtu.bytes();
        let last_payload = (len - 1) % whole as u64 + 1; // there is more than one packet
        // A last packet that is longer than the others fits behind the first alone.
        let is_apart = behind > 1 && last_payload as usize + trailer > whole;
        let equal = behind - u32::from(is_apart);
        let per_train = self.max_packets.min(self.buf.len() / (BTH_LEN + whole + ICRC_LEN)).max(1);
        if equal as usize % per_train != 1 {
            self.close();
        }
    }

    /// Sets AckReq in the last packet.
    pub(crate) fn request_ack(&mut self) {
        if self.packets > 0 {
            let (byte, bit) = ACK_REQUEST;
            self.buf[self.last_at + byte] |= bit;
        }
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes of all segments together.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Bytes of every segment but the last.
    pub(crate) fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// Returns true if a packet would not fit into an empty buffer of this size.
    pub(crate) fn is_too_short(&self) -> bool {
        self.is_too_short
    }

    /// Closes the train and seals its last packet.
    pub(crate) fn finish(&mut self) {
        self.close();
        self.seal_last();
    }

    fn seal_last(&mut self) {
        if self.packets > 0 {
            self.sealer.seal(&mut self.buf[self.last_at..self.used], self.last_crc.take());
        }
    }

    fn note(&mut self, len: usize, crc: Option<PayloadCrc>) {
        match self.packets {
            0 => self.segment_len = len,
            _ => self.seal_last(),
        }
        self.is_closed |= len < self.segment_len;
        self.last_at = self.used;
        self.last_crc = crc;
        self.used += len;
        self.packets += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce_wire::{Bth, Psn, Qpn, opcode};

    /// Notes what it is given.
    #[derive(Debug, Default)]
    struct Notes(Vec<Vec<u8>>);

    impl PacketSealer for Notes {
        fn begin(&mut self, _: Qpn, _: Qpn, _: crate::PathHandle) {}

        fn seal(&mut self, packet: &mut [u8], _: Option<PayloadCrc>) {
            self.0.push(packet.to_vec());
            packet.last_chunk_mut::<ICRC_LEN>().unwrap().fill(0xcc);
        }
    }

    fn push(train: &mut TrainWriter<'_>, payload_len: usize) -> bool {
        let headers = Headers::new(Bth::new(opcode::RC_SEND_ONLY, Qpn::GSI, Psn::ZERO));
        let fits = train.room_for(headers.len(), payload_len).is_some();
        if fits {
            train.push(&headers, payload_len, None);
        }
        fits
    }

    #[test]
    fn only_the_last_packet_of_a_train_may_be_shorter() {
        let mut buf = [0; 1000];
        let mut sealer = ();
        let mut train = TrainWriter::new(&mut buf, &mut sealer, 64);
        assert!(push(&mut train, 100) && push(&mut train, 100));
        assert!(!push(&mut train, 104), "a longer one waits");
        assert!(push(&mut train, 40), "a shorter one is the last");
        assert!(!push(&mut train, 40));
        assert_eq!((train.packets(), train.segment_len()), (3, 116));
        assert_eq!(train.len(), 116 + 116 + 56);
    }

    #[test]
    fn each_packet_is_sealed_once_in_order_and_never_changed_afterwards() {
        for count in 0..4 {
            let (mut buf, mut notes) = ([0; 1000], Notes::default());
            let mut train = TrainWriter::new(&mut buf, &mut notes, 64);
            (0..count).for_each(|_| assert!(push(&mut train, 20)));
            train.request_ack();
            train.finish();
            let (len, segment_len) = (train.len(), train.segment_len().max(1));
            assert_eq!(notes.0.len(), count);
            for (packet, sealed) in buf[..len].chunks(segment_len).zip(&notes.0) {
                let (packet, icrc) = packet.split_last_chunk::<ICRC_LEN>().unwrap();
                assert_eq!((packet, *icrc), (&sealed[..packet.len()], [0xcc; ICRC_LEN]));
            }
        }
    }

    #[test]
    fn the_crc_of_a_payload_comes_with_its_own_packet() {
        /// Notes the CRCs that it is given.
        struct Crcs(Vec<Option<PayloadCrc>>);
        impl PacketSealer for Crcs {
            fn begin(&mut self, _: Qpn, _: Qpn, _: crate::PathHandle) {}

            fn seal(&mut self, _: &mut [u8], crc: Option<PayloadCrc>) {
                self.0.push(crc);
            }
        }
        let crc = |byte| PayloadCrc::of(&[byte; 256]);
        let expected = [crc(1), None, crc(2), crc(3)];
        let (mut buf, mut crcs) = ([0; 2000], Crcs(vec![]));
        let mut train = TrainWriter::new(&mut buf, &mut crcs, 64);
        for crc in expected {
            assert!(train.room_for(BTH_LEN, 256).is_some());
            train.push_bth_only([0; BTH_LEN], 256, crc);
        }
        train.finish();
        assert_eq!(crcs.0, expected);
    }

    /// How many trains take packets with such payloads, of which the first has headers of 16 bytes
    /// more than the others, and the last of `trailer` more; and whether the first two share one.
    /// The first goes alone, or leads.
    fn trains(payloads: &[usize], trailer: usize, most: usize, leads: bool) -> (usize, bool) {
        let (behind, len) = (payloads.len() as u32 - 1, payloads.iter().sum::<usize>() as u64);
        let (mut count, mut sent, mut shares) = (0, 0, false);
        while sent < payloads.len() {
            let (mut buf, mut sealer) = ([0; 3000], ());
            let mut train = TrainWriter::new(&mut buf, &mut sealer, most);
            while let Some(payload) = payloads.get(sent) {
                let is_last = sent as u32 == behind;
                let more = if sent == 0 { 16 } else { trailer * usize::from(is_last) };
                if !push(&mut train, payload + more) {
                    break;
                }
                match sent {
                    0 if leads => train.pack_second_if_useful(behind, len, trailer, PathMtu::B256),
                    0 => train.close(),
                    1 => shares = train.packets() == 2,
                    _ => {}
                }
                sent += 1;
            }
            count += 1;
        }
        (count, shares)
    }

    #[test]
    fn a_longer_first_packet_takes_one_along_where_that_saves_a_train_and_nowhere_else() {
        let mut saved = 0;
        let mut check = |packets, last, trailer, most| {
            let payloads: Vec<_> = (1..packets).map(|_| 256).chain([last]).collect();
            let (alone, _) = trains(&payloads, trailer, most, false);
            let (found, shares) = trains(&payloads, trailer, most, true);
            let what = format!("{packets} packets, the last of {last} + {trailer}, {most} a train");
            assert_eq!(found, alone - usize::from(shares), "{what}");
            assert!(shares || packets > 2 || most == 1, "{what}: two always share one");
            if !shares && packets > 2 && most > 1 {
                // Without the one that could have gone along there are as many.
                let (others, _) = trains(&payloads[1..], trailer, most, false);
                assert_eq!(others, alone, "{what}");
            }
            saved += usize::from(shares);
        };
        for packets in 2..40 {
            for last in [4, 248, 252, 256] {
                for trailer in [0, 4] {
                    for most in [1, 2, 3, 7, 64] {
                        check(packets, last, trailer, most);
                    }
                }
            }
        }
        assert!(saved > 100, "{saved}");
    }

    #[test]
    fn a_train_ends_where_the_buffer_or_the_limit_does() {
        let mut buf = [0; 260];
        let mut sealer = ();
        let mut train = TrainWriter::new(&mut buf, &mut sealer, 64);
        assert!(push(&mut train, 100) && push(&mut train, 100) && !push(&mut train, 100));
        assert!(!train.is_too_short());
        let mut train = TrainWriter::new(&mut buf, &mut sealer, 1);
        assert!(push(&mut train, 4) && !push(&mut train, 4));
    }

    #[test]
    fn a_packet_longer_than_the_whole_buffer_is_reported() {
        let mut buf = [0; 64];
        let mut sealer = ();
        let mut train = TrainWriter::new(&mut buf, &mut sealer, 64);
        assert!(!push(&mut train, 64));
        assert!(train.is_too_short() && train.is_empty());
    }
}
