//! Memory windows: keys that open a part of a region while they are bound.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

use roce_transport::{AccessFlags, Accessor, MemoryFault, PdHandle, WindowBinding};
use roce_wire::Qpn;

use crate::key_hasher::KeyHasher;

/// Most memory windows of a device.
pub const MAX_WINDOWS: usize = 1 << 19;

/// Numbers drawn for a new window before it is refused: the 24 bits that its keys begin with are a
/// sixteenth full at most, unless regions have taken the rest.
const MAX_DRAWS: usize = 1000;

/// The type of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// Opens its bytes to the queue pairs of its domain. A binding replaces the one before.
    Type1,
    /// Opens its bytes to the queue pair that bound it, whose peer may end that by a SEND with
    /// invalidate. Bound only while it is free.
    Type2B,
}

/// All memory windows of one device.
///
/// A region is named by its key, which is the same in the tables of all engines of the device.
#[derive(Debug, Default)]
pub(crate) struct WindowTable {
    windows: Vec<Option<Window>>,
    /// Slots of windows that were freed.
    free: Vec<usize>,
    /// Slots by the 24 bits that the keys of a window begin with.
    by_number: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    /// Slots of bound windows by the key of their region.
    of_regions: BTreeSet<(u32, usize)>,
    /// Bound windows of type 2B by their queue pair.
    of_queue_pairs: BTreeSet<(Qpn, usize)>,
    /// Number of the last binding; it wraps.
    last_binding: u32,
}

#[derive(Debug)]
struct Window {
    pd: PdHandle,
    window_type: WindowType,
    /// The present key, of the last binding.
    key: u32,
    bound: Option<Bound>,
}

/// The part of a region that a window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundRange {
    /// Key of the region.
    pub(crate) region: u32,
    /// Number of the registration under this key.
    pub(crate) registration: u64,
    /// Offset of the first byte in the region.
    pub(crate) offset: usize,
}

/// Names one binding of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindingName {
    /// Below [`MAX_WINDOWS`].
    slot: u32,
    number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Number of this binding.
    number: u32,
    range: BoundRange,
    /// Remote address of the first byte.
    first: u64,
    len: u64,
    access: AccessFlags,
    /// The only queue pair that may use it.
    qpn: Option<Qpn>,
}

/// Returns the 24 bits that all keys of a window begin with.
const fn number_of(key: u32) -> u32 {
    key >> 8
}

impl WindowTable {
    /// Returns true if a window has the first 24 bits of this key.
    #[inline]
    pub(crate) fn reserves(&self, key: u32) -> bool {
        !self.by_number.is_empty() && self.by_number.contains_key(&number_of(key))
    }

    /// Adds a window that is not bound, and returns its key; `None` if there are [`MAX_WINDOWS`].
    /// `is_taken` returns true for numbers that a region's key begins with.
    pub(crate) fn insert(
        &mut self,
        pd: PdHandle,
        window_type: WindowType,
        mut random: impl FnMut() -> u32,
        is_taken: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if self.by_number.len() >= MAX_WINDOWS {
            return None;
        }
        let is_free = |key: &u32| {
            let number = number_of(*key);
            number != 0 && !self.by_number.contains_key(&number) && !is_taken(number)
        };
        let key = std::iter::repeat_with(&mut random).take(MAX_DRAWS).find(is_free)?;
        let window = Some(Window { pd, window_type, key, bound: None });
        let slot = self.free.pop().unwrap_or(self.windows.len());
        match self.windows.get_mut(slot) {
            Some(free) => *free = window,
            None => self.windows.push(window),
        }
        self.by_number.insert(number_of(key), slot);
        Some(key)
    }

