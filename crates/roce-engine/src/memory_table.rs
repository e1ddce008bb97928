//! The table of memory regions, which checks every access of the engine.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use roce_transport::{
    Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, WindowBinding,
};
use roce_wire::{PayloadCrc, Qpn};

use crate::key_hasher::KeyHasher;
use crate::region::Region;
use crate::window_table::{BoundRange, WindowTable, WindowType};

/// All regions registered with one device, and its memory windows.
#[derive(Debug)]
pub struct MemoryTable<R> {
    regions: Vec<Option<Registered<R>>>,
    /// Slots of regions that were deregistered.
    free: Vec<usize>,
    /// The slot of each region, and of each bound window with [`WINDOW`] added.
    slots: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    windows: WindowTable,
    /// Null regions: their keys and domains.
    null_regions: HashMap<u32, PdHandle, BuildHasherDefault<KeyHasher>>,
    /// The last look-up: most packets are for the region of the one before.
    last: Cell<Option<(u32, usize)>>,
}

/// One registration.
#[derive(Debug)]
struct Registered<R> {
    region: R,
    how: Registration,
    /// The key has been invalidated.
    invalidated: bool,
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
}

/// The slot in grants of null regions: one that no region has.
const NULL_SLOT: usize = usize::MAX;

/// Added to slots of windows, which no region has then.
const WINDOW: usize = 1 << (usize::BITS - 1);

impl<R> Default for MemoryTable<R> {
    fn default() -> Self {
        Self {
            regions: Vec::new(),
            free: Vec::new(),
            slots: HashMap::default(),
            windows: WindowTable::default(),
            null_regions: HashMap::default(),
            last: Cell::new(None),
        }
    }
}

impl<R: Region> MemoryTable<R> {
    /// Adds a region and returns its key, which is both the local and the remote key.
    ///
    /// `random` draws numbers that no other process draws, so that packets in flight to a dead process
    /// match no region.
    pub fn insert(&mut self, region: R, how: Registration, random: impl FnMut() -> u32) -> u32 {
        let key = self.new_key(random);
        let region = Registered { region, how, invalidated: false };
        let slot = self.free.pop().unwrap_or(self.regions.len());
        match self.regions.get_mut(slot) {
            Some(free) => *free = Some(region),
            None => self.regions.push(Some(region)),
        }
        self.slots.insert(key, slot);
        key
    }

