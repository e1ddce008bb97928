//! Packet sockets that begin without a receive ring.
//!
//! A ring takes 9 MiB, and the kernel waits for all processors while it makes one. A listener on any address
//! opens the devices of all interfaces, of which few ever carry traffic: until its first queue pair such a
//! device receives datagrams of connection management alone. Then a socket with a ring takes the place of
//! each. That one is bound first, so no frame is lost; the few that both receive are datagrams, of which
//! connection management takes no notice the second time.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use roce_io::{
    AfPacketConfig, DeviceCapabilities, Filter, FrameDevice, InterfaceInfo, OpenError, QpnBlocks,
    ReceiveMode, RxFrame, TxFrame,
};

use crate::sockets::idle_sockets::ReusedSocket;

/// Frames that a socket without a ring receives in one system call. It takes frames of any length: where no
/// successor can be opened, as after a change of user, it carries the traffic of queue pairs. Buffers cost memory as
/// far as they were filled.
const BATCH: usize = 4;

/// The socket that takes the place of one without a ring, as soon as it is open.
#[derive(Debug)]
pub(crate) struct Successor {
    config: AfPacketConfig,
    socket: Mutex<Option<ReusedSocket>>,
}

impl Successor {
    /// Opens the socket. The next change of the filter of the device puts it in its place.
    ///
    /// # Errors
    /// Those of [`AfPacket::open`](roce_io::AfPacket::open).
    pub(crate) fn open(&self, filter: Filter) -> Result<(), OpenError> {
        let config = AfPacketConfig { filter, ..self.config.clone() };
        let socket = ReusedSocket::open(&config)?;
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
        Ok(())
    }

    /// Closes the socket, if it is open.
    pub(crate) fn close(&self) {
        self.take().into_iter().for_each(ReusedSocket::discard);
    }

    fn take(&self) -> Option<ReusedSocket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A packet socket without a receive ring, until its successor is open.
#[derive(Debug)]
pub(crate) struct GrowingSocket {
    socket: ReusedSocket,
    /// The one without a ring, as long as frames wait in it that came before its successor was bound.
    before: Option<ReusedSocket>,
    successor: Option<Arc<Successor>>,
}

impl GrowingSocket {
    /// Opens an interface, and returns what opens the socket with a ring.
    ///
    /// # Errors
    /// Those of [`AfPacket::open`](roce_io::AfPacket::open).
    pub(crate) fn open(config: &AfPacketConfig) -> Result<(Self, Arc<Successor>), OpenError> {
        let small = AfPacketConfig {
            receive: ReceiveMode::Mmsg { batch: BATCH },
            transmit_slots: 1,
            ..config.clone()
        };
        let socket = ReusedSocket::open(&small)?;
        let successor = Arc::new(Successor { config: config.clone(), socket: Mutex::default() });
        let this = Self { socket, before: None, successor: Some(Arc::clone(&successor)) };
        Ok((this, successor))
    }

    /// Returns the interface as it was when the device was opened.
    pub(crate) fn interface(&self) -> &InterfaceInfo {
        self.socket.interface()
    }

    /// Lets the successor take the place of the socket, if it is open and takes this filter.
    fn grow(&mut self, filter: &Filter) -> io::Result<()> {
        if let Some(mut next) = self.successor.as_ref().and_then(|it| it.take()) {
            next.set_filter(filter)?;
            self.successor = None;
            self.before = Some(std::mem::replace(&mut self.socket, next));
        }
        Ok(())
    }
}

impl FrameDevice for GrowingSocket {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if let Some(before) = &mut self.before {
            let received = before.receive(budget, on_frame)?;
            if received > 0 || budget == 0 {
                return Ok(received);
            }
            // Its descriptors may live on as duplicates.
            let nothing = Filter { qpn_blocks: QpnBlocks::Only(Vec::new()), ..Filter::default() };
            before.set_filter(&nothing)?;
            self.before.take().into_iter().for_each(ReusedSocket::discard);
        }
        self.socket.receive(budget, on_frame)
    }

    fn may_receive(&self) -> bool {
        self.before.is_some() || self.socket.may_receive()
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        self.socket.transmit(fill)
    }

    fn has_unsent(&self) -> bool {
        self.socket.has_unsent()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.socket.capabilities()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.wait_fds()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.socket.wake_at()
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.grow(filter)?;
        self.socket.set_filter(filter)
    }

    fn set_mtu(&mut self, mtu: usize) {
        self.socket.set_mtu(mtu);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.socket.counters()
    }
}
