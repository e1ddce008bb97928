//! Registered memory: the only place that touches it through a pointer.
//!
//! # Why this is sound
//!
//! A registered region is shared on purpose: the peer's packets write it while the application reads
//! it, and neither side waits for the other. Rust references would make that undefined behaviour, so
//! there are none. Three rules make it sound:
//!
//! 1. `base .. base + len` belongs to the region for as long as a [`Mapping`] lives: an owned one
//!    unmaps in its `Drop`, a borrowed one relies on the contract of [`Mapping::borrow`]. A page
//!    of it that is not mapped after all makes an access fail, in functions that are made for that:
//!    see [`guarded`]. So no byte is touched that the program has not named, and none is invented.
//! 2. Every access goes through the routines of this folder, and each checks its
//!    range against `len` first. No pointer leaves the folder except as a number, or for
//!    [`Mapping::borrow`].
//! 3. Every access is an atomic one: single bytes and aligned words of the program's own calls
//!    through `core::sync::atomic`, all others through functions in assembly that the compiler
//!    must treat as it would a loop of relaxed atomics (it can see neither the order nor the width,
//!    so it can assume nothing about either). A race between two such accesses is a race between
//!    atomics: the reader may see old and new units mixed, which is what RDMA promises too, and never
//!    more than that.
//!
//! # What is never torn
//!
//! A *unit* is 1, 2, 4 or 8 bytes that are naturally aligned in the memory of the process. [`Mapping::write`] and
//! [`Mapping::read`] store and load each unit that lies wholly in what they are given in one access: a thread that
//! loads such a unit by one load sees all of it as before a write, or all of it as after, and a read never
//! returns a part of what a thread stores by one store. Each piece of a packet's payload that lies in one SGE is
//! given to one call. So a unit that one packet and one SGE cover wholly is never seen in parts, at both ends, by
//! SEND, WRITE, READ and the results of atomics. A unit that two packets or two SGEs share may be.
//!
//! Both hold for x86-64, arm64 and the copies for other processors alike; they stand on this:
//!
//! - arm64: loads and stores of a register are one access where they are aligned; those of a vector of 16 bytes
//!   are two of 8 where they are aligned to 8.
//! - x86-64: loads and stores of at most 8 bytes that are aligned are one access; those of a vector of 16 bytes
//!   that is aligned are one where the processor has AVX. Longer vectors have no such promise; known processors
//!   divide them at lines of the cache and in halves. So vectors of 32 bytes are aligned to 32, and those of 64
//!   bytes, which are only loaded, to 8.
//!
//! Memory is written with the atomic operations as with a unit of 8 bytes: an atomic and a write of a unit that
//! holds it are one before the other.
//!
//! # In which order bytes become visible
//!
//! [`Mapping::write`] stores the last unit of what it is given behind everything else, with release ordering: the
//! largest unit that ends with the last byte. So a program that waits for the last byte of a packet's payload, or
//! for an aligned word at its end, with [`Mapping::load_u8`] or another acquiring load, and then reads the rest,
//! sees all of the payload.
//! Units before the last have no order among each other. Packets are written in the order of their PSNs, so the last
//! byte of a message shows all of the message. [`Mapping::read`] loads units in any order.

mod copy;
mod copy_crc;
pub(crate) mod fault_handler;
mod guarded;
mod plain;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod program_action;
#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::io;

use roce_engine::Region;
use roce_transport::{AtomicChange, MemoryFault};
use roce_wire::{PathMtu, PayloadCrc};

pub use plain::load_units;

/// A range of this process's memory that queue pairs may access.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Null for the whole address space.
    base: *mut u8,
    len: usize,
    owned: Option<OwnedBytes>,
    pages: Pages,
}

/// Bytes of an owned mapping, to be unmapped.
#[derive(Debug)]
struct OwnedBytes(usize);

/// The kind of pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of the ordinary size.
    Ordinary,
    /// Huge pages that the administrator has reserved.
    Huge,
    /// Huge pages as far as the kernel had some free.
    HugeWhereFree,
}

