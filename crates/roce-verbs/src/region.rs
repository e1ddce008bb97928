//! Registered memory: the only place that touches it through a pointer.
//!
//! # Why this is sound
//!
//! A registered region is shared on purpose: the peer's packets write it while the application reads
//! it, and neither side waits for the other. Rust references would make that undefined behaviour, so
//! there are none. Three rules make it sound:
//!
//! 1. `base .. base + len` is mapped for as long as a [`Mapping`] lives: an owned one
//!    unmaps in its `Drop`, a borrowed one relies on the contract of [`Mapping::borrow`].
//! 2. Every access goes through the copy routines of this file, and each checks its
//!    range against `len` first. No pointer leaves the file except as a number, or for
//!    [`Mapping::borrow`].
//! 3. Every access is an atomic one: single bytes and aligned words through
//!    `core::sync::atomic`, long runs through a block of assembly that the compiler
//!    must treat as it would a loop of relaxed byte-sized atomics (it can see neither
//!    the order nor the width, so it can assume nothing about either). A race between
//!    two such accesses is a race between atomics: the reader may see old and new
//!    bytes mixed, which is what RDMA promises too, and never more than that.
//!
//! # Guarantees for readers
//!
//! [`Mapping::write`] stores everything before the last word of what it is given, and
//! then that last word with release ordering, its last byte last of all. A program that
//! waits for the last byte of a message with [`Mapping::load_u8`] (an acquire) and then
//! reads the rest therefore sees the whole message.

mod copy;
mod copy_crc;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::io;

use roce_transport::AtomicChange;
use roce_wire::{PathMtu, PayloadCrc};

use self::copy::Region;

