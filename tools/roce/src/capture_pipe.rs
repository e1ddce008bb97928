//! Captures that are written to a pipe, such as one that Wireshark reads.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::error::{CliError, Result};

/// Returns true if a path is that of a pipe.
pub(crate) fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Opens a pipe to write, without blocking, as soon as a program reads it; after a second of waiting a line on
/// standard error says so. `pause` waits between two attempts, and its error ends the wait.
pub(crate) fn open(path: &Path, mut pause: impl FnMut(Duration) -> Result) -> Result<File> {
    let begin = Instant::now();
    let mut was_told = false;
    loop {
        let opened =
            OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
        match opened {
            Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {}
            Err(error) => return Err(failed(path, error)),
            Ok(pipe) => return Ok(pipe),
        }
        if !was_told && begin.elapsed() >= SILENCE {
            was_told = true;
            eprintln!("roce: waiting for a program that reads the pipe {}", path.display());
        }
        pause(INTERVAL)?;
    }
}

/// Creates the file of a capture, to which a device of this process will add, or empties it. For a pipe this
/// waits for its reader, which sees no end as long as the result exists.
pub(crate) fn prepare(path: &Path) -> Result<Option<File>> {
    if is_pipe(path) {
        let pause = |time| {
            std::thread::sleep(time);
            Ok(())
        };
        return open(path, pause).map(Some);
    }
    File::create(path).map(|_created| None).map_err(|error| failed(path, error))
}

/// Returns what to tell of an error of a capture.
pub(crate) fn failed(path: &Path, error: std::io::Error) -> CliError {
    CliError::context(format!("writing {}", path.display()), error)
}

/// Time between two attempts.
const INTERVAL: Duration = Duration::from_millis(20);

/// Time after which a line says what is waited for.
const SILENCE: Duration = Duration::from_secs(1);
