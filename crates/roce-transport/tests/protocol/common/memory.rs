//! Registered memory for tests: regions between guard bytes, and regions that store nothing.

use roce_transport::{Access, Accessor, AtomicChange, Memory, MemoryFault, PdHandle};

/// Bytes of known content on either side of every stored region.
const GUARD: usize = 64;
/// Where the first region lies; far enough up that address arithmetic needs all 64 bits.
const FIRST_ADDRESS: u64 = 0x7f00_0000_1000;

/// What a region may be used for; reading it locally is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) local_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) remote_atomic: bool,
    pub(crate) invalidatable: bool,
}

impl Rights {
    pub(crate) const ALL: Self = Self {
        local_write: true,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
        invalidatable: false,
    };

    fn allow(self, access: Access) -> bool {
        match access {
            Access::LocalRead => true,
            Access::LocalWrite => self.local_write,
            Access::RemoteRead => self.remote_read,
            Access::RemoteWrite => self.remote_write,
            Access::RemoteAtomic => self.remote_atomic,
        }
    }
}

/// A span of registered memory, as tests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

/// Every region of one node.
#[derive(Debug, Default)]
pub(crate) struct TestMemory {
    regions: Vec<Registered>,
    /// How often the engine changed a word by an atomic.
    pub(crate) atomics_executed: u64,
    /// How many bytes the engine wrote.
    pub(crate) bytes_written: u64,
}

#[derive(Debug)]
struct Registered {
    pd: PdHandle,
    span: Region,
    rights: Rights,
    alive: bool,
    written: u64,
    atomics: u64,
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// Guard bytes, the region, guard bytes.
    Bytes(Vec<u8>),
    /// Content is a function of seed and offset. Writes must carry exactly that content, in
    /// order and once; `cursor` is how far they came.
    Synthetic { seed: u64, cursor: u64 },
}

/// What `check` proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    region: usize,
    offset: u64,
    len: u64,
}

impl TestMemory {
    /// Registers `len` bytes, each the low byte of its offset times 7 plus `tint`.
    pub(crate) fn register(
        &mut self,
        pd: PdHandle,
        len: usize,
        rights: Rights,
        tint: u8,
    ) -> Region {
        let mut bytes = vec![0; len + 2 * GUARD];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = guard_byte(offset);
        }
        for (offset, byte) in bytes[GUARD..GUARD + len].iter_mut().enumerate() {
            *byte = (offset as u8).wrapping_mul(7).wrapping_add(tint);
        }
        self.add(pd, len as u64, rights, Store::Bytes(bytes))
    }

    /// Registers `len` bytes that exist only as a rule; see [`Self::synthetic_cursor`].
    pub(crate) fn register_synthetic(
        &mut self,
        pd: PdHandle,
        len: u64,
        rights: Rights,
        seed: u64,
    ) -> Region {
        self.add(pd, len, rights, Store::Synthetic { seed, cursor: 0 })
    }

    fn add(&mut self, pd: PdHandle, len: u64, rights: Rights, store: Store) -> Region {
        let address = self
            .regions
            .last()
            .map_or(FIRST_ADDRESS, |last| (last.span.address + last.span.len + 0xffff) & !0xfff);
        // Keys look random and never repeat.
        let key = (self.regions.len() as u32 + 1).wrapping_mul(0x9e37_79b1);
        let span = Region { key, address, len };
        self.regions.push(Registered {
            pd,
            span,
            rights,
            alive: true,
            written: 0,
            atomics: 0,
            store,
        });
        span
    }

    /// The bytes of a stored region.
    pub(crate) fn bytes(&self, region: Region) -> &[u8] {
        let Store::Bytes(bytes) = &self.regions[self.index(region.key)].store else {
            panic!("a synthetic region stores no bytes")
        };
        &bytes[GUARD..GUARD + region.len as usize]
    }

    /// The bytes of a stored region, to be changed by "the application".
    pub(crate) fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        let index = self.index(region.key);
        let Store::Bytes(bytes) = &mut self.regions[index].store else {
            panic!("a synthetic region stores no bytes")
        };
        &mut bytes[GUARD..GUARD + region.len as usize]
    }

    /// How many bytes of a synthetic region were written: in order, once, with the right content
    /// (anything else has failed the test at the write).
    pub(crate) fn synthetic_cursor(&self, region: Region) -> u64 {
        let Store::Synthetic { cursor, .. } = self.regions[self.index(region.key)].store else {
            panic!("only a synthetic region has a cursor")
        };
        cursor
    }

    /// How many bytes the engine wrote to one region, atomics apart.
    pub(crate) fn written(&self, region: Region) -> u64 {
        self.regions[self.index(region.key)].written
    }

    /// How many atomics the engine executed on one region.
    pub(crate) fn atomics(&self, region: Region) -> u64 {
        self.regions[self.index(region.key)].atomics
    }

    /// Ends a registration; the bytes stay to be looked at.
    pub(crate) fn deregister(&mut self, region: Region) {
        let index = self.index(region.key);
        self.regions[index].alive = false;
    }

    /// Whether the key still opens the region.
    pub(crate) fn is_alive(&self, region: Region) -> bool {
        self.regions[self.index(region.key)].alive
    }

    /// Fails if any byte outside any region was touched.
    pub(crate) fn assert_guards_untouched(&self) {
        for region in &self.regions {
            let Store::Bytes(bytes) = &region.store else { continue };
            let end = bytes.len() - GUARD;
            for offset in (0..GUARD).chain(end..bytes.len()) {
                assert_eq!(
                    bytes[offset],
                    guard_byte(offset),
                    "a byte outside region {:#x} was touched, at {} from its start",
                    region.span.key,
                    offset as i64 - GUARD as i64,
                );
            }
        }
    }

    fn index(&self, key: u32) -> usize {
        self.regions.iter().position(|it| it.span.key == key).expect("the test's own region")
    }
}

