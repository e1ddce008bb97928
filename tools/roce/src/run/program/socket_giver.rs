//! Packet sockets for processes of the run that have changed their user.
//!
//! A daemon that root starts often gives up its privileges before it opens a device. `/dev/infiniband` is open
//! to every user, so with a card it has one. Here it asks the run's command for a packet socket. The command
//! gives one to its descendants, and to no other process. Until such a process has closed its device, the
//! command reserves the UDP port for it, so that the port has one user, that of the run.

use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use roce_io::{PortReservation, PortReservationConfig};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socket_with, sockopt::socket_peercred,
};

use crate::error::{CliError, Result};
use crate::run::processes::descendants;

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
        let open = Arc::new(());
        for connection in listener.incoming() {
            let Ok(connection) = connection else {
                // Such as without descriptors, until a process closes its device or has asked for nothing in time.
                thread::sleep(PAUSE);
                continue;
            };
            if Arc::strong_count(&open) > MAX_GIVEN {
                continue;
            }
            let counted = Arc::clone(&open);
            let served = thread::Builder::new().name("socket".to_owned()).spawn(move || {
                if let Err(error) = serve(connection) {
                    tracing::info!(%error, "a process gets no packet socket");
                }
                drop(counted);
            });
            if let Err(error) = served {
                tracing::warn!(%error, "a process gets no packet socket");
            }
        }
    })?;
    Ok(())
}

/// Sockets that are given at a time. Each costs a connection and a reservation of the port, and a process may have
/// 1024 descriptors.
const MAX_GIVEN: usize = 128;

/// Time between two attempts to accept a connection that fail.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest wait for what a process asks.
const PATIENCE: Duration = Duration::from_secs(2);

/// Gives a socket, and holds the port until the connection ends.
fn serve(mut connection: UnixStream) -> io::Result<()> {
    let process = socket_peercred(&connection)?.pid.as_raw_nonzero().get();
    // Before the look at its descent: if its number is given to another process, that one is looked at.
    let namespace = File::open(format!("/proc/{process}/ns/net"))?;
    if !descendants::is_descendant(process) {
        return Err(io::Error::other(format!("process {process} is none of this run")));
    }
    let mut request = [0];
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.read_exact(&mut request)?;
    let port = PortReservationConfig {
        whole_trains: request == *b"T",
        ..PortReservationConfig::default()
    };
    let (socket, _port) = open_beside(&namespace, port)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [socket.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&connection, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    drop((socket, namespace));
    connection.set_read_timeout(None)?;
    // It sends nothing more.
    let _ended = connection.read(&mut request)?;
    Ok(())
}

/// Opens a packet socket in the network namespace of a process, and reserves the port there. Without the port the
/// process reserves it itself.
fn open_beside(
    theirs: &File,
    port: PortReservationConfig,
) -> io::Result<(OwnedFd, Option<PortReservation>)> {
    let is_here = fs::metadata("/proc/self/ns/net")?.ino() == theirs.metadata()?.ino();
    let open = || -> io::Result<_> {
        let family = AddressFamily::PACKET;
        let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok((socket, PortReservation::bind(&port).ok()))
    };
    if is_here {
        return open();
    }
    roce_netns::run_in(theirs, open)?
}
