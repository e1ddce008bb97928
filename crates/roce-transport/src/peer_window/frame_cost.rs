//! What a packet train costs the peer's receive ring.

/// Learns whether the path segments packet trains.
///
/// Where a train arrives whole, it takes one slot of the peer's receive ring. Where the sender's
/// kernel, a switch or a network card cuts it, each of its packets takes one. No field of the
/// protocol tells which, but losses do: a ring that is full loses whole frames. If the peer has
/// the first packets of a train and misses the next one, then the train was not one frame.
///
/// A packet that was damaged looks the same, so what was learned is forgotten, after twice as many
/// packets each time.
#[derive(Debug)]
pub(crate) struct FrameCost {
    /// Packets for which trains are still taken to be cut.
    cut_packets: u64,
    /// Packets for which they will be, once they are found to be cut.
    memory: u64,
}

const MIN_MEMORY: u64 = 1 << 14;
const MAX_MEMORY: u64 = 1 << 40;

impl Default for FrameCost {
    fn default() -> Self {
        Self { cut_packets: 0, memory: MIN_MEMORY }
    }
}

impl FrameCost {
    /// Returns true if trains are taken to be cut.
    pub(crate) const fn is_cut(&self) -> bool {
        self.cut_packets > 0
    }

    /// Returns the slots that a train of `packets` packets takes, which leaves now.
    pub(crate) fn on_sent(&mut self, packets: u32) -> u32 {
        if !self.is_cut() {
            return 1;
        }
        self.cut_packets = self.cut_packets.saturating_sub(packets.into());
        packets
    }

    /// The peer has the first packets of a train, and misses the next one.
    pub(crate) fn on_part_lost(&mut self) {
        if !self.is_cut() {
            self.memory = (2 * self.memory).min(MAX_MEMORY);
        }
        self.cut_packets = self.memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_takes_one_slot_until_a_part_of_one_is_lost() {
        let mut cost = FrameCost::default();
        assert_eq!(cost.on_sent(16), 1);
        cost.on_part_lost();
        assert_eq!(cost.on_sent(16), 16);
    }

    #[test]
    fn what_was_learned_is_remembered_twice_as_long_each_time() {
        let mut cost = FrameCost::default();
        let mut packets = [0; 3];
        for count in &mut packets {
            cost.on_part_lost();
            while cost.is_cut() {
                *count += u64::from(cost.on_sent(64));
            }
        }
        assert_eq!(packets, [2 * MIN_MEMORY, 4 * MIN_MEMORY, 8 * MIN_MEMORY]);
    }
}
