//! Receives every frame that an interface carries.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use socket2::{Domain, Type};

use super::{config::ReceiveMode, receiver::Receiver};
use crate::sys::socket::Socket;
use crate::{
    device::RxFrame, error::OpenError, interfaces::find_interface, sys, vnet_hdr::MAX_RECEIVED_LEN,
};

/// A receiver of every frame that an interface receives or sends, of any protocol. It sends nothing
/// and does not make the interface promiscuous: frames for other hosts that the interface drops are
/// not seen.
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
        let socket = match sys::socket::open(Domain::PACKET, Type::RAW, None) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(OpenError::NotPermitted { name: interface.name });
            }
            Err(error) => return Err(failed("opening a packet socket")(error)),
        };
        let packet =
            |name, value| sys::socket::set_int(socket.as_fd(), libc::SOL_PACKET, name, value);
        packet(libc::PACKET_VNET_HDR, 1).map_err(failed("enabling virtio headers"))?;
        if interface.flags.loopback {
            // `lo` delivers each sent frame as a received one, too.
            packet(libc::PACKET_IGNORE_OUTGOING, 1).map_err(failed("ignoring sent frames"))?;
        }
        let receiver = Receiver::new(socket.as_fd(), ReceiveMode::default(), MAX_RECEIVED_LEN)
            .map_err(failed("creating the receive ring"))?;
        socket
            .bind(&sys::socket::packet_address(interface.index))
            .map_err(failed("binding the packet socket"))?;
        Ok(Self { receiver, socket })
    }

    /// Lends each waiting frame, at most `budget` of them, to `on_frame`; returns how many. Never
    /// blocks: 0 means that no frame waits.
    ///
    /// # Errors
    /// The kernel's error, such as that the interface went down.
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

    /// Returns a descriptor that is readable when [`receive`](Self::receive) has work.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
