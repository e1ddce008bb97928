//! The folder of the view, and the paths in it.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::path::{self, MAX_LEN};

/// Space for a path, which is written only for paths of the view.
pub(crate) struct PathBuffer(MaybeUninit<[u8; MAX_LEN]>);

impl PathBuffer {
    pub(crate) const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Returns the path below the view's folder that serves `path`, or `path` itself. A relative
    /// path starts at the folder of the descriptor `folder`, or at the working directory if that is
    /// `AT_FDCWD`.
    ///
    /// # Safety
    /// `path` is null or ends with a zero. The result is valid as long as this buffer and `path`.
    pub(crate) unsafe fn serve(&mut self, folder: c_int, path: *const c_char) -> *const c_char {
        // SAFETY: as the caller promises.
        if unsafe { !may_be_in_view(path) } {
            return path;
        }
        let errno = errno();
        // SAFETY: `may_be_in_view` excludes null, and the caller promises the zero.
        let served = unsafe { self.translate(folder, CStr::from_ptr(path).to_bytes()) };
        set_errno(errno);
        served.unwrap_or(path)
    }

    #[cold]
    fn translate(&mut self, folder: c_int, path: &[u8]) -> Option<*const c_char> {
        let root = root()?;
        let out = self.0.write([0; MAX_LEN]);
        // The last byte stays zero.
        let space = out.get_mut(..MAX_LEN - 1)?;
        if path.first() == Some(&b'/') {
            path::translate(root, path, space)?;
        } else {
            let mut joined = [0; MAX_LEN];
            let mut len = folder_path(folder, &mut joined)?;
            len = path::append(&mut joined, len, b"/")?;
            len = path::append(&mut joined, len, path)?;
            path::translate(root, joined.get(..len)?, space)?;
        }
        Some(out.as_ptr().cast())
    }
}

/// Returns false for a path that the view cannot have, after a look at its first bytes if possible.
unsafe fn may_be_in_view(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the path ends with a zero, so that the second byte exists if the first is no zero.
    let outside = unsafe {
        *path.cast::<u8>() == b'/'
            && !matches!(*path.add(1).cast::<u8>(), b's' | b'd' | b'/' | b'.')
    };
    // SAFETY: all end with a zero.
    let has = |name: &CStr| unsafe { !libc::strstr(path, name.as_ptr()).is_null() };
    !outside && (has(c"infiniband") || has(c"rdma_cm"))
}

/// The folder of the view, and its length: what it was when this library was loaded.
static ROOT: OnceLock<([u8; MAX_LEN], usize)> = OnceLock::new();

/// Finds the folder of the view, whatever the program does with its environment afterwards. Meant for the
/// constructor, before any thread exists.
pub(crate) fn find_root() {
    // SAFETY: no thread changes the environment meanwhile, since there is none.
    let value = unsafe { libc::getenv(c"ROCE_RUN".as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: values of the environment end with a zero.
    let folder = unsafe { CStr::from_ptr(value) }.to_bytes();
    let path = |name: &[u8]| {
        let mut path = [0; MAX_LEN];
        let len = path::append(&mut path, 0, folder)?;
        // The last byte stays zero.
        let len = path::append(path.get_mut(..MAX_LEN - 1)?, len, name)?;
        Some((path, len))
    };
    let (Some((mark, _)), Some(view)) = (path(b"/view-by-preload"), path(b"/view")) else { return };
    let errno = errno();
    // SAFETY: the path ends with a zero. The system call is made directly because `access` is interposed.
    let found = unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, mark.as_ptr(), 0) };
    set_errno(errno);
    if folder.starts_with(b"/") && found == 0 {
        let _once = ROOT.set(view);
    }
}

/// Returns the folder of the view, if the program sees one by this library.
pub(crate) fn root() -> Option<&'static [u8]> {
    let (path, len) = ROOT.get()?;
    path.get(..*len)
}

/// Writes the path of an open folder. Returns its length.
fn folder_path(folder: c_int, out: &mut [u8]) -> Option<usize> {
    let mut name = [0u8; 32];
    let len = if folder == libc::AT_FDCWD {
        path::append(&mut name, 0, b"/proc/self/cwd")?
    } else {
        let len = path::append(&mut name, 0, b"/proc/self/fd/")?;
        append_decimal(&mut name, len, u32::try_from(folder).ok()?)?
    };
    // The last byte stays zero.
    (len < name.len()).then_some(())?;
    // SAFETY: the name ends with a zero, and `out` is valid for its length. The system call is made
    // directly because `readlink` is interposed here.
    let read = unsafe {
        let (name, space) = (name.as_ptr(), out.as_mut_ptr());
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, name, space, out.len())
    };
    usize::try_from(read).ok().filter(|len| *len < out.len())
}

fn append_decimal(out: &mut [u8], len: usize, number: u32) -> Option<usize> {
    let mut digits = [0; 10];
    let mut start = digits.len();
    let mut left = number;
    loop {
        start = start.checked_sub(1)?;
        *digits.get_mut(start)? = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return path::append(out, len, digits.get(start..)?);
        }
    }
}

/// Removes the folder of the view from the front of a path that the C library returned.
///
/// # Safety
/// `path` is null or ends with a zero, and may be written.
pub(crate) unsafe fn hide_root(path: *mut c_char) {
    let Some(root) = root().filter(|_| !path.is_null()) else { return };
    // SAFETY: not null, so it ends with a zero.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    if let Some(tail) = path::below(root, bytes) {
        let (tail, len) = (tail.as_ptr(), tail.len());
        // SAFETY: source and destination lie in the same string; `copy` allows them to overlap.
        unsafe { std::ptr::copy(tail, path.cast(), len) };
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the address is that of this thread's variable, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::AsRawFd;

    use super::*;

    fn candidate(path: &str) -> bool {
        let path = CString::new(path).unwrap();
        // SAFETY: the path ends with a zero.
        unsafe { may_be_in_view(path.as_ptr()) }
    }

    #[test]
    fn most_paths_are_told_by_their_first_bytes() {
        for path in ["/etc/infiniband", "", "/", "/sys/class/net", "file", "/dev/null"] {
            assert!(!candidate(path), "{path}");
        }
        for path in ["/sys/class/infiniband", "//dev/infiniband", "infiniband/roce0", "../rdma_cm"]
        {
            assert!(candidate(path), "{path}");
        }
        // SAFETY: null is allowed.
        assert!(unsafe { !may_be_in_view(std::ptr::null()) });
    }

    #[test]
    fn a_descriptor_leads_to_the_path_of_its_folder() {
        let folder = std::fs::File::open("/sys").unwrap();
        let mut out = [0; MAX_LEN];
        let len = folder_path(folder.as_raw_fd(), &mut out).unwrap();
        assert_eq!(&out[..len], b"/sys");
        assert_eq!(folder_path(-1, &mut out), None);
        let len = folder_path(libc::AT_FDCWD, &mut out).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(&out[..len], here.as_os_str().as_encoded_bytes());
    }

    #[test]
    fn decimals_are_written_as_they_are_read() {
        for number in [0, 7, 10, 4096, u32::MAX] {
            let mut out = [0; 16];
            let len = append_decimal(&mut out, 0, number).unwrap();
            assert_eq!(out[..len], *number.to_string().as_bytes());
        }
    }
}
