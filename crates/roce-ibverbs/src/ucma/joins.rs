//! The numbers of joins of multicast groups.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::IpAddr;

use libc::{EINVAL, ENOENT, ENOMEM};

/// Most joins of a process.
const MAX: usize = 1 << 16;

/// The join of a group by an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinedGroup {
    /// Number of the identifier.
    pub(super) id: u32,
    /// Cookie of its channel.
    pub(super) channel: u64,
    /// What events of the group carry.
    pub(super) uid: u64,
    pub(super) group: IpAddr,
    /// Events that the program has fetched.
    pub(super) reported: u32,
}

/// The joins of a process by number. A number is used again only after all others were.
#[derive(Debug, Default)]
pub(super) struct Joins {
    joins: BTreeMap<u32, JoinedGroup>,
    next: u32,
}

impl Joins {
    /// Adds a join and returns its number.
    ///
    /// # Errors
    /// `ENOMEM` if there are too many.
    pub(super) fn add(&mut self, join: JoinedGroup) -> Result<u32, c_int> {
        if self.joins.len() >= MAX {
            return Err(ENOMEM);
        }
        while self.joins.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.joins.insert(number, join);
        self.next = number.wrapping_add(1);
        Ok(number)
    }

    /// Removes a join of a channel.
    ///
    /// # Errors
    /// `ENOENT` without the join, `EINVAL` for one of another channel.
    pub(super) fn take(&mut self, number: u32, channel: u64) -> Result<JoinedGroup, c_int> {
        let join = *self.joins.get(&number).ok_or(ENOENT)?;
        if join.channel != channel {
            return Err(EINVAL);
        }
        self.joins.remove(&number);
        Ok(join)
    }

    /// Returns the join that an event is for, of an identifier.
    pub(super) fn of_event(&mut self, number: u64, id: u32) -> Option<(u32, &mut JoinedGroup)> {
        let number = u32::try_from(number).ok()?;
        let join = self.joins.get_mut(&number).filter(|join| join.id == id)?;
        Some((number, join))
    }

    /// Removes the joins of an identifier.
    pub(super) fn remove_those_of(&mut self, id: u32) {
        self.joins.retain(|_, join| join.id != id);
    }

    /// Moves the joins of an identifier to another channel.
    pub(super) fn migrate(&mut self, id: u32, channel: u64) {
        let of_id = self.joins.values_mut().filter(|join| join.id == id);
        of_id.for_each(|join| join.channel = channel);
    }

    /// Removes the joins of a channel.
    pub(super) fn remove_those_on(&mut self, channel: u64) {
        self.joins.retain(|_, join| join.channel != channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(id: u32, channel: u64) -> JoinedGroup {
        JoinedGroup { id, channel, uid: 9, group: [239, 1, 2, 3].into(), reported: 0 }
    }

    #[test]
    fn a_join_is_left_on_its_channel_alone_and_its_number_is_not_used_again() {
        let mut joins = Joins::default();
        let [first, second] = [0, 1].map(|id| joins.add(join(id, 5)).unwrap());
        assert_eq!(joins.take(first, 6), Err(EINVAL));
        joins.migrate(0, 6);
        assert_eq!(joins.take(first, 6), Ok(join(0, 6)));
        assert_eq!((joins.take(first, 6), joins.take(99, 6)), (Err(ENOENT), Err(ENOENT)));
        assert!(![first, second].contains(&joins.add(join(0, 5)).unwrap()));
        assert!(joins.of_event(second.into(), 0).is_none());
        assert_eq!(joins.of_event(second.into(), 1).map(|(number, _)| number), Some(second));
        joins.remove_those_of(1);
        assert_eq!(joins.take(second, 5), Err(ENOENT));
    }

    #[test]
    fn there_are_not_more_joins_than_the_limit() {
        let mut joins = Joins { joins: BTreeMap::new(), next: u32::MAX };
        let numbers: Vec<_> = (0..MAX).map(|_| joins.add(join(0, 5)).unwrap()).collect();
        assert_eq!(numbers[..2], [u32::MAX, 0]);
        assert_eq!(joins.add(join(0, 5)), Err(ENOMEM));
        joins.remove_those_on(5);
        assert!(joins.add(join(0, 5)).is_ok());
    }
}
