//! Immediate data and the key to invalidate, in the last packet of a message.

use crate::{IMMEDIATE_LEN, INVALIDATE_KEY_LEN, Layer, LenError};

/// Four bytes from application to application, by convention a big-endian number.
//= rule wire-immediate: InfiniBand 9.3; rxe_hdr.h: rxe_immdt
//# Immediate data are four bytes, which keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Immediate(pub [u8; 4]);

impl Immediate {
    /// Splits immediate data off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`IMMEDIATE_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::Immediate, bytes) {
            Ok((head, rest)) => Ok((Self(*head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; IMMEDIATE_LEN] {
        self.0
    }
}

/// The key (IETH) that the receiver of a SEND with Invalidate invalidates.
//= rule wire-ieth: InfiniBand 9.3; rxe_hdr.h: rxe_ieth
//# The header of a SEND with Invalidate is a key, most significant byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InvalidateKey(pub u32);

impl InvalidateKey {
    /// Splits a key off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`INVALIDATE_KEY_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::InvalidateKey, bytes) {
            Ok((head, rest)) => Ok((Self(u32::from_be_bytes(*head)), rest)),
            Err(short) => Err(short),
        }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; INVALIDATE_KEY_LEN] {
        self.0.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-immediate
    //= test wire-ieth
    #[test]
    fn immediate_bytes_keep_their_order_and_a_key_stands_most_significant_first() {
        assert_eq!(Immediate([1, 2, 3, 4]).to_bytes(), [1, 2, 3, 4]);
        assert_eq!(InvalidateKey(0x0102_0304).to_bytes(), [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn both_survive_the_wire(bytes: [u8; 4], key: u32) {
            let immediate = Immediate(bytes);
            let bytes = immediate.to_bytes();
            prop_assert_eq!(Immediate::split(&bytes), Ok((immediate, &[][..])));
            let key = InvalidateKey(key);
            let bytes = key.to_bytes();
            prop_assert_eq!(InvalidateKey::split(&bytes), Ok((key, &[][..])));
        }
    }
}
