//! The device over AF_XDP sockets, beside a packet socket.

mod attachment;
mod program;
mod receiver;
#[cfg(test)]
mod tests;
mod transmitter;

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Type};

use self::{
    attachment::{Attachment, is_taken},
    program::{Target, Verdict},
    receiver::Receiver,
    transmitter::Transmitter,
};
use crate::sys::socket::Socket;
use crate::{
    Filter, InterfaceInfo,
    device::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame},
    error::XdpError,
    interface_errors::explain,
    sys::{
        self,
        xsk::{LOCKING_MEMORY, Xsk, XskConfig},
    },
};

/// An interface used through AF_XDP sockets, one for each of its receive queues, beside another device.
///
/// An XDP program at the interface gives the sockets what is addressed to this process: UDP to RoCE's port,
/// to addresses of the interface, and to the queue pairs of the [`Filter`]. All else goes on to the kernel
/// as ever, so that other programs, and other processes with packet sockets, notice nothing. Management and
/// multicast go on, too, since all processes of a host receive them: the device inside, a packet socket with
/// the same filter, receives these, and whatever else the program passes on, such as frames of a receive
/// queue that was added meanwhile. No frame comes twice.
///
/// One process at a time uses an interface so: it holds program, maps and sockets by descriptors, and the
/// kernel removes them with the last one, when the process ends in whatever way.
///
/// Received frames are not merged, and no trains are sent: every packet is a frame. The kernel checks no
/// checksums, and those of senders on this host are not complete; all frames are taken for such ones.
///
/// ```no_run
/// use roce_io::{AfPacket, AfPacketConfig, FrameDevice, XdpConfig, XdpSocket};
///
/// let packet = AfPacket::open(&AfPacketConfig::new("eth0"))?;
/// let interface = packet.interface().clone();
/// let mut device: Box<dyn FrameDevice> =
///     match XdpSocket::around(packet, &interface, &XdpConfig::default()) {
///         Ok(device) => Box::new(device),
///         Err(refused) => {
///             eprintln!("by a packet socket: {}", refused.error);
///             Box::new(refused.device)
///         }
///     };
/// device.receive(64, &mut |frame| println!("{frame:?}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct XdpSocket<D> {
    /// Dropped first: then no frame comes to a socket that is closed.
    attachment: Attachment,
    interface: InterfaceInfo,
    capabilities: DeviceCapabilities,
    receiver: Receiver,
    transmitter: Transmitter,
    /// One for each receive queue; frames leave through the first.
    sockets: Vec<Xsk>,
    /// Asks the kernel about the interface.
    query: Socket,
    rest: D,
    /// An error of `rest`, which comes after frames.
    pending: Option<io::Error>,
}

/// Configuration of an [`XdpSocket`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// Frames to receive.
    pub filter: Filter,
    /// Copy frames, even where the driver could do without (zero-copy). Default false.
    pub copies: bool,
    /// Packets that can wait in all receive queues together, 256..=65536: those of more than some 3.7 KiB
    /// count twice. Default 2048.
    pub receive_slots: usize,
    /// Packets that may wait for the kernel, 1..=1024. Default 256.
    pub transmit_slots: usize,
    /// Bytes of socket send buffer to request. Default 4 MiB.
    pub send_buffer_len: usize,
}

impl Default for XdpConfig {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            copies: false,
            receive_slots: 2048,
            transmit_slots: 256,
            send_buffer_len: 4 << 20,
        }
    }
}

/// A device that stays as it was, since its interface cannot be used by AF_XDP sockets.
#[derive(Debug)]
pub struct RefusedByXdp<D> {
    /// The device.
    pub device: D,
    /// Why.
    pub error: XdpError,
}

/// Bytes of the longest frame that is sent: an Ethernet header with two VLAN tags, and a packet of the usual
/// large MTU.
const MAX_FRAME_LEN: usize = 12 << 10;
/// Receive queues with a socket, at most. Frames of others take the way through the kernel.
const MAX_QUEUES: u32 = 64;
/// The kernel frees a queue some time after its socket was closed.
const QUEUE_PATIENCE: Duration = Duration::from_millis(300);

