//! Registered memory of a simulated host.

use std::ops::Range;

use roce_transport::{
    Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, Sge,
};

/// The protection domain of regions that name none.
pub const PD: PdHandle = PdHandle(1);

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Local and remote key.
    pub key: u32,
    /// Start address.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Region {
    /// Returns an SGE of part of the region, without a check of bounds.
    pub const fn piece(self, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.key, addr: self.address.wrapping_add(offset), len }
    }
}

/// Permitted accesses to a region; local reads are always permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The flags of the registration.
    pub access: AccessFlags,
    /// The peer may invalidate the key.
    pub invalidatable: bool,
}

impl Rights {
    /// All accesses; not invalidatable.
    pub const ALL: Self = Self { access: AccessFlags::ALL, invalidatable: false };
}

impl From<AccessFlags> for Rights {
    fn from(access: AccessFlags) -> Self {
        Self { access, invalidatable: false }
    }
}

/// All registered memory of one host.
///
/// ```
/// use roce_simnet::{Regions, Rights};
///
/// let mut regions = Regions::default();
/// let inbox = regions.register(4096, Rights::ALL);
/// regions.bytes_mut(inbox)[..5].copy_from_slice(b"hello");
/// assert_eq!(&regions.bytes(inbox)[..5], b"hello");
/// ```
#[derive(Debug, Default)]
pub struct Regions {
    regions: Vec<Registered>,
    bytes_written: u64,
    atomics_executed: u64,
}

#[derive(Debug)]
struct Registered {
    pd: PdHandle,
    span: Region,
    rights: Rights,
    is_alive: bool,
    /// Offsets of bytes that cannot be accessed.
    hole: Range<u64>,
    written: u64,
    atomics: u64,
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// Guard bytes, the region, guard bytes.
    Bytes(Vec<u8>),
    /// A function of seed and offset. Writes must carry that content, in order and once; `cursor` is
    /// the end of the last one.
    Synthetic { seed: u64, cursor: u64 },
    /// Writes are discarded, reads are zeros.
    Unkept,
}

/// A checked access.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    region: usize,
    offset: u64,
    len: u64,
}

impl Regions {
    /// Registers `len` zero bytes in [`PD`].
    pub fn register(&mut self, len: usize, rights: impl Into<Rights>) -> Region {
        self.add_bytes(PD, len, rights.into(), |_| 0)
    }

    /// Registers `len` bytes, each the low byte of its offset times 7 plus `tint`.
    pub fn register_filled(
        &mut self,
        pd: PdHandle,
        len: usize,
        rights: impl Into<Rights>,
        tint: u8,
    ) -> Region {
        self.add_bytes(pd, len, rights.into(), |offset| {
            (offset as u8).wrapping_mul(7).wrapping_add(tint)
        })
    }

    /// Registers `len` bytes that are computed, not stored; see
    /// [`synthetic_cursor`](Self::synthetic_cursor).
    pub fn register_synthetic(
        &mut self,
        pd: PdHandle,
        len: u64,
        rights: Rights,
        seed: u64,
    ) -> Region {
        self.add(pd, len, rights, Store::Synthetic { seed, cursor: 0 })
    }

    /// Registers `len` bytes in [`PD`] that are not stored, for worlds larger than this machine's
    /// memory: accesses are checked, writes discarded, reads are zeros.
    pub fn register_unkept(&mut self, len: u64, rights: impl Into<Rights>) -> Region {
        self.add(PD, len, rights.into(), Store::Unkept)
    }

    /// Returns the bytes of a region; none if they are not stored.
    ///
    /// # Panics
    /// If the region belongs to another host.
    pub fn bytes(&self, region: Region) -> &[u8] {
        match &self.of(region).store {
            Store::Bytes(bytes) => &bytes[GUARD_LEN..bytes.len() - GUARD_LEN],
            Store::Synthetic { .. } | Store::Unkept => &[],
        }
    }

