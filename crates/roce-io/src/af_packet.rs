//! The device over a Linux packet socket.

mod config;
mod kernel;
mod parked;
mod receiver;
mod sniffer;

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use socket2::{Domain, Type};

pub use self::config::{AfPacketConfig, ReceiveMode, probe_max_segments};
pub use self::parked::ParkedSocket;
pub use self::sniffer::Sniffer;
use self::{
    kernel::{Note, PacketKernel},
    receiver::Receiver,
};
use crate::sys::socket::Socket;
use crate::{
    Filter, InterfaceInfo,
    device::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame},
    error::OpenError,
    filter, given_sockets,
    interface_errors::explain,
    interfaces::{find_interface, find_known},
    sys,
    transmitter::Transmitter,
    vnet_hdr::MAX_FRAME_LEN,
};

/// An interface opened through an `AF_PACKET` socket.
///
/// It receives the frames for this host that its [`Filter`] accepts, not those the interface sends,
/// and does not change the interface's settings, unless [`AfPacketConfig::promiscuous`] asks for
/// more. Several devices may share an interface: each receives every frame.
///
/// On `lo` every packet socket receives each sent frame once, the sender's own socket included: use
/// the [`Filter`] to separate them. With MAC addresses of zeros the kernel's IP stack receives the
/// frame, too; with any others it does not.
///
/// ```no_run
/// use roce_io::{AfPacket, AfPacketConfig, FrameDevice};
///
/// let mut device = AfPacket::open(&AfPacketConfig::new("eth0"))?;
/// device.receive(64, &mut |frame| println!("{frame:?}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AfPacket {
    config: AfPacketConfig,
    interface: InterfaceInfo,
    capabilities: DeviceCapabilities,
    receiver: Receiver,
    transmitter: Transmitter<Note>,
    /// The socket bypasses the queueing discipline.
    bypass: bool,
    socket: Socket,
    /// The connection to what has given the socket, if another process has.
    giver: Option<Socket>,
    idle_receives: u32,
    kernel_dropped: Cell<u64>,
}

impl AfPacket {
    /// Opens an interface of this thread's network namespace. Where the process may not lock the memory of a ring, as
    /// all that it maps is locked (`mlockall`), frames are received by [`ReceiveMode::Mmsg`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &AfPacketConfig) -> Result<Self, OpenError> {
        Self::open_by(config, Self::open_as)
    }

    fn open_by(
        config: &AfPacketConfig,
        open: impl Fn(&AfPacketConfig) -> Result<Self, OpenError>,
    ) -> Result<Self, OpenError> {
        match open(config) {
            Err(OpenError::Os { step: CREATING_RING, source, .. })
                if source.raw_os_error() == Some(libc::EAGAIN) =>
            {
                let receive = ReceiveMode::Mmsg { batch: BATCH_WITHOUT_RING };
                let mut opened = open(&AfPacketConfig { receive, ..config.clone() })?;
                // Parked, it fits what was asked for.
                opened.config.receive = config.receive;
                Ok(opened)
            }
            opened => opened,
        }
    }

    fn open_as(config: &AfPacketConfig) -> Result<Self, OpenError> {
        config.check()?;
        let find = if config.may_be_down { find_known } else { find_interface };
        let interface = find(&config.interface)?;
        let failed = |step| {
            let name = interface.name.clone();
            move |source| OpenError::Os { name, step, source }
        };
        let mut giver = None;
        let socket = match sys::socket::open(Domain::PACKET, Type::RAW, None) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let whole_trains = interface.kind.segments_in_software();
                let ask = |path| given_sockets::packet_socket(path, whole_trains);
                match config.giver.as_deref().map(ask) {
                    Some(Ok((given, connection))) => {
                        giver = Some(connection);
                        given
                    }
                    refused => {
                        if let Some(Err(error)) = refused {
                            tracing::debug!(%error, "no process gives a packet socket");
                        }
                        return Err(OpenError::NotPermitted { name: interface.name });
                    }
                }
            }
            Err(error) => return Err(failed("opening a packet socket")(error)),
        };
        // The socket receives nothing until it is bound, so no frame bypasses the filter. Virtio
        // headers must be enabled before the ring, whose slots then have space for them.
        let packet =
            |name, value| sys::socket::set_int(socket.as_fd(), libc::SOL_PACKET, name, value);
        packet(libc::PACKET_VNET_HDR, 1).map_err(failed("enabling virtio headers"))?;
        packet(libc::PACKET_IGNORE_OUTGOING, 1).map_err(failed("ignoring sent frames"))?;
        if config.qdisc_bypass {
            packet(libc::PACKET_QDISC_BYPASS, 1).map_err(failed("bypassing the qdisc"))?;
        }
        set_buffer_lens(&socket, config).map_err(failed("setting buffer sizes"))?;
        let program = match (config.promiscuous, config.receive) {
            (true, ReceiveMode::Ring { .. }) => filter::every_frame(),
            // Only the ring has the tags that the kernel takes off.
            (true, ReceiveMode::Mmsg { .. }) => filter::every_untagged_frame(),
            (false, _) => config.filter.program(interface.flags.loopback),
        };
        socket.attach_filter(&program).map_err(failed("attaching the packet filter"))?;
        if config.promiscuous {
            sys::socket::set_promiscuous(socket.as_fd(), interface.index)
                .map_err(failed("making the interface promiscuous"))?;
        }
        let receiver = Receiver::new(socket.as_fd(), config.receive, config.max_receive_len)
            .map_err(failed(CREATING_RING))?;
        socket
            .bind(&sys::socket::packet_address(interface.index))
            .map_err(failed("binding the packet socket"))?;
        Ok(Self { giver, ..Self::of(config, interface, socket, receiver) })
    }

    /// Makes a device of a socket that is set up.
    fn of(
        config: &AfPacketConfig,
        interface: InterfaceInfo,
        socket: Socket,
        receiver: Receiver,
    ) -> Self {
        let segments = config.gso.sends_trains(&interface, socket.as_fd());
        Self {
            config: config.clone(),
            capabilities: DeviceCapabilities {
                mtu: interface.mtu as usize,
                max_frame_len: MAX_FRAME_LEN,
                max_train_packets: if segments { config.max_train_packets } else { 1 },
            },
            receiver,
            transmitter: Transmitter::new::<PacketKernel<'_>>(config.transmit_slots),
            bypass: config.qdisc_bypass,
            socket,
            giver: None,
            idle_receives: 0,
            kernel_dropped: Cell::new(0),
            interface,
        }
    }

    /// Returns the interface as it was when the device was opened.
    pub fn interface(&self) -> &InterfaceInfo {
        &self.interface
    }
}

