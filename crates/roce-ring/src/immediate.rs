//! The 32-bit immediate that identifies a message.

/// The meaning of an immediate.
///
/// ```
/// use roce_ring::{Immediate, OpTag};
///
/// let tag = OpTag { number: 1, signature: 0x31f4 };
/// assert_eq!(Immediate::Slot(tag).to_bits(), 0x0001_31f4);
/// assert_eq!(Immediate::from_bits(0x8000_0002), Immediate::Credit { consumed: 2 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Immediate {
    /// Data of an operation, in a slot.
    Slot(OpTag),
    /// Data of an operation, written directly to the output.
    Window(OpTag),
    /// The number of DATA messages of the lane consumed since the beginning, mod 2^30.
    Credit {
        /// That number.
        consumed: u32,
    },
    /// The window record for an operation was written.
    Announce(OpTag),
}

impl Immediate {
    /// Decodes an immediate; every value is valid.
    pub const fn from_bits(bits: u32) -> Self {
        let tag =
            OpTag { number: (bits >> 16) as u16 & OpTag::NUMBER_MASK, signature: bits as u16 };
        match bits >> 30 {
            0 => Self::Slot(tag),
            1 => Self::Window(tag),
            2 => Self::Credit { consumed: bits & Self::CREDIT_MASK },
            _ => Self::Announce(tag),
        }
    }

    /// Encodes the immediate. The most significant byte goes first on the wire.
    pub const fn to_bits(self) -> u32 {
        match self {
            Self::Slot(tag) => tag.to_bits(),
            Self::Window(tag) => 1 << 30 | tag.to_bits(),
            Self::Credit { consumed } => 2 << 30 | consumed & Self::CREDIT_MASK,
            Self::Announce(tag) => 3 << 30 | tag.to_bits(),
        }
    }

    /// Returns true for data, false for a credit or a window.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Slot(_) | Self::Window(_))
    }

    pub(crate) const CREDIT_MASK: u32 = (1 << 30) - 1;
}

/// The operation that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpTag {
    /// The operation's number mod 2^14.
    pub number: u16,
    /// The operation's [`signature`](crate::Operation::signature).
    pub signature: u16,
}

impl OpTag {
    pub(crate) const NUMBER_MASK: u16 = (1 << 14) - 1;

    const fn to_bits(self) -> u32 {
        ((self.number & Self::NUMBER_MASK) as u32) << 16 | self.signature as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_immediate_is_written_back_as_it_came() {
        // All kinds, each single bit, and a spread of others.
        let single = (0..32).map(|bit| 1 << bit);
        let spread = (0..1000_u32).map(|i| i.wrapping_mul(0x9e37_79b9));
        for bits in single.chain(spread).chain([0, u32::MAX]) {
            assert_eq!(Immediate::from_bits(bits).to_bits(), bits, "{bits:#x}");
        }
    }
}