impl<D: FrameDevice> XdpSocket<D> {
    /// Opens AF_XDP sockets on the interface of a device that receives from a packet socket, in this thread's
    /// network namespace. If that is not possible the device comes back unchanged.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn around(
        device: D,
        interface: &InterfaceInfo,
        config: &XdpConfig,
    ) -> Result<Self, Box<RefusedByXdp<D>>> {
        match Opened::new(interface, config) {
            Ok(Opened { attachment, sockets, query }) => Ok(Self {
                attachment,
                capabilities: DeviceCapabilities {
                    mtu: usable_mtu(&sockets, interface.mtu as usize),
                    max_frame_len: MAX_FRAME_LEN,
                    max_train_packets: 1,
                },
                receiver: Receiver::default(),
                transmitter: Transmitter::default(),
                sockets,
                query,
                interface: interface.clone(),
                rest: device,
                pending: None,
            }),
            Err(error) => Err(Box::new(RefusedByXdp { device, error })),
        }
    }

    /// Returns true if the driver runs the program on its own buffers (native), and not the kernel (generic).
    pub fn is_native(&self) -> bool {
        self.attachment.is_native()
    }

    /// Returns true if the card reads and writes the frames where they are (zero-copy).
    pub fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(Xsk::is_zero_copy)
    }
}

/// The parts that may be refused.
struct Opened {
    attachment: Attachment,
    sockets: Vec<Xsk>,
    query: Socket,
}

impl Opened {
    fn new(interface: &InterfaceInfo, config: &XdpConfig) -> Result<Self, XdpError> {
        let name = &interface.name;
        if interface.flags.loopback {
            return Err(XdpError::Loopback { name: name.clone() });
        }
        let failed = |(step, source): (&'static str, io::Error)| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XdpError::NotPermitted { name: name.clone() },
            _ if is_taken(&source) => XdpError::Busy { name: name.clone() },
            _ => XdpError::Os { name: name.clone(), step, source },
        };
        // An AF_XDP socket answers no questions about interfaces.
        let query = sys::socket::open(Domain::UNIX, Type::DGRAM, None)
            .map_err(|error| failed(("opening a socket", error)))?;
        // A driver that does not tell has one.
        let queues = sys::interface::receive_queues(query.as_fd(), name).unwrap_or(1);
        let queues = queues.clamp(1, MAX_QUEUES);
        let target = Target {
            mac: interface.mac.unwrap_or_default(),
            port: config.filter.udp_port,
            without_socket: Verdict::Pass,
        };
        // The program first: it tells at once whether another process is here. Without sockets it takes
        // nothing.
        let mut attachment = Attachment::new(interface.index, &target, queues).map_err(failed)?;
        let slots = config.receive_slots.clamp(256, 1 << 16) / queues as usize;
        let mut sockets = Vec::new();
        for queue in 0..queues {
            let config = XskConfig {
                interface: interface.index,
                queue,
                receive_chunks: slots.next_power_of_two().max(256) as u32,
                // Frames leave through the first.
                slots: if queue == 0 { config.transmit_slots.clamp(1, 1024) as u32 } else { 1 },
                max_frame_len: MAX_FRAME_LEN,
                copies: config.copies,
            };
            let socket =
                open_patiently(&config).map_err(|(step, error)| match error.raw_os_error() {
                    Some(libc::ENOBUFS) if step == LOCKING_MEMORY => XdpError::LockedMemory {
                        name: name.clone(),
                        mebibytes: (queues as usize * config.memory_len()).div_ceil(1 << 20),
                    },
                    _ => failed((step, error)),
                })?;
            let step = "giving a receive queue to a socket";
            attachment.set_socket(queue, socket.as_fd()).map_err(|error| failed((step, error)))?;
            sockets.push(socket);
        }
        check_mtu(name, &sockets, interface.mtu as usize)?;
        let len = i32::try_from(config.send_buffer_len).unwrap_or(i32::MAX);
        if let Some(first) = sockets.first() {
            let set = |name| sys::socket::set_int(first.as_fd(), libc::SOL_SOCKET, name, len);
            set(libc::SO_SNDBUFFORCE)
                .or_else(|_| set(libc::SO_SNDBUF))
                .map_err(|error| failed(("setting buffer sizes", error)))?;
        }
        let addresses: Vec<IpAddr> = interface.addresses.iter().map(|it| it.address).collect();
        attachment.set_addresses(&addresses);
        attachment
            .set_filter(&config.filter)
            .map_err(|error| failed(("setting the filter", error)))?;
        Ok(Self { attachment, sockets, query })
    }
}

