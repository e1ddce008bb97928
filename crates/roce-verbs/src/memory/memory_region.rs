//! Memory regions: registered bytes that queue pairs and peers access.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use roce_engine::{Region, Registration};
use roce_faults::VerbMoment;
use roce_transport::{Access, AccessFlags, MemoryFault, Sge};

use crate::driver::Driver;
use crate::error::Error;
use crate::protection_domain::ProtectionDomain;
use crate::region::Mapping;
pub use crate::region::Pages;

/// Options of a registration, besides the access flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterOptions {
    /// Use huge pages: fewer TLB misses. Reserved ones if there are enough
    /// (`sysctl vm.nr_hugepages`), otherwise those that the kernel has free;
    /// [`MemoryRegion::pages`] returns which. Lengths are rounded up to 2 MiB inside.
    pub huge_pages: bool,
    /// Let a peer's SEND with invalidate invalidate the key.
    pub invalidatable: bool,
    /// Remote address of the first byte; its virtual address when `None`.
    pub iova: Option<u64>,
    /// Do not make the pages of the caller's memory present, nor fail where some are missing: each is
    /// paged in by the first access, and an access where none can be fails alone. For
    /// [`register_memory`](ProtectionDomain::register_memory) only, where address 0 and length
    /// `usize::MAX` stand for the whole address space.
    pub on_demand: bool,
}

/// Advice about pages of a region that is registered on demand; as `ibv_advise_mr_advice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Make the pages present, to be read.
    Read,
    /// Make the pages present, to be written.
    Write,
    /// Use the pages that are present.
    NoFault,
}

/// What a reregistration changes; the rest stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reregistration<'a> {
    /// The new domain, of the same device.
    pub pd: Option<&'a ProtectionDomain>,
    /// The new memory: its address, which is the new remote address too, and its length in bytes.
    pub memory: Option<(*mut u8, usize)>,
    /// The new access flags.
    pub access: Option<AccessFlags>,
    /// Whether the pages are accessed on demand from now on; see [`RegisterOptions::on_demand`].
    pub on_demand: Option<bool>,
}

/// Registered memory; as `ibv_mr`.
///
/// Peers may write it at any time, so it gives no references: bytes are copied in and out. A reader
/// that sees the new last byte of a packet's payload sees the rest of that packet too. Cheap to
/// clone; dropping the last clone deregisters it, and no queue pair touches it afterwards.
///
/// ```no_run
/// # use roce_verbs::{AccessFlags, Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// # let pd = Device::open("eth0", DeviceConfig::default())?.alloc_pd()?;
/// let region = pd.register(64, AccessFlags::LOCAL_WRITE)?;
/// region.write(0, b"hello")?;
/// let mut seen = [0; 5];
/// region.read(0, &mut seen)?;
/// assert_eq!(&seen, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryRegion(Arc<Registered>);

#[derive(Debug)]
struct Registered {
    driver: Arc<Driver>,
    mapping: Arc<Mapping>,
    key: u32,
    iova: u64,
}

impl MemoryRegion {
    pub(crate) fn new(driver: Arc<Driver>, mapping: Arc<Mapping>, key: u32, iova: u64) -> Self {
        Self(Arc::new(Registered { driver, mapping, key, iova }))
    }

    /// Changes the registration and keeps the keys; as `ibv_rereg_mr`. When this returns, no queue pair
    /// touches memory that it had before.
    ///
    /// # Errors
    /// [`Error::RegionInUse`] while the region has clones; [`Error::WindowsBound`] while memory
    /// windows are bound to it; [`Error::OtherDevice`] for a domain of another device;
    /// [`Error::Register`] where the range is not mapped, or not writable with
    /// [`AccessFlags::LOCAL_WRITE`]; [`Error::RemoteWithoutLocalWrite`]; [`Error::NotPersistent`];
    /// [`Error::Forked`]. Nothing has changed then.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::register_memory`], for the memory that the region has afterwards.
    #[allow(unsafe_code)]
    pub unsafe fn reregister(&mut self, change: Reregistration<'_>) -> Result<(), Error> {
        let region = Arc::get_mut(&mut self.0).ok_or(Error::RegionInUse)?;
        let (known, count) = {
            let engine = region.driver.engine()?;
            let memory = engine.memory();
            (memory.registration(region.key), memory.windows_bound_to(region.key))
        };
        //= also mw-region-in-use
        if count > 0 {
            return Err(Error::WindowsBound { count });
        }
        let mut how = known.ok_or(Error::Forked)?;
        if let Some(pd) = change.pd {
            how.pd = pd.handle_for(&region.driver).ok_or(Error::OtherDevice)?;
        }
        how.access = change.access.unwrap_or(how.access);
        how.on_demand = change.on_demand.unwrap_or(how.on_demand);
        check_rights(how.access)?;
        let mut mapping = Arc::clone(&region.mapping);
        if change.memory.is_some() || !mapping.is_owned() {
            let (address, len) = change.memory.unwrap_or((mapping.as_ptr(), mapping.len()));
            let writable = how.access.contains(AccessFlags::LOCAL_WRITE);
            // SAFETY: the caller's promise is the one that `borrow` asks for.
            let borrowed = unsafe { Mapping::borrow(address, len, writable, how.on_demand) };
            let error = |source| Error::Register { address: address as u64, len, source };
            mapping = Arc::new(borrowed.map_err(error)?);
        }
        if change.memory.is_some() {
            how.iova = mapping.address();
        }
        region.driver.register_again(region.key, &mapping, how)?;
        (region.mapping, region.iova) = (mapping, how.iova);
        Ok(())
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.0.mapping
    }

