//! The process that the user has started, in front of the one that runs the program.
//!
//! What a program leaves behind, such as a daemon, needs the folder of the run, live counters, and a process
//! that tells its peers of its death. So `roce run` starts itself again as the keeper, which does all the work,
//! is the subreaper of the program's descendants, and stays in the background as long as there are any. The
//! process in front passes signals on, and ends with the exit code as soon as the keeper has it. A socket joins
//! the two: each sees the other's end.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;

use nix::sys::prctl;
use nix::sys::signal::kill;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::stage::Stage;
use crate::error::{CliError, Result};
use crate::ranks::pid_of;
use crate::run::folder::run_folder::RunFolder;
use crate::run::line::options::Options;
use crate::run::outcome::failure;
use crate::run::processes::child;
use crate::run::processes::descendants;
use crate::run::processes::signals::{Received, Signals, Wake};

/// Starts the keeper, and waits until it has the exit code.
pub(crate) fn start(options: &Options) -> Result {
    let signals = Signals::block()?;
    let folder = RunFolder::with(options)?;
    let (socket, its) = UnixStream::pair()?;
    let mut command = Stage::Keeper { starter: process::id() }.command(folder.path());
    // The standard input is the program's, and comes by the socket.
    send_descriptor(&socket, io::stdin().as_fd())?;
    command.stdin(OwnedFd::from(its));
    let keeper =
        command.spawn().map_err(|error| CliError::context("starting roce again", error))?;
    // Or else the keeper's end of the socket would stay open here after its death.
    drop(command);
    // It belongs to the keeper now.
    folder.leave();
    let code = follow(pid_of(&keeper), socket, &signals)?;
    if code == 0 { Ok(()) } else { Err(CliError::Reported(code)) }
}

/// Passes signals on to the keeper until it sends an exit code, or ends with one.
fn follow(keeper: nix::unistd::Pid, mut socket: UnixStream, signals: &Signals) -> Result<u8> {
    let mut is_open = true;
    loop {
        match signals.wait(None, is_open.then(|| socket.as_fd()))? {
            Wake::Signal(Received::ChildChanged) => {
                while let Some((process, status)) = descendants::reap() {
                    if process != keeper.as_raw().unsigned_abs() {
                        continue;
                    }
                    if let Some(signal) = child::signal_of(status) {
                        eprintln!(
                            "roce: the process above the program was ended by {}",
                            failure::Shown(signal)
                        );
                    }
                    return Ok(child::code_of(status));
                }
            }
            Wake::Signal(Received::FromProcess(signal)) => {
                // It was not waited for, so its number is still its own.
                let _ = kill(keeper, signal);
            }
            // All processes of the terminal have it.
            Wake::Signal(Received::FromKernel(_)) | Wake::Deadline => {}
            Wake::Readable => {
                let mut code = [0];
                match socket.read(&mut code)? {
                    0 => is_open = false,
                    _ => return Ok(code[0]),
                }
            }
        }
    }
}

/// The keeper's end of the socket.
#[derive(Debug)]
pub(crate) struct Front {
    socket: UnixStream,
    starter: u32,
}

impl Front {
    /// Makes this process the keeper that the process `starter` has started. Returns its end of the socket, and the
    /// standard input of the program.
    pub(crate) fn meet(starter: u32) -> Result<(Self, OwnedFd)> {
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let input = receive_descriptor(&socket)?;
        prctl::set_child_subreaper(true)?;
        Ok((Self { socket, starter }, input))
    }

    /// Returns the number of the process in front.
    pub(crate) fn starter(&self) -> u32 {
        self.starter
    }

    /// Lets the process in front end with a code, and this one go on without its files.
    ///
    /// # Errors
    /// The operating system's. The process in front may have ended.
    pub(crate) fn leave(mut self, code: u8) -> io::Result<()> {
        let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
        std::env::set_current_dir("/")?;
        self.socket.write_all(&[code])
    }
}

impl AsFd for Front {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a descriptor.
fn send_descriptor(socket: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives a descriptor.
fn receive_descriptor(socket: &UnixStream) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| CliError::new("`roce run` starts this command itself"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_comes_by_the_socket() {
        let (one, two) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send_descriptor(&one, writer.as_fd()).unwrap();
        drop(writer);
        let mut received = std::fs::File::from(receive_descriptor(&two).unwrap());
        received.write_all(b"it").unwrap();
        drop(received);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "it");
        one.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(receive_descriptor(&two).is_err());
    }
}
