//! The UDP source ports of frames, where the devices cannot send from each.

use roce_wire::{Qpn, source_port_for};

/// The UDP source ports that frames may have; empty: any.
#[derive(Clone, Debug, Default)]
pub(super) struct SourcePorts(Vec<u16>);

impl SourcePorts {
    pub(super) fn new(ports: Vec<u16>) -> Self {
        Self(ports)
    }

    /// Returns the source port of the packets between two queue pairs, always the same.
    #[inline]
    pub(super) fn port_for(&self, qpn: Qpn, dest_qpn: Qpn, flow_label: u32) -> u16 {
        let usual = source_port_for(qpn, dest_qpn, flow_label);
        match self.0.len() {
            0 => usual,
            count => self.0[usize::from(usual) % count],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_are_spread_over_the_ports_that_there_are() {
        let [a, b] = [0x12_3456, 0x65_4321].map(|number| Qpn::new(number).unwrap());
        assert_eq!(SourcePorts::default().port_for(a, b, 7), source_port_for(a, b, 7));
        let ports = SourcePorts::new(vec![0xc001, 0xd002, 0xe003]);
        let used: std::collections::BTreeSet<_> =
            (1..100).map(|label| ports.port_for(a, b, label)).collect();
        assert_eq!(used.into_iter().collect::<Vec<_>>(), [0xc001, 0xd002, 0xe003]);
    }
}
