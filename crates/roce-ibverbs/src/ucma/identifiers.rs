//! The numbers of identifiers.

use std::ffi::c_int;

use libc::ENOENT;
use roce_abi::rdma_cm::sockaddr_ib;
use roce_verbs::cm;

/// Most identifiers of a process: librdmacm keeps their numbers in 16 bits.
const MAX: usize = 1 << 16;

/// An identifier of the program.
#[derive(Debug)]
pub(super) struct Identifier {
    pub(super) id: cm::Id,
    /// What its events carry; 0 while the program has not accepted the request that it is for.
    pub(super) uid: u64,
    /// Cookie of its channel.
    pub(super) channel: u64,
    /// That of the channel that it, or the listener of its request, was moved from: until `rdma_migrate_id` has
    /// returned, librdmacm sends the commands of a thread that has an event of the new channel to the old one.
    pub(super) moved_from: Option<u64>,
    /// Events that the program has fetched. Those of requests count on their listener.
    pub(super) reported: u32,
    /// The address of InfiniBand that it was bound to: librdmacm tries whether that is possible.
    pub(super) ib_address: Option<sockaddr_ib>,
}

impl Identifier {
    fn is_found_on(&self, channel: u64) -> bool {
        self.channel == channel || self.moved_from == Some(channel)
    }
}

/// The identifiers of a process by number. Numbers are dense, and used again.
#[derive(Debug, Default)]
pub(super) struct Identifiers {
    places: Vec<Option<Identifier>>,
}

impl Identifiers {
    /// Adds an identifier and returns its number; `None` if there are too many.
    pub(super) fn add(&mut self, id: cm::Id, uid: u64, channel: u64) -> Option<u32> {
        let free = self.places.iter().position(Option::is_none);
        let number = free.unwrap_or(self.places.len());
        if number >= MAX {
            return None;
        }
        if free.is_none() {
            self.places.push(None);
        }
        // Events lead back to the number; 0 is an identifier that has none yet.
        id.set_context(number as u64 + 1);
        let moved_from = None;
        let new = Identifier { id, uid, channel, moved_from, reported: 0, ib_address: None };
        *self.places.get_mut(number)? = Some(new);
        Some(number as u32)
    }

    /// Returns an identifier of a channel, or of one that it was moved from.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(super) fn find(&self, number: u32, channel: u64) -> Result<&Identifier, c_int> {
        let place = self.places.get(number as usize).and_then(Option::as_ref);
        place.filter(|identifier| identifier.is_found_on(channel)).ok_or(ENOENT)
    }

    /// As [`find`](Self::find), to be changed.
    pub(super) fn find_mut(&mut self, number: u32, channel: u64) -> Result<&mut Identifier, c_int> {
        let place = self.places.get_mut(number as usize).and_then(Option::as_mut);
        place.filter(|identifier| identifier.is_found_on(channel)).ok_or(ENOENT)
    }

    /// Returns number and identifier of what an event is for.
    pub(super) fn of_event(&mut self, id: &cm::Id) -> Option<(u32, &mut Identifier)> {
        let number = usize::try_from(id.context()).ok()?.checked_sub(1)?;
        let identifier = self.places.get_mut(number)?.as_mut()?;
        (identifier.id == *id).then_some((number as u32, identifier))
    }

    /// Removes an identifier of a channel.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(super) fn take(&mut self, number: u32, channel: u64) -> Result<Identifier, c_int> {
        self.find(number, channel)?;
        self.places.get_mut(number as usize).and_then(Option::take).ok_or(ENOENT)
    }

    /// Removes the identifiers of a channel.
    pub(super) fn take_those_of(&mut self, channel: u64) -> Vec<Identifier> {
        let is_on = |place: &&mut Option<Identifier>| {
            place.as_ref().is_some_and(|identifier| identifier.channel == channel)
        };
        self.places.iter_mut().filter(is_on).filter_map(Option::take).collect()
    }
}
