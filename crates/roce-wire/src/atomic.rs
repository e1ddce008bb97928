//! Extension headers of atomics.

use crate::{ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, Layer, LenError};

/// Extension header of an atomic request on eight bytes of the responder's memory.
///
/// ```
/// use roce_wire::AtomicEth;
/// let add_one = AtomicEth { addr: 0x1000, rkey: 0x11, swap_or_add: 1, compare: 0 };
/// assert_eq!(AtomicEth::split(&add_one.to_bytes()), Ok((add_one, &[][..])));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address of the eight bytes at the responder.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// The new value of a compare-and-swap, or the addend of a fetch-and-add.
    pub swap_or_add: u64,
    /// The expected value of a compare-and-swap; ignored in a fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Splits an AtomicETH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`ATOMIC_ETH_LEN`] bytes are left.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        let (head, rest) = LenError::split(Layer::AtomicEth, bytes)?;
        Ok((Self::from_bytes(head), rest))
    }

    /// Reads the header; cannot fail.
    //= rule wire-atomic-eth: InfiniBand 9.3; rxe_hdr.h: rxe_atmeth
    //# An AtomicETH is address, key, the value to swap in or add, and the value to compare.
    pub fn from_bytes(bytes: &[u8; ATOMIC_ETH_LEN]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Self { addr: long(0), rkey: word(8), swap_or_add: long(12), compare: long(20) }
    }

    /// Returns the bytes on the wire.
    pub fn to_bytes(self) -> [u8; ATOMIC_ETH_LEN] {
        let mut bytes = [0; ATOMIC_ETH_LEN];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }
}

/// Extension header of an atomic response: the previous value of the eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// The previous value.
    pub original: u64,
}

impl AtomicAckEth {
    /// Splits an AtomicAckETH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`ATOMIC_ACK_ETH_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::AtomicAckEth, bytes) {
            Ok((head, rest)) => Ok((Self::from_bytes(head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Reads the header; cannot fail.
    //= rule wire-atomic-ack: InfiniBand 9.3; rxe_hdr.h: rxe_atmack
    //# An AtomicAckETH is the value before the operation, most significant byte first.
    pub const fn from_bytes(bytes: &[u8; ATOMIC_ACK_ETH_LEN]) -> Self {
        Self { original: u64::from_be_bytes(*bytes) }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; ATOMIC_ACK_ETH_LEN] {
        self.original.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-atomic-eth
    #[test]
    fn fields_are_in_the_order_address_key_swap_compare() {
        let bytes: [u8; ATOMIC_ETH_LEN] = core::array::from_fn(|i| i as u8 + 1);
        let atomic = AtomicEth::from_bytes(&bytes);
        assert_eq!(atomic.addr, 0x0102_0304_0506_0708);
        assert_eq!(atomic.rkey, 0x090a_0b0c);
        assert_eq!(atomic.swap_or_add, 0x0d0e_0f10_1112_1314);
        assert_eq!(atomic.compare, 0x1516_1718_191a_1b1c);
    }

    //= test wire-atomic-ack
    #[test]
    fn the_original_value_stands_most_significant_byte_first() {
        let ack = AtomicAckEth { original: 0x0102_0304_0506_0708 };
        assert_eq!(ack.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(AtomicAckEth::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8]), ack);
    }

    proptest! {
        #[test]
        fn parsed_headers_are_written_unchanged(bytes: [u8; ATOMIC_ETH_LEN]) {
            prop_assert_eq!(AtomicEth::from_bytes(&bytes).to_bytes(), bytes);
        }

        #[test]
        fn written_headers_are_parsed_unchanged(
            address: u64, key: u32, swap_or_add: u64, compare: u64,
        ) {
            let atomic = AtomicEth { addr: address, rkey: key, swap_or_add, compare };
            let bytes = atomic.to_bytes();
            prop_assert_eq!(AtomicEth::split(&bytes), Ok((atomic, &[][..])));
        }

        #[test]
        fn every_original_value_survives_the_wire(original: u64) {
            let ack = AtomicAckEth { original };
            let bytes = ack.to_bytes();
            prop_assert_eq!(AtomicAckEth::split(&bytes), Ok((ack, &[][..])));
        }
    }
}
