//! Registered memory that fails the run at the first touch without a permission.
//!
//! A script puts its regions at any address, ends and renews them, and changes their rights. So they are no
//! [`Regions`](crate::Regions), of which each has an address and a key once and for all.

use crate::{Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault, PdHandle};

/// Regions, and what the queue pair that uses them may do.
pub(super) struct Guarded {
    pub(super) regions: Vec<Region>,
    /// The only protection domain that may be used.
    pub(super) pd: PdHandle,
    /// What the queue pair has allowed its peer since it left RESET.
    pub(super) allowed: AccessFlags,
    /// Calls of the engine so far: a grant is valid within its call.
    pub(super) calls: u64,
    /// Writes and atomics of the peer's.
    pub(super) remote_changes: u64,
    /// Local writes, to receives and for the responses of READs and atomics.
    pub(super) local_changes: u64,
}

pub(super) struct Region {
    pub(super) key: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) pd: PdHandle,
    pub(super) rights: AccessFlags,
    pub(super) is_alive: bool,
    pub(super) is_invalidatable: bool,
    /// All of it, or nothing where the region is only a promise of zeros.
    pub(super) bytes: Vec<u8>,
}

/// A grant, with the arguments of its check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    region: usize,
    at: u64,
    len: u64,
    access: Access,
    call: u64,
}

impl Guarded {
    pub(super) fn new(pd: PdHandle) -> Self {
        Self {
            regions: vec![],
            pd,
            allowed: AccessFlags::empty(),
            calls: 0,
            remote_changes: 0,
            local_changes: 0,
        }
    }

    /// Adds a region of `len` bytes of zeros; its key is its index and 1 more.
    pub(super) fn add(&mut self, address: u64, len: usize, rights: AccessFlags) -> &mut Region {
        self.regions.push(Region {
            key: self.regions.len() as u32 + 1,
            addr: address,
            len: len as u64,
            pd: self.pd,
            rights,
            is_alive: true,
            is_invalidatable: false,
            bytes: vec![0; len],
        });
        self.regions.last_mut().expect("it was just added")
    }

    fn changed(&mut self, access: Access) {
        match access {
            Access::LocalWrite => self.local_changes += 1,
            _ => self.remote_changes += 1,
        }
    }

    /// Where in the bytes of its region `len` bytes lie that were granted; `None` where the
    /// region stores nothing.
    fn place(&self, grant: Grant, offset: u64, len: usize) -> Option<core::ops::Range<usize>> {
        assert_eq!(grant.call, self.calls, "a permission must not outlive the call");
        let end = offset.checked_add(len as u64).expect("an offset inside a region");
        assert!(end <= grant.len, "{offset} + {len} leaves {grant:?}");
        let region = &self.regions[grant.region];
        assert!(region.is_alive, "the key died within the call");
        let at = (grant.at + offset) as usize;
        (!region.bytes.is_empty()).then_some(at..at + len)
    }
}

impl Memory for Guarded {
    type Grant = Grant;

    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<Grant, MemoryFault> {
        assert_eq!(by.pd, self.pd, "a queue pair speaks for its own domain");
        let needs = access.required_flags();
        let is_allowed = self.allowed.contains(needs - AccessFlags::LOCAL_WRITE);
        assert!(is_allowed, "{access:?} was never allowed");
        let found = self.regions.iter().position(|it| it.key == key && it.is_alive);
        let index = found.ok_or(MemoryFault::UnknownKey)?;
        let region = &self.regions[index];
        if region.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !region.rights.contains(needs) {
            return Err(MemoryFault::NoPermission);
        }
        let at = address.checked_sub(region.addr).ok_or(MemoryFault::OutOfBounds)?;
        match at.checked_add(len) {
            Some(end) if end <= region.len => {
                Ok(Grant { region: index, at, len, access, call: self.calls })
            }
            _ => Err(MemoryFault::OutOfBounds),
        }
    }

    fn write(&mut self, grant: Grant, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert!(matches!(grant.access, Access::LocalWrite | Access::RemoteWrite), "{grant:?}");
        let place = self.place(grant, offset, bytes.len());
        if let Some(place) = place {
            self.regions[grant.region].bytes[place].copy_from_slice(bytes);
        }
        self.changed(grant.access);
        Ok(())
    }

    fn read(&self, grant: Grant, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        assert!(matches!(grant.access, Access::LocalRead | Access::RemoteRead), "{grant:?}");
        match self.place(grant, offset, into.len()) {
            Some(place) => into.copy_from_slice(&self.regions[grant.region].bytes[place]),
            None => into.fill(0),
        }
        Ok(())
    }

    fn atomic(&mut self, grant: Grant, change: AtomicChange) -> Result<u64, MemoryFault> {
        let wanted = match change {
            AtomicChange::Store(_) => Access::RemoteAtomicWrite,
            _ => Access::RemoteAtomic,
        };
        assert_eq!((grant.access, grant.len), (wanted, 8), "{grant:?}");
        let address = self.regions[grant.region].addr.wrapping_add(grant.at);
        assert!(address.is_multiple_of(8), "an atomic at {address:#x}");
        let place = self.place(grant, 0, 8);
        self.changed(grant.access);
        let Some(place) = place else { return Ok(0) };
        let word = &mut self.regions[grant.region].bytes[place];
        let original = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        word.copy_from_slice(&change.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        assert_eq!(by.pd, self.pd, "a queue pair speaks for its own domain");
        let found = self.regions.iter_mut().find(|it| it.key == key && it.is_alive);
        let region = found.ok_or(MemoryFault::UnknownKey)?;
        if region.pd != by.pd || !region.is_invalidatable {
            return Err(MemoryFault::NotInvalidatable);
        }
        region.is_alive = false;
        Ok(())
    }
}
