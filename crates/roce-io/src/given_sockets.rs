//! Packet sockets that another process gives to this one, which may not open any.
//!
//! The giver also reserves the UDP port, as its own user, until the connection ends: processes of several users
//! of one run then share the port, whichever comes first.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use socket2::{Domain, SockAddr, Type};

use crate::{
    process::Own,
    sockets,
    sys::socket::{self, Socket},
};

/// The requests: the port's reservation takes whole trains, or not.
const WHOLE_TRAINS: u8 = b'T';
const PACKETS: u8 = b'P';
/// Longest wait for the giver.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks at a unix socket for a packet socket of this thread's network namespace. Returns the connection, too.
/// `whole_trains` is that of the port's reservation.
pub(crate) fn packet_socket(giver: &Path, whole_trains: bool) -> io::Result<(Socket, Socket)> {
    let connection = socket::open(Domain::UNIX, Type::STREAM, None)?;
    // Connecting waits while as many connections as may wait do so, as where the giver is stopped.
    connection.set_write_timeout(Some(PATIENCE))?;
    connection.connect(&SockAddr::unix(giver)?)?;
    let request = if whole_trains { WHOLE_TRAINS } else { PACKETS };
    connection.send_with_flags(&[request], libc::MSG_NOSIGNAL)?;
    wait_until_readable(&connection)?;
    // The socket is this process's from its first moment on.
    let given = Own::make(|| receive(&connection))?.map(socket2::Socket::from);
    let here = sockets::namespace_of(&connection);
    if given.domain()? != Domain::PACKET
        || given.r#type()? != Type::RAW
        || sockets::namespace_of(&given) != here
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((given, connection))
}

/// Waits for the giver, also where signals interrupt the wait.
fn wait_until_readable(connection: &Socket) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut readable = [PollFd::new(connection, PollFlags::IN)];
        match poll(&mut readable, Some(&patience)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives a descriptor, if one waits.
fn receive(connection: &Socket) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut vectors = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(connection, &mut vectors, &mut control, flags)?;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    rights.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};
    use std::os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    };

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn only_a_packet_socket_is_taken_and_a_giver_that_refuses_is_not_waited_for() {
        let name = format!("roce-io-giver-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let giver = std::thread::spawn(move || {
            let (mut refused, _) = listener.accept().unwrap();
            assert_eq!(refused.read(&mut [0]).unwrap(), 1);
            drop(refused);
            let (mut connection, _) = listener.accept().unwrap();
            assert_eq!(connection.read(&mut [0]).unwrap(), 1);
            let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [other.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&fds));
            let bytes = [IoSlice::new(&[0])];
            sendmsg(&connection, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
        });
        let outcome = || packet_socket(&path, true).unwrap_err().kind();
        assert_eq!(outcome(), io::ErrorKind::PermissionDenied);
        assert_eq!(outcome(), io::ErrorKind::InvalidData);
        giver.join().unwrap();
        assert_eq!(outcome(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_giver_that_takes_no_connection_is_not_waited_for_without_end() {
        let path = std::env::temp_dir().join(format!("roce-io-stopped-{}", std::process::id()));
        let listener = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let asks = path.clone();
        std::thread::spawn(move || tell.send(packet_socket(&asks, true).map(drop)));
        let outcome = told.recv_timeout(10 * PATIENCE).expect("it should have given up");
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_file(&path).unwrap();
    }
}
