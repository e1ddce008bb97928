//! The configuration of a ring, and its geometry from one rank's position.

use crate::Side;

/// The configuration that all ranks of a ring share: the `ring.*` keys of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingConfig {
    /// Queue pairs per neighbour, over all interfaces together: 1 to 64.
    pub lanes: u32,
    /// Staging slots per lane: 1 to 1024.
    pub slots: u32,
    /// Bytes per slot: 8 to 16 MiB; when split, at least 8 for each lane.
    pub slot_bytes: u32,
    /// The most bytes of an operation that uses the small-message algorithm; `slot_bytes` limits it
    /// too.
    pub small_message_max: u32,
    /// True to make pieces `lanes` times smaller.
    pub split: bool,
}

impl Default for RingConfig {
    /// One lane of 16 slots of 128 KiB; small messages up to 32 KiB. With three ranks on two cores,
    /// 8 slots lose an eighth of the bandwidth of large sums.
    ///
    /// The small-message algorithm takes half the steps, but each moves the whole vector. It wins
    /// while moving these bytes costs less than the fixed cost of a message, whatever the number of
    /// ranks. Over veth it halves the time of 8 and 16 KiB with two and three ranks, and takes a
    /// third off 32 KiB; with infinitely fast hosts at 100 Gbit/s it wins up to 16 KiB.
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
    /// Returns the defaults for a ring of `size` ranks: small messages up to 64 KiB in small rings.
    ///
    /// The sequential messages carry `size` − 1 vectors in the small-message algorithm and less
    /// than two in the other. In small rings the difference is small, so the former wins for
    /// longer: with two to four ranks over veth it takes a quarter off 64 KiB, nothing off 128 KiB.
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

/// Largest ring in which small messages have up to 64 KiB.
const SMALL_RING_MAX_RANKS: u32 = 4;

/// A rank's position in a ring of known configuration.
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
    /// Returns the position of `rank` among `size` ranks.
    ///
    /// # Errors
    /// [`GeometryError`] names the value that is out of range.
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

    /// Returns this rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the configuration of the ring.
    pub const fn config(&self) -> &RingConfig {
        &self.config
    }

    /// Returns the number of lanes.
    pub const fn lanes(&self) -> u32 {
        self.config.lanes
    }

    /// Returns the number of slots per lane.
    pub const fn slots(&self) -> u32 {
        self.config.slots
    }

    /// Returns the rank that this rank sends to.
    pub const fn next(&self) -> u32 {
        self.ahead(1)
    }

    /// Returns the rank that this rank receives from.
    pub const fn previous(&self) -> u32 {
        self.ahead(self.size - 1)
    }

    /// Returns the bytes of staging memory per lane for the previous rank: its slots.
    pub const fn staging_bytes(&self) -> u64 {
        self.config.slots as u64 * self.config.slot_bytes as u64
    }

    /// Returns the bytes of staging memory per lane for the next rank, which sends messages of the
    /// small-message algorithm only.
    pub const fn back_staging_bytes(&self) -> u64 {
        self.config.slots as u64 * self.slot_pitch(Side::Next)
    }

    /// Returns the distance in bytes between the slots that `writer` writes.
    pub const fn slot_pitch(&self, writer: Side) -> u64 {
        match writer {
            Side::Previous => self.config.slot_bytes as u64,
            Side::Next if self.small_message_max() < 8 => 8,
            Side::Next => self.small_message_max(),
        }
    }

    /// Returns the bytes of scratch memory for any operation: a rotation of slots.
    pub const fn scratch_bytes(&self) -> u64 {
        self.staging_bytes()
    }

    /// Returns the most bytes of an operation that uses the small-message algorithm.
    pub const fn small_message_max(&self) -> u64 {
        let RingConfig { small_message_max, slot_bytes, .. } = self.config;
        if small_message_max < slot_bytes { small_message_max as u64 } else { slot_bytes as u64 }
    }

    /// Returns the receives to post on each queue pair: for data, credits and windows.
    pub const fn receives(&self) -> u32 {
        2 * self.config.slots + 2
    }

    /// Returns the most outstanding sends on a queue pair: the required depth of its send queue.
    pub const fn sends(&self) -> u32 {
        self.data_sends() + self.control_sends()
    }

    /// Returns the most outstanding sends with data.
    pub(crate) const fn data_sends(&self) -> u32 {
        4 * self.config.slots
    }

    /// Returns the most outstanding credits and windows.
    pub(crate) const fn control_sends(&self) -> u32 {
        4 * self.config.slots + 2
    }

    /// Returns the most elements of `element` bytes per message.
    pub(crate) fn max_piece(&self, element: usize) -> u64 {
        let RingConfig { lanes, slot_bytes, split, .. } = self.config;
        let bytes = if split { slot_bytes / lanes } else { slot_bytes };
        u64::from(bytes) / element as u64
    }

    /// Returns the rank `distance` (at most `size`) positions ahead in the ring.
    pub(crate) const fn ahead(&self, distance: u32) -> u32 {
        ((self.rank as u64 + distance as u64) % self.size as u64) as u32
    }

    /// Returns the rank `distance` (at most `size`) positions behind in the ring.
    pub(crate) const fn behind(&self, distance: u32) -> u32 {
        self.ahead(self.size - distance)
    }
}

/// An invalid rank, size or configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A value is out of its range.
    #[error("{what} is {value}, but must be {min} to {max}")]
    OutOfRange {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: u32,
        /// The minimum.
        min: u32,
        /// The maximum.
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
    fn every_value_has_its_range() {
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
