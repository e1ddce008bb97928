//! Registered memory whose regions are values of this process.

use alloc::vec;
use alloc::vec::Vec;

use crate::{
    Access, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, Region, RegionStore, Rights,
};

/// Registered memory of one endpoint, for programs that copy what arrives: tests, simulators, and drivers whose
/// application does not look at the bytes while packets come.
///
/// Each region has a key, an address that is no pointer, a protection domain and [`Rights`]; its bytes are a `Vec`, or
/// whatever else is a [`RegionStore`]. It has no memory windows. `roce-verbs` registers the memory of a process instead.
///
/// ```
/// use roce_transport::{Access, Accessor, AccessFlags, Memory, MemoryFault, PdHandle, Regions};
/// use roce_wire::Qpn;
///
/// let mut regions = Regions::default();
/// let inbox = regions.register(PdHandle(1), 4096, AccessFlags::REMOTE_WRITE);
/// regions.bytes_mut(inbox)[..5].copy_from_slice(b"hello");
///
/// let by = Accessor { pd: PdHandle(1), qpn: Qpn::GSI };
/// let check = |len, access| regions.check(by, inbox.key, inbox.addr, len, access).map(|_| ());
/// assert_eq!(check(4096, Access::RemoteWrite), Ok(()));
/// assert_eq!(check(4097, Access::RemoteWrite), Err(MemoryFault::OutOfBounds));
/// assert_eq!(check(4096, Access::RemoteRead), Err(MemoryFault::NoPermission));
/// ```
#[derive(Clone, Debug)]
pub struct Regions<S = Vec<u8>> {
    /// All that were ever registered, in the order of their keys.
    regions: Vec<Registered<S>>,
}

#[derive(Clone, Debug)]
struct Registered<S> {
    pd: PdHandle,
    span: Region,
    rights: Rights,
    is_alive: bool,
    store: S,
}

/// A checked access to a region of [`Regions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionGrant {
    index: usize,
    offset: u64,
    len: u64,
}

impl Regions {
    /// Registers `len` bytes of zeros.
    pub fn register(&mut self, pd: PdHandle, len: usize, rights: impl Into<Rights>) -> Region {
        self.register_store(pd, len as u64, rights, vec![0; len])
    }

    /// Returns the bytes of a region, also after its registration has ended; none if it is not one of these.
    pub fn bytes(&self, region: Region) -> &[u8] {
        self.store(region).map_or(&[], Vec::as_slice)
    }

    /// Returns the bytes of a region for the application to change; none if it is not one of these.
    pub fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        self.store_mut(region).map_or(&mut [], Vec::as_mut_slice)
    }
}

impl<S> Regions<S> {
    /// Registers `len` bytes that `store` keeps.
    pub fn register_store(
        &mut self,
        pd: PdHandle,
        len: u64,
        rights: impl Into<Rights>,
        store: S,
    ) -> Region {
        let address = self.regions.last().map_or(FIRST_ADDRESS, |last| {
            (last.span.addr + last.span.len).next_multiple_of(ALIGNMENT) + ALIGNMENT
        });
        let key = (self.regions.len() as u32 + 1).wrapping_mul(KEY_STEP);
        let span = Region { key, addr: address, len };
        self.regions.push(Registered { pd, span, rights: rights.into(), is_alive: true, store });
        span
    }

    /// Ends a registration: its key opens nothing from now on.
    pub fn deregister(&mut self, region: Region) {
        if let Some(found) = self.find_mut(region) {
            found.is_alive = false;
        }
    }

    /// Returns true if the region is registered, and neither deregistered nor invalidated.
    pub fn is_alive(&self, region: Region) -> bool {
        self.find(region).is_some_and(|found| found.is_alive)
    }

    /// Returns what keeps the bytes of a region; `None` if it is not one of these.
    pub fn store(&self, region: Region) -> Option<&S> {
        self.find(region).map(|found| &found.store)
    }

    /// Returns what keeps the bytes of a region; `None` if it is not one of these.
    pub fn store_mut(&mut self, region: Region) -> Option<&mut S> {
        self.find_mut(region).map(|found| &mut found.store)
    }

    /// Returns all regions that were ever registered.
    pub fn iter(&self) -> impl Iterator<Item = (Region, &S)> {
        self.regions.iter().map(|found| (found.span, &found.store))
    }

    fn find(&self, region: Region) -> Option<&Registered<S>> {
        self.regions.get(index(region.key)?).filter(|found| found.span == region)
    }

    fn find_mut(&mut self, region: Region) -> Option<&mut Registered<S>> {
        self.regions.get_mut(index(region.key)?).filter(|found| found.span == region)
    }

    /// Returns the index of the live region of this key in the domain of a queue pair.
    fn opened(&self, by: Accessor, key: u32) -> Result<usize, MemoryFault> {
        let index = index(key).ok_or(MemoryFault::UnknownKey)?;
        match self.regions.get(index).filter(|found| found.is_alive) {
            None => Err(MemoryFault::UnknownKey),
            Some(found) if found.pd != by.pd => Err(MemoryFault::WrongDomain),
            Some(_) => Ok(index),
        }
    }
}

impl<S> Default for Regions<S> {
    /// No regions.
    fn default() -> Self {
        Self { regions: Vec::new() }
    }
}

impl<S: RegionStore> Memory for Regions<S> {
    type Grant = RegionGrant;

    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<RegionGrant, MemoryFault> {
        let index = self.opened(by, key)?;
        let Registered { span, rights, .. } = &self.regions[index];
        if !rights.access.contains(access.required_flags()) {
            return Err(MemoryFault::NoPermission);
        }
        let offset = address.checked_sub(span.addr).ok_or(MemoryFault::OutOfBounds)?;
        if offset.checked_add(len).is_none_or(|end| end > span.len) {
            return Err(MemoryFault::OutOfBounds);
        }
        if access.is_of_word() && !address.is_multiple_of(8) {
            return Err(MemoryFault::Misaligned);
        }
        Ok(RegionGrant { index, offset, len })
    }