/// A range of this process's memory that queue pairs may access.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
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
        let base = NonNull::new(address.cast()).expect("mmap never succeeds with address zero");
        Self { base, len, owned: Some(OwnedBytes(mapped)), pages }
    }

    /// Makes a mapping of memory of the caller, after a check that it is mapped.
    ///
    /// # Errors
    /// `EFAULT` when part of the range is not mapped, or not writable with `writable`: found here
    /// rather than later with a signal.
    ///
    /// # Safety
    /// The range stays mapped with these rights until the value is dropped, and every
    /// other access to it is atomic, or ordered by a completion, or by some other synchronisation with
    /// the peer.
    pub(crate) unsafe fn borrow(base: *mut u8, len: usize, writable: bool) -> io::Result<Self> {
        let Some(start) = NonNull::new(base) else {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        };
        let page = page_size();
        let address = base as usize;
        let first = address & !(page - 1);
        let end = address
            .checked_add(len)
            .and_then(|end| end.checked_next_multiple_of(page))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        if len > 0 {
            let populate = |len: usize| {
                // SAFETY: the advice only faults pages in; the kernel checks the range.
                unsafe { libc::madvise(first as *mut libc::c_void, len, advice) == 0 }
            };
            // Kernels before 5.14 do not know the advice, and refuse it for an empty range too: there
            // an unmapped range is found only when it is used.
            if !populate(end - first) && populate(0) {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
        }
        Ok(Self { base: start, len, owned: None, pages: Pages::Ordinary })
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
        self.base.as_ptr()
    }

    /// Returns the address of the first byte, as a number.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if `len` bytes from `offset` lie inside.
    pub(crate) fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Returns the address of byte `offset`, after the check that `len` bytes follow it.
    ///
    /// # Panics
    /// If they do not: callers have checked the range.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(self.holds(offset, len), "{len} bytes at {offset} leave {} bytes", self.len);
        // SAFETY: rule 1, and the range was checked on the line above.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Stores `bytes` from `offset` on, the last word last; see the module's documentation.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let to = self.at(offset, bytes.len());
        let tail = bytes.len().min(8);
        let body = bytes.len() - tail;
        // SAFETY: `at` checked the whole range, and `bytes` is at least that long.
        unsafe { copy::relaxed(bytes.as_ptr(), to, body, Region::Target) };
        // SAFETY: inside the range that `at` checked.
        let end = unsafe { to.add(body) };
        if tail == 8 && end.cast::<u64>().is_aligned() {
            let word = u64::from_ne_bytes(bytes[body..].try_into().expect("eight bytes"));
            // SAFETY: aligned, in range (rule 2), and all other accesses are atomic (rule 3).
            unsafe { AtomicU64::from_ptr(end.cast()) }.store(word, Ordering::Release);
            return;
        }
        fence(Ordering::Release);
        for (i, byte) in bytes[body..last].iter().enumerate() {
            // SAFETY: in range (rule 2); bytes are always aligned.
            unsafe { AtomicU8::from_ptr(end.add(i)) }.store(*byte, Ordering::Relaxed);
        }
        // SAFETY: in range (rule 2); bytes are always aligned.
        unsafe { AtomicU8::from_ptr(to.add(last)) }.store(bytes[last], Ordering::Release);
    }

    /// Loads bytes from `offset` on. Bytes that are written meanwhile may be old or new.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        if into.is_empty() {
            return;
        }
        let from = self.at(offset, into.len());
        // SAFETY: `at` checked the range, and `into` is ours alone.
        unsafe { copy::relaxed(from, into.as_mut_ptr(), into.len(), Region::Source) };
        fence(Ordering::Acquire);
    }

    /// As [`read`](Self::read), and returns the CRC of the bytes if one pass can compute both.
    pub(crate) fn read_summed(&self, offset: usize, into: &mut [u8]) -> Option<PayloadCrc> {
        let Some(mtu) = PathMtu::from_bytes(into.len()).filter(|_| copy_crc::is_supported()) else {
            self.read(offset, into);
            return None;
        };
        let from = self.at(offset, into.len());
        // SAFETY: `at` checked the range, `into` is ours alone, `is_supported` returned true, and
        // every path MTU is a multiple of 256.
        let register = unsafe { copy_crc::relaxed(from, into.as_mut_ptr(), into.len()) };
        fence(Ordering::Acquire);
        Some(PayloadCrc::from_register(register, mtu))
    }

    /// Loads one byte with acquire ordering, to wait for the end of a message.
    pub(crate) fn load_u8(&self, offset: usize) -> u8 {
        // SAFETY: `at` checked the range; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }.load(Ordering::Acquire)
    }

    /// Stores one byte with release ordering.
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

    /// Returns true if the word at `offset`, which must be inside, is aligned.
    pub(crate) fn has_word(&self, offset: usize) -> bool {
        self.word(offset).is_some()
    }

    /// Loads the aligned word at `offset`; `None` if it is not aligned.
    pub(crate) fn load_u64(&self, offset: usize) -> Option<u64> {
        Some(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Changes the aligned word at `offset` in one step and returns its value before. `None` if the
    /// word is not aligned; nothing is changed then.
    pub(crate) fn atomic(&self, offset: usize, change: AtomicChange) -> Option<u64> {
        let word = self.word(offset)?;
        Some(match change {
            AtomicChange::Add(n) => word.fetch_add(n, Ordering::AcqRel),
            AtomicChange::SwapIf { expected, new } => {
                match word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) | Err(old) => old,
                }
            }
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(OwnedBytes(mapped)) = self.owned {
            // SAFETY: made by `allocate` with this length; rule 1 ends here, with `self`.
            unsafe { libc::munmap(self.base.as_ptr().cast(), mapped) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_at_any_offset_and_length_are_read_back_and_no_others_change() {
        let mapping = Mapping::allocate(4096, false).unwrap();
        let pattern: Vec<u8> = (0..1024u32).map(|i| (i * 7 + 1) as u8).collect();
        for offset in [0, 1, 7, 8, 13, 500] {
            for len in [0, 1, 7, 8, 9, 63, 64, 255, 256, 257, 384, 1000, 1024] {
                mapping.write(0, &[0xee; 2048]);
                mapping.write(offset, &pattern[..len]);
                let mut seen = vec![0; 2048];
                mapping.read(0, &mut seen);
                assert_eq!(&seen[offset..offset + len], &pattern[..len]);
                assert!(seen[..offset].iter().chain(&seen[offset + len..]).all(|b| *b == 0xee));
            }
        }
    }

    #[test]
    fn read_summed_returns_the_bytes_of_read_and_their_crc() {
        let mapping = Mapping::allocate(3 * 4096, false).unwrap();
        let pattern: Vec<u8> = (0..3 * 4096u32).map(|i| (i * i + 7 * i + 1) as u8).collect();
        mapping.write(0, &pattern);
        let mut served = 0;
        for offset in [0, 1, 16, 63, 64, 4095] {
            for len in [0, 1, 255, 256, 257, 512, 768, 1024, 2048, 4096, 8192] {
                let mut seen = vec![0xee; len + 16];
                let crc = mapping.read_summed(offset, &mut seen[8..8 + len]);
                let expected = &pattern[offset..offset + len];
                assert_eq!(&seen[8..8 + len], expected);
                assert!(seen[..8].iter().chain(&seen[8 + len..]).all(|byte| *byte == 0xee));
                assert!(crc.is_none() || crc == PayloadCrc::of(expected), "{len} bytes");
                served += usize::from(crc.is_some());
            }
        }
        // Each path MTU at each offset, or none at all.
        assert_eq!(served, if copy_crc::is_supported() { 5 * 6 } else { 0 });
    }

    #[test]
    fn the_sum_is_that_of_the_copied_bytes_although_another_thread_writes_meanwhile() {
        let mapping = Mapping::allocate(3 * 4096, false).unwrap();
        let is_over = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0_u32.. {
                    mapping.write(0, &[round as u8; 3 * 4096]);
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let (mut mixed, mut rounds, mut wrong) = (0, 0, None);
            // Until some were changed on the way; on one core that may take a while.
            while wrong.is_none() && (rounds < 2000 || (mixed == 0 && rounds < 2_000_000)) {
                let mtu = PathMtu::ALL[rounds % PathMtu::ALL.len()].bytes();
                let mut seen = vec![0; mtu];
                let crc = mapping.read_summed(rounds % 64, &mut seen);
                if crc.is_some() && crc != PayloadCrc::of(&seen) {
                    wrong = Some(mtu);
                }
                mixed += usize::from(seen.iter().any(|byte| *byte != seen[0]));
                rounds += 1;
            }
            // Before anything can fail, or the other would go on for ever.
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
    }

    #[test]
    fn copies_of_any_length_touch_no_byte_beyond_the_end_of_a_page() {
        let page = page_size();
        // What lies behind the end of these two cannot be touched at all.
        let [region, frame] = [(); 2].map(|()| {
            let mapping = Mapping::allocate(3 * page, false).unwrap();
            let end = (mapping.address() as usize + 2 * page) as *mut libc::c_void;
            // SAFETY: the last page of three, which nothing below uses.
            assert_eq!(unsafe { libc::mprotect(end, page, libc::PROT_NONE) }, 0);
            mapping
        });
        for len in (0..600).chain([1023, 1024, 1025, 2048, 4095, 4096]) {
            let offset = 2 * page - len;
            let end = (frame.address() as usize + offset) as *mut u8;
            // SAFETY: the last bytes of two whole pages, to which no other reference exists.
            let bytes = unsafe { core::slice::from_raw_parts_mut(end, len) };
            bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + len) as u8);
            let expected = bytes.to_vec();
            region.write(offset, bytes);
            bytes.fill(0);
            region.read(offset, bytes);
            assert_eq!(bytes, expected, "{len}");
            bytes.fill(0);
            let crc = region.read_summed(offset, bytes);
            assert_eq!(bytes, expected, "{len}");
            assert!(crc.is_none() || crc == PayloadCrc::of(&expected));
        }
    }

    #[test]
    fn memory_from_huge_pages_is_zeroed_and_reports_the_kind_of_pages() {
        let mapping = Mapping::allocate(3 << 20, true).unwrap();
        assert_ne!(mapping.pages(), Pages::Ordinary);
        assert_eq!(mapping.len(), 3 << 20);
        if mapping.pages() == Pages::Huge {
            assert_eq!(mapping.address() % HUGE_PAGE as u64, 0);
        }
        let mut seen = vec![1; 3 << 20];
        mapping.read(0, &mut seen);
        assert!(seen.iter().all(|byte| *byte == 0));
        assert_eq!(Mapping::allocate(64, false).unwrap().pages(), Pages::Ordinary);
    }

    #[test]
    fn memory_that_is_not_mapped_or_not_writable_is_refused_when_it_is_registered() {
        let hole = Mapping::allocate(page_size(), false).unwrap();
        let address = hole.address() as *mut u8;
        drop(hole);
        // SAFETY: the very promise under test is broken; the value is dropped unused.
        assert!(unsafe { Mapping::borrow(address, 64, false) }.is_err());
        let constant = include_bytes!("region.rs");
        let page = page_size() as u64;
        let inner = (constant.as_ptr() as u64).next_multiple_of(page) as *mut u8;
        // SAFETY: read-only bytes that live as long as the program, only looked at.
        unsafe {
            assert!(Mapping::borrow(inner, 64, false).is_ok());
            assert!(Mapping::borrow(inner, 64, true).is_err());
        }
    }

    #[test]
    fn an_atomic_on_a_word_that_is_not_aligned_changes_nothing() {
        let mapping = Mapping::allocate(64, false).unwrap();
        assert_eq!(mapping.atomic(4, AtomicChange::Add(1)), None);
        assert_eq!(mapping.atomic(8, AtomicChange::Add(5)), Some(0));
        assert_eq!(mapping.atomic(8, AtomicChange::SwapIf { expected: 5, new: 9 }), Some(5));
        assert_eq!(mapping.load_u64(8), Some(9));
    }

    #[test]
    fn a_reader_that_sees_the_last_byte_sees_the_whole_message() {
        let mapping = Mapping::allocate(4096, false).unwrap();
        let rounds = 2000u32;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    mapping.write(3, &[round as u8; 1000]);
                    while mapping.load_u8(2000) != round as u8 {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=rounds {
                while mapping.load_u8(1002) != round as u8 {
                    std::thread::yield_now();
                }
                let mut seen = [0; 1000];
                mapping.read(3, &mut seen);
                assert_eq!(seen, [round as u8; 1000], "round {round}");
                mapping.store_u8(2000, round as u8);
            }
        });
    }
}
