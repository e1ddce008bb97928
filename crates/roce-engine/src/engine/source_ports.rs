//! The UDP source ports of frames, where the devices cannot send from each.

use roce_wire::{Qpn, source_port_for};

/// The UDP source ports that frames may have; empty: any.
#[derive(Clone, Debug, Default)]
pub(super) struct SourcePorts(Vec<u16>);

impl SourcePorts {
    pub(super) fn new(ports: Vec<u16>) -> Self {
        Self(ports)
    }

    /// Returns the source port of the packets between two queue pairs, always the same: one of two for each
    /// block of the peer's numbers, which is a process there. So a source port belongs to few processes, to
    /// which a host can give its packets without a look at the queue pair.
    #[inline]
    pub(super) fn port_for(&self, qpn: Qpn, dest_qpn: Qpn, flow_label: u32) -> u16 {
        let usual = source_port_for(qpn, dest_qpn, flow_label);
        match self.0.len() {
            0 => usual,
            count => {
                let block = (dest_qpn.get() >> BLOCK_BITS) as usize;
                self.0[(PORTS_OF_BLOCK * block + usize::from(usual) % PORTS_OF_BLOCK) % count]
            }
        }
    }
}

/// Bits of a queue pair number within the block of a process.
const BLOCK_BITS: u32 = 12;
/// Packets of queue pairs with different ports take different ways where several lead to the peer.
const PORTS_OF_BLOCK: usize = 2;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn queue_pairs_are_spread_over_the_ports_that_there_are() {
        let [a, b] = [0x12_3456, 0x65_4321].map(|number| Qpn::new(number).unwrap());
        assert_eq!(SourcePorts::default().port_for(a, b, 7), source_port_for(a, b, 7));
        let ports = SourcePorts::new((0xc000..0xc010).collect());
        let used_to = |block: u32| -> BTreeSet<u16> {
            let dest = Qpn::new(block << 12 | 0x321).unwrap();
            (1..100).map(|label| ports.port_for(a, dest, label)).collect()
        };
        // Eight processes in a row share none.
        let all: Vec<_> = (5..13).flat_map(used_to).collect();
        assert_eq!((used_to(5).len(), all.len()), (2, 16));
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 16);
        let one = SourcePorts::new(vec![0xd002]);
        assert_eq!(one.port_for(a, b, 7), 0xd002);
    }
}
