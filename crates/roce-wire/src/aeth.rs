//! ACK Extended Transport Header (AETH): acknowledgements and NAKs.

use crate::{AETH_LEN, Layer, LenError, RnrTimer};

/// An acknowledgement or a NAK.
///
/// ```
/// use roce_wire::{Aeth, Credits, Syndrome};
/// let aeth = Aeth { syndrome: Syndrome::Ack { credits: Credits::UNLIMITED }, msn: 1 };
/// assert_eq!(aeth.to_bytes(), [0x1f, 0, 0, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Kind of acknowledgement.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24; higher bits are not sent.
    pub msn: u32,
}

impl Aeth {
    /// Splits an AETH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`AETH_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::Aeth, bytes) {
            Ok((head, rest)) => Ok((Self::from_bytes(head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Reads the header; cannot fail.
    pub const fn from_bytes(bytes: &[u8; AETH_LEN]) -> Self {
        let [syndrome, m0, m1, m2] = *bytes;
        Self { syndrome: Syndrome::from_byte(syndrome), msn: u32::from_be_bytes([0, m0, m1, m2]) }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; AETH_LEN] {
        let [_, m0, m1, m2] = self.msn.to_be_bytes();
        [self.syndrome.to_byte(), m0, m1, m2]
    }
}

/// AETH syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// All packets up to this PSN have been received.
    Ack {
        /// Receives posted at the responder.
        credits: Credits,
    },
    /// Receiver not ready: no receive is posted.
    RnrNak {
        /// Time before the retry.
        timer: RnrTimer,
    },
    /// The request failed.
    Nak(NakCode),
    /// A reserved value.
    Reserved(u8),
}

impl Syndrome {
    /// Reads the byte; values and bytes correspond one to one.
    //= rule wire-syndrome: InfiniBand 9.3; rxe_hdr.h: aeth_syndrome
    //# The top three bits of a syndrome tell ACK, RNR NAK and NAK apart; the others are credits, a
    //# timer or a code.
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte >> 5 {
            0b000 => Self::Ack { credits: Credits(value) },
            0b001 => Self::RnrNak { timer: RnrTimer::from_low_bits(value) },
            0b011 => Self::Nak(NakCode::from_low_bits(value)),
            _ => Self::Reserved(byte),
        }
    }

    /// Returns the bytes on the wire.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits.0,
            Self::RnrNak { timer } => 0x20 | timer.code(),
            Self::Nak(code) => 0x60 | code.low_bits(),
            Self::Reserved(byte) => byte,
        }
    }
}

impl From<u8> for Syndrome {
    fn from(byte: u8) -> Self {
        Self::from_byte(byte)
    }
}

impl From<Syndrome> for u8 {
    fn from(syndrome: Syndrome) -> Self {
        syndrome.to_byte()
    }
}

/// Reason of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A packet is missing: retransmit from this PSN.
    PsnSequence,
    /// The request is invalid.
    InvalidRequest,
    /// The key does not permit the access.
    RemoteAccess,
    /// The responder had an internal error.
    RemoteOperational,
    /// An invalid datagram request; unused by reliable connections.
    InvalidRdRequest,
    /// A reserved value, 5 ..= 31.
    Reserved(u8),
}

impl NakCode {
    //= rule wire-nak-codes: InfiniBand 9.7.5; rxe_hdr.h: aeth_syndrome
    //# NAK codes: PSN sequence error 0, invalid request 1, remote access error 2, remote
    //# operational error 3.
    const fn from_low_bits(value: u8) -> Self {
        match value {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            other => Self::Reserved(other),
        }
    }

    const fn low_bits(self) -> u8 {
        match self {
            Self::PsnSequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRdRequest => 4,
            Self::Reserved(other) => other & 0x1f,
        }
    }
}

