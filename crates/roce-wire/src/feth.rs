//! FLUSH Extended Transport Header (FETH).

use crate::{FETH_LEN, Layer, LenError};

/// What a FLUSH does to the bytes that its RETH names.
///
/// ```
/// use roce_wire::{Feth, FlushExtent};
/// let feth = Feth::new(Feth::GLOBAL, FlushExtent::Range);
/// assert!(feth.is_global() && !feth.is_persistent());
/// assert_eq!(Feth::split(&feth.to_bytes()), Ok((feth, &[][..])));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    // Bytes, so that it finds place among the other headers: 8 bytes more of [`Headers`](crate::Headers) are 20
    // instructions more for each message of one packet.
    placement: u8,
    selectivity: u8,
}

/// Bytes that a FLUSH covers: its selectivity level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FlushExtent {
    /// Those of the RETH.
    #[default]
    Range,
    /// All of the memory region; address and length of the RETH mean nothing.
    Region,
}

impl Feth {
    /// Placement type: the bytes are visible to everything that reads the memory.
    pub const GLOBAL: u8 = 1;
    /// Placement type: the bytes survive a loss of power.
    pub const PERSISTENT: u8 = 1 << 1;

    /// Creates the header; `placement` is any of [`GLOBAL`](Self::GLOBAL) and
    /// [`PERSISTENT`](Self::PERSISTENT), of which only the low four bits are sent.
    pub const fn new(placement: u8, extent: FlushExtent) -> Self {
        Self { placement: placement & 0xf, selectivity: extent as u8 }
    }

    /// Splits a FETH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`FETH_LEN`] bytes are left.
    pub const fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        match LenError::split(Layer::Feth, bytes) {
            Ok((head, rest)) => Ok((Self::from_bytes(head), rest)),
            Err(short) => Err(short),
        }
    }

    /// Reads the header; cannot fail. Reserved bits are ignored.
    //= rule wire-feth: InfiniBand A19.4.1; rxe_hdr.h: rxe_feth
    //# A FETH is a word with the placement type in its lowest four bits and the selectivity level in
    //# the two above.
    pub const fn from_bytes(bytes: &[u8; FETH_LEN]) -> Self {
        let [.., low] = *bytes;
        Self { placement: low & 0xf, selectivity: low >> 4 & 3 }
    }

    /// Returns the bytes on the wire.
    pub const fn to_bytes(self) -> [u8; FETH_LEN] {
        [0, 0, 0, self.selectivity << 4 | self.placement]
    }

    /// Returns the placement type, four bits.
    pub const fn placement(self) -> u8 {
        self.placement
    }

    /// Returns true if the bytes are to be globally visible.
    pub const fn is_global(self) -> bool {
        self.placement() & Self::GLOBAL != 0
    }

    /// Returns true if the bytes are to be persistent.
    pub const fn is_persistent(self) -> bool {
        self.placement() & Self::PERSISTENT != 0
    }

    /// Returns the selectivity level, two bits.
    pub const fn selectivity(self) -> u8 {
        self.selectivity
    }

    /// Returns what the selectivity level means; `None` for a reserved one.
    pub const fn extent(self) -> Option<FlushExtent> {
        match self.selectivity() {
            0 => Some(FlushExtent::Range),
            1 => Some(FlushExtent::Region),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-feth
    #[test]
    fn placement_and_selectivity_are_the_lowest_six_bits_of_the_word() {
        let feth = Feth::new(Feth::PERSISTENT, FlushExtent::Region);
        assert_eq!(feth.to_bytes(), [0, 0, 0, 0x12]);
        assert_eq!(Feth::new(Feth::GLOBAL, FlushExtent::Range).to_bytes(), [0, 0, 0, 1]);
        let reserved = Feth::from_bytes(&[0, 0, 0, 0x20]);
        assert_eq!((reserved.selectivity(), reserved.extent()), (2, None));
    }

    #[test]
    fn a_placement_of_more_than_four_bits_does_not_change_the_selectivity() {
        assert_eq!(Feth::new(0xff, FlushExtent::Range).to_bytes(), [0, 0, 0, 0xf]);
    }

    proptest! {
        #[test]
        fn parsed_headers_are_written_unchanged_but_for_reserved_bits(bytes: [u8; FETH_LEN]) {
            let written = u32::from_be_bytes(Feth::from_bytes(&bytes).to_bytes());
            prop_assert_eq!(written, u32::from_be_bytes(bytes) & 0x3f);
        }
    }
}
