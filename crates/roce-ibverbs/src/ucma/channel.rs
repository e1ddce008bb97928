//! A channel and its sockets.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{EIO, MSG_DONTWAIT, MSG_NOSIGNAL};
use roce_verbs::cm::{EventChannel, EventNotifier};
use roce_verbs::{Device, Error, Own, Purpose};

use super::cookies::cookie_of_own;
use crate::configuration;
use crate::device_list::ListedDevice;

/// What a descriptor of the device stands for.
#[derive(Debug)]
pub(super) struct Channel {
    /// Number of the program's socket.
    pub(super) cookie: u64,
    pub(super) events: EventChannel,
    pub(super) bell: Arc<Bell>,
    /// Events that the program has raised itself.
    raised: Mutex<VecDeque<RaisedEvent>>,
}

/// An event that the program has raised.
#[derive(Clone, Copy, Debug)]
pub(super) struct RaisedEvent {
    /// Number of the identifier.
    pub(super) id: u32,
    pub(super) event: u32,
    pub(super) status: u32,
    pub(super) argument: u64,
}

/// Most events that a program may have raised and not fetched.
const MAX_RAISED: usize = 4096;

impl Channel {
    /// Makes a channel, and the descriptor that the program gets. The flags are those of `open`.
    ///
    /// # Errors
    /// An `errno` value.
    pub(super) fn new(flags: c_int) -> Result<(Self, OwnedFd), c_int> {
        let (of_program, peer) = sockets(flags)?;
        let cookie = cookie_of_own(&of_program)?;
        let bell = Arc::new(Bell { peer, counts: Mutex::default() });
        let notifier = Arc::clone(&bell) as Arc<dyn EventNotifier>;
        let events = EventChannel::with_notifier(open, notifier);
        Ok((Self { cookie, events, bell, raised: Mutex::default() }, of_program))
    }

    fn raised(&self) -> MutexGuard<'_, VecDeque<RaisedEvent>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event of the program's own. Returns false if too many wait.
    pub(super) fn raise(&self, event: RaisedEvent) -> bool {
        let mut raised = self.raised();
        if raised.len() >= MAX_RAISED {
            return false;
        }
        raised.push_back(event);
        self.bell.added();
        true
    }

    /// Takes the next event of the program's own.
    pub(super) fn take_raised(&self) -> Option<RaisedEvent> {
        let taken = self.raised().pop_front();
        self.bell.removed(usize::from(taken.is_some()));
        taken
    }

    /// Takes all events of the program's own that are for an identifier.
    pub(super) fn take_raised_for(&self, id: u32) -> Vec<RaisedEvent> {
        let mut raised = self.raised();
        let (taken, left): (Vec<_>, Vec<_>) = raised.drain(..).partition(|event| event.id == id);
        *raised = left.into();
        self.bell.removed(taken.len());
        taken
    }
}

/// Opens the device of an interface as the program's own `ibv_open_device` does.
fn open(interface: &str, purpose: Purpose) -> Result<Device, Error> {
    let listed = ListedDevice::of_interface(interface)?;
    let config = configuration::of(listed)
        .map_err(|why| Error::System(std::io::Error::new(std::io::ErrorKind::InvalidInput, why)))?;
    Device::open_for(interface, config, purpose)
}

/// Makes the pair of sockets: that of the program, and its peer.
fn sockets(flags: c_int) -> Result<(OwnedFd, Own<OwnedFd>), c_int> {
    let mut of_program = None;
    let peer = Own::make(|| {
        let mut pair = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: new descriptors, which nothing else owns.
        let [one, peer] = pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        of_program = Some(one);
        Ok(peer)
    });
    let peer = peer.map_err(|error| error.raw_os_error().unwrap_or(EIO))?;
    let of_program = with_high_number(of_program.ok_or(EIO)?);
    let fd = of_program.as_raw_fd();
    // The kernel's device is never writable for `poll`; a socket is as long as it takes bytes.
    let smallest: c_int = 1;
    // SAFETY: the value is an integer, as the option has it; the bytes are those of a literal.
    unsafe {
        let len = size_of::<c_int>() as libc::socklen_t;
        let option = libc::SO_SNDBUF;
        libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const smallest).cast(), len);
        while libc::send(fd, [0u8].as_ptr().cast(), 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0 {}
    }
    // SAFETY: the commands take integers.
    unsafe {
        if flags & libc::O_NONBLOCK != 0 {
            succeeded(libc::fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK))?;
        }
        if flags & libc::O_CLOEXEC == 0 {
            succeeded(libc::fcntl(fd, libc::F_SETFD, 0))?;
        }
    }
    Ok((of_program, peer))
}

