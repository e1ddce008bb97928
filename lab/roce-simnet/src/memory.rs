//! Registered memory of a simulated host.

use std::ops::Range;

use roce_transport::{
    Access, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, Region, RegionGrant,
    RegionStore, Rights,
};

/// The protection domain of regions that name none.
pub const PD: PdHandle = PdHandle(1);

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
    regions: roce_transport::Regions<Simulated>,
}

/// The bytes of a region.
#[derive(Debug)]
struct Simulated {
    /// Offsets of bytes that cannot be accessed.
    hole: Range<u64>,
    written: u64,
    atomics: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Guard bytes, the region, guard bytes.
    Bytes(Vec<u8>),
    /// A function of seed and offset. Writes must carry that content, in order and once; `cursor` is
    /// the end of the last one.
    Synthetic { seed: u64, cursor: u64 },
    /// Writes are discarded, reads are zeros.
    Unkept,
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
        self.add(pd, len, rights, Kind::Synthetic { seed, cursor: 0 })
    }

    /// Registers `len` bytes in [`PD`] that are not stored, for worlds larger than this machine's
    /// memory: accesses are checked, writes discarded, reads are zeros.
    pub fn register_unkept(&mut self, len: u64, rights: impl Into<Rights>) -> Region {
        self.add(PD, len, rights.into(), Kind::Unkept)
    }

    /// Returns the bytes of a region; none if they are not stored.
    ///
    /// # Panics
    /// If the region belongs to another host.
    pub fn bytes(&self, region: Region) -> &[u8] {
        match &self.of(region).kind {
            Kind::Bytes(bytes) => &bytes[GUARD_LEN..bytes.len() - GUARD_LEN],
            Kind::Synthetic { .. } | Kind::Unkept => &[],
        }
    }

    /// Returns the bytes of a region for the application to change; none if they are not stored.
    ///
    /// # Panics
    /// If the region belongs to another host.
    pub fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        match &mut self.of_mut(region).kind {
            Kind::Bytes(bytes) => {
                let end = bytes.len() - GUARD_LEN;
                &mut bytes[GUARD_LEN..end]
            }
            Kind::Synthetic { .. } | Kind::Unkept => &mut [],
        }
    }

    /// Returns the number of bytes written to a synthetic region. A write with other content, out of
    /// order or twice has panicked.
    ///
    /// # Panics
    /// If the region is not synthetic.
    pub fn synthetic_cursor(&self, region: Region) -> u64 {
        let Kind::Synthetic { cursor, .. } = self.of(region).kind else {
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
    pub fn bytes_written(&self) -> u64 {
        self.regions.iter().map(|(_, it)| it.written).sum()
    }

    /// Returns the number of atomics that the engine executed on all regions.
    pub fn atomics_executed(&self) -> u64 {
        self.regions.iter().map(|(_, it)| it.atomics).sum()
    }

    /// Ends a registration; the bytes remain readable by [`bytes`](Self::bytes).
    pub fn deregister(&mut self, region: Region) {
        self.regions.deregister(region);
    }

    /// Makes the bytes at these offsets of a region not present, as if the program had unmapped them
    /// without deregistering the region: keys and rights stay, accesses fail. An empty range makes all
    /// of the region present.
    pub fn unmap(&mut self, region: Region, hole: Range<u64>) {
        self.of_mut(region).hole = hole;
    }

    /// Returns true if the region is registered.
    pub fn is_alive(&self, region: Region) -> bool {
        self.regions.is_alive(region)
    }

    /// Checks the guard bytes around all regions.
    ///
    /// # Panics
    /// If one has changed.
    pub fn assert_guards_untouched(&self) {
        for (region, simulated) in self.regions.iter() {
            let Kind::Bytes(bytes) = &simulated.kind else { continue };
            for offset in (0..GUARD_LEN).chain(bytes.len() - GUARD_LEN..bytes.len()) {
                assert_eq!(
                    bytes[offset],
                    guard_byte(offset),
                    "a byte outside region {:#x} has changed, at {} from its start",
                    region.key,
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
        self.add(pd, len as u64, rights, Kind::Bytes(bytes))
    }

    fn add(&mut self, pd: PdHandle, len: u64, rights: Rights, kind: Kind) -> Region {
        let simulated = Simulated { hole: 0..0, written: 0, atomics: 0, kind };
        self.regions.register_store(pd, len, rights, simulated)
    }

    fn of(&self, region: Region) -> &Simulated {
        self.regions.store(region).expect("a region of this host")
    }

    fn of_mut(&mut self, region: Region) -> &mut Simulated {
        self.regions.store_mut(region).expect("a region of this host")
    }
}

impl Memory for Regions {
    type Grant = RegionGrant;

    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<RegionGrant, MemoryFault> {
        self.regions.check(by, key, address, len, access)
    }

    fn write(&mut self, grant: RegionGrant, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.regions.write(grant, offset, bytes).inspect_err(refuse_to_leave_grant)
    }

    fn read(&self, grant: RegionGrant, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        self.regions.read(grant, offset, into).inspect_err(refuse_to_leave_grant)
    }

    fn atomic(&mut self, grant: RegionGrant, change: AtomicChange) -> Result<u64, MemoryFault> {
        self.regions.atomic(grant, change).inspect_err(refuse_to_leave_grant)
    }

    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault> {
        self.regions.invalidate(by, key)
    }
}

/// An access with a grant that is outside of it is an error of the engine.
fn refuse_to_leave_grant(fault: &MemoryFault) {
    assert!(*fault != MemoryFault::OutOfBounds, "an access must stay inside its grant");
}

impl Simulated {
    /// Fails if one of `len` bytes at `at` is not present.
    fn check_present(&self, at: u64, len: u64) -> Result<(), MemoryFault> {
        match at.max(self.hole.start) < (at + len).min(self.hole.end) {
            true => Err(MemoryFault::NotPresent),
            false => Ok(()),
        }
    }
}

impl RegionStore for Simulated {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        self.check_present(at, into.len() as u64)?;
        match &self.kind {
            Kind::Bytes(store) => {
                into.copy_from_slice(&store[GUARD_LEN + at as usize..][..into.len()]);
            }
            Kind::Synthetic { seed, .. } => fill_synthetic(*seed, at, into),
            Kind::Unkept => into.fill(0),
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.check_present(at, bytes.len() as u64)?;
        self.written += bytes.len() as u64;
        match &mut self.kind {
            Kind::Bytes(store) => {
                store[GUARD_LEN + at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Kind::Synthetic { seed, cursor } => {
                assert_eq!(at, *cursor, "bytes must arrive in order, each once");
                let mut expected = [0; 4096];
                for (part, bytes) in bytes.chunks(expected.len()).enumerate() {
                    let expected = &mut expected[..bytes.len()];
                    fill_synthetic(*seed, at + part as u64 * 4096, expected);
                    assert!(expected == bytes, "bytes at {at} must arrive intact");
                }
                *cursor += bytes.len() as u64;
            }
            Kind::Unkept => {}
        }
        Ok(())
    }

    fn atomic(&mut self, at: u64, change: AtomicChange) -> Result<u64, MemoryFault> {
        self.check_present(at, 8)?;
        self.atomics += 1;
        let Kind::Bytes(store) = &mut self.kind else { return Ok(0) };
        let word = store[GUARD_LEN + at as usize..].first_chunk_mut().expect("8 bytes");
        let original = u64::from_ne_bytes(*word);
        *word = change.apply(original).to_ne_bytes();
        Ok(original)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use roce_transport::AccessFlags;
    use roce_wire::Qpn;

    const BY: Accessor = Accessor { pd: PD, qpn: Qpn::GSI };

    #[test]
    fn accesses_to_unkept_memory_are_checked() {
        let mut regions = Regions::default();
        let region = regions.register_unkept(100, AccessFlags::REMOTE_WRITE);
        let check = |offset, len, access| {
            regions.check(BY, region.key, region.addr + offset, len, access).map(|_| ())
        };
        assert_eq!(check(0, 100, Access::RemoteWrite), Ok(()));
        assert_eq!(check(1, 100, Access::RemoteWrite), Err(MemoryFault::OutOfBounds));
        assert_eq!(check(0, 1, Access::RemoteRead), Err(MemoryFault::NoPermission));
    }

    #[test]
    #[should_panic = "a byte outside region"]
    fn a_changed_guard_byte_is_noticed() {
        let mut regions = Regions::default();
        let region = regions.register(10, Rights::ALL);
        let Kind::Bytes(bytes) = &mut regions.of_mut(region).kind else { unreachable!() };
        bytes[GUARD_LEN + 10] ^= 1;
        regions.assert_guards_untouched();
    }
}
