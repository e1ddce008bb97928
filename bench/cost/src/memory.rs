//! Registered memory of a side: one region without access checks.
//!
//! What it does is counted with the packets. Finding a region and its rights as `roce_transport::Regions` does
//! would be counted, too, and is not what the table of `roce-engine` costs.

use roce_transport::{Access, Accessor, AtomicChange, Memory, MemoryFault};
use roce_wire::PayloadCrc;

/// One region of bytes at address 0.
///
/// ```
/// use roce_cost::Bytes;
/// use roce_transport::{Access, Accessor, Memory, PdHandle};
/// use roce_wire::Qpn;
///
/// let memory = Bytes::new(64);
/// let by = Accessor { pd: PdHandle(1), qpn: Qpn::GSI };
/// assert!(memory.check(by, Bytes::KEY, 60, 4, Access::LocalRead).is_ok());
/// assert!(memory.check(by, Bytes::KEY, 61, 4, Access::LocalRead).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Local and remote key of the region.
    pub const KEY: u32 = 7;

    /// Creates a region of `len` bytes.
    pub fn new(len: usize) -> Self {
        Self(vec![0; len])
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn part(&mut self, start: u64, len: usize) -> &mut [u8] {
        &mut self.0[start as usize..][..len]
    }
}

impl Memory for Bytes {
    type Grant = u64;

    fn check(
        &self,
        _by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        _access: Access,
    ) -> Result<u64, MemoryFault> {
        if key != Self::KEY {
            return Err(MemoryFault::UnknownKey);
        }
        let end = address.checked_add(len).ok_or(MemoryFault::OutOfBounds)?;
        if end > self.0.len() as u64 { Err(MemoryFault::OutOfBounds) } else { Ok(address) }
    }

    fn write(&mut self, grant: u64, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.part(grant + offset, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, grant: u64, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        into.copy_from_slice(&self.0[(grant + offset) as usize..][..into.len()]);
        Ok(())
    }

    /// Copies and computes the CRC as `roce-verbs` does on processors that can do both in one pass.
    /// The sealer's saving is counted, but not the pass.
    fn read_summed(
        &self,
        grant: u64,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Option<PayloadCrc>, MemoryFault> {
        self.read(grant, offset, into)?;
        Ok(PayloadCrc::of(into))
    }

    fn atomic(&mut self, grant: u64, change: AtomicChange) -> Result<u64, MemoryFault> {
        let Some(word) = self.part(grant, 8).first_chunk_mut() else { return Ok(0) };
        let original = u64::from_ne_bytes(*word);
        *word = change.apply(original).to_ne_bytes();
        Ok(original)
    }

    fn invalidate(&mut self, _by: Accessor, _key: u32) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotInvalidatable)
    }
}