impl Memory for TestMemory {
    type Grant = Grant;

    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<Grant, MemoryFault> {
        let region = self
            .regions
            .iter()
            .position(|it| it.span.key == key && it.alive)
            .ok_or(MemoryFault::UnknownKey)?;
        let found = &self.regions[region];
        if found.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !found.rights.allow(access) {
            return Err(MemoryFault::NoPermission);
        }
        let offset = address.checked_sub(found.span.address).ok_or(MemoryFault::OutOfBounds)?;
        match offset.checked_add(len) {
            Some(end) if end <= found.span.len => Ok(Grant { region, offset, len }),
            _ => Err(MemoryFault::OutOfBounds),
        }
    }

    fn write(&mut self, grant: Grant, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= grant.len, "a write must stay inside its grant");
        self.bytes_written += bytes.len() as u64;
        self.regions[grant.region].written += bytes.len() as u64;
        let at = grant.offset + offset;
        match &mut self.regions[grant.region].store {
            Store::Bytes(store) => {
                let at = GUARD + at as usize;
                store[at..at + bytes.len()].copy_from_slice(bytes);
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
        }
    }

    fn read(&self, grant: Grant, offset: u64, into: &mut [u8]) {
        assert!(offset + into.len() as u64 <= grant.len, "a read must stay inside its grant");
        let at = grant.offset + offset;
        match &self.regions[grant.region].store {
            Store::Bytes(store) => {
                let at = GUARD + at as usize;
                into.copy_from_slice(&store[at..at + into.len()]);
            }
            Store::Synthetic { seed, .. } => fill_synthetic(*seed, at, into),
        }
    }

    fn atomic(&mut self, grant: Grant, change: AtomicChange) -> u64 {
        assert_eq!(grant.len, 8, "an atomic covers one word");
        self.atomics_executed += 1;
        self.regions[grant.region].atomics += 1;
        let Store::Bytes(store) = &mut self.regions[grant.region].store else {
            panic!("no atomics on synthetic memory")
        };
        let at = GUARD + grant.offset as usize;
        let word = store[at..].first_chunk_mut::<8>().expect("checked: 8 bytes");
        let original = u64::from_ne_bytes(*word);
        let changed = match change {
            AtomicChange::Add(add) => original.wrapping_add(add),
            AtomicChange::SwapIf { expected, new } if expected == original => new,
            AtomicChange::SwapIf { .. } => original,
        };
        *word = changed.to_ne_bytes();
        original
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        let found = self
            .regions
            .iter_mut()
            .find(|it| it.span.key == key && it.alive)
            .ok_or(MemoryFault::UnknownKey)?;
        if found.pd != by.pd {
            return Err(MemoryFault::WrongDomain);
        }
        if !found.rights.invalidatable {
            return Err(MemoryFault::NotInvalidatable);
        }
        found.alive = false;
        Ok(())
    }
}

fn guard_byte(offset: usize) -> u8 {
    0xa5 ^ (offset as u8).wrapping_mul(29)
}

/// The content rule of synthetic memory: each word is its index, mixed with the seed.
pub(crate) fn fill_synthetic(seed: u64, at: u64, into: &mut [u8]) {
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