    /// Removes a window.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(slot) = self.by_number.remove(&number) else { return };
        self.unbind(slot);
        self.windows[slot] = None;
        self.free.push(slot);
    }

    /// Returns the present key of a window, and whether it is bound.
    pub(crate) fn state(&self, number: u32) -> Option<(u32, bool)> {
        let window = self.windows.get(*self.by_number.get(&number)?)?.as_ref()?;
        Some((window.key, window.bound.is_some()))
    }

    /// Returns the number of windows that are bound to a region.
    pub(crate) fn count_of_region(&self, region: u32) -> usize {
        self.of_regions.range((region, 0)..=(region, usize::MAX)).count()
    }

    /// Returns true if a window is bound to this region.
    pub(crate) fn has_region(&self, region: u32) -> bool {
        self.of_regions.range((region, 0)..=(region, usize::MAX)).next().is_some()
    }

    /// Unbinds the windows of this region, but for those that are bound to the registration `kept`.
    pub(crate) fn unbind_region(&mut self, region: u32, kept: Option<u64>) {
        let of_region = self.of_regions.range((region, 0)..=(region, usize::MAX));
        let slots: Vec<usize> = of_region.map(|(_, slot)| *slot).collect();
        for slot in slots {
            let bound = self.windows[slot].as_ref().and_then(|window| window.bound);
            if bound.is_some_and(|bound| Some(bound.range.registration) != kept) {
                self.unbind(slot);
            }
        }
    }

    /// Unbinds the windows of type 2B of this queue pair.
    pub(crate) fn unbind_queue_pair(&mut self, qpn: Qpn) {
        while let Some((_, slot)) =
            self.of_queue_pairs.range((qpn, 0)..=(qpn, usize::MAX)).next().copied()
        {
            self.unbind(slot);
        }
    }

    fn unbind(&mut self, slot: usize) {
        let window = self.windows.get_mut(slot).and_then(Option::as_mut);
        let Some(bound) = window.and_then(|window| window.bound.take()) else { return };
        self.of_regions.remove(&(bound.range.region, slot));
        if let Some(qpn) = bound.qpn {
            self.of_queue_pairs.remove(&(qpn, slot));
        }
    }

    /// Returns the slot of the window that is bound under this key, with the window and the binding.
    fn bound_under(&self, key: u32) -> Option<(usize, &Window, &Bound)> {
        let slot = *self.by_number.get(&number_of(key))?;
        let window = self.windows.get(slot)?.as_ref().filter(|window| window.key == key)?;
        Some((slot, window, window.bound.as_ref()?))
    }

    /// Checks what a binding asks of the window itself. Returns its slot.
    ///
    /// # Errors
    /// [`MemoryFault`]: the window cannot be bound like this.
    pub(crate) fn check_binding(
        &self,
        by: Accessor,
        to: &WindowBinding,
    ) -> Result<usize, MemoryFault> {
        let slot = *self.by_number.get(&to.window).ok_or(MemoryFault::UnknownKey)?;
        let window = self.windows.get(slot).and_then(Option::as_ref);
        let window = window.ok_or(MemoryFault::UnknownKey)?;
        //= rule mw-bind-domain: InfiniBand C10-72; rxe_mw.c: rxe_check_bind_mw
        //# A window is bound by a queue pair of its protection domain, to a region of that domain.
        if window.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        let is_refused = match window.window_type {
            //= rule mw-type1-zero-based: InfiniBand o10-36.2.2; rxe_mw.c: rxe_check_bind_mw
            //# A window of type 1 has the addresses of its region; one of type 2 may begin at 0.
            WindowType::Type1 => to.access.contains(AccessFlags::ZERO_BASED),
            //= rule mw-type2-free: InfiniBand o10-37.2.30; rxe_mw.c: rxe_check_bind_mw
            //# A window of type 2 is bound only while it is free: invalidation frees it.
            //= rule mw-type2-empty: InfiniBand o10-37.2.40; rxe_mw.c: rxe_check_bind_mw
            //# A window of type 2 is not bound to 0 bytes. One of type 1 is, and gives no right then.
            WindowType::Type2B => window.bound.is_some() || to.len == 0,
        };
        if is_refused {
            return Err(MemoryFault::NotBindable);
        }
        Ok(slot)
    }

    /// Binds a window that [`check_binding`](Self::check_binding) has found to this range; without
    /// a range it gives no right.
    pub(crate) fn bind(
        &mut self,
        slot: usize,
        by: Accessor,
        to: &WindowBinding,
        range: Option<BoundRange>,
    ) {
        self.unbind(slot);
        let number = self.last_binding.wrapping_add(1);
        let Some(window) = self.windows.get_mut(slot).and_then(Option::as_mut) else { return };
        window.key = to.rkey();
        if let Some(range) = range {
            let qpn = (window.window_type == WindowType::Type2B).then_some(by.qpn);
            let is_zero_based = to.access.contains(AccessFlags::ZERO_BASED);
            let first = if is_zero_based { 0 } else { to.addr };
            window.bound =
                Some(Bound { number, range, first, len: to.len, access: to.access, qpn });
            self.of_regions.insert((range.region, slot));
            self.of_queue_pairs.extend(qpn.map(|qpn| (qpn, slot)));
            self.last_binding = number;
        }
    }

    /// Returns true while a binding that [`check`](Self::check) has found is in force.
    pub(crate) fn is_in_force(&self, binding: BindingName) -> bool {
        let window = self.windows.get(binding.slot as usize).and_then(Option::as_ref);
        window.and_then(|it| it.bound).is_some_and(|bound| bound.number == binding.number)
    }

    /// Checks an access of a peer that needs this right through the window that is bound under a key.
    /// Returns where the first byte is, and the binding.
    ///
    /// # Errors
    /// [`MemoryFault`].
    //= rule mw-access: rxe_mw.c: rxe_lookup_mw; rxe_resp.c: check_rkey
    //# The key of a bound window gives its rights to the queue pairs of its domain, that of a window of
    //# type 2 to the queue pair that bound it, and to no other.
    pub(crate) fn check(
        &self,
        key: u32,
        by: Accessor,
        address: u64,
        len: u64,
        right: AccessFlags,
    ) -> Result<(BoundRange, BindingName), MemoryFault> {
        let (slot, window, bound) = self.bound_under(key).ok_or(MemoryFault::UnknownKey)?;
        if window.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if bound.qpn.is_some_and(|qpn| qpn != by.qpn) {
            return Err(MemoryFault::WrongQueuePair);
        }
        if !bound.access.contains(right) {
            return Err(MemoryFault::NoPermission);
        }
        let from_first = address.checked_sub(bound.first).ok_or(MemoryFault::OutOfBounds)?;
        if from_first.checked_add(len).is_none_or(|end| end > bound.len) {
            return Err(MemoryFault::OutOfBounds);
        }
        // At most the offset of the last byte, which was checked when it was bound.
        let offset = bound.range.offset + from_first as usize;
        let binding = BindingName { slot: slot as u32, number: bound.number };
        Ok((BoundRange { offset, ..bound.range }, binding))
    }

    /// Frees a bound window of type 2B, for its queue pair or the peer of that.
    ///
    /// # Errors
    /// [`MemoryFault`].
    //= rule mw-invalidate: InfiniBand o10-37.2.26; rxe_mw.c: rxe_check_invalidate_mw
    //# A window of type 2 is freed by a local invalidation or by a SEND with invalidate of the peer, on
    //# the queue pair that bound it; a window of type 1 is not.
    pub(crate) fn invalidate(&mut self, key: u32, by: Accessor) -> Result<(), MemoryFault> {
        let (slot, window, bound) = self.bound_under(key).ok_or(MemoryFault::UnknownKey)?;
        if window.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        match bound.qpn {
            None => return Err(MemoryFault::NotInvalidatable),
            Some(qpn) if qpn != by.qpn => return Err(MemoryFault::WrongQueuePair),
            Some(_) => {}
        }
        self.unbind(slot);
        Ok(())
    }
}