    /// Returns the bytes of a region for the application to change; none if they are not stored.
    ///
    /// # Panics
    /// If the region belongs to another host.
    pub fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        match &mut self.of_mut(region).store {
            Store::Bytes(bytes) => {
                let end = bytes.len() - GUARD_LEN;
                &mut bytes[GUARD_LEN..end]
            }
            Store::Synthetic { .. } | Store::Unkept => &mut [],
        }
    }

    /// Returns the number of bytes written to a synthetic region. A write with other content, out of
    /// order or twice has panicked.
    ///
    /// # Panics
    /// If the region is not synthetic.
    pub fn synthetic_cursor(&self, region: Region) -> u64 {
        let Store::Synthetic { cursor, .. } = self.of(region).store else {
            panic!("only a synthetic region has a cursor")
        };
        cursor
    }

    /// Returns the number of bytes that the engine wrote to a region, without atomics.
    pub fn written(&self, region: Region) -> u64 {
        self.of(region).written
    }

    /// Returns the number of atomics that the engine executed on a region.
    pub fn atomics(&self, region: Region) -> u64 {
        self.of(region).atomics
    }

    /// Returns the number of bytes that the engine wrote to all regions, without atomics.
    pub const fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Returns the number of atomics that the engine executed on all regions.
    pub const fn atomics_executed(&self) -> u64 {
        self.atomics_executed
    }

    /// Ends a registration; the bytes remain readable by [`bytes`](Self::bytes).
    pub fn deregister(&mut self, region: Region) {
        self.of_mut(region).is_alive = false;
    }

    /// Makes the bytes at these offsets of a region not present, as if the program had unmapped them
    /// without deregistering the region: keys and rights stay, accesses fail. An empty range makes all
    /// of the region present.
    pub fn unmap(&mut self, region: Region, hole: Range<u64>) {
        self.of_mut(region).hole = hole;
    }

    /// Returns true if the region is registered.
    pub fn is_alive(&self, region: Region) -> bool {
        self.of(region).is_alive
    }

    /// Checks the guard bytes around all regions.
    ///
    /// # Panics
    /// If one has changed.
    pub fn assert_guards_untouched(&self) {
        for region in &self.regions {
            let Store::Bytes(bytes) = &region.store else { continue };
            for offset in (0..GUARD_LEN).chain(bytes.len() - GUARD_LEN..bytes.len()) {
                assert_eq!(
                    bytes[offset],
                    guard_byte(offset),
                    "a byte outside region {:#x} has changed, at {} from its start",
                    region.span.key,
                    offset as i64 - GUARD_LEN as i64,
                );
            }
        }
    }

    fn add_bytes(
        &mut self,
        pd: PdHandle,
        len: usize,
        rights: Rights,
        content: impl Fn(usize) -> u8,
    ) -> Region {
        let guard = |range: Range<usize>| range.map(guard_byte);
        let bytes = guard(0..GUARD_LEN)
            .chain((0..len).map(content))
            .chain(guard(GUARD_LEN + len..len + 2 * GUARD_LEN))
            .collect();
        self.add(pd, len as u64, rights, Store::Bytes(bytes))
    }

    fn add(&mut self, pd: PdHandle, len: u64, rights: Rights, store: Store) -> Region {
        let address = self.regions.last().map_or(FIRST_ADDRESS, |last| {
            (last.span.address + last.span.len).next_multiple_of(ALIGNMENT) + ALIGNMENT
        });
        let key = (self.regions.len() as u32 + 1).wrapping_mul(KEY_STEP);
        let span = Region { key, address, len };
        let (is_alive, hole, written, atomics) = (true, 0..0, 0, 0);
        self.regions.push(Registered { pd, span, rights, is_alive, hole, written, atomics, store });
        span
    }

    fn of(&self, region: Region) -> &Registered {
        &self.regions[index(region.key).expect("a region of this host")]
    }

    fn of_mut(&mut self, region: Region) -> &mut Registered {
        &mut self.regions[index(region.key).expect("a region of this host")]
    }

    /// Fails if one of `len` bytes at `at` is not present.
    fn check_present(&self, region: usize, at: u64, len: u64) -> Result<(), MemoryFault> {
        let hole = &self.regions[region].hole;
        match at.max(hole.start) < (at + len).min(hole.end) {
            true => Err(MemoryFault::NotPresent),
            false => Ok(()),
        }
    }

    /// Returns the index of the live region of this key.
    fn find(&self, key: u32) -> Result<usize, MemoryFault> {
        index(key)
            .filter(|index| self.regions.get(*index).is_some_and(|region| region.is_alive))
            .ok_or(MemoryFault::UnknownKey)
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
        let region = self.find(key)?;
        let found = &self.regions[region];
        if found.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !found.rights.access.contains(access.required_flags()) {
            return Err(MemoryFault::NoPermission);
        }
        let offset = address.checked_sub(found.span.address).ok_or(MemoryFault::OutOfBounds)?;
        if offset.checked_add(len).is_none_or(|end| end > found.span.len) {
            return Err(MemoryFault::OutOfBounds);
        }
        if access.is_of_word() && !address.is_multiple_of(8) {
            return Err(MemoryFault::Misaligned);
        }
        Ok(Grant { region, offset, len })
    }

    fn write(&mut self, grant: Grant, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert!(offset + bytes.len() as u64 <= grant.len, "a write must stay inside its grant");
        self.check_present(grant.region, grant.offset + offset, bytes.len() as u64)?;
        self.bytes_written += bytes.len() as u64;
        let region = &mut self.regions[grant.region];
        region.written += bytes.len() as u64;
        let at = grant.offset + offset;
        match &mut region.store {
            Store::Bytes(store) => {
                store[GUARD_LEN + at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Store::Synthetic { seed, cursor } => {
                assert_eq!(at, *cursor, "bytes must arrive in order, each once");
                let mut expected = [0; 4096];
                for (part, bytes) in bytes.chunks(expected.len()).enumerate() {
                    let expected = &mut expected[..bytes.len()];
                    fill_synthetic(*seed, at + part as u64 * 4096, expected);
                    assert!(expected == bytes, "bytes at {at} must arrive intact");
                }
                *cursor += bytes.len() as u64;
            }
            Store::Unkept => {}
        }
        Ok(())
    }

    fn read(&self, grant: Grant, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        assert!(offset + into.len() as u64 <= grant.len, "a read must stay inside its grant");
        let at = grant.offset + offset;
        self.check_present(grant.region, at, into.len() as u64)?;
        match &self.regions[grant.region].store {
            Store::Bytes(store) => {
                into.copy_from_slice(&store[GUARD_LEN + at as usize..][..into.len()]);
            }
            Store::Synthetic { seed, .. } => fill_synthetic(*seed, at, into),
            Store::Unkept => into.fill(0),
        }
        Ok(())
    }

    fn atomic(&mut self, grant: Grant, change: AtomicChange) -> Result<u64, MemoryFault> {
        assert_eq!(grant.len, 8, "an atomic covers one word");
        self.check_present(grant.region, grant.offset, 8)?;
        self.atomics_executed += 1;
        let region = &mut self.regions[grant.region];
        region.atomics += 1;
        let Store::Bytes(store) = &mut region.store else { return Ok(0) };
        let at = GUARD_LEN + grant.offset as usize;
        let word = store[at..].first_chunk_mut().expect("the grant covers 8 bytes");
        let original = u64::from_ne_bytes(*word);
        *word = change.apply(original).to_ne_bytes();
        Ok(original)
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        let index = self.find(key)?;
        let found = &mut self.regions[index];
        if found.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !found.rights.invalidatable {
            return Err(MemoryFault::NotInvalidatable);
        }
        found.is_alive = false;
        Ok(())
    }
}

fn index(key: u32) -> Option<usize> {
    let number = key.is_multiple_of(KEY_STEP).then_some(key / KEY_STEP)?;
    number.checked_sub(1).map(|index| index as usize)
}

fn guard_byte(offset: usize) -> u8 {
    0xa5 ^ (offset as u8).wrapping_mul(29)
}

/// Fills `into` with the synthetic content from offset `at`: words of their index, mixed with the
/// seed.
pub fn fill_synthetic(seed: u64, at: u64, into: &mut [u8]) {
    let word = |index: u64| {
        (index ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_le_bytes()
    };
    let lead = (at.wrapping_neg() % 8).min(into.len() as u64) as usize;
    let (head, body) = into.split_at_mut(lead);
    let skip = (at % 8) as usize;
    head.copy_from_slice(&word(at / 8)[skip..skip + lead]);
    let first = at.div_ceil(8);
    for (index, chunk) in (first..).zip(body.chunks_mut(8)) {
        chunk.copy_from_slice(&word(index)[..chunk.len()]);
    }
}

/// Guard bytes on either side of a stored region.
const GUARD_LEN: usize = 64;
/// Addresses like those of a process, which need all 64 bits.
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
    fn accesses_to_unkept_memory_are_checked() {
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
        let one = regions.register(10, Rights::ALL);
        let two = regions.register(10, Rights::ALL);
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

    #[test]
    #[should_panic = "a byte outside region"]
    fn a_changed_guard_byte_is_noticed() {
        let mut regions = Regions::default();
        regions.register(10, Rights::ALL);
        let Store::Bytes(bytes) = &mut regions.regions[0].store else { unreachable!() };
        bytes[GUARD_LEN + 10] ^= 1;
        regions.assert_guards_untouched();
    }
}
