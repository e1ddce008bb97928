//! Zeroed memory that starts on a huge page's boundary.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// Bytes of a fixed number, aligned to 2 MiB, each page of which has been touched.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Memory {}

impl Memory {
    /// `len` is at least 1 and at most a quarter of the address space. With `huge` the kernel is
    /// asked for huge pages; it need not grant them.
    pub(crate) fn new(len: usize, huge: bool) -> Self {
        let layout = Layout::from_size_align(len.max(1), HUGE_PAGE).expect("a length that exists");
        // SAFETY: the layout has a length of at least 1.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: advice on pages that are ours; it changes no byte. A kernel without huge pages
        // refuses it, and that is as good.
        unsafe { libc::madvise(base.as_ptr().cast(), layout.size(), advice) };
        let mut memory = Self { base, layout };
        for page in memory.chunks_mut(4096) {
            *std::hint::black_box(&mut page[0]) = 0;
        }
        memory
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `base` points to that many initialised bytes, which live as long as `self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no borrow is left.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

const HUGE_PAGE: usize = 2 << 20;
