//! The table of memory regions, which checks every access of the engine.
//!
//! Engines of one device have a table each, with the same regions under the same keys: a region is
//! added to and removed from one after the other. Its owner adds it to the first table, and then
//! its [entry](RegionEntry) to the others.
//!
//! What a packet or a request may end, the binding of a window and the validity of a key, is common to
//! these tables, since packets to another engine may use it: see `revocable.rs`.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roce_transport::{
    Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, WindowBinding,
};
use roce_wire::{PayloadCrc, Qpn};

use crate::key_hasher::KeyHasher;
use crate::region::Region;
use crate::revocable::{Revocable, RevocableGuard};
use crate::window_table::{BindingName, BoundRange, WindowType};

/// All regions registered with one device, and its memory windows. `R` is a pointer to a
/// [`Region`], which the regions' owners share with the table.
#[derive(Clone, Debug)]
pub struct MemoryTable<R> {
    regions: Vec<Option<RegionEntry<R>>>,
    /// Slots of regions that were deregistered.
    free: Vec<usize>,
    /// The slot of each region.
    slots: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    windows: Revocable,
    /// Number of the last registration that began in this table.
    last_registration: u64,
    /// Null regions: their keys and domains.
    null_regions: HashMap<u32, PdHandle, BuildHasherDefault<KeyHasher>>,
    /// The last look-up: most packets are for the region of the one before.
    last: Cell<Option<(u32, usize)>>,
}

/// One registration, as tables of other engines of the device have it too.
#[derive(Clone, Debug)]
pub struct RegionEntry<R> {
    region: R,
    how: Registration,
    /// Tells it from another registration under the same key.
    number: u64,
    /// The key has been invalidated; `None` where it cannot be.
    invalidated: Option<Arc<AtomicBool>>,
}

impl<R> RegionEntry<R> {
    fn is_valid(&self) -> bool {
        !self.invalidated.as_ref().is_some_and(|it| it.load(Ordering::Relaxed))
    }
}

/// The parameters of a registration.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// The protection domain.
    pub pd: PdHandle,
    /// The rights of queue pairs of this domain, and of their peers.
    pub access: AccessFlags,
    /// Remote address of the first byte.
    pub iova: u64,
    /// A SEND with invalidate may invalidate the key.
    pub invalidatable: bool,
    /// The pages were not made present.
    pub on_demand: bool,
}

/// A checked permission, valid during the call of the endpoint that made it.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The slot of a region, or [`NULL_SLOT`].
    slot: usize,
    offset: usize,
    condition: Condition,
}

/// What must still hold when a grant is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// Nothing can have ended the grant since it was made.
    None,
    /// The key is valid.
    ValidKey,
    /// The window is bound as it was.
    Bound(BindingName),
}

/// The slot in grants of null regions: one that no region has.
const NULL_SLOT: usize = usize::MAX;

impl<R> Default for MemoryTable<R> {
    fn default() -> Self {
        Self {
            regions: Vec::new(),
            free: Vec::new(),
            slots: HashMap::default(),
            windows: Revocable::default(),
            last_registration: 0,
            null_regions: HashMap::default(),
            last: Cell::new(None),
        }
    }
}

impl<R: Deref<Target: Region>> MemoryTable<R> {
    /// Makes room for another region. Returns false if no memory is left for it.
    #[must_use = "a table without room may end the process"]
    pub fn reserve(&mut self) -> bool {
        self.regions.try_reserve(1).is_ok() && self.slots.try_reserve(1).is_ok()
    }

    /// Adds a region and returns its key, which is both the local and the remote key.
    ///
    /// `random` draws numbers that no other process draws, so that packets in flight to a dead process
    /// match no region.
    pub fn insert(&mut self, region: R, how: Registration, random: impl FnMut() -> u32) -> u32 {
        let key = self.new_key(random);
        let entry = self.new_entry(region, how);
        self.insert_entry(key, entry);
        key
    }

    fn new_entry(&mut self, region: R, how: Registration) -> RegionEntry<R> {
        self.last_registration += 1;
        let (number, invalidated) = (self.last_registration, how.invalidatable.then(Arc::default));
        RegionEntry { region, how, number, invalidated }
    }

    /// Returns a region, for the tables of other engines of the device.
    pub fn entry(&self, key: u32) -> Option<RegionEntry<R>>
    where
        R: Clone,
    {
        self.find(key).map(|(_, entry)| entry.clone())
    }

    /// Adds a region of another engine's table, or replaces that of before under its key, and unbinds the
    /// windows that are bound to that.
    pub fn insert_entry(&mut self, key: u32, entry: RegionEntry<R>) {
        let slot = match self.slots.get(&key) {
            // An engine binds by the registration of before until its own table has the new one.
            Some(slot) => {
                self.windows.write(|windows| windows.unbind_region(key, Some(entry.number)));
                *slot
            }
            None => self.free.pop().unwrap_or(self.regions.len()),
        };
        match self.regions.get_mut(slot) {
            Some(place) => *place = Some(entry),
            None => self.regions.push(Some(entry)),
        }
        self.slots.insert(key, slot);
    }

