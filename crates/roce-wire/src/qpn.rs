//! Queue pair number.

use core::fmt;

/// Queue pair number, 24 bits, unique within a device.
///
/// ```
/// use roce_wire::Qpn;
/// assert_eq!(Qpn::new(0x12).unwrap().to_be_bytes(), [0, 0, 0x12]);
/// assert_eq!(Qpn::new(1 << 24), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The largest number.
    pub const MAX: Self = Self(0x00ff_ffff);
    /// The destination of multicast packets.
    //= rule wire-qpn-multicast: InfiniBand, clause not known; rxe_recv.c: hdr_check
    //# Queue pair number 0xffffff stands for multicast; no queue pair has it.
    pub const MULTICAST: Self = Self::MAX;
    /// The general services queue pair, for connection management.
    //= rule wire-qpn-gsi: InfiniBand, clause not known; rxe_recv.c: hdr_check
    //# Queue pair 1 is the general services interface, for connection management.
    pub const GSI: Self = Self(1);

    /// Creates one; `None` if `raw` needs more than 24 bits.
    pub const fn new(raw: u32) -> Option<Self> {
        if raw <= Self::MAX.0 { Some(Self(raw)) } else { None }
    }

    /// Returns the number, 0 ..= 2^24 - 1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Creates a number from the lower 24 bits of `raw`.
    pub(crate) const fn wrapping(raw: u32) -> Self {
        Self(raw & 0xff_ffff)
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
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qp:{:#08x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_more_than_24_bits_is_refused() {
        assert_eq!(Qpn::new(Qpn::MAX.get() + 1), None);
        assert_eq!(Qpn::new(Qpn::MAX.get()), Some(Qpn::MAX));
    }

    #[test]
    fn bytes_stand_most_significant_first() {
        let qpn = Qpn::new(0x01_0203).unwrap();
        assert_eq!(qpn.to_be_bytes(), [1, 2, 3]);
        assert_eq!(Qpn::from_be_bytes([1, 2, 3]), qpn);
    }

    #[test]
    fn the_text_is_the_same_width_for_every_number() {
        assert_eq!(format!("{:?} {}", Qpn::GSI, Qpn::MAX), "qp:0x000001 0xffffff");
    }
}
