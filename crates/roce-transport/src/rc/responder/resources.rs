//! Responder resources: READs and atomics that the peer may repeat.

use alloc::collections::VecDeque;

use roce_wire::{Operation, PathMtu, Psn, Reth};

/// A READ or atomic that was executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    /// PSN of the request and of the first response.
    pub(crate) first: Psn,
    /// PSNs of the responses.
    pub(crate) packets: u32,
    pub(crate) replay: Replay,
}

/// How to respond again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replay {
    /// Read these bytes again.
    Read(Reth),
    /// Send the word again that it held: an atomic must not be executed twice.
    Atomic { operation: Operation, original: u64 },
    /// Send the empty response to an ATOMIC WRITE again.
    AtomicWrite,
}

/// The last READs and atomics, oldest first, as many as the peer may have outstanding.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    ring: VecDeque<Resource>,
    capacity: usize,
}

impl Resources {
    /// Room for `max_dest_rd_atomic` of them, rounded up to a power of two, as rxe rounds the number
    /// that it may have outstanding.
    pub(crate) fn new(max_dest_rd_atomic: u8) -> Self {
        let mut resources = Self::default();
        resources.set_capacity(max_dest_rd_atomic);
        resources
    }

    /// Sets the capacity for the next insertion. Nothing is evicted before: the peer may not have the
    /// responses.
    pub(crate) fn set_capacity(&mut self, max_dest_rd_atomic: u8) {
        self.capacity = match usize::from(max_dest_rd_atomic) {
            0 => 0,
            //= rule rc-responder-resources: rxe_qp.c: rxe_qp_from_attr
            //# The number of responder resources is rounded up to a power of two.
            some => some.next_power_of_two(),
        };
    }

    /// Returns true if the peer may send READs and atomics.
    pub(crate) const fn are_allowed(&self) -> bool {
        self.capacity > 0
    }

    /// The oldest, if it must be evicted before another is inserted.
    pub(crate) fn oldest_if_full(&self) -> Option<&Resource> {
        self.ring.front().filter(|_| self.ring.len() >= self.capacity)
    }

    /// Evicts the oldest.
    pub(crate) fn evict_oldest(&mut self) {
        self.ring.pop_front();
    }

    /// Adds one more.
    pub(crate) fn insert(&mut self, resource: Resource) {
        debug_assert!(
            self.oldest_if_full().is_none(),
            "room is made before a response is remembered"
        );
        self.ring.push_back(resource);
    }

    /// The READ that a repeated request from `psn` on for `again` is part of. A requester may repeat
    /// the rest of a request alone.
    //= also rc-duplicate-read
    pub(crate) fn find_read(&self, psn: Psn, again: Reth, mtu: PathMtu) -> Option<&Resource> {
        self.newest_around(psn).filter(|found| {
            let Replay::Read(whole) = found.replay else { return false };
            let skipped = psn.distance_from(found.first) as u64 * mtu.bytes() as u64;
            let end = skipped + u64::from(again.len);
            again.rkey == whole.rkey
                && again.addr == whole.addr.wrapping_add(skipped)
                && end <= u64::from(whole.len)
        })
    }

    /// The result of the atomic with this PSN.
    //= also rc-duplicate-atomic
    pub(crate) fn find_atomic(&self, psn: Psn, asked: Operation) -> Option<u64> {
        match self.newest_around(psn)?.replay {
            Replay::Atomic { operation, original } if operation == asked => Some(original),
            _ => None,
        }
    }

    /// Returns true if the ATOMIC WRITE with this PSN was executed.
    pub(crate) fn has_atomic_write(&self, psn: Psn) -> bool {
        self.newest_around(psn).is_some_and(|it| matches!(it.replay, Replay::AtomicWrite))
    }

    fn newest_around(&self, psn: Psn) -> Option<&Resource> {
        self.ring.iter().rev().find(|it| {
            let ahead = psn.distance_from(it.first);
            ahead >= 0 && (ahead as u32) < it.packets
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: PathMtu = PathMtu::B256;
    const READ: Reth = Reth { addr: 0x1000, rkey: 7, len: 1000 };

    fn psn(raw: u32) -> Psn {
        Psn::wrapping(raw)
    }

    fn remembering() -> Resources {
        let mut resources = Resources::new(2);
        resources.insert(Resource {
            first: psn(0xff_fffe),
            packets: 4,
            replay: Replay::Read(READ),
        });
        resources
    }

    #[test]
    fn the_rest_of_a_read_may_be_repeated_across_the_wrap() {
        let resources = remembering();
        let rest = Reth { addr: 0x1200, len: 488, ..READ };
        assert!(resources.find_read(psn(0xff_fffe), READ, MTU).is_some());
        assert!(resources.find_read(psn(0), rest, MTU).is_some());
        assert!(resources.find_read(psn(0), Reth { len: 256, ..rest }, MTU).is_some());
    }

    //= test rc-duplicate-read
    #[test]
    fn what_was_not_read_before_cannot_be_read_again() {
        let resources = remembering();
        for (from, again) in [
            (psn(0xff_fffe), Reth { len: 1001, ..READ }),
            (psn(0xff_fffe), Reth { rkey: 8, ..READ }),
            (psn(0xff_fffe), Reth { addr: 0xfff, ..READ }),
            (psn(0), READ),
            (psn(0xff_fffd), READ),
            (psn(2), Reth { len: 0, ..READ }),
        ] {
            assert!(resources.find_read(from, again, MTU).is_none(), "{from:?} {again:?}");
        }
    }

    //= test rc-responder-resources
    #[test]
    fn the_oldest_is_evicted_first_and_the_capacity_is_a_power_of_two() {
        let mut resources = Resources::new(3);
        for i in 0..5 {
            assert_eq!(resources.oldest_if_full().is_some(), i == 4);
            while resources.oldest_if_full().is_some() {
                resources.evict_oldest();
            }
            let replay = Replay::Atomic { operation: Operation::FetchAdd, original: 40 + i };
            resources.insert(Resource { first: psn(i as u32), packets: 1, replay });
        }
        assert_eq!(resources.find_atomic(psn(0), Operation::FetchAdd), None);
        assert_eq!(resources.find_atomic(psn(1), Operation::FetchAdd), Some(41));
        assert_eq!(resources.find_atomic(psn(1), Operation::CompareSwap), None);
    }
}
