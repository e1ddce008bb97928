//! Files of a process in a folder of a run.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};
use roce_io::process::Own;

/// Writes all bytes at a place of a file.
///
/// # Errors
/// The kernel's; `EFBIG` if the process may not have so long a file. It is not tried then: the kernel's signal
/// (SIGXFSZ) would end a program that writes no files itself.
pub(crate) fn write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let (allowed, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if at + bytes.len() as u64 > allowed {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.write_all_at(bytes, at)
}

/// Most files of one name that are tried.
const MAX_FILES: u32 = 1 << 16;

/// Creates a file that did not exist: another user may have made one, or a link, to have it written to,
/// and a program that this process was before `execve` has one of its own. If need be the name gets a
/// number behind it. Returns the path, too.
pub(crate) fn create(path: &Path, mode: u32) -> io::Result<(Own<File>, PathBuf)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    for number in 0..MAX_FILES {
        let mut name = path.to_owned().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        match Own::make(|| options.open(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return Ok((outcome?, name.into())),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