    /// Makes bindings of windows and invalidations common with the clones of this table that are
    /// made from now on, those of other engines of the device.
    pub fn share_windows(&mut self) {
        self.windows.share();
    }

    fn new_key(&self, mut random: impl FnMut() -> u32) -> u32 {
        loop {
            let key = random();
            // Many programs use zero for "no key".
            let is_used = key == 0
                || self.slots.contains_key(&key)
                || self.null_regions.contains_key(&key)
                || self.windows.read(|windows| windows.reserves(key));
            if !is_used {
                return key;
            }
        }
    }

    /// Returns the parameters of a region.
    pub fn registration(&self, key: u32) -> Option<Registration> {
        self.find(key).map(|(_, region)| region.how)
    }

    /// Gives a key other memory and parameters, and unbinds the windows that are bound to the region.
    pub fn replace(&mut self, key: u32, region: R, how: Registration) {
        if self.slots.contains_key(&key) {
            let entry = self.new_entry(region, how);
            self.insert_entry(key, entry);
        }
    }

    /// Returns the memory of `len` bytes at `address` of a region that is registered on demand, and the
    /// offset of the first of them, for advice of the program about its pages.
    ///
    /// # Errors
    /// As for an access of a queue pair of `pd`: [`MemoryFault`]; [`MemoryFault::UnknownKey`] also for a
    /// region that is not on demand.
    pub fn on_demand_range(
        &self,
        pd: PdHandle,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<(&R, usize), MemoryFault> {
        let by = Accessor { pd, qpn: Qpn::GSI };
        let grant = self.check(by, key, address, len, access)?;
        let region = self.regions.get(grant.slot).and_then(Option::as_ref);
        let region = region.filter(|it| it.how.on_demand).ok_or(MemoryFault::UnknownKey)?;
        Ok((&region.region, grant.offset))
    }

    /// Adds a null region, and returns its local key. `random` is as for [`insert`](Self::insert).
    pub fn insert_null(&mut self, pd: PdHandle, random: impl FnMut() -> u32) -> u32 {
        let key = self.new_key(random);
        self.null_regions.insert(key, pd);
        key
    }

    /// Adds a null region of another engine's table.
    pub fn insert_null_as(&mut self, key: u32, pd: PdHandle) {
        self.null_regions.insert(key, pd);
    }

    /// Removes a null region.
    pub fn remove_null(&mut self, key: u32) {
        self.null_regions.remove(&key);
    }

    /// Adds a memory window that is not bound, and returns its first key; `None` if there are as many
    /// as [`MAX_WINDOWS`](crate::MAX_WINDOWS). `random` is as for [`insert`](Self::insert).
    ///
    /// All keys of the window begin with the same 24 bits, which no other key does while it exists: they
    /// name it in a [`WindowBinding`]. A queue pair binds it by a request of its send queue.
    pub fn alloc_window(
        &mut self,
        pd: PdHandle,
        window_type: WindowType,
        random: impl FnMut() -> u32,
    ) -> Option<u32> {
        let is_taken = |number: u32| {
            let is_region =
                |key: u32| self.slots.contains_key(&key) || self.null_regions.contains_key(&key);
            (0..=0xff).any(|tag| is_region(number << 8 | tag))
        };
        self.windows.write(|windows| windows.insert(pd, window_type, random, is_taken))
    }

    /// Removes a memory window; a bound one gives no right any more.
    pub fn free_window(&mut self, window: u32) {
        self.windows.write(|windows| windows.remove(window));
    }

    /// Returns the present key of a memory window, and whether it is bound.
    pub fn window_state(&self, window: u32) -> Option<(u32, bool)> {
        self.windows.read(|windows| windows.state(window))
    }

    /// Returns the number of memory windows that are bound to a region.
    pub fn windows_bound_to(&self, key: u32) -> usize {
        self.windows.read(|windows| windows.count_of_region(key))
    }

    /// Frees the windows of type 2B that a queue pair has bound: it is destroyed.
    //= rule mw-queue-pair-destroyed: not known
    //# A queue pair that is destroyed frees the windows of type 2 that it has bound.
    pub fn unbind_windows_of(&mut self, qpn: Qpn) {
        self.windows.write(|windows| windows.unbind_queue_pair(qpn));
    }

    /// Returns a grant for a key that is none of a region: that of a window, or of a null region.
    #[cold]
    fn check_other(
        &self,
        by: Accessor,
        (key, address, len): (u32, u64, u64),
        access: Access,
    ) -> Result<Grant, MemoryFault> {
        if self.null_regions.contains_key(&key) {
            return self.check_null(by, key, access);
        }
        // A local request names its region.
        if matches!(access, Access::LocalRead | Access::LocalWrite) {
            return Err(MemoryFault::UnknownKey);
        }
        let right = access.required_flags();
        let bound = self.windows.read(|windows| windows.check(key, by, address, len, right));
        let (BoundRange { region, registration, offset }, binding) = bound?;
        // Another engine may have bound it by a registration that this table has not yet, or no more.
        let found = self.find(region).filter(|(_, it)| it.number == registration);
        let (slot, registered) = found.ok_or(MemoryFault::UnknownKey)?;
        if access.is_of_word() && !registered.region.has_word(offset) {
            return Err(MemoryFault::Misaligned);
        }
        let condition = self.condition(|| Condition::Bound(binding));
        Ok(Grant { slot, offset, condition })
    }

    /// Returns the condition of a grant, which another engine may end at any time. Where there is
    /// none, it lasts for the call of the endpoint that it is made in.
    #[inline]
    fn condition(&self, of_shared: impl FnOnce() -> Condition) -> Condition {
        if self.windows.is_shared() { of_shared() } else { Condition::None }
    }

    /// Makes sure that the condition of a grant holds as long as the returned guard lives.
    #[cold]
    fn hold(&self, grant: Grant) -> Result<Option<RevocableGuard<'_>>, MemoryFault> {
        let guard = self.windows.hold();
        let holds = match grant.condition {
            Condition::None => true,
            Condition::ValidKey => self.entry_of(grant).is_some_and(RegionEntry::is_valid),
            Condition::Bound(binding) => {
                guard.as_ref().is_none_or(|windows| windows.is_in_force(binding))
            }
        };
        if holds { Ok(guard) } else { Err(MemoryFault::UnknownKey) }
    }

