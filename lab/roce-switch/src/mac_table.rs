//! Which address is behind which port.

use std::collections::HashMap;
use std::time::Duration;

use roce_fabric::Instant;
use roce_wire::MacAddr;

/// Addresses that have been seen as sources, with their ports.
#[derive(Debug, Default)]
pub(crate) struct MacTable {
    ports: HashMap<MacAddr, (usize, Instant)>,
}

impl MacTable {
    /// Notes that `source` sent by `port`. In a full table only known addresses are noted, until
    /// others have aged.
    pub(crate) fn learn(&mut self, now: Instant, source: MacAddr, port: usize) {
        if is_group(source) {
            return;
        }
        if !self.ports.contains_key(&source) && self.ports.len() >= MAX_ADDRESSES {
            self.ports.retain(|_, (_, seen)| now - *seen < AGEING);
            if self.ports.len() >= MAX_ADDRESSES {
                return;
            }
        }
        self.ports.insert(source, (port, now));
    }

    /// Returns the port of a destination; `None` if the frame goes to all ports.
    pub(crate) fn port(&self, now: Instant, destination: MacAddr) -> Option<usize> {
        let (port, seen) = self.ports.get(&destination)?;
        (now - *seen < AGEING).then_some(*port)
    }
}

/// Returns true for a multicast address and the broadcast address.
fn is_group(address: MacAddr) -> bool {
    address.0[0] & 1 != 0
}

/// Time without a frame after which an address is forgotten.
const AGEING: Duration = Duration::from_secs(300);

const MAX_ADDRESSES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> MacAddr {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddr([2, 0, a, b, c, d])
    }

    #[test]
    fn an_address_is_behind_the_port_that_it_sent_by_last() {
        let mut table = MacTable::default();
        let start = Instant::START;
        assert_eq!(table.port(start, mac(1)), None);
        table.learn(start, mac(1), 3);
        assert_eq!(table.port(start, mac(1)), Some(3));
        table.learn(start, mac(1), 0);
        assert_eq!(table.port(start, mac(1)), Some(0));
        assert_eq!(table.port(start + AGEING, mac(1)), None);
    }

    #[test]
    fn group_addresses_are_not_learned() {
        let mut table = MacTable::default();
        let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
        table.learn(Instant::START, group, 3);
        assert_eq!(table.port(Instant::START, group), None);
    }

    #[test]
    fn a_flood_of_sources_neither_grows_the_table_nor_moves_known_addresses() {
        let mut table = MacTable::default();
        for number in 0..2 * MAX_ADDRESSES as u32 {
            table.learn(Instant::START, mac(number), 1);
        }
        assert_eq!(table.ports.len(), MAX_ADDRESSES);
        table.learn(Instant::START, mac(0), 2);
        assert_eq!(table.port(Instant::START, mac(0)), Some(2));
        let later = Instant::START + AGEING;
        table.learn(later, mac(u32::MAX), 5);
        assert_eq!((table.ports.len(), table.port(later, mac(u32::MAX))), (1, Some(5)));
    }
}
