//! Packet sockets for processes of the run that have changed their user.
//!
//! A daemon that root starts often gives up its privileges before it opens a device. `/dev/infiniband` is open
//! to every user, so with a card it has one. Here it asks the run's command for a packet socket. The command
//! gives one to processes that it descends to, and to no other.

use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, setns};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socket_with, sockopt::socket_peercred,
};

use super::descendants;
use crate::error::{CliError, Result};

/// Gives packet sockets at a path, from a thread that ends with this process.
pub(crate) fn start(path: &Path) -> Result {
    let listener = UnixListener::bind(path)
        .and_then(|listener| {
            // Which process asks is looked at, not which user.
            fs::set_permissions(path, Permissions::from_mode(0o666))?;
            Ok(listener)
        })
        .map_err(|error| CliError::context(format!("listening at {}", path.display()), error))?;
    thread::Builder::new().name("sockets".to_owned()).spawn(move || {
        for connection in listener.incoming().flatten() {
            if let Err(error) = serve(&connection) {
                tracing::info!(%error, "a process gets no packet socket");
            }
        }
    })?;
    Ok(())
}

fn serve(connection: &UnixStream) -> io::Result<()> {
    let process = socket_peercred(connection)?.pid.as_raw_nonzero().get();
    if !descendants::is_descendant(process) {
        return Err(io::Error::other(format!("process {process} is none of this run")));
    }
    let socket = open_beside(process)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [socket.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(connection, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Opens a packet socket in the network namespace of a process.
fn open_beside(process: i32) -> io::Result<OwnedFd> {
    let theirs = File::open(format!("/proc/{process}/ns/net"))?;
    let is_here = fs::metadata("/proc/self/ns/net")?.ino() == theirs.metadata()?.ino();
    let open = || -> io::Result<OwnedFd> {
        Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
    };
    if is_here {
        return open();
    }
    // A namespace is that of a thread.
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            setns(&theirs, CloneFlags::CLONE_NEWNET)?;
            open()
        });
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