/// Number of receives posted at the responder, encoded in five bits of an ACK.
///
/// ```
/// use roce_wire::Credits;
/// assert_eq!(Credits::for_count(7).count(), Some(6)); // rounded down: 7 has no code
/// assert_eq!(Credits::UNLIMITED.count(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// The responder does not limit the requester.
    pub const UNLIMITED: Self = Self(31);

    /// Creates one; `None` if `code` needs more than 5 bits.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Returns the largest encodable number that is at most `count`.
    pub fn for_count(count: u32) -> Self {
        let not_above = COUNTS.partition_point(|&said| said <= count);
        Self(not_above as u8 - 1) // the first entry is 0, so at least one is at most `count`
    }

    /// Returns the code, 0 ..= 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number, 0 ..= 32768; `None` if unlimited.
    pub const fn count(self) -> Option<u32> {
        if self.0 == Self::UNLIMITED.0 { None } else { Some(COUNTS[self.0 as usize]) }
    }
}

/// Numbers by code, 0 ..= 30.
//= rule wire-credits: InfiniBand 9.7.7.2
//# Credits are encoded in five bits; 31 means that the responder does not limit the requester.
const COUNTS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_256_syndromes_survive_the_round_trip() {
        for byte in 0..=u8::MAX {
            assert_eq!(u8::from(Syndrome::from(byte)), byte);
        }
    }

    //= test wire-syndrome
    //= test wire-nak-codes
    #[test]
    fn syndromes_match_captured_packets() {
        assert_eq!(Syndrome::from(0x1f), Syndrome::Ack { credits: Credits::UNLIMITED });
        assert_eq!(Syndrome::from(0x2c), Syndrome::RnrNak { timer: RnrTimer::DEFAULT });
        assert_eq!(Syndrome::from(0x60), Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(Syndrome::from(0x62), Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(Syndrome::from(0x40), Syndrome::Reserved(0x40));
    }

    //= test wire-credits
    #[test]
    fn credit_codes_but_the_last_are_in_order_of_their_counts() {
        for code in 1..31 {
            assert!(Credits(code).count() > Credits(code - 1).count());
        }
        assert_eq!(Credits(30).count(), Some(32768));
        assert_eq!(Credits(31).count(), None);
        assert_eq!(Credits::new(32), None);
    }

    //= test wire-credits
    #[test]
    fn from_code_4_on_a_code_counts_twice_as_many_as_the_one_two_before() {
        assert_eq!([0, 1, 2, 3].map(|code| Credits(code).count()), [0, 1, 2, 3].map(Some));
        for code in 4..31 {
            let before = Credits(code - 2).count().unwrap();
            assert_eq!(Credits(code).count(), Some(2 * before), "code {code}");
        }
    }

    #[test]
    fn an_encodable_count_is_encoded_exactly() {
        for code in 0..31 {
            let credits = Credits(code);
            assert_eq!(Credits::for_count(credits.count().unwrap()), credits);
        }
        assert_eq!(Credits::for_count(u32::MAX), Credits(30));
    }

    #[test]
    fn a_reserved_nak_code_does_not_change_the_kind() {
        let byte = Syndrome::Nak(NakCode::Reserved(0xff)).to_byte();
        assert_eq!(byte >> 5, 0b011);
    }

    proptest! {
        //= test wire-credits
        #[test]
        fn credits_are_rounded_down_and_never_up(count: u32) {
            let said = Credits::for_count(count);
            prop_assert!(said.count().unwrap() <= count);
            if let Some(next) = COUNTS.get(usize::from(said.code()) + 1) {
                prop_assert!(*next > count);
            }
        }

        #[test]
        fn parsed_headers_are_written_unchanged(bytes: [u8; AETH_LEN]) {
            prop_assert_eq!(Aeth::from_bytes(&bytes).to_bytes(), bytes);
        }

        #[test]
        fn written_headers_are_parsed_unchanged(syndrome: u8, msn in 0u32..1 << 24) {
            let aeth = Aeth { syndrome: syndrome.into(), msn };
            let bytes = aeth.to_bytes();
            prop_assert_eq!(Aeth::split(&bytes), Ok((aeth, &[][..])));
        }
    }
}
