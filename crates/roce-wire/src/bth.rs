//! Base Transport Header (BTH): 12 bytes, first header of every packet.

use crate::{BTH_LEN, KnownOpcode, Layer, LenError, Opcode, Psn, Qpn, WireError};

/// A BTH borrowed from a packet, with unchecked fields.
///
/// It has 12 bytes, so no accessor can fail or panic.
//= rule wire-bth-reserved: InfiniBand 9.2; rxe_hdr.h: bth_init
//# Reserved bits of the BTH are sent as zeros and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BthView<'a>(&'a [u8; BTH_LEN]);

#[allow(missing_docs)]
impl<'a> BthView<'a> {
    /// Splits a BTH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`BTH_LEN`] bytes are left.
    pub const fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), LenError> {
        match LenError::split(Layer::Bth, bytes) {
            Ok((head, rest)) => Ok((Self(head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Checks version and opcode.
    ///
    /// # Errors
    /// [`WireError::BthVersion`], [`WireError::UnknownOpcode`].
    #[inline]
    pub(crate) const fn known_opcode(self) -> Result<KnownOpcode, WireError> {
        //= rule wire-bth-version: InfiniBand 9.6; rxe_recv.c: hdr_check
        //# A packet whose transport header version is not 0 is dropped.
        if self.version() != 0 {
            return Err(WireError::BthVersion(self.version()));
        }
        //= rule wire-opcode-unknown: InfiniBand 9.6; rxe_recv.c: rxe_rcv
        //# A packet with an opcode that has no meaning is dropped.
        match KnownOpcode::new(self.opcode()) {
            Some(opcode) => Ok(opcode),
            None => Err(WireError::UnknownOpcode(self.opcode())),
        }
    }

    /// Reads four bytes at once, which takes fewer instructions than three.
    const fn word(self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
    /// The bytes on the wire.
    pub const fn bytes(self) -> &'a [u8; BTH_LEN] {
        self.0
    }
    pub const fn opcode(self) -> Opcode {
        Opcode(self.0[0])
    }
    pub const fn solicited_event(self) -> bool {
        self.0[1] & 0x80 != 0
    }
    pub const fn migration_request(self) -> bool {
        self.0[1] & 0x40 != 0
    }
    pub const fn pad_count(self) -> u8 {
        self.pad().0
    }
    pub(crate) const fn pad(self) -> Pad {
        Pad((self.0[1] >> 4) & 0b11)
    }
    pub const fn version(self) -> u8 {
        self.0[1] & 0x0f
    }
    pub const fn partition_key(self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }
    pub const fn fecn(self) -> bool {
        self.0[4] & 0x80 != 0
    }
    pub const fn becn(self) -> bool {
        self.0[4] & 0x40 != 0
    }
    pub const fn dest_qp(self) -> Qpn {
        Qpn::wrapping(self.word(4))
    }
    pub const fn ack_request(self) -> bool {
        self.0[8] & 0x80 != 0
    }
    pub const fn psn(self) -> Psn {
        Psn::wrapping(self.word(8))
    }
}

/// A BTH with a known opcode and version. Reserved bits are ignored when parsed and sent as zeros.
///
/// ```
/// use roce_wire::{Bth, BthView, Psn, Qpn, opcode};
/// let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::GSI, Psn::ZERO);
/// let bytes = bth.to_bytes();
/// let (view, rest) = BthView::split(&bytes).unwrap();
/// assert!(rest.is_empty());
/// assert_eq!(Bth::parse(view), Ok(bth));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Opcode.
    pub opcode: KnownOpcode,
    /// The completion at the receiver raises a solicited event.
    pub solicited_event: bool,
    /// Path migration state; unused in RoCE, but set by some network cards.
    pub migration_request: bool,
    /// Zero bytes between payload and ICRC.
    pub pad: Pad,
    /// Partition; [`DEFAULT_PARTITION_KEY`] in practice.
    pub partition_key: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// AckReq: the responder acknowledges this packet.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Creates a header with the default partition, no pad and no flag set.
    pub const fn new(opcode: KnownOpcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited_event: false,
            migration_request: false,
            pad: Pad::NONE,
            partition_key: DEFAULT_PARTITION_KEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }

    /// Parses a BTH.
    ///
    /// # Errors
    /// [`WireError::BthVersion`], [`WireError::UnknownOpcode`].
    //= also wire-bth
    pub const fn parse(view: BthView<'_>) -> Result<Self, WireError> {
        match view.known_opcode() {
            Ok(opcode) => Ok(Self::with_opcode(view, opcode)),
            Err(error) => Err(error),
        }
    }

    /// The header that `view` is of, whose opcode is `opcode`.
    pub(crate) const fn with_opcode(view: BthView<'_>, opcode: KnownOpcode) -> Self {
        Self {
            opcode,
            solicited_event: view.solicited_event(),
            migration_request: view.migration_request(),
            pad: view.pad(),
            partition_key: view.partition_key(),
            fecn: view.fecn(),
            becn: view.becn(),
            dest_qp: view.dest_qp(),
            ack_request: view.ack_request(),
            psn: view.psn(),
        }
    }

    /// Returns the bytes on the wire.
    // Built in registers: the processor does not forward twelve single-byte stores to a copy of two
    // words. The copy would wait until all earlier stores, often a whole payload, are in the cache:
    // a seventh of a sender's time at path MTU 1024.
    //= rule wire-bth: InfiniBand 9.2; rxe_hdr.h: rxe_bth
    //# Places of the fields of the BTH.
    #[inline]
    pub const fn to_bytes(self) -> [u8; BTH_LEN] {
        let flags = ((self.solicited_event as u8) << 7)
            | ((self.migration_request as u8) << 6)
            | (self.pad.0 << 4);
        let ecn = ((self.fecn as u8) << 7) | ((self.becn as u8) << 6);
        let front_word = (self.opcode.code().0 as u64) << 56
            | (flags as u64) << 48
            | (self.partition_key as u64) << 32
            | (ecn as u64) << 24
            | self.dest_qp.get() as u64;
        let back_word = (self.ack_request as u32) << 31 | self.psn.get();
        let mut bytes = [0; BTH_LEN];
        let (front, back) = bytes.split_at_mut(8);
        front.copy_from_slice(&front_word.to_be_bytes());
        back.copy_from_slice(&back_word.to_be_bytes());
        bytes
    }

    /// Sets AckReq and PSN of a header that is written, in which nothing else changes: what differs
    /// between the packets in the middle of a message.
    pub fn set_ack_request_and_psn(bytes: &mut [u8; BTH_LEN], ack_request: bool, psn: Psn) {
        bytes[8..].copy_from_slice(&((ack_request as u32) << 31 | psn.get()).to_be_bytes());
    }
}

/// Number of zero bytes after the payload that make its length a multiple of 4, 0 ..= 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Pad(u8);

impl Pad {
    /// No pad.
    pub const NONE: Self = Self(0);

    /// Creates a pad; `None` if `bytes` is above 3.
    pub const fn new(bytes: u8) -> Option<Self> {
        if bytes < 4 { Some(Self(bytes)) } else { None }
    }

    /// Returns the pad of a payload of `len` bytes.
    //= rule wire-pad: InfiniBand 9.2; rxe_resp.c: prepare_ack_packet
    //# A payload is padded with up to three zero bytes to a multiple of four bytes.
    pub const fn for_payload(len: usize) -> Self {
        Self((len.wrapping_neg() & 0b11) as u8)
    }

    /// Returns the number of bytes, 0 ..= 3.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// The default partition, of which every port is a member.
pub const DEFAULT_PARTITION_KEY: u16 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bits that a sender sets to zero and a receiver ignores.
    const RESERVED: [u8; BTH_LEN] = [0, 0, 0, 0, 0x3f, 0, 0, 0, 0x7f, 0, 0, 0];

    /// Random bytes of which half pass the version and opcode checks, instead of one in 200.
    fn header_bytes() -> impl Strategy<Value = [u8; BTH_LEN]> {
        (any::<[u8; BTH_LEN]>(), any::<bool>()).prop_map(|(mut bytes, plausible)| {
            if plausible {
                bytes[0] %= 0x18;
                bytes[1] &= 0xf0;
            }
            bytes
        })
    }

    proptest! {
        #[test]
        fn a_header_with_another_psn_and_ack_request_is_as_if_written_with_them(
            bytes in header_bytes(),
            ack_request: bool,
            psn in 0..1u32 << 24,
        ) {
            let (view, _) = BthView::split(&bytes).unwrap();
            if let Ok(bth) = Bth::parse(view) {
                let (mut written, psn) = (bth.to_bytes(), Psn::wrapping(psn));
                Bth::set_ack_request_and_psn(&mut written, ack_request, psn);
                prop_assert_eq!(written, Bth { ack_request, psn, ..bth }.to_bytes());
            }
        }

        //= test wire-bth-reserved
        #[test]
        fn accepted_headers_are_written_unchanged(bytes in header_bytes()) {
            let (view, rest) = BthView::split(&bytes).unwrap();
            prop_assert!(rest.is_empty());
            match Bth::parse(view) {
                Ok(bth) => {
                    let kept: Vec<u8> = bytes.iter().zip(RESERVED).map(|(b, r)| b & !r).collect();
                    prop_assert_eq!(&bth.to_bytes()[..], &kept);
                }
                Err(WireError::BthVersion(v)) => prop_assert_ne!(v, 0),
                Err(WireError::UnknownOpcode(op)) => prop_assert!(op.info().is_none()),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }

        //= test wire-bth
        //= test wire-pad
        #[test]
        fn written_headers_are_parsed_unchanged(
            code in (0u8..=0xff).prop_filter_map("unknown", |b| KnownOpcode::new(Opcode(b))),
            flags: [bool; 5], payload in 0usize..=4096, key: u16,
            qp in 0u32..1 << 24, psn in 0u32..1 << 24,
        ) {
            let [solicited_event, migration_request, fecn, becn, ack_request] = flags;
            let sent = Bth {
                opcode: code, solicited_event, migration_request,
                pad: Pad::for_payload(payload), partition_key: key, fecn, becn,
                dest_qp: Qpn::new(qp).unwrap(), ack_request, psn: Psn::new(psn).unwrap(),
            };
            let bytes = sent.to_bytes();
            prop_assert_eq!(Bth::parse(BthView::split(&bytes).unwrap().0), Ok(sent));
            prop_assert_eq!((payload + sent.pad.bytes()) % 4, 0);
        }

        #[test]
        fn a_short_header_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..BTH_LEN)) {
            let short = LenError { layer: Layer::Bth, need: BTH_LEN, have: bytes.len(), at: 0 };
            prop_assert_eq!(BthView::split(&bytes), Err(short));
        }
    }
}