    /// Returns the local key, for work requests.
    pub fn lkey(&self) -> u32 {
        self.0.key
    }

    /// Returns the remote key, for peers. It equals [`lkey`](Self::lkey).
    pub fn rkey(&self) -> u32 {
        self.0.key
    }

    /// Returns the address of the first byte in work requests, of peers too.
    pub fn address(&self) -> u64 {
        self.0.iova
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.mapping.len()
    }

    /// Returns the kind of its pages, as far as is known; [`Pages::Ordinary`] for memory of the
    /// caller.
    pub fn pages(&self) -> Pages {
        self.0.mapping.pages()
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true unless a peer has invalidated the key.
    pub fn is_valid(&self) -> bool {
        self.0.driver.engine().is_ok_and(|engine| engine.memory().is_valid(self.0.key))
    }

    /// Returns the number of memory windows that are bound to the region. They end with it.
    pub fn bound_windows(&self) -> usize {
        self.0.driver.engine().map_or(0, |engine| engine.memory().windows_bound_to(self.0.key))
    }

    /// Returns a range of the region as an SGE.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`], also for a range of more than 2^31 bytes.
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<Sge, Error> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        let out_of_region = || Error::OutOfRegion {
            offset: start,
            len: end.saturating_sub(start),
            region_len: self.len(),
        };
        let len = end.checked_sub(start).ok_or_else(out_of_region)?;
        self.check(start, len)?;
        let len =
            u32::try_from(len).ok().filter(|len| *len <= 1 << 31).ok_or_else(out_of_region)?;
        Ok(Sge { lkey: self.lkey(), addr: self.address() + start as u64, len })
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        if self.0.mapping.holds(offset, len) {
            return Ok(());
        }
        Err(Error::OutOfRegion { offset, len, region_len: self.len() })
    }

    /// Copies `bytes` into the region, the last word last.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`]; [`Error::MemoryNotPresent`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        self.0.mapping.write(offset, bytes).map_err(|_| Error::MemoryNotPresent { offset })
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`]; [`Error::MemoryNotPresent`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len())?;
        self.0.mapping.read(offset, into).map_err(|_| Error::MemoryNotPresent { offset })
    }

    /// Loads one byte with acquire ordering.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn load_u8(&self, offset: usize) -> Result<u8, Error> {
        self.check(offset, 1)?;
        Ok(self.0.mapping.load_u8(offset))
    }

    /// Stores one byte with release ordering.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn store_u8(&self, offset: usize, value: u8) -> Result<(), Error> {
        self.check(offset, 1)?;
        self.0.mapping.store_u8(offset, value);
        Ok(())
    }

    /// Loads one word in the host's byte order, as atomics change it.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`], also where the word is not aligned to eight bytes.
    pub fn load_u64(&self, offset: usize) -> Result<u64, Error> {
        self.check(offset, 8)?;
        let region_len = self.len();
        self.0.mapping.load_u64(offset).ok_or(Error::OutOfRegion { offset, len: 8, region_len })
    }
}

