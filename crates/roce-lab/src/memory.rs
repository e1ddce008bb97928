//! Registered memory of a host in the lab.

use roce_transport::{
    Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, Sge,
};

/// Bytes that were registered, as an application names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Local and remote key at once.
    pub key: u32,
    /// Where it starts.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl Region {
    /// Part of it as an entry of a scatter/gather list; nothing is checked.
    pub const fn piece(self, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.key, addr: self.address.wrapping_add(offset), len }
    }
}

/// All registered memory of one host. Everything is in one protection domain, [`PD`].
///
/// ```
/// use roce_lab::Regions;
/// use roce_transport::AccessFlags;
///
/// let mut regions = Regions::default();
/// let inbox = regions.register(4096, AccessFlags::ALL);
/// regions.bytes_mut(inbox)[..5].copy_from_slice(b"hello");
/// assert_eq!(&regions.bytes(inbox)[..5], b"hello");
/// ```
#[derive(Debug, Default)]
pub struct Regions(Vec<Registered>);

/// The one protection domain of the lab.
pub const PD: PdHandle = PdHandle(1);

#[derive(Debug)]
struct Registered {
    span: Region,
    rights: AccessFlags,
    is_alive: bool,
    /// `None` keeps nothing: what is written is forgotten, what is read is zeros.
    bytes: Option<Vec<u8>>,
}

/// What a check of access proved.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    region: usize,
    offset: usize,
}

impl Regions {
    /// Registers `len` zero bytes. Reading them locally is always allowed.
    pub fn register(&mut self, len: usize, rights: AccessFlags) -> Region {
        self.add(len as u64, rights, Some(vec![0; len]))
    }

    /// Registers `len` bytes that keep nothing, for worlds too large for this machine: every
    /// check is made, what is written is forgotten, what is read is zeros.
    pub fn register_unkept(&mut self, len: u64, rights: AccessFlags) -> Region {
        self.add(len, rights, None)
    }

    /// The bytes of a region; empty when it keeps nothing.
    ///
    /// # Panics
    /// When the region is of another host.
    pub fn bytes(&self, region: Region) -> &[u8] {
        let index = self.index(region.key).expect("a region of this host");
        self.0[index].bytes.as_deref().unwrap_or_default()
    }

    /// The same, for the application to change.
    ///
    /// # Panics
    /// When the region is of another host.
    pub fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        let index = self.index(region.key).expect("a region of this host");
        self.0[index].bytes.as_deref_mut().unwrap_or_default()
    }

    /// Ends a registration: its key opens nothing any more. The bytes stay to be looked at.
    pub fn deregister(&mut self, region: Region) {
        if let Some(index) = self.index(region.key) {
            self.0[index].is_alive = false;
        }
    }

    fn add(&mut self, len: u64, rights: AccessFlags, bytes: Option<Vec<u8>>) -> Region {
        let address = self.0.last().map_or(FIRST_ADDRESS, |last| {
            (last.span.address + last.span.len).next_multiple_of(ALIGNMENT) + ALIGNMENT
        });
        let key = (self.0.len() as u32 + 1).wrapping_mul(KEY_STEP);
        let span = Region { key, address, len };
        self.0.push(Registered { span, rights, is_alive: true, bytes });
        span
    }

    fn index(&self, key: u32) -> Option<usize> {
        if !key.is_multiple_of(KEY_STEP) {
            return None;
        }
        let index = (key / KEY_STEP).checked_sub(1)? as usize;
        (index < self.0.len()).then_some(index)
    }
}

impl Memory for Regions {
    type Grant = Grant;

    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<Grant, MemoryFault> {
        let region = self.index(key).filter(|index| self.0[*index].is_alive);
        let region = region.ok_or(MemoryFault::UnknownKey)?;
        let registered = &self.0[region];
        if by.pd != PD {
            return Err(MemoryFault::WrongDomain);
        }
        let needed = match access {
            Access::LocalRead => AccessFlags::empty(),
            Access::LocalWrite => AccessFlags::LOCAL_WRITE,
            Access::RemoteRead => AccessFlags::REMOTE_READ,
            Access::RemoteWrite => AccessFlags::REMOTE_WRITE,
            Access::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
        };
        if !registered.rights.contains(needed) {
            return Err(MemoryFault::NoPermission);
        }
        let offset =
            address.checked_sub(registered.span.address).ok_or(MemoryFault::OutOfBounds)?;
        let end = offset.checked_add(len).ok_or(MemoryFault::OutOfBounds)?;
        if end > registered.span.len {
            return Err(MemoryFault::OutOfBounds);
        }
        if access == Access::RemoteAtomic && !address.is_multiple_of(8) {
            return Err(MemoryFault::Misaligned);
        }
        Ok(Grant { region, offset: offset as usize })
    }

    fn write(&mut self, grant: Grant, offset: u64, bytes: &[u8]) {
        if let Some(kept) = &mut self.0[grant.region].bytes {
            kept[grant.offset + offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn read(&self, grant: Grant, offset: u64, into: &mut [u8]) {
        match &self.0[grant.region].bytes {
            Some(kept) => {
                into.copy_from_slice(&kept[grant.offset + offset as usize..][..into.len()]);
            }
            None => into.fill(0),
        }
    }

    fn atomic(&mut self, grant: Grant, change: AtomicChange) -> u64 {
        let kept = self.0[grant.region].bytes.as_mut();
        let Some(word) = kept.and_then(|kept| kept[grant.offset..].first_chunk_mut()) else {
            return 0;
        };
        let original = u64::from_ne_bytes(*word);
        *word = change.apply(original).to_ne_bytes();
        original
    }

    fn invalidate(&mut self, _: Accessor, _: u32) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotInvalidatable)
    }
}

/// Addresses that look like those of a process, and need all 64 bits.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
const ALIGNMENT: u64 = 0x1000;
/// Keys are multiples of this: short enough to be recognised in a packet.
const KEY_STEP: u32 = 0x101;

#[cfg(test)]
mod tests {
    use super::*;
    use roce_wire::Qpn;

    const BY: Accessor = Accessor { pd: PD, qpn: Qpn::GSI };

    #[test]
    fn what_is_not_kept_is_checked_all_the_same() {
        let mut regions = Regions::default();
        let region = regions.register_unkept(100, AccessFlags::REMOTE_WRITE);
        let check = |offset, len, access| {
            regions.check(BY, region.key, region.address + offset, len, access).map(|_| ())
        };
        assert_eq!(check(0, 100, Access::RemoteWrite), Ok(()));
        assert_eq!(check(1, 100, Access::RemoteWrite), Err(MemoryFault::OutOfBounds));
        assert_eq!(check(0, 1, Access::RemoteRead), Err(MemoryFault::NoPermission));
    }

    #[test]
    fn a_key_opens_its_own_region_until_that_is_deregistered() {
        let mut regions = Regions::default();
        let one = regions.register(10, AccessFlags::ALL);
        let two = regions.register(10, AccessFlags::ALL);
        let check = |regions: &Regions, key| {
            regions.check(BY, key, two.address, 10, Access::RemoteRead).map(|_| ())
        };
        assert_eq!(check(&regions, two.key), Ok(()));
        assert_eq!(check(&regions, one.key), Err(MemoryFault::OutOfBounds));
        for key in [0, 1, two.key + 1, 3 * KEY_STEP, u32::MAX] {
            assert_eq!(check(&regions, key), Err(MemoryFault::UnknownKey), "{key:#x}");
        }
        regions.deregister(two);
        assert_eq!(check(&regions, two.key), Err(MemoryFault::UnknownKey));
    }
}
