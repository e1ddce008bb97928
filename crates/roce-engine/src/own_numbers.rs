//! The queue pair numbers of this process.

use roce_io::{Filter, QpnBlocks};
use roce_wire::Qpn;

/// Bits of a queue pair number within its block.
const BLOCK_BITS: u32 = 12;

/// The blocks of queue pair numbers that this process owns, each of 4 096 numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNumbers {
    /// The upper twelve bits of their numbers.
    pub blocks: Vec<u16>,
    /// The general services queue pair, number 1, exists.
    pub general_services: bool,
    /// Queue pairs are members of multicast groups.
    pub multicast: bool,
}

impl OwnNumbers {
    /// Returns true if a number is in a block of this process: then it is of no other process.
    #[inline]
    pub(crate) fn owns(&self, qpn: Qpn) -> bool {
        self.blocks.iter().any(|block| u32::from(*block) == qpn.get() >> BLOCK_BITS)
    }

    /// Returns the filter of frames to these numbers.
    pub fn filter(&self) -> Filter {
        Filter {
            udp_port: roce_wire::ROCE_V2_PORT,
            qpn_blocks: QpnBlocks::Only(self.blocks.clone()),
            general_services: self.general_services,
            multicast: self.multicast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_owns_all_numbers_of_its_blocks_and_no_others() {
        let numbers = OwnNumbers { blocks: vec![0x123, 0xfff], ..OwnNumbers::default() };
        let owns = |number| numbers.owns(Qpn::new(number).unwrap());
        assert!(owns(0x12_3000) && owns(0x12_3fff) && owns(0xff_f001));
        assert!(!owns(0x12_2fff) && !owns(0x12_4000) && !numbers.owns(Qpn::GSI));
    }
}
