//! RDMA Extended Transport Header (RETH).

use crate::{Layer, LenError, RETH_LEN};

/// The memory at the responder that a WRITE or READ accesses.
///
/// ```
/// use roce_wire::Reth;
/// let reth = Reth { addr: 0x1000, rkey: 0x11, len: 4096 };
/// assert_eq!(Reth::split(&reth.to_bytes()), Ok((reth, &[][..])));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at the responder.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole message, not of this packet.
    pub len: u32,
}

impl Reth {
    /// Splits a RETH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`RETH_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::Reth, bytes) {
            Ok((head, rest)) => Ok((Self::from_bytes(head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Reads the header; cannot fail.
    //= rule wire-reth: InfiniBand 9.3; rxe_hdr.h: rxe_reth
    //# A RETH is address, key and length.
    pub const fn from_bytes(bytes: &[u8; RETH_LEN]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Self {
            addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            rkey: u32::from_be_bytes([k0, k1, k2, k3]),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; RETH_LEN] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.addr.to_be_bytes();
        let [k0, k1, k2, k3] = self.rkey.to_be_bytes();
        let [l0, l1, l2, l3] = self.len.to_be_bytes();
        [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-reth
    #[test]
    fn fields_stand_in_the_order_address_key_length() {
        let reth = Reth { addr: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c, len: 0x0d0e_0f10 };
        assert_eq!(reth.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    }

    proptest! {
        #[test]
        fn parsed_headers_are_written_unchanged(bytes: [u8; RETH_LEN]) {
            prop_assert_eq!(Reth::from_bytes(&bytes).to_bytes(), bytes);
        }

        #[test]
        fn written_headers_are_parsed_unchanged(address: u64, key: u32, len: u32) {
            let reth = Reth { addr: address, rkey: key, len };
            let bytes = reth.to_bytes();
            prop_assert_eq!(Reth::split(&bytes), Ok((reth, &[][..])));
        }
    }
}