    /// Returns a grant of any address of a null region, which no peer may access.
    fn check_null(&self, by: Accessor, key: u32, access: Access) -> Result<Grant, MemoryFault> {
        let pd = self.null_regions.get(&key).ok_or(MemoryFault::UnknownKey)?;
        match access {
            _ if *pd != by.pd => Err(MemoryFault::WrongDomain),
            Access::LocalRead | Access::LocalWrite => {
                Ok(Grant { slot: NULL_SLOT, offset: 0, condition: Condition::None })
            }
            _ => Err(MemoryFault::UnknownKey),
        }
    }

    /// Removes a region and its key, and unbinds the windows that are bound to it.
    pub fn remove(&mut self, key: u32) {
        if let Some(slot) = self.slots.remove(&key) {
            self.last.set(None);
            self.windows.write(|windows| windows.unbind_region(key, None));
            self.regions[slot] = None;
            self.free.push(slot);
        }
    }

    /// Returns true if the key is registered and not invalidated.
    pub fn is_valid(&self, key: u32) -> bool {
        self.find(key).is_some_and(|(_, region)| region.is_valid())
    }

    /// Returns the slot of a region.
    fn slot_of(&self, key: u32) -> Option<usize> {
        match self.last.get() {
            Some((last, slot)) if last == key => Some(slot),
            _ => {
                let slot = *self.slots.get(&key)?;
                self.last.set(Some((key, slot)));
                Some(slot)
            }
        }
    }

    fn find(&self, key: u32) -> Option<(usize, &RegionEntry<R>)> {
        let slot = self.slot_of(key)?;
        Some((slot, self.regions.get(slot)?.as_ref()?))
    }

    /// Returns where the bytes of this region are that a window is to be bound to.
    fn bindable_range(
        registered: Option<&RegionEntry<R>>,
        by: Accessor,
        to: &WindowBinding,
    ) -> Result<BoundRange, MemoryFault> {
        let registered = registered.ok_or(MemoryFault::UnknownKey)?;
        if !registered.is_valid() {
            return Err(MemoryFault::UnknownKey);
        }
        //= also mw-bind-domain
        if registered.how.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        //= rule mw-bind-right: InfiniBand C10-73; rxe_mw.c: rxe_check_bind_mw
        //# A region must have been registered with the right to bind windows.
        //= rule mw-bind-write: InfiniBand C10-74; rxe_mw.c: rxe_check_bind_mw
        //# A window that peers may write or change atomically needs a region that may be written
        //# locally. Other rights of the region do not matter.
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let is_written = to.access.intersects(writes);
        let rights = registered.how.access;
        if !rights.contains(AccessFlags::MW_BIND)
            || (is_written && !rights.contains(AccessFlags::LOCAL_WRITE))
        {
            return Err(MemoryFault::NoPermission);
        }
        //= rule mw-bind-range: InfiniBand C10-75; rxe_mw.c: rxe_check_bind_mw
        //# All bytes of a window are bytes of its region.
        let offset = to.addr.checked_sub(registered.how.iova).ok_or(MemoryFault::OutOfBounds)?;
        let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(to.len)) else {
            return Err(MemoryFault::OutOfBounds);
        };
        if !registered.region.holds(offset, len) {
            return Err(MemoryFault::OutOfBounds);
        }
        Ok(BoundRange { region: to.lkey, registration: registered.number, offset })
    }

    /// Returns the region of a grant; `None` for a null region. A grant is used in the call that it was
    /// made in, so its region exists.
    #[inline]
    fn entry_of(&self, grant: Grant) -> Option<&RegionEntry<R>> {
        self.regions.get(grant.slot)?.as_ref()
    }

    /// Returns the memory of a grant; `None` for that of a null region.
    #[inline]
    fn region(&self, grant: Grant) -> Option<&R::Target> {
        Some(&*self.entry_of(grant)?.region)
    }
}

