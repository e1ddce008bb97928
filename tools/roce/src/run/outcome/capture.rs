//! The capture of a run.
//!
//! The processes of a run append to one regular file. A pipe takes no such writers: it has to have one, which
//! writes one header, and which alone waits where the reader is slow. So for a pipe the file is in the folder of
//! the run, and a thread copies it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use roce_io::CaptureFile;
use rustix::fs::{FallocateFlags, fallocate};

use super::exit_code::TIMED_OUT;
use crate::capture_pipe::{self, failed, is_pipe};
use crate::error::{CliError, Result};
use crate::run::line::timeout::Timeout;
use crate::run::processes::signals::{Received, Signals, Wake, ends_programs};

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

/// What ends the wait for the reader of a pipe.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    pub(crate) signals: &'a Signals,
    /// A socket, which the process that has started this one closes with its end.
    pub(crate) starter: Option<BorrowedFd<'a>>,
    /// When the time of the run is over, and how long that is.
    pub(crate) timeout: Option<(Instant, &'a Timeout)>,
}

impl Capture {
    /// Creates the capture, or waits for the reader of a pipe. The processes of the run append to `file`, which is
    /// that of [`file_of`].
    ///
    /// # Errors
    /// The operating system's; what ends the wait.
    pub(crate) fn create(path: &Path, file: &Path, patience: &Patience<'_>) -> Result<Self> {
        let pipe = match is_pipe(path) {
            true => Some(capture_pipe::open(path, |time| patience.pause(time))?),
            false => None,
        };
        if pipe.is_some() {
            // Other users know the path, but the pipe may be one that they cannot read.
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600).open(file)?;
        }
        CaptureFile::create(file).map_err(|error| failed(path, error))?;
        let copier = pipe.map(|pipe| Copier::start(file, pipe, path.to_owned())).transpose()?;
        Ok(Self { copier })
    }

    /// Ends the capture once its packets are written, or the reader of a pipe takes none for three seconds. Returns
    /// the file of which those were copied: processes that go on append to it all the same.
    pub(crate) fn end(self) -> Option<Spool> {
        let Copier { stop, thread } = self.copier?;
        drop(stop);
        // A panic there has been printed by the runtime.
        thread.join().ok()
    }
}

impl Patience<'_> {
    /// Waits a while. A signal that ends programs ends the wait with the exit code of its victims, and the death of
    /// the process that has started this one with that of its own.
    fn pause(&self, time: Duration) -> Result {
        let now = Instant::now();
        if let Some((end, timeout)) = self.timeout
            && now >= end
        {
            eprintln!(
                "roce: the run was stopped after {timeout} (--timeout); nothing read the pipe"
            );
            return Err(CliError::Reported(TIMED_OUT));
        }
        match self.signals.wait(Some(now + time), self.starter)? {
            Wake::Signal(Received::FromProcess(signal) | Received::FromKernel(signal))
                if ends_programs(signal) =>
            {
                Err(CliError::Reported(128 + signal as u8))
            }
            Wake::Readable => Err(CliError::Reported(128 + Signal::SIGKILL as u8)),
            Wake::Signal(_) | Wake::Deadline => Ok(()),
        }
    }
}

/// The thread that copies a capture to a pipe.
#[derive(Debug)]
struct Copier {
    stop: Sender<()>,
    thread: JoinHandle<Spool>,
}

impl Copier {
    fn start(file: &Path, pipe: File, name: PathBuf) -> Result<Self> {
        let mut spool = Spool::open(file)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            if let Err(error) = spool.copy(&pipe, &stopped) {
                eprintln!("roce: {}: {error}; no further packets are written", name.display());
                // The file goes on growing; what is in it is of no use.
                spool.discard_until(&stopped);
            }
            spool
        })?;
        Ok(Self { stop, thread })
    }
}

/// The file to which processes append. What is of no more use leaves the disk.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    capture: CaptureFile,
    /// Bytes at its begin that have left the disk, but for the header.
    freed: u64,
}

impl Spool {
    fn open(file: &Path) -> io::Result<Self> {
        let capture = CaptureFile::append(file)?;
        let file = File::options().read(true).write(true).open(file)?;
        Ok(Self { file, capture, freed: 0 })
    }

    /// Copies what is appended, until nothing more will be.
    fn copy(&mut self, pipe: &File, stopped: &Receiver<()>) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut copied = 0;
        let mut is_last_round = false;
        loop {
            let len = self.file.read_at(&mut piece, copied)?;
            if len > 0 {
                write_all(pipe, &piece[..len])?;
                copied += len as u64;
                self.free(copied)?;
                let waiting = self.file.metadata()?.len().saturating_sub(copied);
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

    /// Keeps the file from growing on the disk.
    fn discard_until(&mut self, stopped: &Receiver<()>) {
        while !has_stopped(stopped, INTERVAL) {
            // Of a file that is none of this library's all stays on the disk.
            let _freed = self.free(u64::MAX);
        }
    }

    /// Keeps the file from growing on the disk until this process ends, from a thread.
    pub(crate) fn discard(mut self) -> io::Result<()> {
        let discarding = std::thread::Builder::new().name("capture".to_owned());
        discarding.spawn(move || {
            loop {
                std::thread::sleep(INTERVAL);
                let _freed = self.free(u64::MAX);
            }
        })?;
        Ok(())
    }

    /// Gives the blocks of the bytes before `end` back, except those with the header. Interfaces in them are counted
    /// before: a process that adds one has to know how many there are.
    fn free(&mut self, end: u64) -> io::Result<()> {
        if self.file.metadata()?.len() <= self.freed {
            return Ok(());
        }
        let end = end.min(self.capture.count_interfaces()?);
        // A block is freed when its last byte is.
        let from = self.freed.max(HEADER_LEN) & !(HEADER_LEN - 1);
        if from < end {
            // File systems that cannot do it keep the bytes until the end of the run.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _freed = fallocate(&self.file, flags, from, end - from);
        }
        self.freed = end;
        Ok(())
    }
}

fn has_stopped(stopped: &Receiver<()>, time: Duration) -> bool {
    stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
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
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Returns a block of an unknown kind, filled with a byte.
    fn block(len: u32, byte: u8) -> Vec<u8> {
        let body = vec![byte; len as usize - 12];
        [&0x77_u32.to_le_bytes()[..], &len.to_le_bytes(), &body, &len.to_le_bytes()].concat()
    }

    #[test]
    fn a_file_is_copied_to_its_last_byte_and_what_was_copied_leaves_the_disk() {
        let path = std::env::temp_dir().join(format!("roce-copied-{}", std::process::id()));
        CaptureFile::create(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(writer));
        let copier = Copier::start(&path, pipe, path.clone()).unwrap();
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            read
        });
        let mut file = File::options().append(true).open(&path).unwrap();
        for part in 0..6 {
            let part = block(70_000, part);
            file.write_all(&part).unwrap();
            bytes.extend(part);
        }
        let spool = Capture { copier: Some(copier) }.end();
        assert!(reading.join().unwrap() == bytes, "the reader has all bytes");
        let on_disk = || std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(on_disk() <= 16 << 10, "{}", on_disk());
        // What is appended afterwards leaves the disk, too.
        spool.unwrap().discard().unwrap();
        file.write_all(&block(200_000, 7)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while on_disk() > 16 << 10 {
            assert!(Instant::now() < deadline, "{}", on_disk());
            std::thread::sleep(INTERVAL);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
