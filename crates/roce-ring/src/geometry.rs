//! The shape of a ring, as one rank sees it.

use crate::Side;

/// What all ranks of a ring must have agreed upon: the `ring.*` keys of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingConfig {
    /// Queue pairs per neighbour, over all interfaces together: 1 to 64.
    pub lanes: u32,
    /// Staging slots per lane: 1 to 1024.
    pub slots: u32,
    /// Bytes per slot: 8 to 16 MiB; when split, at least 8 for each lane.
    pub slot_bytes: u32,
    /// Up to how many bytes an operation goes the small way; never more than `slot_bytes`.
    pub small_message_max: u32,
    /// Whether pieces are cut `lanes` times smaller.
    pub split: bool,
}

impl Default for RingConfig {
    /// One lane of 16 slots of 128 KiB; small up to 32 KiB. With three ranks on two processors,
    /// who must wait for each other's turns, 8 slots give an eighth less for large sums.
    ///
    /// The small way takes half as many steps, but a step takes as long as the whole vector
    /// does. So it wins until those bytes take as long as a message does besides, whatever the
    /// number of ranks. Over veth it halves the time of 8 and 16 KiB with two and three ranks, and
    /// takes a third off 32 KiB; with infinitely fast hosts at 100 Gbit/s it wins up to 16 KiB.
    fn default() -> Self {
        Self {
            lanes: 1,
            slots: 16,
            slot_bytes: 128 << 10,
            small_message_max: 32 << 10,
            split: false,
        }
    }
}

impl RingConfig {
    /// The defaults for a ring of `size` ranks: small up to 64 KiB where there are few.
    ///
    /// The messages that follow each other carry `size` − 1 vectors in the small way, and less than
    /// two in the other: with few ranks that is little more, or nothing, and the small way wins for
    /// longer. With two to four, over veth it takes a quarter off 64 KiB and nothing off 128 KiB.
    ///
    /// ```
    /// use roce_ring::RingConfig;
    ///
    /// assert_eq!(RingConfig::for_ranks(1000), RingConfig::default());
    /// assert_eq!(RingConfig::for_ranks(3).small_message_max, 64 << 10);
    /// ```
    pub fn for_ranks(size: u32) -> Self {
        let usual = Self::default();
        if size <= SMALL_RING_MAX_RANKS {
            Self { small_message_max: 64 << 10, ..usual }
        } else {
            usual
        }
    }
}

/// With so many ranks the small way wins for twice as long as with very many.
const SMALL_RING_MAX_RANKS: u32 = 4;

/// A rank's place in a ring of known settings.
///
/// ```
/// use roce_ring::{Geometry, RingConfig};
///
/// let ring = Geometry::new(2, 3, RingConfig::default()).unwrap();
/// assert_eq!((ring.previous(), ring.next()), (1, 0));
/// assert_eq!(ring.staging_bytes(), 2 << 20); // per lane
/// assert!(Geometry::new(3, 3, RingConfig::default()).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    rank: u32,
    size: u32,
    config: RingConfig,
}

impl Geometry {
    /// The place of `rank` among `size` ranks.
    ///
    /// # Errors
    /// [`GeometryError`] names what is out of range.
    pub fn new(rank: u32, size: u32, config: RingConfig) -> Result<Self, GeometryError> {
        let RingConfig { lanes, slots, slot_bytes, split, .. } = config;
        let min = if split { 8 * lanes.clamp(1, MAX_LANES) } else { 8 };
        let inside = |what, value, min, max| match value {
            value if (min..=max).contains(&value) => Ok(()),
            value => Err(GeometryError::OutOfRange { what, value, min, max }),
        };
        inside("size", size, 1, MAX_SIZE)?;
        inside("rank", rank, 0, size - 1)?;
        inside("lanes", lanes, 1, MAX_LANES)?;
        inside("slots", slots, 1, MAX_SLOTS)?;
        inside("slot_bytes", slot_bytes, min, MAX_SLOT_BYTES)?;
        Ok(Self { rank, size, config })
    }

    /// Our rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// What was agreed upon.
    pub const fn config(&self) -> &RingConfig {
        &self.config
    }

    /// How many lanes there are.
    pub const fn lanes(&self) -> u32 {
        self.config.lanes
    }

