//! Lists of receive requests, and what lists of send requests have in common with them.
//!
//! Requests and elements are read at any address: programs keep them in packed structures, which every
//! C library reads on this architecture.

use std::ffi::c_int;
use std::marker::PhantomData;

use libc::EINVAL;
use roce_abi::{ibv_recv_wr, ibv_sge};
use roce_verbs::{BadWr, RecvWr, SgList, Sge};

use crate::errno;

/// Most elements of a list: more than any queue pair takes, so that a wrong number is refused before
/// it is used.
const MAX_SGE: usize = 32;

/// A list of receive requests of the program.
pub(crate) struct ReceiveList {
    next: *mut ibv_recv_wr,
    /// The request that was converted last.
    current: *mut ibv_recv_wr,
    /// The `errno` value of a request that cannot be converted.
    failed: c_int,
}

impl ReceiveList {
    /// Wraps a list.
    ///
    /// # Safety
    /// Each request of the list may be read while this is used, and has as many elements as it says.
    pub(crate) unsafe fn new(first: *mut ibv_recv_wr) -> Self {
        Self { next: first, current: first, failed: 0 }
    }

    /// Returns the result of a post, and stores the request that was refused.
    ///
    /// # Safety
    /// `refused` may be written, or is null.
    pub(crate) unsafe fn conclude(
        &self,
        result: Result<(), BadWr>,
        refused: *mut *mut ibv_recv_wr,
    ) -> c_int {
        let errno = result.map_or_else(|bad| errno::of_post(&bad.source), |()| self.failed);
        if errno != 0 {
            // SAFETY: the caller's promise.
            unsafe { tell(refused, self.current) };
            errno::set(errno);
        }
        errno
    }
}

impl Iterator for ReceiveList {
    type Item = RecvWr;

    #[inline]
    fn next(&mut self) -> Option<RecvWr> {
        // SAFETY: null at the end, or a request of the list; see `new`.
        let request = unsafe { read_request(self.next) }?;
        self.current = self.next;
        // SAFETY: see `new`.
        match unsafe { elements(request.sg_list, request.num_sge) } {
            Ok(pieces) => {
                self.next = request.next;
                Some(RecvWr { wr_id: request.wr_id, sg_list: sg_list(pieces) })
            }
            Err(errno) => {
                self.failed = errno;
                None
            }
        }
    }
}

/// Returns a copy of a request; `None` for null.
///
/// # Safety
/// `request` is null, or may be read, at any alignment.
#[inline]
pub(crate) unsafe fn read_request<T: Copy>(request: *const T) -> Option<T> {
    // SAFETY: the caller's promise.
    (!request.is_null()).then(|| unsafe { request.read_unaligned() })
}

/// The elements of a list in the program's memory.
#[derive(Clone)]
pub(crate) struct Elements<'a> {
    next: *const ibv_sge,
    left: usize,
    list: PhantomData<&'a [ibv_sge]>,
}

impl Elements<'_> {
    /// Wraps a list.
    ///
    /// # Safety
    /// `list` has `count` elements.
    #[inline]
    pub(crate) unsafe fn new(list: *const ibv_sge, count: usize) -> Self {
        Self { next: list, left: count, list: PhantomData }
    }
}

impl Iterator for Elements<'_> {
    type Item = ibv_sge;

    #[inline]
    fn next(&mut self) -> Option<ibv_sge> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: an element of the list, see `new`.
        let element = unsafe { self.next.read_unaligned() };
        self.next = self.next.wrapping_add(1);
        Some(element)
    }
}

/// Returns the elements of a list.
///
/// # Safety
/// `list` has `count` elements, unless `count` is out of range.
#[inline]
pub(crate) unsafe fn elements<'a>(
    list: *const ibv_sge,
    count: c_int,
) -> Result<Elements<'a>, c_int> {
    match usize::try_from(count) {
        // SAFETY: the caller's promise.
        Ok(count) if count <= MAX_SGE => Ok(unsafe { Elements::new(list, count) }),
        _ => Err(EINVAL),
    }
}

/// Converts elements.
#[inline]
pub(crate) fn sg_list(elements: impl Iterator<Item = ibv_sge>) -> SgList {
    elements.map(|it| Sge { lkey: it.lkey, addr: it.addr, len: it.length }).collect()
}

/// Tells the program which request was refused, if it wants to know that.
///
/// # Safety
/// `to` may be written, or is null.
pub(crate) unsafe fn tell<T>(to: *mut *mut T, request: *mut T) {
    // SAFETY: the caller's promise.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = request;
    }
}
