//! Errors of calls.

use core::fmt::{self, Display, Formatter};

/// An error of Linux by its name, as `errno` has it.
///
/// ```
/// let errno = roce_faults::Errno::named("ENOMEM").unwrap();
/// assert_eq!((errno.code(), errno.to_string().as_str()), (12, "ENOMEM"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Names and numbers, which are those of all processors that this runs on.
const ERRORS: [(&str, i32); 26] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOSPC", 28),
    ("ENOSYS", 38),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("ENETUNREACH", 101),
    ("ECONNRESET", 104),
    ("ENOBUFS", 105),
    ("ETIMEDOUT", 110),
    ("EHOSTUNREACH", 113),
    ("ECANCELED", 125),
];

impl Errno {
    /// Every error that a sentence may name.
    pub fn all() -> impl Iterator<Item = Self> {
        ERRORS.iter().map(|(_, code)| Self(*code))
    }

    /// Returns the error of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        let found = ERRORS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, code)| Self(*code))
    }

    /// Returns the value of `errno`.
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl Display for Errno {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let named = ERRORS.iter().find(|(_, code)| *code == self.0);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}
