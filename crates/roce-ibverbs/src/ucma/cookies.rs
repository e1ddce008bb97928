//! Which sockets are channels, without a lock.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::EBADF;

/// The cookies of sockets. A child after `fork` may look into those of its parent, since no lock is
/// taken.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    first: AtomicPtr<Place>,
}

/// A place for a cookie, which is used again and never freed.
#[derive(Debug)]
struct Place {
    /// 0 if the place is free.
    cookie: AtomicU64,
    next: *mut Place,
}

impl Cookies {
    fn places(&self) -> impl Iterator<Item = &Place> {
        let mut at = self.first.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a leaked box.
            let place = unsafe { at.as_ref() }?;
            at = place.next;
            Some(place)
        })
    }

    /// Returns true if the cookie was added and not removed.
    pub(super) fn has(&self, cookie: u64) -> bool {
        self.places().any(|place| place.cookie.load(Ordering::Relaxed) == cookie)
    }

    /// Adds a cookie that is not 0.
    pub(super) fn add(&self, cookie: u64) {
        let is_free = |place: &&Place| {
            place.cookie.compare_exchange(0, cookie, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if self.places().find(is_free).is_some() {
            return;
        }
        let new = Box::leak(Box::new(Place { cookie: cookie.into(), next: ptr::null_mut() }));
        let mut before = self.first.load(Ordering::Acquire);
        loop {
            new.next = before;
            match self.first.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Removes a cookie.
    pub(super) fn remove(&self, cookie: u64) {
        for place in self.places() {
            let _other =
                place.cookie.compare_exchange(cookie, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Returns the number that the kernel has given to a socket; 0 for another descriptor. No other
/// socket has it as long as the system runs.
pub(super) fn cookie_of(fd: c_int) -> u64 {
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cookie`.
    let result = unsafe {
        let out = (&raw mut cookie).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, out, &mut len)
    };
    if result == 0 { cookie } else { 0 }
}

/// Returns the cookie of a socket of this library.
pub(super) fn cookie_of_own(socket: &impl AsRawFd) -> Result<u64, c_int> {
    match cookie_of(socket.as_raw_fd()) {
        0 => Err(EBADF),
        cookie => Ok(cookie),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_there_until_it_is_removed_and_its_place_is_used_again() {
        let cookies = Cookies::default();
        assert!(!cookies.has(7));
        for cookie in [7, 8, 9] {
            cookies.add(cookie);
        }
        cookies.remove(8);
        assert_eq!([7, 8, 9].map(|cookie| cookies.has(cookie)), [true, false, true]);
        cookies.add(10);
        assert_eq!([7, 10, 9].map(|cookie| cookies.has(cookie)), [true; 3]);
        assert_eq!(cookies.places().count(), 3);
    }
}