    fn new_key(&self, mut random: impl FnMut() -> u32) -> u32 {
        loop {
            let key = random();
            // Many programs use zero for "no key".
            let is_used = key == 0
                || self.slots.contains_key(&key)
                || self.null_regions.contains_key(&key)
                || self.windows.reserves(key);
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
        let Some(slot) = self.slots.get(&key).copied() else { return };
        self.unbind_windows_of_region(slot);
        if let Some(Some(registered)) = self.regions.get_mut(slot) {
            *registered = Registered { region, how, invalidated: false };
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
        self.windows.insert(pd, window_type, random, is_taken)
    }

    /// Removes a memory window; a bound one gives no right any more.
    pub fn free_window(&mut self, window: u32) {
        let key = self.windows.remove(window);
        self.forget(key);
    }

    /// Returns the present key of a memory window, and whether it is bound.
    pub fn window_state(&self, window: u32) -> Option<(u32, bool)> {
        self.windows.state(window)
    }

    /// Returns the number of memory windows that are bound to a region.
    pub fn windows_bound_to(&self, key: u32) -> usize {
        self.slots.get(&key).map_or(0, |slot| self.windows.count_of_region(*slot))
    }

    /// Frees the windows of type 2B that a queue pair has bound: it is destroyed.
    //= rule mw-queue-pair-destroyed: not known
    //# A queue pair that is destroyed frees the windows of type 2 that it has bound.
    pub fn unbind_windows_of(&mut self, qpn: Qpn) {
        while let Some(key) = self.windows.unbind_one_of_queue_pair(qpn) {
            self.forget(Some(key));
        }
    }

    fn unbind_windows_of_region(&mut self, slot: usize) {
        while let Some(key) = self.windows.unbind_one_of_region(slot) {
            self.forget(Some(key));
        }
    }

    /// Makes the key of a window open nothing.
    fn forget(&mut self, key: Option<u32>) {
        if key.is_some_and(|key| self.slots.remove(&key).is_some()) {
            self.last.set(None);
        }
    }

    /// Returns a grant for a key that is none of a region: that of a window, of which `slot` is the slot
    /// if it is bound, or of a null region.
    #[cold]
    fn check_other(
        &self,
        slot: Option<usize>,
        by: Accessor,
        (key, address, len): (u32, u64, u64),
        access: Access,
    ) -> Result<Grant, MemoryFault> {
        let Some(slot) = slot else { return self.check_null(by, key, access) };
        // A local request names its region.
        if matches!(access, Access::LocalRead | Access::LocalWrite) {
            return Err(MemoryFault::UnknownKey);
        }
        let right = required_flags(access);
        let BoundRange { region, offset } =
            self.windows.check(slot & !WINDOW, by, address, len, right)?;
        let registered = self.regions.get(region).and_then(Option::as_ref);
        let registered = registered.ok_or(MemoryFault::UnknownKey)?;
        if access == Access::RemoteAtomic && !registered.region.has_word(offset) {
            return Err(MemoryFault::Misaligned);
        }
        Ok(Grant { slot: region, offset })
    }

    /// Returns a grant of any address of a null region, which no peer may access.
    fn check_null(&self, by: Accessor, key: u32, access: Access) -> Result<Grant, MemoryFault> {
        let pd = self.null_regions.get(&key).ok_or(MemoryFault::UnknownKey)?;
        match access {
            _ if *pd != by.pd => Err(MemoryFault::WrongDomain),
            Access::LocalRead | Access::LocalWrite => Ok(Grant { slot: NULL_SLOT, offset: 0 }),
            _ => Err(MemoryFault::UnknownKey),
        }
    }

    /// Removes a region and its key, and unbinds the windows that are bound to it.
    pub fn remove(&mut self, key: u32) {
        if let Some(slot) = self.slots.remove(&key) {
            self.last.set(None);
            self.unbind_windows_of_region(slot);
            self.regions[slot] = None;
            self.free.push(slot);
        }
    }

    /// Returns true if the key is registered and not invalidated.
    pub fn is_valid(&self, key: u32) -> bool {
        self.find(key).is_some_and(|(_, region)| !region.invalidated)
    }

    /// Returns the slot of a region, or of a bound window with [`WINDOW`] added.
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

    fn find(&self, key: u32) -> Option<(usize, &Registered<R>)> {
        let slot = self.slot_of(key)?;
        Some((slot, self.regions.get(slot)?.as_ref()?))
    }

    /// Returns where the bytes are that a window is to be bound to.
    fn bindable_range(&self, by: Accessor, to: &WindowBinding) -> Result<BoundRange, MemoryFault> {
        let (region, registered) = self.find(to.lkey).ok_or(MemoryFault::UnknownKey)?;
        if registered.invalidated {
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
        Ok(BoundRange { region, offset })
    }

    /// Returns the memory of a grant; `None` for that of a null region. A grant is used in the call
    /// that it was made in, so its region exists.
    fn region(&self, grant: Grant) -> Option<&R> {
        Some(&self.regions.get(grant.slot)?.as_ref()?.region)
    }
}

/// Returns the access flags that an access needs.
#[inline]
fn required_flags(access: Access) -> AccessFlags {
    match access {
        Access::LocalRead => AccessFlags::empty(),
        Access::LocalWrite => AccessFlags::LOCAL_WRITE,
        Access::RemoteRead => AccessFlags::REMOTE_READ,
        Access::RemoteWrite => AccessFlags::REMOTE_WRITE,
        Access::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
    }
}

impl<R: Region> Memory for MemoryTable<R> {
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
            return self.check_other(slot, by, (key, address, len), access);
        };
        if registered.invalidated {
            return Err(MemoryFault::UnknownKey);
        }
        if registered.how.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !registered.how.access.contains(required_flags(access)) {
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
        if access == Access::RemoteAtomic && !registered.region.has_word(offset) {
            return Err(MemoryFault::Misaligned);
        }
        Ok(Grant { slot, offset })
    }

    fn write(&mut self, grant: Grant, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        if let Some(region) = self.region(grant) {
            return region.write(grant.offset + offset as usize, bytes);
        }
        Ok(())
    }

    fn read(&self, grant: Grant, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
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
        let Some(region) = self.region(grant) else {
            into.fill(0);
            return Ok(None);
        };
        region.read_summed(grant.offset + offset as usize, into)
    }

    fn atomic(&mut self, grant: Grant, change: AtomicChange) -> Result<u64, MemoryFault> {
        // No peer is granted a null region.
        self.region(grant).ok_or(MemoryFault::UnknownKey)?.atomic(grant.offset, change)
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        let slot = *self.slots.get(&key).ok_or(MemoryFault::UnknownKey)?;
        if slot & WINDOW != 0 {
            self.windows.invalidate(slot & !WINDOW, by)?;
            self.forget(Some(key));
            return Ok(());
        }
        let region = self.regions.get_mut(slot).and_then(Option::as_mut);
        let region = region.ok_or(MemoryFault::UnknownKey)?;
        if region.invalidated {
            return Err(MemoryFault::UnknownKey);
        }
        if region.how.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        //= rule mw-region-in-use: InfiniBand 10.6.7.2.6; rxe_mr.c: rxe_invalidate_mr
        //# A region with bound windows is not invalidated, deregistered or registered anew.
        if !region.how.invalidatable || self.windows.has_region(slot) {
            return Err(MemoryFault::NotInvalidatable);
        }
        region.invalidated = true;
        Ok(())
    }

    fn bind_window(&mut self, by: Accessor, to: &WindowBinding) -> Result<(), MemoryFault> {
        let window = self.windows.check_binding(by, to)?;
        let range = if to.len == 0 { None } else { Some(self.bindable_range(by, to)?) };
        let before = self.windows.bind(window, by, to, range);
        self.forget(before);
        if range.is_some() {
            self.slots.insert(to.rkey(), window | WINDOW);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::plain_region::PlainRegion;

    type Table = MemoryTable<PlainRegion>;

    /// Registers `region` under a key that no region has had.
    fn insert(table: &mut Table, region: PlainRegion, how: Registration) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        table.insert(region, how, || NEXT.fetch_add(1, Ordering::Relaxed))
    }

    const PD: PdHandle = PdHandle(1);
    const BY: Accessor = Accessor { pd: PD, qpn: Qpn::GSI };
    const OTHER: Accessor = Accessor { pd: PdHandle(2), qpn: Qpn::GSI };

    fn register(table: &mut Table, len: usize) -> u32 {
        let region = PlainRegion::new(len);
        let access = AccessFlags::all();
        insert(
            table,
            region,
            Registration { pd: PD, access, iova: 0, invalidatable: true, on_demand: false },
        )
    }

    #[test]
    fn a_removed_key_opens_no_region_although_its_slot_is_used_again() {
        let mut table = Table::default();
        let keys = [64, 128].map(|len| register(&mut table, len));
        let opens =
            |table: &Table, key, len| table.check(BY, key, 0, len, Access::RemoteWrite).map(|_| ());
        assert_eq!(opens(&table, keys[0], 64), Ok(()));
        table.remove(keys[0]);
        assert_eq!(opens(&table, keys[0], 1), Err(MemoryFault::UnknownKey));
        let new = register(&mut table, 32);
        assert_eq!(opens(&table, keys[0], 1), Err(MemoryFault::UnknownKey));
        assert_eq!(opens(&table, new, 32), Ok(()));
        assert_eq!(opens(&table, new, 33), Err(MemoryFault::OutOfBounds));
        assert_eq!(opens(&table, keys[1], 128), Ok(()));
        table.invalidate(BY, new).unwrap();
        assert_eq!(opens(&table, new, 1), Err(MemoryFault::UnknownKey));
    }

    #[test]
    fn a_replaced_region_has_its_key_and_nothing_else_of_before() {
        let mut table = Table::default();
        let key = register(&mut table, 64);
        let region = PlainRegion::new(32);
        region.write(0, b"new").unwrap();
        let access = AccessFlags::LOCAL_WRITE;
        let how = Registration {
            pd: OTHER.pd,
            access,
            iova: 0x1000,
            invalidatable: false,
            on_demand: false,
        };
        table.replace(key, region, how);
        let check = |by, address, len, access| table.check(by, key, address, len, access);
        let refused = |by, address, access| check(by, address, 1, access).map(|_| ()).unwrap_err();
        assert_eq!(refused(BY, 0x1000, Access::LocalRead), MemoryFault::WrongDomain);
        assert_eq!(refused(OTHER, 0, Access::LocalRead), MemoryFault::OutOfBounds);
        assert_eq!(refused(OTHER, 0x1000, Access::RemoteRead), MemoryFault::NoPermission);
        assert!(check(OTHER, 0x1000, 33, Access::LocalRead).is_err());
        let grant = check(OTHER, 0x1000, 32, Access::LocalRead).unwrap();
        let mut seen = [0; 3];
        table.read(grant, 0, &mut seen).unwrap();
        assert_eq!(&seen, b"new");
    }

    #[test]
    fn a_null_region_takes_bytes_gives_zeros_and_is_closed_to_peers() {
        let mut table = Table::default();
        let key = table.insert_null(PD, || 1);
        for access in [Access::LocalRead, Access::LocalWrite] {
            let grant = table.check(BY, key, u64::MAX, 1 << 31, access).unwrap();
            table.write(grant, 1 << 30, b"lost").unwrap();
            let mut seen = [1; 4];
            table.read(grant, 1 << 30, &mut seen).unwrap();
            assert_eq!(seen, [0; 4]);
            let mut seen = [1; 256];
            assert_eq!(table.read_summed(grant, 0, &mut seen), Ok(None));
            assert_eq!(seen, [0; 256]);
            let refused = table.check(OTHER, key, 0, 1, access).map(|_| ());
            assert_eq!(refused, Err(MemoryFault::WrongDomain));
        }
        for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteAtomic] {
            let refused = table.check(BY, key, 0, 8, access).map(|_| ());
            assert_eq!(refused, Err(MemoryFault::UnknownKey), "{access:?}");
        }
        table.remove_null(key);
        assert!(table.check(BY, key, 0, 1, Access::LocalRead).is_err());
    }

    #[test]
    fn an_atomic_is_refused_where_an_aligned_address_names_memory_that_is_not_aligned() {
        let mut table = Table::default();
        let region = PlainRegion::new(64);
        let access = AccessFlags::all();
        let how =
            Registration { pd: PD, access, iova: 0x1001, invalidatable: false, on_demand: false };
        let key = insert(&mut table, region, how);
        let check = |table: &Table, address, access| table.check(BY, key, address, 8, access);
        let refused = check(&table, 0x1008, Access::RemoteAtomic).map(|_| ());
        assert_eq!(refused, Err(MemoryFault::Misaligned));
        let refused = check(&table, 0x1040, Access::RemoteAtomic).map(|_| ());
        assert_eq!(refused, Err(MemoryFault::OutOfBounds), "the range is checked first");
        assert!(check(&table, 0x1008, Access::RemoteWrite).is_ok(), "bytes need no alignment");
        let grant = check(&table, 0x1009, Access::RemoteAtomic).unwrap();
        assert_eq!(table.atomic(grant, AtomicChange::Add(3)), Ok(0));
        assert_eq!(table.atomic(grant, AtomicChange::Add(3)), Ok(3));
    }

    #[test]
    fn a_key_opens_its_region_to_its_own_domain_alone_and_for_what_is_allowed_alone() {
        let mut table = Table::default();
        let register = |table: &mut Table, access| {
            let region = PlainRegion::new(64);
            let how = Registration {
                pd: PD,
                access,
                iova: 0x1000,
                invalidatable: false,
                on_demand: false,
            };
            insert(table, region, how)
        };
        for access in [
            Access::LocalRead,
            Access::LocalWrite,
            Access::RemoteRead,
            Access::RemoteWrite,
            Access::RemoteAtomic,
        ] {
            let key = register(&mut table, required_flags(access));
            let opens = |by, address, len| table.check(by, key, address, len, access).map(|_| ());
            assert_eq!(opens(BY, 0x1000, 64), Ok(()), "{access:?}");
            assert_eq!(opens(OTHER, 0x1000, 1), Err(MemoryFault::WrongDomain));
            for (address, len) in [(0xfff, 1), (0x1000, 65), (0x1040, 1), (u64::MAX, 2), (0, 8)] {
                assert_eq!(opens(BY, address, len), Err(MemoryFault::OutOfBounds), "{address:x}");
            }
            let rest = register(&mut table, AccessFlags::all() - required_flags(access));
            let refused = table.check(BY, rest, 0x1000, 1, access).map(|_| ());
            // A local read needs no right.
            let expected = match access {
                Access::LocalRead => Ok(()),
                _ => Err(MemoryFault::NoPermission),
            };
            assert_eq!(refused, expected, "{access:?}");
            assert_eq!(table.invalidate(BY, key), Err(MemoryFault::NotInvalidatable));
            assert_eq!(table.invalidate(OTHER, key), Err(MemoryFault::WrongDomain));
        }
    }
}