// SAFETY: rule 3: every access from any thread is an atomic one.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The size of one huge page on the machines this runs on, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Returns the size of an ordinary page in bytes.
fn page_size() -> usize {
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

impl Mapping {
    /// Maps `len` zeroed bytes that start on a page, all of them present.
    ///
    /// With `huge` the mapping has reserved huge pages if there are enough, and otherwise huge pages as
    /// far as the kernel has some free.
    ///
    /// # Errors
    /// That of `mmap`, usually that there is not enough memory.
    pub(crate) fn allocate(len: usize, huge: bool) -> io::Result<Self> {
        let granule = if huge { HUGE_PAGE } else { page_size() };
        let mapped = len
            .max(1)
            .checked_next_multiple_of(granule)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let reserve = |flags: libc::c_int| {
            // SAFETY: a fresh anonymous mapping at an address of the kernel's choosing
            // touches nothing that exists.
            unsafe {
                libc::mmap(
                    core::ptr::null_mut(),
                    mapped,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                    -1,
                    0,
                )
            }
        };
        if huge {
            let reserved = reserve(libc::MAP_HUGETLB | libc::MAP_POPULATE);
            if reserved != libc::MAP_FAILED {
                return Ok(Self::of_mapped(reserved, len, mapped, Pages::Huge));
            }
            let free = reserve(0);
            if free == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let whole = Self::of_mapped(free, len, mapped, Pages::HugeWhereFree);
            // SAFETY: the range was mapped just above. Refusals only mean small pages, or pages that
            // are mapped at the first access, so the results do not matter.
            unsafe {
                libc::madvise(free, mapped, libc::MADV_HUGEPAGE);
                libc::madvise(free, mapped, libc::MADV_POPULATE_WRITE);
            }
            return Ok(whole);
        }
        let address = reserve(libc::MAP_POPULATE);
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::of_mapped(address, len, mapped, Pages::Ordinary))
    }

    /// Makes a mapping of `mapped` bytes from `mmap`, of which `len` are used.
    fn of_mapped(address: *mut libc::c_void, len: usize, mapped: usize, pages: Pages) -> Self {
        fault_handler::install();
        Self { base: address.cast(), len, owned: Some(OwnedBytes(mapped)), pages }
    }

    /// Makes a mapping of memory of the caller.
    ///
    /// Unless it is `on_demand`, its pages are made present, and it is an error where one is missing or,
    /// with `writable`, cannot be written: found here rather than later by a peer.
    ///
    /// # Errors
    /// `EFAULT`, also where the range leaves the address space.
    ///
    /// # Safety
    /// Until the value is dropped, the range is not used for anything else than memory that queue pairs
    /// may access, and every other access to it is atomic, or ordered by a completion, or by some other
    /// synchronisation with the peer.
    pub(crate) unsafe fn borrow(
        base: *mut u8,
        len: usize,
        writable: bool,
        on_demand: bool,
    ) -> io::Result<Self> {
        let fault = || io::Error::from_raw_os_error(libc::EFAULT);
        if base.addr().checked_add(len).is_none() || (base.is_null() && !on_demand) {
            return Err(fault());
        }
        fault_handler::install();
        let mapping = Self { base, len, owned: None, pages: Pages::Ordinary };
        if !on_demand {
            mapping.populate(0, len, writable)?;
        }
        Ok(mapping)
    }

    /// Makes the pages of `len` bytes from `offset` on present, to be written if `writable`.
    ///
    /// # Errors
    /// `EFAULT` where one is missing, may not be accessed so, or lies behind the end of its file. Kernels
    /// before 5.14 cannot tell; there this is found when the page is accessed.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub(crate) fn populate(&self, offset: usize, len: usize, writable: bool) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let page = page_size();
        let address = self.at(offset, len).addr();
        let first = address & !(page - 1);
        let end = (address + len)
            .checked_next_multiple_of(page)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        let populate = |len: usize| {
            // SAFETY: the advice only faults pages in; the kernel checks the range.
            unsafe { libc::madvise(first as *mut libc::c_void, len, advice) == 0 }
        };
        // Kernels that do not know the advice refuse it for an empty range too.
        if !populate(end - first) && populate(0) {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        Ok(())
    }

    /// Returns true if the mapping owns its memory.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// Returns the kind of its pages, as far as is known.
    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    /// Returns the address of the first byte, to make another mapping of it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Returns the address of the first byte, as a number.
    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of byte `offset`, after the check that `len` bytes follow it.
    ///
    /// # Panics
    /// If they do not: callers have checked the range.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(self.holds(offset, len), "{len} bytes at {offset} leave {} bytes", self.len);
        self.base.wrapping_add(offset)
    }

    /// Loads one byte with acquire ordering, to wait for the end of a message. As the program's own
    /// loads do, it faults where the page is not present.
    pub(crate) fn load_u8(&self, offset: usize) -> u8 {
        // SAFETY: `at` checked the range; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }.load(Ordering::Acquire)
    }

    /// Stores one byte with release ordering. It faults as [`load_u8`](Self::load_u8) does.
    pub(crate) fn store_u8(&self, offset: usize, value: u8) {
        // SAFETY: `at` checked the range; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }.store(value, Ordering::Release);
    }

    /// Returns the aligned word at `offset`, or `None` if it is not aligned to eight bytes.
    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.at(offset, 8).cast::<u64>();
        // SAFETY: in range and aligned; the mapping outlives the borrow of `self` (rule 1).
        at.is_aligned().then(|| unsafe { AtomicU64::from_ptr(at) })
    }

    /// Loads the aligned word at `offset`; `None` if it is not aligned. It faults as
    /// [`load_u8`](Self::load_u8) does.
    pub(crate) fn load_u64(&self, offset: usize) -> Option<u64> {
        Some(self.word(offset)?.load(Ordering::Acquire))
    }
}

