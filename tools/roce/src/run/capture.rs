//! The capture of a run.
//!
//! The processes of a run append to one regular file. A pipe takes no such writers: it has to have one, which
//! writes one header, and which alone waits where the reader is slow. So for a pipe the file is in the folder of
//! the run, and a thread copies it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_io::CaptureFile;
use rustix::fs::{FallocateFlags, fallocate};

use super::signals::{Received, Signals, Wake};
use crate::capture_pipe::{self, failed, is_pipe};
use crate::error::{CliError, Result};

/// Returns the file to which the processes of a run append, whose packets go to `path`.
pub(crate) fn file_of(path: &Path, run_folder: &Path) -> io::Result<PathBuf> {
    match is_pipe(path) {
        true => Ok(run_folder.join("capture.pcapng")),
        false => std::path::absolute(path),
    }
}

/// The capture of a run, until it is [ended](Self::end).
#[derive(Debug)]
pub(crate) struct Capture {
    copier: Option<Copier>,
}

impl Capture {
    /// Creates the capture, or waits for the reader of a pipe.
    ///
    /// # Errors
    /// The operating system's; a signal that ends the wait.
    pub(crate) fn create(path: &Path, run_folder: &Path, signals: &Signals) -> Result<Self> {
        let file = file_of(path, run_folder)?;
        let pipe = match is_pipe(path) {
            true => Some(capture_pipe::open(path, |time| pause(signals, time))?),
            false => None,
        };
        if pipe.is_some() {
            // Other users know the path, but the pipe may be one that they cannot read.
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600).open(&file)?;
        }
        CaptureFile::create(&file).map_err(|error| failed(path, error))?;
        let copier = pipe.map(|pipe| Copier::start(&file, pipe, path.to_owned())).transpose()?;
        Ok(Self { copier })
    }

    /// Ends the capture once its packets are written, or the reader of a pipe takes none for three seconds.
    pub(crate) fn end(self) {
        let Some(Copier { stop, thread }) = self.copier else { return };
        drop(stop);
        // A panic there has been printed by the runtime.
        let _ended = thread.join();
    }
}

/// Waits a while. A signal that ends programs ends the wait with the exit code of its victims.
fn pause(signals: &Signals, time: Duration) -> Result {
    use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    match signals.wait(Some(Instant::now() + time), None)? {
        Wake::Signal(Received::FromProcess(signal) | Received::FromKernel(signal))
            if matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) =>
        {
            Err(CliError::Reported(128 + signal as u8))
        }
        _ => Ok(()),
    }
}

/// The thread that copies a capture to a pipe.
#[derive(Debug)]
struct Copier {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Copier {
    fn start(file: &Path, pipe: File, name: PathBuf) -> Result<Self> {
        let file = File::options().read(true).write(true).open(file)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            if let Err(error) = copy(&file, &pipe, &stopped) {
                eprintln!("roce: {}: {error}; no further packets are written", name.display());
                // The file goes on growing; what is in it is of no use.
                discard(&file, &stopped);
            }
        })?;
        Ok(Self { stop, thread })
    }
}

/// Copies what is appended, until nothing more will be. What was copied leaves the disk.
fn copy(file: &File, pipe: &File, stopped: &Receiver<()>) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut copied = 0;
    let mut is_last_round = false;
    loop {
        let len = file.read_at(&mut piece, copied)?;
        if len > 0 {
            write_all(pipe, &piece[..len])?;
            free(file, copied, len as u64);
            copied += len as u64;
            let waiting = file.metadata()?.len().saturating_sub(copied);
            if waiting > MAX_WAITING {
                return Err(io::Error::other(format!(
                    "the reader is {} MiB behind",
                    waiting >> 20
                )));
            }
            continue;
        }
        if is_last_round {
            return Ok(());
        }
        is_last_round = has_stopped(stopped, INTERVAL);
    }
}

fn has_stopped(stopped: &Receiver<()>, time: Duration) -> bool {
    stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
}

/// Keeps the file from growing.
fn discard(file: &File, stopped: &Receiver<()>) {
    let mut freed = 0;
    while !has_stopped(stopped, INTERVAL) {
        let len = file.metadata().map_or(freed, |metadata| metadata.len());
        free(file, freed, len.saturating_sub(freed));
        freed = freed.max(len);
    }
}

/// Gives the blocks of bytes of the file back, except those with the header, where writers count interfaces.
fn free(file: &File, from: u64, len: u64) {
    let end = from + len;
    // A block is freed when its last byte is.
    let from = from.max(HEADER_LEN) & !(HEADER_LEN - 1);
    if from < end {
        // File systems that cannot do it keep the bytes until the end of the run.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _freed = fallocate(file, flags, from, end - from);
    }
}

/// Writes bytes to a pipe that is not blocking.
fn write_all(mut pipe: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match pipe.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut watched, PollTimeout::from(PATIENCE_MILLIS)) == Ok(0) {
                    return Err(io::Error::other("its reader takes nothing"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Err(io::Error::other("its reader has gone"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes copied at once.
const PIECE: usize = 1 << 16;

/// Most bytes of the file that may wait for the reader.
const MAX_WAITING: u64 = 256 << 20;

/// Bytes at the begin of the file that stay.
const HEADER_LEN: u64 = 4096;

/// Time between two looks at the file.
const INTERVAL: Duration = Duration::from_millis(20);

/// Time in which the reader has to take something.
const PATIENCE_MILLIS: u16 = 3000;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_copied_to_its_last_byte_and_what_was_copied_leaves_the_disk() {
        let path = std::env::temp_dir().join(format!("roce-copied-{}", std::process::id()));
        let bytes: Vec<u8> = (0..400_000_u32).map(|number| number as u8).collect();
        std::fs::write(&path, &bytes[..5]).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(writer));
        let copier = Copier::start(&path, pipe, path.clone()).unwrap();
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            read
        });
        let mut file = File::options().append(true).open(&path).unwrap();
        for part in bytes[5..].chunks(70_000) {
            file.write_all(part).unwrap();
        }
        Capture { copier: Some(copier) }.end();
        assert!(reading.join().unwrap() == bytes, "the reader has all bytes");
        std::fs::remove_file(&path).unwrap();
    }
}
