//! Keeps the packet sockets of closed devices, in a process that opens devices again and again: the next
//! device on the interface needs the same.
//!
//! Opening a device and closing it take some 80 ms without this, and a suite of tests does nothing else
//! in many of its fixtures. An idle socket receives no frame. UDP port 4791 is not kept: it is free as
//! soon as the device is closed.
//!
//! A process that closes its devices once keeps nothing: neither descriptors, nor 18 MiB of the kernel's
//! memory, nor a thread that would close them later.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use roce_io::{
    AfPacket, AfPacketConfig, DeviceCapabilities, Filter, FrameDevice, InterfaceInfo, OpenError,
    ParkedSocket, RxFrame, TxFrame,
};

use crate::process::fork::{Generation, PerProcess};
use crate::sockets::network_namespace;

/// Most sockets that are kept, each with a ring of 9 MiB. A device has two: for its interface and `lo`.
const MAX_IDLE: usize = 4;

/// The idle sockets of this process. A child after `fork` begins without any.
static IDLE: PerProcess<IdleSockets> = PerProcess::new();

#[derive(Debug, Default)]
struct IdleSockets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Those that were closed first come first.
    sockets: VecDeque<IdleSocket>,
    /// A device was closed.
    has_closed: bool,
    /// A device was opened after that: it may happen again.
    has_reopened: bool,
}

#[derive(Debug)]
struct IdleSocket {
    namespace: u64,
    socket: ParkedSocket,
}

impl IdleSockets {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, namespace: u64, config: &AfPacketConfig) -> Option<ParkedSocket> {
        let mut state = self.lock();
        state.has_reopened |= state.has_closed;
        let fits = |it: &IdleSocket| it.namespace == namespace && it.socket.fits(config);
        let newest = state.sockets.iter().rposition(fits)?;
        state.sockets.remove(newest).map(|it| it.socket)
    }

    fn keep(&self, namespace: u64, socket: ParkedSocket) {
        let mut state = self.lock();
        state.has_closed = true;
        let is_full = state.sockets.len() == MAX_IDLE;
        let surplus = if is_full { state.sockets.pop_front() } else { None };
        let unwanted = match state.has_reopened {
            true => {
                state.sockets.push_back(IdleSocket { namespace, socket });
                None
            }
            false => Some(socket),
        };
        drop(state);
        // Their close takes long, and needs no lock.
        drop((surplus, unwanted));
    }
}

/// A packet socket that is kept for the next device when this one is closed.
#[derive(Debug)]
pub(crate) struct ReusedSocket {
    /// `None` only in `drop`.
    device: Option<AfPacket>,
    /// `None` where it is not kept.
    namespace: Option<u64>,
    generation: Generation,
}

impl ReusedSocket {
    /// Opens an interface, with an idle socket if there is one.
    pub(crate) fn open(config: &AfPacketConfig) -> Result<Self, OpenError> {
        // An idle socket keeps its namespace, so no other has the number meanwhile.
        let namespace = network_namespace::current();
        let idle = namespace.and_then(|it| IDLE.get().take(it, config));
        let device = match idle.and_then(|socket| socket.reopen(config)) {
            Some(device) => device,
            None => AfPacket::open(config)?,
        };
        Ok(Self { device: Some(device), namespace, generation: Generation::current() })
    }

    /// Closes the socket: its device goes on without it.
    pub(crate) fn discard(mut self) {
        self.namespace = None;
    }

    /// Returns the interface as it was when the device was opened.
    pub(crate) fn interface(&self) -> &InterfaceInfo {
        self.get().interface()
    }

    #[inline]
    fn get(&self) -> &AfPacket {
        self.device.as_ref().expect("there until it is dropped")
    }

    #[inline]
    fn get_mut(&mut self) -> &mut AfPacket {
        self.device.as_mut().expect("there until it is dropped")
    }
}

impl Drop for ReusedSocket {
    fn drop(&mut self) {
        // The socket of a child after fork is that of its parent.
        if let (true, Some(namespace)) = (self.generation.is_current(), self.namespace)
            && let Some(socket) = self.device.take().and_then(ParkedSocket::of)
        {
            IDLE.get().keep(namespace, socket);
        }
    }
}

impl FrameDevice for ReusedSocket {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        self.get_mut().receive(budget, on_frame)
    }

    fn may_receive(&self) -> bool {
        self.get().may_receive()
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        self.get_mut().transmit(fill)
    }

    fn has_unsent(&self) -> bool {
        self.get().has_unsent()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.get().capabilities()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.get().wait_fds()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.get().wake_at()
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.get_mut().set_filter(filter)
    }

    fn set_mtu(&mut self, mtu: usize) {
        self.get_mut().set_mtu(mtu);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.get().counters()
    }
}
