//! Datagram Extended Transport Header (DETH).

use crate::{DETH_LEN, Layer, LenError, Qpn};

/// Extension header of a datagram.
///
/// ```
/// use roce_wire::{Deth, GSI_Q_KEY, Qpn};
/// let deth = Deth { q_key: GSI_Q_KEY, source_qp: Qpn::GSI };
/// assert_eq!(deth.to_bytes(), [0x80, 1, 0, 0, 0, 0, 0, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Key that the receiving queue pair requires.
    pub q_key: u32,
    /// Queue pair to reply to.
    pub source_qp: Qpn,
}

impl Deth {
    /// Splits a DETH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`DETH_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::Deth, bytes) {
            Ok((head, rest)) => Ok((Self::from_bytes(head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Reads the header; cannot fail.
    //= rule wire-deth: InfiniBand 9.3; rxe_hdr.h: rxe_deth
    //# A DETH is the Q_Key, a reserved byte that is sent as zero, and the sender's queue pair.
    pub const fn from_bytes(bytes: &[u8; DETH_LEN]) -> Self {
        let [k0, k1, k2, k3, _reserved, q0, q1, q2] = *bytes;
        Self {
            q_key: u32::from_be_bytes([k0, k1, k2, k3]),
            source_qp: Qpn::from_be_bytes([q0, q1, q2]),
        }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; DETH_LEN] {
        let [k0, k1, k2, k3] = self.q_key.to_be_bytes();
        let [q0, q1, q2] = self.source_qp.to_be_bytes();
        [k0, k1, k2, k3, 0, q0, q1, q2]
    }
}

/// Q_Key of the general services queue pair.
pub const GSI_Q_KEY: u32 = 0x8001_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-deth
    #[test]
    fn fields_stand_in_the_order_key_reserved_byte_queue_pair() {
        let deth = Deth { q_key: 0x0102_0304, source_qp: Qpn::new(0x06_0708).unwrap() };
        assert_eq!(deth.to_bytes(), [1, 2, 3, 4, 0, 6, 7, 8]);
        assert_eq!(Deth::from_bytes(&[1, 2, 3, 4, 0xff, 6, 7, 8]), deth);
    }

    proptest! {
        #[test]
        fn parsed_headers_are_written_unchanged_except_for_the_reserved_byte(
            bytes: [u8; DETH_LEN],
        ) {
            let mut kept = bytes;
            kept[4] = 0;
            prop_assert_eq!(Deth::from_bytes(&bytes).to_bytes(), kept);
        }

        #[test]
        fn written_headers_are_parsed_unchanged(q_key: u32, qp in 0u32..1 << 24) {
            let deth = Deth { q_key, source_qp: Qpn::new(qp).unwrap() };
            let bytes = deth.to_bytes();
            prop_assert_eq!(Deth::split(&bytes), Ok((deth, &[][..])));
        }
    }
}
