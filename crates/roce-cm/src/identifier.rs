//! Communication ids of an agent.

use std::collections::BTreeSet;

use roce_wire::management::CommunicationId;

use crate::random::Random;

/// Bits of a communication id that count; the bits above are the agent's prefix.
pub const COUNTED_ID_BITS: u32 = 20;

const MAX_IDS: usize = 1 << COUNTED_ID_BITS;

/// The communication ids that begin with one prefix.
///
/// They are given out in turn from a random start, so that an id is used again as late as possible.
#[derive(Debug)]
pub(crate) struct Identifiers {
    prefix: u32,
    next: u32,
    used: BTreeSet<CommunicationId>,
}

impl Identifiers {
    pub(crate) fn new(prefix: u16, random: &mut Random) -> Self {
        let prefix = u32::from(prefix) << COUNTED_ID_BITS;
        Self { prefix, next: random.number() as u32, used: BTreeSet::new() }
    }

    /// Returns an id that is not in use; `None` if all are.
    pub(crate) fn allocate(&mut self) -> Option<CommunicationId> {
        if self.used.len() >= MAX_IDS - 1 {
            return None;
        }
        loop {
            let id = CommunicationId(self.prefix | (self.next % MAX_IDS as u32));
            self.next = self.next.wrapping_add(1);
            // 0 stands for "none" in REJ.
            if id.0 != 0 && self.used.insert(id) {
                return Some(id);
            }
        }
    }

    /// Makes `id` available again.
    pub(crate) fn release(&mut self, id: CommunicationId) {
        self.used.remove(&id);
    }

    /// Returns true if `id` begins with the prefix.
    pub(crate) fn owns(&self, id: CommunicationId) -> bool {
        id.0 & !(MAX_IDS as u32 - 1) == self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_prefix_and_differ_until_they_are_released() {
        let mut identifiers = Identifiers::new(0xabc, &mut Random::new(1));
        let ids: BTreeSet<_> = (0..MAX_IDS - 1).map(|_| identifiers.allocate().unwrap()).collect();
        assert_eq!(ids.len(), MAX_IDS - 1);
        assert!(ids.iter().all(|id| id.0 >> COUNTED_ID_BITS == 0xabc && identifiers.owns(*id)));
        assert!(!identifiers.owns(CommunicationId(0xabb << COUNTED_ID_BITS)));
        assert_eq!(identifiers.allocate(), None);
        let released = *ids.first().unwrap();
        identifiers.release(released);
        assert!(identifiers.allocate().is_some());
        assert_eq!(identifiers.allocate(), None);
    }

    #[test]
    fn no_id_is_zero() {
        let mut identifiers = Identifiers::new(0, &mut Random::new(1));
        assert!((0..MAX_IDS - 1).all(|_| identifiers.allocate().unwrap().0 != 0));
    }
}