impl ProtectionDomain {
    /// Allocates `len` zeroed bytes, page-aligned, and registers them.
    ///
    /// # Errors
    /// As [`register_with`](Self::register_with).
    pub fn register(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion, Error> {
        self.register_with(len, access, RegisterOptions::default())
    }

    /// As [`register`](Self::register), with options.
    ///
    /// # Errors
    /// [`Error::Register`] when there is not enough memory for the region, and [`Error::OutOfMemory`] for its key;
    /// [`Error::RemoteWithoutLocalWrite`]; [`Error::NotPersistent`]; [`Error::Forked`].
    pub fn register_with(
        &self,
        len: usize,
        access: AccessFlags,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, Error> {
        let mapping = Mapping::allocate(len, options.huge_pages)
            .map_err(|source| Error::Register { address: 0, len, source })?;
        self.register_mapping(Arc::new(mapping), access, options)
    }

    /// Registers memory of the caller; as `ibv_reg_mr`.
    ///
    /// # Errors
    /// [`Error::Register`] where the range is not mapped, or not writable with
    /// [`AccessFlags::LOCAL_WRITE`]; otherwise as [`register_with`](Self::register_with).
    ///
    /// # Safety
    /// Until the last clone of the region is gone, the range is used for memory that queue pairs may
    /// access and for nothing else. While queue
    /// pairs may reach it, peers and the engine's threads read and (as `access` allows)
    /// write it at any time: meanwhile the caller holds no reference into it, and touches
    /// it through the region's methods, atomics or raw pointers alone, ordered by
    /// completions where it wants to see whole messages. An access to a page that is not mapped, or
    /// not with these rights, fails with the request that it is part of (on x86-64 and arm64; on other
    /// processors the range must stay mapped).
    #[allow(unsafe_code)]
    pub unsafe fn register_memory(
        &self,
        address: *mut u8,
        len: usize,
        access: AccessFlags,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, Error> {
        let writable = access.contains(AccessFlags::LOCAL_WRITE);
        // SAFETY: the caller's promise is the one that `borrow` asks for.
        let mapping = unsafe { Mapping::borrow(address, len, writable, options.on_demand) }
            .map_err(|source| Error::Register { address: address as u64, len, source })?;
        self.register_mapping(Arc::new(mapping), access, options)
    }

    /// Registers the memory of `region` once more: with this domain, which may belong to
    /// another device, with a key and rights of its own. The remote address of its first byte is the
    /// virtual one.
    ///
    /// So one buffer serves several interfaces. The memory is freed with the last region over it.
    ///
    /// # Errors
    /// [`Error::Register`] where the memory belongs to the caller, whose promise was for one
    /// region; otherwise as [`register_with`](Self::register_with).
    pub fn register_shared(
        &self,
        region: &MemoryRegion,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        if !region.mapping().is_owned() {
            let reason = "the memory belongs to the caller; register it with register_memory";
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
            return Err(Error::Register { address: region.address(), len: region.len(), source });
        }
        self.register_mapping(Arc::clone(region.mapping()), access, RegisterOptions::default())
    }

    /// Makes pages of a region of this domain present that is registered on demand; as
    /// `ibv_advise_mr` with the flag to wait. `address` is that of work requests.
    ///
    /// # Errors
    /// [`Error::Advice`] where the key is not that of such a region of this domain, does not give the
    /// right to the range, or the process does not have the pages; [`Error::Forked`].
    pub fn prefetch(
        &self,
        lkey: u32,
        address: u64,
        len: usize,
        advice: Prefetch,
    ) -> Result<(), Error> {
        let access = match advice {
            Prefetch::Write => Access::LocalWrite,
            Prefetch::Read | Prefetch::NoFault => Access::LocalRead,
        };
        let (mapping, offset) = {
            let engine = self.driver.engine()?;
            let range =
                engine.memory().on_demand_range(self.handle, lkey, address, len as u64, access);
            range.map(|(mapping, offset)| (Arc::clone(mapping), offset)).map_err(Error::Advice)?
        };
        if advice == Prefetch::NoFault {
            return Ok(());
        }
        // Without the engine's lock: paging in may take long.
        mapping
            .populate(offset, len, advice == Prefetch::Write)
            .map_err(|_| Error::Advice(MemoryFault::NotPresent))
    }

    fn register_mapping(
        &self,
        mapping: Arc<Mapping>,
        access: AccessFlags,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, Error> {
        self.driver.check_verb(VerbMoment::RegMr)?;
        let registration = Registration {
            pd: self.handle,
            access,
            iova: options.iova.unwrap_or(mapping.address()),
            invalidatable: options.invalidatable,
            on_demand: options.on_demand,
        };
        check_rights(access)?;
        let key = self.driver.register(&mapping, registration)?;
        Ok(MemoryRegion::new(Arc::clone(&self.driver), mapping, key, registration.iova))
    }
}

/// Fails for rights that a region cannot have.
fn check_rights(access: AccessFlags) -> Result<(), Error> {
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if access.intersects(writes) && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(Error::RemoteWithoutLocalWrite);
    }
    //= rule rc-flush-persistent-memory: rxe_mr.c: rxe_mr_init_user
    //# Only memory that survives a loss of power is registered with the right to make it persistent.
    if access.contains(AccessFlags::FLUSH_PERSISTENT) {
        return Err(Error::NotPersistent);
    }
    Ok(())
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.driver.deregister(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test rc-flush-persistent-memory
    #[test]
    fn memory_is_registered_to_be_flushed_and_never_to_be_made_persistent() {
        let written = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        assert!(check_rights(written | AccessFlags::FLUSH_GLOBAL).is_ok());
        let refused = check_rights(written | AccessFlags::FLUSH_PERSISTENT);
        assert!(matches!(refused, Err(Error::NotPersistent)), "{refused:?}");
    }
}
