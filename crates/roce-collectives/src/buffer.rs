//! The buffers of operations.

use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use roce_verbs::{AccessFlags, MemoryRegion, ProtectionDomain, RegisterOptions, RemoteAddr, Sge};

use crate::error::{BufferError, Error};

/// Memory registered with every interface of a group, initially zero.
///
/// Neighbours write to it while an operation runs, so it gives no references: bytes are copied in
/// and out. Cloning is cheap; the last clone or slice frees the memory.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Inner>);

/// Consecutive bytes of a [`Buffer`], the argument of operations.
///
/// A whole buffer converts with `(&buffer).into()`.
#[derive(Clone, Debug)]
pub struct BufferSlice {
    buffer: Buffer,
    offset: u64,
    len: u64,
}

#[derive(Debug)]
struct Inner {
    group: Arc<RegisteredBytes>,
    len: u64,
    storage: Storage,
}

#[derive(Debug)]
enum Storage {
    /// One allocation, registered with the device of each rail.
    Rails(Vec<MemoryRegion>),
    /// A group of one rank needs no device.
    Plain(Mutex<Vec<u8>>),
}

/// The total size of a group's buffers; also identifies the group.
#[derive(Debug, Default)]
pub(crate) struct RegisteredBytes {
    bytes: AtomicU64,
}

impl RegisteredBytes {
    /// Returns the bytes of all live buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The smallest buffer that uses huge pages, if the system has some: sums of 64 MiB are a twelfth
/// faster with them. Smaller buffers would waste too much of a huge page.
const HUGE_PAGE_MIN: u64 = 8 << 20;

impl Buffer {
    /// Allocates `len` zeroed bytes and registers them with every domain.
    pub(crate) fn new(
        group: &Arc<RegisteredBytes>,
        domains: &[&ProtectionDomain],
        len: u64,
    ) -> Result<Self, Error> {
        let bytes = usize::try_from(len).map_err(|_| too_much(len))?;
        let storage = match domains.split_first() {
            None => {
                let mut memory = Vec::new();
                memory.try_reserve_exact(bytes).map_err(|_| too_much(len))?;
                memory.resize(bytes, 0);
                Storage::Plain(Mutex::new(memory))
            }
            Some((first, others)) => {
                let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
                let options = RegisterOptions {
                    huge_pages: len >= HUGE_PAGE_MIN,
                    ..RegisterOptions::default()
                };
                let region = first.register_with(bytes, access, options)?;
                let mut regions = vec![region.clone()];
                for domain in others {
                    regions.push(domain.register_shared(&region, access)?);
                }
                Storage::Rails(regions)
            }
        };
        group.bytes.fetch_add(len, Ordering::Relaxed);
        Ok(Self(Arc::new(Inner { group: Arc::clone(group), len, storage })))
    }

    /// Returns a buffer over memory that the caller has registered with each of `rails` devices.
    pub(crate) fn over(
        group: &Arc<RegisteredBytes>,
        rails: usize,
        regions: Vec<MemoryRegion>,
    ) -> Result<Self, Error> {
        let len = regions.first().map_or(0, MemoryRegion::len);
        if regions.is_empty() || regions.len() != rails {
            let count = regions.len();
            return Err(Error::Config(format!(
                "{count} regions do not fit a group with {rails} interfaces; register the memory \
                 once for each"
            )));
        }
        if regions.iter().any(|region| region.len() != len) {
            return Err(Error::Config("the regions of one buffer differ in length".into()));
        }
        let len = len as u64;
        group.bytes.fetch_add(len, Ordering::Relaxed);
        let storage = Storage::Rails(regions);
        Ok(Self(Arc::new(Inner { group: Arc::clone(group), len, storage })))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns a slice of the buffer.
    ///
    /// # Errors
    /// [`BufferError::OutOfBuffer`].
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<BufferSlice, BufferError> {
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
        let len = end.saturating_sub(start);
        self.check(start, len)?;
        Ok(BufferSlice { buffer: self.clone(), offset: start, len })
    }

    /// Copies `bytes` into the buffer.
    ///
    /// # Errors
    /// [`BufferError::OutOfBuffer`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len() as u64)?;
        let at = offset as usize;
        match &self.0.storage {
            Storage::Rails(regions) => regions[0].write(at, bytes)?,
            Storage::Plain(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                memory[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Copies bytes out of the buffer.
    ///
    /// # Errors
    /// [`BufferError::OutOfBuffer`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len() as u64)?;
        let at = offset as usize;
        match &self.0.storage {
            Storage::Rails(regions) => regions[0].read(at, into)?,
            Storage::Plain(memory) => {
                let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                into.copy_from_slice(&memory[at..at + into.len()]);
            }
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BufferError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(BufferError::OutOfBuffer { offset, len, have: self.len() }),
        }
    }
}

impl BufferSlice {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the offset in the buffer.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(crate) fn belongs_to(&self, group: &Arc<RegisteredBytes>) -> bool {
        Arc::ptr_eq(&self.buffer.0.group, group)
    }

    pub(crate) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer.0, &other.buffer.0)
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.buffer.read(self.offset.saturating_add(offset), into)
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.buffer.write(self.offset.saturating_add(offset), bytes)
    }

    /// Returns the SGE of a range for a rail.
    pub(crate) fn sge(&self, rail: usize, offset: u64, len: u64) -> Result<Sge, Error> {
        let start = self.offset.saturating_add(offset);
        self.buffer.check(start, len)?;
        let start = start as usize;
        Ok(self.region(rail)?.sge(start..start + len as usize)?)
    }

    /// Returns address and key of the first byte for peers on a rail.
    pub(crate) fn remote(&self, rail: usize) -> Result<RemoteAddr, Error> {
        let region = self.region(rail)?;
        Ok(RemoteAddr { addr: region.address() + self.offset, rkey: region.rkey() })
    }

    fn region(&self, rail: usize) -> Result<&MemoryRegion, Error> {
        match &self.buffer.0.storage {
            Storage::Rails(regions) => regions.get(rail),
            Storage::Plain(_) => None,
        }
        .ok_or_else(|| Error::Internal(format!("a buffer is not registered with rail {rail}")))
    }
}

impl From<&Buffer> for BufferSlice {
    fn from(buffer: &Buffer) -> Self {
        Self { buffer: buffer.clone(), offset: 0, len: buffer.len() }
    }
}

impl From<&BufferSlice> for BufferSlice {
    fn from(slice: &BufferSlice) -> Self {
        slice.clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.group.bytes.fetch_sub(self.len, Ordering::Relaxed);
    }
}

fn too_much(len: u64) -> Error {
    Error::Config(format!("cannot allocate a buffer of {len} bytes; use a smaller one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_the_written_bytes_and_rejects_ranges_beyond_its_end() {
        let registered = Arc::default();
        let buffer = Buffer::new(&registered, &[], 100).unwrap();
        buffer.write(90, &[7; 10]).unwrap();
        let mut seen = [1; 12];
        buffer.read(88, &mut seen).unwrap();
        assert_eq!(seen, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert!(buffer.write(91, &[7; 10]).is_err());
        assert!(buffer.read(u64::MAX, &mut seen).is_err());
        assert!(buffer.slice(50..101).is_err());
        let slice = buffer.slice(90..).unwrap();
        assert_eq!((slice.offset(), slice.len()), (90, 10));
        assert_eq!(registered.bytes(), 100);
        drop(buffer);
        assert_eq!(registered.bytes(), 100, "the slice holds it");
        drop(slice);
        assert_eq!(registered.bytes(), 0);
    }
}