    fn write(&mut self, grant: RegionGrant, at: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let offset = grant.offset_of(at, bytes.len())?;
        self.regions[grant.index].store.write(offset, bytes)
    }

    fn read(&self, grant: RegionGrant, at: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        let offset = grant.offset_of(at, into.len())?;
        self.regions[grant.index].store.read(offset, into)
    }

    fn atomic(&mut self, grant: RegionGrant, change: AtomicChange) -> Result<u64, MemoryFault> {
        let offset = grant.offset_of(0, 8)?;
        self.regions[grant.index].store.atomic(offset, change)
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        let index = self.opened(by, key)?;
        let found = &mut self.regions[index];
        if !found.rights.invalidatable {
            return Err(MemoryFault::NotInvalidatable);
        }
        found.is_alive = false;
        Ok(())
    }
}

impl RegionGrant {
    /// Returns the offset in the region of `len` bytes at `at` of the grant.
    fn offset_of(self, at: u64, len: usize) -> Result<u64, MemoryFault> {
        let is_inside = at.checked_add(len as u64).is_some_and(|end| end <= self.len);
        is_inside.then(|| self.offset + at).ok_or(MemoryFault::OutOfBounds)
    }
}

/// Returns the index of the region that has this key, if there are so many.
fn index(key: u32) -> Option<usize> {
    let number = key.is_multiple_of(KEY_STEP).then_some(key / KEY_STEP)?;
    number.checked_sub(1).map(|index| index as usize)
}

/// Addresses like those of a process, which need all 64 bits.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// Regions begin on pages of their own, and one page lies between two.
const ALIGNMENT: u64 = 0x1000;
/// Keys are multiples of this: short enough to be recognised in a packet.
const KEY_STEP: u32 = 0x101;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessFlags;
    use roce_wire::Qpn;

    const PD: PdHandle = PdHandle(1);
    const BY: Accessor = Accessor { pd: PD, qpn: Qpn::GSI };

    #[test]
    fn a_key_opens_its_own_region_until_that_is_deregistered() {
        let mut regions = Regions::default();
        let one = regions.register(PD, 10, Rights::ALL);
        let two = regions.register(PD, 10, Rights::ALL);
        let check = |regions: &Regions, key| {
            regions.check(BY, key, two.addr, 10, Access::RemoteRead).map(|_| ())
        };
        assert_eq!(check(&regions, two.key), Ok(()));
        assert_eq!(check(&regions, one.key), Err(MemoryFault::OutOfBounds));
        for key in [0, 1, two.key + 1, 3 * KEY_STEP, u32::MAX] {
            assert_eq!(check(&regions, key), Err(MemoryFault::UnknownKey), "{key:#x}");
        }
        regions.deregister(two);
        assert_eq!(check(&regions, two.key), Err(MemoryFault::UnknownKey));
        assert!(regions.is_alive(one) && !regions.is_alive(two));
    }

    #[test]
    fn only_queue_pairs_of_the_domain_invalidate_only_what_may_be_invalidated() {
        let mut regions = Regions::default();
        let rights = Rights { invalidatable: true, ..Rights::ALL };
        let (fast, fixed) = (regions.register(PD, 8, rights), regions.register(PD, 8, Rights::ALL));
        let other = Accessor { pd: PdHandle(2), ..BY };
        assert_eq!(regions.invalidate(other, fast.key), Err(MemoryFault::WrongDomain));
        assert_eq!(regions.invalidate(BY, fixed.key), Err(MemoryFault::NotInvalidatable));
        assert_eq!(regions.invalidate(BY, fast.key), Ok(()));
        assert_eq!(regions.invalidate(BY, fast.key), Err(MemoryFault::UnknownKey));
    }

    #[test]
    fn atomics_change_aligned_words_and_return_what_they_were() {
        let mut regions = Regions::default();
        let region = regions.register(PD, 16, Rights::ALL);
        let check = |regions: &Regions, offset| {
            regions.check(BY, region.key, region.addr + offset, 8, Access::RemoteAtomic)
        };
        assert_eq!(check(&regions, 4), Err(MemoryFault::Misaligned));
        let grant = check(&regions, 8).unwrap();
        assert_eq!(regions.atomic(grant, AtomicChange::Add(7)), Ok(0));
        assert_eq!(regions.atomic(grant, AtomicChange::Add(1)), Ok(7));
        assert_eq!(regions.bytes(region)[8..], 8u64.to_ne_bytes());
    }

    #[test]
    fn nothing_outside_a_grant_or_of_another_memory_is_touched() {
        let mut regions = Regions::default();
        let region = regions.register(PD, 16, AccessFlags::LOCAL_WRITE);
        let grant = regions.check(BY, region.key, region.addr + 4, 8, Access::LocalWrite);
        let grant = grant.unwrap();
        for (at, len) in [(0, 9), (8, 1), (u64::MAX, 1)] {
            assert_eq!(regions.write(grant, at, &[1; 9][..len]), Err(MemoryFault::OutOfBounds));
            assert_eq!(regions.read(grant, at, &mut [0; 9][..len]), Err(MemoryFault::OutOfBounds));
        }
        assert_eq!(regions.bytes(region), [0; 16]);
        assert_eq!(regions.bytes_mut(Region { len: 15, ..region }), []);
    }
}
