//! Packet sequence number.

use core::fmt;

/// Packet sequence number, modulo 2^24.
///
/// There is no `Ord`, as "before" is not transitive modulo 2^24; use
/// [`distance_from`](Self::distance_from).
///
/// ```
/// use roce_wire::Psn;
/// let last = Psn::new(0xff_ffff).unwrap();
/// assert_eq!(last.advanced_by(1), Psn::ZERO);
/// assert_eq!(Psn::ZERO.distance_from(last), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The PSN zero, which follows the last one.
    pub const ZERO: Self = Self(0);
    /// Number of PSNs.
    pub const MODULUS: u32 = 1 << 24;
    /// Maximum distance of two PSNs whose order is defined.
    pub const HALF: u32 = Self::MODULUS / 2;

    /// Creates one; `None` if `raw` needs more than 24 bits.
    pub const fn new(raw: u32) -> Option<Self> {
        if raw < Self::MODULUS { Some(Self(raw)) } else { None }
    }

    /// Creates one from the low 24 bits of `raw`.
    pub const fn wrapping(raw: u32) -> Self {
        Self(raw & (Self::MODULUS - 1))
    }

    /// Returns the number, 0 ..= 2^24 - 1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Reads three bytes, most significant first.
    pub const fn from_be_bytes([a, b, c]: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, a, b, c]))
    }

    /// Returns three bytes, most significant first.
    pub const fn to_be_bytes(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }

    /// Returns the PSN `packets` later.
    //= rule psn-modulo: InfiniBand 9.7.1; rxe_hdr.h: BTH_PSN_MASK
    //# A PSN has 24 bits. Zero follows the largest.
    #[must_use]
    pub const fn advanced_by(self, packets: u32) -> Self {
        Self::wrapping(self.0.wrapping_add(packets))
    }

    /// Returns the previous PSN.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::wrapping(self.0.wrapping_sub(1))
    }

    /// Returns the number of packets from `origin` to `self`, -2^23 ..= 2^23 - 1; negative if
    /// `self` is before `origin`.
    //= rule psn-order: InfiniBand 9.7.1; rxe_verbs.h: psn_compare
    //# Of two PSNs that one is later to which fewer than 2^23 steps lead from the other.
    pub const fn distance_from(self, origin: Self) -> i32 {
        // Shifted to the top 24 bits, i32 does the wrapping and the sign.
        ((self.0.wrapping_sub(origin.0) << 8) as i32) >> 8
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn:{:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test psn-modulo
    #[test]
    fn the_successor_of_the_last_psn_is_zero() {
        assert_eq!(Psn(0x00ff_ffff).advanced_by(1), Psn(0));
        assert_eq!(Psn(0).distance_from(Psn(0x00ff_ffff)), 1);
        assert_eq!(Psn(0).previous(), Psn(0x00ff_ffff));
    }

    #[test]
    fn a_number_of_more_than_24_bits_is_refused() {
        assert_eq!(Psn::new(1 << 24), None);
        assert_eq!(Psn::new(0x00ff_ffff).map(Psn::get), Some(0x00ff_ffff));
    }

    //= test psn-order
    #[test]
    fn half_the_modulus_away_counts_as_before() {
        assert_eq!(Psn(Psn::HALF).distance_from(Psn(0)), -(Psn::HALF as i32));
        assert_eq!(Psn(Psn::HALF - 1).distance_from(Psn(0)), Psn::HALF as i32 - 1);
    }

    proptest! {
        //= test psn-order
        #[test]
        fn distance_undoes_advance_within_half_the_modulus(
            start in 0..Psn::MODULUS, step in 0..Psn::HALF,
        ) {
            let a = Psn(start);
            prop_assert_eq!(a.advanced_by(step).distance_from(a), step as i32);
        }

        #[test]
        fn the_previous_of_the_next_is_the_same(start in 0..Psn::MODULUS) {
            let a = Psn(start);
            prop_assert_eq!(a.advanced_by(1).previous(), a);
            prop_assert_eq!(a.previous().distance_from(a), -1);
        }

        #[test]
        fn a_psn_equals_the_one_read_from_its_bytes(raw in 0..Psn::MODULUS) {
            let a = Psn(raw);
            prop_assert_eq!(Psn::from_be_bytes(a.to_be_bytes()), a);
        }
    }
}
