//! Everything that an interface carries, for those who only look.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use socket2::{Domain, Socket, Type};

use super::{config::ReceiveMode, find_interface, receiver::Receiver};
use crate::{device::RxFrame, error::OpenError, sys};

/// Looks at every frame that comes to an interface or leaves by it, of whatever protocol, and
/// sends nothing. The interface's settings stay as they are: what it drops because it is for
/// another host is not seen.
///
/// ```no_run
/// use roce_io::Sniffer;
///
/// let mut sniffer = Sniffer::open("eth0")?;
/// sniffer.receive(64, &mut |frame| println!("{frame:?}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sniffer {
    receiver: Receiver,
    socket: Socket,
}

impl Sniffer {
    /// Opens an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let interface = find_interface(name)?;
        let failed = |step| move |source| OpenError::Os { name: name.to_owned(), step, source };
        let socket = match Socket::new(Domain::PACKET, Type::RAW, None) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(OpenError::NotPermitted { name: interface.name });
            }
            Err(error) => return Err(failed("opening a packet socket")(error)),
        };
        let packet =
            |name, value| sys::socket::set_int(socket.as_fd(), libc::SOL_PACKET, name, value);
        packet(libc::PACKET_VNET_HDR, 1).map_err(failed("asking for virtio headers"))?;
        if interface.flags.loopback {
            // What is sent there comes in again.
            packet(libc::PACKET_IGNORE_OUTGOING, 1).map_err(failed("ignoring what is sent"))?;
        }
        let receiver = Receiver::new(socket.as_fd(), ReceiveMode::default())
            .map_err(failed("making the receive ring"))?;
        socket
            .bind(&sys::socket::packet_address(interface.index))
            .map_err(failed("binding the packet socket"))?;
        Ok(Self { receiver, socket })
    }

    /// Lends each waiting frame, at most `budget` of them, to `on_frame`; returns how many. Never
    /// blocks: 0 means that nothing waits.
    ///
    /// # Errors
    /// The kernel's reason, such as an interface that went down.
    pub fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let received = self.receiver.receive(self.socket.as_fd(), budget, on_frame)?;
        if received == 0
            && let Some(error) = self.socket.take_error()?
        {
            return Err(error);
        }
        Ok(received)
    }

    /// Readable when [`receive`](Self::receive) has work.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