impl<R: Deref<Target: Region>> Memory for MemoryTable<R> {
    type Grant = Grant;

    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<Grant, MemoryFault> {
        let slot = self.slot_of(key);
        let registered = slot.and_then(|slot| Some((slot, self.regions.get(slot)?.as_ref()?)));
        let Some((slot, registered)) = registered else {
            return self.check_other(by, (key, address, len), access);
        };
        if !registered.is_valid() {
            return Err(MemoryFault::UnknownKey);
        }
        if registered.how.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !registered.how.access.contains(access.required_flags()) {
            return Err(MemoryFault::NoPermission);
        }
        let offset = address.checked_sub(registered.how.iova).ok_or(MemoryFault::OutOfBounds)?;
        let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(len)) else {
            return Err(MemoryFault::OutOfBounds);
        };
        if !registered.region.holds(offset, len) {
            return Err(MemoryFault::OutOfBounds);
        }
        // The memory of an aligned address may be misaligned.
        if access.is_of_word() && !registered.region.has_word(offset) {
            return Err(MemoryFault::Misaligned);
        }
        let condition = match registered.invalidated {
            None => Condition::None,
            Some(_) => self.condition(|| Condition::ValidKey),
        };
        Ok(Grant { slot, offset, condition })
    }

    fn write(&mut self, grant: Grant, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let _held = if grant.condition == Condition::None { None } else { self.hold(grant)? };
        if let Some(region) = self.region(grant) {
            return region.write(grant.offset + offset as usize, bytes);
        }
        Ok(())
    }

    fn read(&self, grant: Grant, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        let _held = if grant.condition == Condition::None { None } else { self.hold(grant)? };
        match self.region(grant) {
            Some(region) => region.read(grant.offset + offset as usize, into),
            None => {
                into.fill(0);
                Ok(())
            }
        }
    }

    fn read_summed(
        &self,
        grant: Grant,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Option<PayloadCrc>, MemoryFault> {
        let _held = if grant.condition == Condition::None { None } else { self.hold(grant)? };
        let Some(region) = self.region(grant) else {
            into.fill(0);
            return Ok(None);
        };
        region.read_summed(grant.offset + offset as usize, into)
    }

    fn atomic(&mut self, grant: Grant, change: AtomicChange) -> Result<u64, MemoryFault> {
        let _held = if grant.condition == Condition::None { None } else { self.hold(grant)? };
        // No peer is granted a null region.
        self.region(grant).ok_or(MemoryFault::UnknownKey)?.atomic(grant.offset, change)
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        let Self { regions, slots, windows, .. } = self;
        let Some(slot) = slots.get(&key).copied() else {
            return windows.write(|windows| windows.invalidate(key, by));
        };
        let region = regions.get(slot).and_then(Option::as_ref);
        let region = region.filter(|it| it.is_valid()).ok_or(MemoryFault::UnknownKey)?;
        if region.how.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        let flag = region.invalidated.as_ref().ok_or(MemoryFault::NotInvalidatable)?;
        windows.write(|windows| {
            //= rule mw-region-in-use: InfiniBand 10.6.7.2.6; rxe_mr.c: rxe_invalidate_mr
            //# A region with bound windows is not invalidated, deregistered or registered anew.
            if windows.has_region(key) {
                return Err(MemoryFault::NotInvalidatable);
            }
            flag.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    fn bind_window(&mut self, by: Accessor, to: &WindowBinding) -> Result<(), MemoryFault> {
        let Self { regions, slots, windows, .. } = self;
        let registered = slots.get(&to.lkey).and_then(|slot| regions.get(*slot)?.as_ref());
        windows.write(|windows| {
            let window = windows.check_binding(by, to)?;
            // In here, where no other engine can invalidate the key meanwhile.
            let range = (to.len > 0).then(|| Self::bindable_range(registered, by, to));
            windows.bind(window, by, to, range.transpose()?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