/// The numbers that a channel gets while one is free: select(2) takes none above.
const NUMBERS: std::ops::Range<c_int> = 512..1024;

/// Gives a descriptor a number that is higher than those of a program's own.
///
/// librspreload, before version 63, has a program that calls select(2) for connections that it has accepted
/// wait for ever unless the channel's number is above that of the program's descriptor; and librdmacm opens
/// the channel first. iperf3 is such a program.
fn with_high_number(socket: OwnedFd) -> OwnedFd {
    // SAFETY: the command takes an integer.
    let fd = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, NUMBERS.start) };
    if fd < 0 {
        // The program may have so many at most.
        return socket;
    }
    // SAFETY: a new descriptor, which nothing else owns.
    let copy = unsafe { OwnedFd::from_raw_fd(fd) };
    if NUMBERS.contains(&fd) { copy } else { socket }
}

fn succeeded(result: c_int) -> Result<(), c_int> {
    match result {
        0.. => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(EIO)),
    }
}

/// What makes the program's socket readable: a byte for each event, up to [`MAX_BYTES`](Self::MAX_BYTES).
#[derive(Debug)]
pub(super) struct Bell {
    peer: Own<OwnedFd>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Events that wait.
    events: usize,
    /// Bytes in the program's socket.
    bytes: usize,
}

impl Bell {
    /// Bytes for as many events lie in the socket, which does not take any number of them.
    const MAX_BYTES: usize = 16;

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the program's socket is closed.
    pub(super) fn is_hung_up(&self) -> bool {
        if !self.peer.is_open() {
            return true;
        }
        let mut entry = libc::pollfd { fd: self.peer.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry.
        let count = unsafe { libc::poll(&mut entry, 1, 0) };
        count == 1 && entry.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Sends the bytes that are missing.
    fn ring(&self, counts: &mut Counts) {
        let wanted = counts.events.min(Self::MAX_BYTES);
        // The program may have closed it, and the number may be that of a socket of its own.
        if counts.bytes >= wanted || !self.peer.is_open() {
            return;
        }
        while counts.bytes < wanted {
            // SAFETY: one byte, of a literal.
            let sent = unsafe {
                let fd = self.peer.as_raw_fd();
                libc::send(fd, [0u8].as_ptr().cast(), 1, MSG_DONTWAIT | MSG_NOSIGNAL)
            };
            if sent != 1 {
                // The program has closed its socket.
                return;
            }
            counts.bytes += 1;
        }
    }

    /// Takes the bytes of events that wait no more out of the program's socket, which is `fd`.
    pub(super) fn settle(&self, fd: c_int) {
        let mut counts = self.counts();
        while counts.bytes > counts.events {
            let mut byte = 0u8;
            // SAFETY: one byte.
            let received =
                unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, MSG_DONTWAIT | MSG_NOSIGNAL) };
            if received != 1 {
                // The program has read it.
                counts.bytes = 0;
                break;
            }
            counts.bytes -= 1;
        }
        self.ring(&mut counts);
    }
}

impl EventNotifier for Bell {
    fn added(&self) {
        let mut counts = self.counts();
        counts.events += 1;
        self.ring(&mut counts);
    }

    fn removed(&self, count: usize) {
        let mut counts = self.counts();
        counts.events = counts.events.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channels_number_is_above_those_of_a_program_and_takes_part_in_select() {
        let (first, _peer) = sockets(libc::O_CLOEXEC).unwrap();
        let (second, _peer) = sockets(0).unwrap();
        let numbers = [first.as_raw_fd(), second.as_raw_fd()];
        assert!(numbers.iter().all(|number| NUMBERS.contains(number)), "{numbers:?}");
        // SAFETY: the command takes no argument.
        let flags = numbers.map(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) });
        assert_eq!(flags, [libc::FD_CLOEXEC, 0], "the flags are those of `open`");
    }
}