impl FrameDevice for AfPacket {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let received = self.receiver.receive(self.socket.as_fd(), budget, on_frame);
        let received = received.map_err(|error| explain(error, &self.interface))?;
        if received > 0 || budget == 0 {
            return Ok(received);
        }
        // An interface that goes down leaves an error on the socket, which makes every wait
        // return at once until it is read. Reading it costs a system call, too much for every
        // empty poll of a ring.
        self.idle_receives = self.idle_receives.wrapping_add(1);
        if self.idle_receives.is_multiple_of(IDLE_RECEIVES_PER_ERROR_CHECK)
            && let Some(error) = self.socket.take_error()?
        {
            return Err(explain(error, &self.interface));
        }
        Ok(0)
    }

    fn may_receive(&self) -> bool {
        self.receiver.may_receive()
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let (socket, interface) = (self.socket.as_fd(), &self.interface);
        let name = &*interface.name;
        let mut kernel = PacketKernel { socket, interface: name, bypass: &mut self.bypass };
        let device = (interface, socket);
        self.transmitter.transmit(&mut kernel, device, &mut self.capabilities, fill)
    }

    fn has_unsent(&self) -> bool {
        self.transmitter.has_unsent()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn wake_at(&self) -> Option<Instant> {
        self.transmitter.next_attempt()
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.socket.attach_filter(&filter.program(self.interface.flags.loopback))
    }

    fn set_mtu(&mut self, mtu: usize) {
        self.capabilities.mtu = mtu;
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        // The kernel resets its count with each query.
        if let Ok((_, dropped)) = sys::socket::packet_statistics(self.socket.as_fd()) {
            self.kernel_dropped.set(self.kernel_dropped.get() + u64::from(dropped));
        }
        let mut all = vec![
            ("socket_rcvd_dropped", self.kernel_dropped.get()),
            ("socket_rcvd_unusable", self.receiver.unusable()),
        ];
        all.extend(self.transmitter.counters());
        all
    }
}

/// The step that fails if the process may not lock the memory of a ring.
const CREATING_RING: &str = "creating the receive ring";
/// Frames that are received by one call where there is no ring.
const BATCH_WITHOUT_RING: usize = 16;
/// Empty receives from one check of the socket for an error to the next.
const IDLE_RECEIVES_PER_ERROR_CHECK: u32 = 512;

/// Sets the buffer sizes, past the system's limits where the process may.
fn set_buffer_lens(socket: &Socket, config: &AfPacketConfig) -> io::Result<()> {
    let force = |name, len: usize| {
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        sys::socket::set_int(socket.as_fd(), libc::SOL_SOCKET, name, len)
    };
    // A ring has its own memory.
    if matches!(config.receive, ReceiveMode::Mmsg { .. })
        && force(libc::SO_RCVBUFFORCE, config.receive_buffer_len).is_err()
    {
        socket.set_recv_buffer_size(config.receive_buffer_len)?;
    }
    if force(libc::SO_SNDBUFFORCE, config.send_buffer_len).is_err() {
        socket.set_send_buffer_size(config.send_buffer_len)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use roce_netns::{Link, VirtualNetwork};
    use roce_test_macros::tier1;

    use super::*;

    #[tier1]
    fn a_socket_without_the_ring_that_was_asked_for_is_kept_for_the_next_device()
    -> Result<(), Box<dyn std::error::Error>> {
        let network = VirtualNetwork::new()?;
        let (here, there) = (network.host("here")?, network.host("there")?);
        network.veth((&here, "eth0"), (&there, "eth0"), Link { mtu: 1500 })?;
        // As where the memory of a ring may not be locked.
        let open = |config: &AfPacketConfig| match config.receive {
            ReceiveMode::Ring { .. } => Err(OpenError::Os {
                name: config.interface.clone(),
                step: CREATING_RING,
                source: io::Error::from_raw_os_error(libc::EAGAIN),
            }),
            ReceiveMode::Mmsg { .. } => AfPacket::open_as(config),
        };
        let config = AfPacketConfig::new("eth0");
        assert!(matches!(config.receive, ReceiveMode::Ring { .. }));
        let device = here.run(|| AfPacket::open_by(&config, open))?;
        let parked = ParkedSocket::of(device).expect("not promiscuous");
        assert!(parked.fits(&config));
        let mut again = here.run(|| parked.reopen(&config)).expect("nothing has changed");
        assert_eq!(again.receive(64, &mut |_| ())?, 0);
        Ok(())
    }
}