impl Region for Mapping {
    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    fn has_word(&self, offset: usize) -> bool {
        self.at(offset, 8).cast::<u64>().is_aligned()
    }

    // The last unit last: see the module's documentation.
    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryFault> {
        if bytes.is_empty() {
            return Ok(());
        }
        let to = self.at(offset, bytes.len());
        fence(Ordering::Release);
        // SAFETY: `at` checked the range, and `bytes` is as long, and not empty.
        unsafe { copy::write(bytes.as_ptr(), to, bytes.len()) }
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryFault> {
        if into.is_empty() {
            return Ok(());
        }
        let from = self.at(offset, into.len());
        // SAFETY: `at` checked the range, and `into` is ours alone.
        unsafe { copy::read(from, into.as_mut_ptr(), into.len())? };
        fence(Ordering::Acquire);
        Ok(())
    }

    #[inline]
    fn read_summed(
        &self,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Option<PayloadCrc>, MemoryFault> {
        let from = self.at(offset, into.len());
        // Its vectors would tear words of a payload that is not aligned.
        let is_fit = from.cast::<u64>().is_aligned() && copy_crc::is_supported();
        let Some(mtu) = PathMtu::from_bytes(into.len()).filter(|_| is_fit) else {
            return self.read(offset, into).map(|()| None);
        };
        // SAFETY: `at` checked the range, `into` is ours alone, `is_supported` returned true, the range is
        // aligned, and every path MTU is a multiple of 256.
        let register = unsafe { copy_crc::relaxed(from, into.as_mut_ptr(), into.len())? };
        fence(Ordering::Acquire);
        Ok(Some(PayloadCrc::from_register(register, mtu)))
    }

    fn atomic(&self, offset: usize, change: AtomicChange) -> Result<u64, MemoryFault> {
        let word = self.at(offset, 8).cast::<u64>();
        if !word.is_aligned() {
            return Err(MemoryFault::Misaligned);
        }
        // SAFETY: in range and aligned.
        unsafe { copy::atomic(word, change) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(OwnedBytes(mapped)) = self.owned {
            // SAFETY: made by `allocate` with this length; rule 1 ends here, with `self`.
            unsafe { libc::munmap(self.base.cast(), mapped) };
        }
    }
}