    /// How many slots a lane has.
    pub const fn slots(&self) -> u32 {
        self.config.slots
    }

    /// The rank that we send to.
    pub const fn next(&self) -> u32 {
        self.ahead(1)
    }

    /// The rank that we receive from.
    pub const fn previous(&self) -> u32 {
        self.ahead(self.size - 1)
    }

    /// Bytes of staging that each lane needs for the previous rank: its slots.
    pub const fn staging_bytes(&self) -> u64 {
        self.config.slots as u64 * self.config.slot_bytes as u64
    }

    /// Bytes of staging that each lane needs for the next rank: slots too, but only messages of
    /// the small way come from there.
    pub const fn back_staging_bytes(&self) -> u64 {
        self.config.slots as u64 * self.slot_pitch(Side::Next)
    }

    /// From one slot that this neighbour writes to the next one, in bytes.
    pub const fn slot_pitch(&self, writer: Side) -> u64 {
        match writer {
            Side::Previous => self.config.slot_bytes as u64,
            Side::Next if self.small_message_max() < 8 => 8,
            Side::Next => self.small_message_max(),
        }
    }

    /// Bytes of scratch that a rank needs, whatever the operation: a rotation of slots.
    pub const fn scratch_bytes(&self) -> u64 {
        self.staging_bytes()
    }

    /// Up to how many bytes an operation goes the small way.
    pub const fn small_message_max(&self) -> u64 {
        let RingConfig { small_message_max, slot_bytes, .. } = self.config;
        if small_message_max < slot_bytes { small_message_max as u64 } else { slot_bytes as u64 }
    }

    /// How many receives to arm on each queue pair: for data, and for credits and windows.
    pub const fn receives(&self) -> u32 {
        2 * self.config.slots + 2
    }

    /// How many sends the machine ever has uncompleted on a queue pair: its send queue must hold
    /// as many.
    pub const fn sends(&self) -> u32 {
        self.data_sends() + self.control_sends()
    }

    /// How many of them carry data.
    pub(crate) const fn data_sends(&self) -> u32 {
        4 * self.config.slots
    }

    /// And how many are credits and windows.
    pub(crate) const fn control_sends(&self) -> u32 {
        4 * self.config.slots + 2
    }

    /// Elements of `element` bytes per message at most.
    pub(crate) fn max_piece(&self, element: usize) -> u64 {
        let RingConfig { lanes, slot_bytes, split, .. } = self.config;
        let bytes = if split { slot_bytes / lanes } else { slot_bytes };
        u64::from(bytes) / element as u64
    }

    /// The rank `distance` (at most `size`) places ahead in the ring.
    pub(crate) const fn ahead(&self, distance: u32) -> u32 {
        ((self.rank as u64 + distance as u64) % self.size as u64) as u32
    }

    /// The rank `distance` (at most `size`) places behind in the ring.
    pub(crate) const fn behind(&self, distance: u32) -> u32 {
        self.ahead(self.size - distance)
    }
}

/// Why there is no such ring: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A number is out of its range.
    #[error("{what} is {value}, but must be {min} to {max}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: u32,
        /// The least that is allowed.
        min: u32,
        /// The most that is allowed.
        max: u32,
    },
}

const MAX_SIZE: u32 = 65536;
const MAX_LANES: u32 = 64;
const MAX_SLOTS: u32 = 1024;
const MAX_SLOT_BYTES: u32 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_range() {
        let good = RingConfig::default();
        let bad = [
            (0, 0, good),
            (0, 65537, good),
            (5, 5, good),
            (0, 2, RingConfig { lanes: 0, ..good }),
            (0, 2, RingConfig { lanes: u32::MAX, split: true, ..good }),
            (0, 2, RingConfig { slots: 1025, ..good }),
            (0, 2, RingConfig { slot_bytes: 7, ..good }),
            (0, 2, RingConfig { slot_bytes: 31, lanes: 4, split: true, ..good }),
            (0, 2, RingConfig { slot_bytes: u32::MAX, ..good }),
        ];
        for (rank, size, config) in bad {
            assert!(Geometry::new(rank, size, config).is_err(), "{rank} {size} {config:?}");
        }
        let split = RingConfig { slot_bytes: 32, lanes: 4, split: true, ..good };
        assert_eq!(Geometry::new(0, 2, split).unwrap().max_piece(8), 1);
    }
}