/// Opens a socket on a queue whose last one may have been closed a moment ago.
fn open_patiently(config: &XskConfig) -> Result<Xsk, (&'static str, io::Error)> {
    let give_up_at = Instant::now() + QUEUE_PATIENCE;
    loop {
        match Xsk::open(config) {
            Err((_, error))
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < give_up_at =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// Returns the longest IP packet that fits a frame of the sockets, at an MTU of the interface.
fn usable_mtu(sockets: &[Xsk], mtu: usize) -> usize {
    const ETHERNET_LEN_WITH_TAGS: usize = 22;
    let longest = sockets.iter().map(Xsk::max_frame_len).min().unwrap_or(MAX_FRAME_LEN);
    mtu.min(longest - ETHERNET_LEN_WITH_TAGS)
}

/// Refuses an interface whose packets do not fit a page, where frames have no more: a peer may send such. Of an
/// MTU above all that are usual, a frame's room is used as it is.
fn check_mtu(name: &str, sockets: &[Xsk], mtu: usize) -> Result<(), XdpError> {
    let longest = usable_mtu(sockets, usize::MAX);
    if longest < mtu && sockets.iter().any(|socket| !socket.has_fragments()) {
        return Err(XdpError::Mtu { name: name.to_owned(), mtu, longest });
    }
    Ok(())
}

impl<D: FrameDevice> FrameDevice for XdpSocket<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let mut received = 0;
        for socket in &mut self.sockets {
            received += self.receiver.receive(socket, budget - received, on_frame);
        }
        if received < budget && (received == 0 || self.rest.may_receive()) {
            match self.rest.receive(budget - received, on_frame) {
                Ok(count) => received += count,
                Err(error) if received == 0 => return Err(error),
                Err(error) => self.pending = Some(error),
            }
        }
        Ok(received)
    }

    fn may_receive(&self) -> bool {
        self.pending.is_some() || self.sockets.iter().any(Xsk::has_frame) || self.rest.may_receive()
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        if self.transmitter.next_attempt().is_some_and(|at| Instant::now() < at) {
            return Ok(0);
        }
        let Some(socket) = self.sockets.first_mut() else { return Ok(0) };
        let name = &self.interface.name;
        let refused = self.transmitter.fill(socket, &self.capabilities, name, fill).err();
        let sent = self.transmitter.flush(socket, (name, self.query.as_fd()));
        let sent = sent.map_err(|error| explain(error, &self.interface))?;
        refused.map_or(Ok(sent), |error| Err(error.into()))
    }

    fn has_unsent(&self) -> bool {
        self.transmitter.has_unsent()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = self.rest.wait_fds();
        all.extend(self.sockets.iter().map(AsFd::as_fd));
        all
    }

    fn wake_at(&self) -> Option<Instant> {
        let now = self.pending.is_some().then(Instant::now);
        now.into_iter().chain(self.transmitter.next_attempt()).chain(self.rest.wake_at()).min()
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.rest.set_filter(filter)?;
        self.attachment.set_filter(filter)
    }

    fn set_mtu(&mut self, mtu: usize) {
        self.rest.set_mtu(mtu);
        self.capabilities.mtu = usable_mtu(&self.sockets, mtu);
    }

    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.rest.set_addresses(addresses);
        self.attachment.set_addresses(addresses);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.rest.counters();
        let [mut dropped, mut unusable] = [0, self.receiver.unusable()];
        for socket in &self.sockets {
            let (by_kernel, of_rings) = socket.dropped();
            dropped += by_kernel;
            unusable += of_rings;
        }
        let own = [
            ("socket_rcvd_dropped", dropped),
            ("socket_rcvd_unusable", unusable),
            ("xdp_rcvd_frames", self.receiver.received()),
        ];
        for (name, count) in own.into_iter().chain(self.transmitter.counters()) {
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += count,
                None => all.push((name, count)),
            }
        }
        all
    }
}
