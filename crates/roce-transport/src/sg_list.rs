//! Scatter/gather lists.

use alloc::vec::Vec;

use smallvec::SmallVec;

/// A scatter/gather element: a piece of registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sge {
    /// The key of its region.
    pub lkey: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
}

/// SGEs that make up one message, in order. Up to four need no allocation; a queue pair takes
/// [`MAX_SGE`] at most.
///
/// ```
/// use roce_transport::{SgList, Sge};
/// let list = SgList::from([Sge { lkey: 7, addr: 0x1000, len: 5 }]);
/// assert_eq!(list.total_len(), 5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SgList(SmallVec<[Sge; 4]>);

/// Maximum SGEs of a request.
pub const MAX_SGE: u32 = 32;

impl SgList {
    /// Returns the bytes of all SGEs together.
    pub fn total_len(&self) -> u64 {
        self.0.iter().map(|sge| u64::from(sge.len)).sum()
    }

    /// Returns the number of SGEs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is no SGE.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces, in order.
    pub fn as_slice(&self) -> &[Sge] {
        &self.0
    }

    /// The pieces, in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Sge> {
        self.0.iter()
    }

    /// The parts that bytes `offset .. offset + len` of the message lie in, in order; empty
    /// parts are left out. Fewer bytes come out where the list is too short.
    pub fn parts(&self, offset: u64, len: u64) -> SgParts<'_> {
        SgParts { pieces: self.0.iter(), skip: offset, left: len }
    }
}

/// Part of an SGE; see [`SgList::parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SgPart {
    /// The key of the region.
    pub lkey: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u32,
    /// Bytes of the same SGE from `addr` on, for which one check suffices.
    pub rest_of_sge: u32,
}

/// Iterator made by [`SgList::parts`].
#[derive(Clone, Debug)]
pub struct SgParts<'a> {
    pieces: core::slice::Iter<'a, Sge>,
    skip: u64,
    left: u64,
}

impl Iterator for SgParts<'_> {
    type Item = SgPart;

    fn next(&mut self) -> Option<SgPart> {
        while self.left > 0 {
            let piece = self.pieces.next()?;
            let piece_len = u64::from(piece.len);
            if self.skip >= piece_len {
                self.skip -= piece_len;
                continue;
            }
            let rest = piece_len - self.skip;
            let len = rest.min(self.left);
            // An address near the end of the circle wraps, and the check refuses it.
            let address = piece.addr.wrapping_add(self.skip);
            self.skip = 0;
            self.left -= len;
            return Some(SgPart {
                lkey: piece.lkey,
                addr: address,
                len: len as u32,          // at most `piece.len`
                rest_of_sge: rest as u32, // likewise
            });
        }
        None
    }
}

impl From<&[Sge]> for SgList {
    fn from(pieces: &[Sge]) -> Self {
        Self(SmallVec::from_slice(pieces))
    }
}

impl From<Vec<Sge>> for SgList {
    fn from(pieces: Vec<Sge>) -> Self {
        Self(pieces.into_iter().collect())
    }
}

impl From<Sge> for SgList {
    fn from(piece: Sge) -> Self {
        Self::from([piece])
    }
}

impl<const N: usize> From<[Sge; N]> for SgList {
    fn from(pieces: [Sge; N]) -> Self {
        Self::from(pieces.as_slice())
    }
}

impl FromIterator<Sge> for SgList {
    fn from_iter<I: IntoIterator<Item = Sge>>(pieces: I) -> Self {
        Self(pieces.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_the_requested_bytes_each_once_and_in_order(
            lens in prop::collection::vec(0u32..9, 0..8), offset in 0u64..70, len in 0u64..70,
        ) {
            // Each byte of the message is its address; pieces lie far apart.
            let list: SgList = lens
                .iter()
                .enumerate()
                .map(|(i, len)| Sge { lkey: i as u32, addr: 1000 * i as u64, len: *len })
                .collect();
            let all: Vec<u64> =
                list.iter().flat_map(|sge| sge.addr..sge.addr + u64::from(sge.len)).collect();
            let got: Vec<u64> = list
                .parts(offset, len)
                .inspect(|part| assert!(part.len > 0 && part.len <= part.rest_of_sge))
                .flat_map(|part| part.addr..part.addr + u64::from(part.len))
                .collect();
            let expected: Vec<u64> =
                all.into_iter().skip(offset as usize).take(len as usize).collect();
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn up_to_four_pieces_need_no_allocation() {
        assert!(!SgList::from([Sge::default(); 4]).0.spilled());
    }
}
