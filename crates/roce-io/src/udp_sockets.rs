//! The device over UDP sockets, which needs no privilege.

mod connections;
mod headers;
mod identifications;
mod kernel;
mod own_sources;
mod passing;
mod peers;
mod senders;
mod setup;

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use roce_wire::ROCE_V2_PORT;

pub use self::identifications::OtherIdentifications;
pub use self::senders::UdpSenders;
use self::{
    headers::PAYLOAD_AT,
    identifications::Identifications,
    kernel::{Note, UdpKernel},
    own_sources::OwnSources,
    passing::{Destination, PREFIX_LEN, Passing, destination, is_nothing},
    peers::{MAX_PEERS, Peers},
    setup::Setup,
};
use crate::sys::socket::Socket;
use crate::{
    Filter, GsoMode, InterfaceInfo,
    device::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame},
    error::{OpenError, PortError},
    interface_errors::explain,
    interfaces::{find_interface, find_known},
    port_reservation::{PortReservation, PortReservationConfig, explain_taken},
    sys::{
        passing::AnyReadable,
        udp::{self, Incoming},
    },
    transmitter::Transmitter,
    vnet_hdr::MAX_FRAME_LEN,
};

/// An interface used through UDP sockets on port 4791, without any privilege.
///
/// A received datagram becomes a frame with synthesised headers, a frame to send becomes a datagram. Trains
/// are carried by UDP segmentation offload (`UDP_SEGMENT`, `UDP_GRO`). What differs from a packet socket:
///
/// - The kernel writes the outer headers. Frames leave with source MAC address, next hop and flow label of
///   its choice, with IPv4 identification 0 (in a train counting up from 0), and from one of the source
///   ports of [`UdpSenders`]; they have to be sealed for these.
/// - Identification, hop limit, flow label and MAC addresses of received packets are unknown. The
///   identification is found by the ICRC, where it is not 0: see [`OtherIdentifications`]. A peer whose
///   IPv4 packets do not forbid fragments is not understood.
/// - VLAN tags and pauses of the link do not pass.
/// - [`may_receive`](FrameDevice::may_receive) is always true: a look costs a system call.
///
/// Processes of one user share an interface, without a limit to their number; a process of another user
/// gets [`PortError::OtherUser`]. Of these processes the kernel gives each datagram to one, by a hash of its
/// addresses and ports, and that passes it on to the one whose [`Filter`] has its queue pair. A process that
/// is passed on much opens a socket that is connected to the source, which the kernel prefers. Packet sockets
/// work beside: they receive copies.
#[derive(Debug)]
pub struct UdpSockets {
    interface: InterfaceInfo,
    capabilities: DeviceCapabilities,
    socket: Socket,
    /// Keeps other users from the port.
    _reservation: PortReservation,
    passing: Passing,
    peers: Peers,
    any: AnyReadable,
    /// The number in the epoll set that is looked at first.
    first: u32,
    receive_buffer_len: usize,
    identifications: Identifications,
    own_sources: OwnSources,
    transmitter: Transmitter<Note>,
    kernel: UdpKernel,
    buffers: Vec<Vec<u8>>,
    datagrams: Vec<Incoming>,
    unusable: u64,
    empty_receives: u32,
}

/// Configuration of [`UdpSockets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSocketsConfig {
    /// The interface's name.
    pub interface: String,
    /// When to send trains. Default [`GsoMode::Auto`].
    pub gso: GsoMode,
    /// What to do with packets of unexpected IPv4 identifications. Default: accept them.
    pub other_identifications: OtherIdentifications,
    /// Bytes of socket receive buffer to request. The system's limit (`net.core.rmem_max`) silently
    /// reduces it. Default 16 MiB.
    pub receive_buffer_len: usize,
    /// Open the interface also while it is down: it carries packets as soon as it is up. Default false.
    pub may_be_down: bool,
}

impl UdpSocketsConfig {
    /// Returns the defaults for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            gso: GsoMode::Auto,
            other_identifications: OtherIdentifications::default(),
            receive_buffer_len: 16 << 20,
            may_be_down: false,
        }
    }
}

/// Datagrams received by one system call.
const BATCH: usize = 8;
/// Frames that may wait for the kernel.
const TRANSMIT_SLOTS: usize = 8;
/// Packets of a train, as older kernels limit them.
const MAX_TRAIN_PACKETS: usize = 64;
/// Empty receives from one look at what other processes pass on to the next. A sleeping thread is woken.
const EMPTY_RECEIVES_PER_LOOK: u32 = 16;

impl UdpSockets {
    /// Opens an interface of this thread's network namespace. Frames leave from the ports of `senders`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &UdpSocketsConfig, senders: &UdpSenders) -> Result<Self, OpenError> {
        let find = if config.may_be_down { find_known } else { find_interface };
        let interface = find(&config.interface)?;
        let failed = |step| {
            let name = interface.name.clone();
            move |source| OpenError::Os { name, step, source }
        };
        // On all addresses and interfaces: beside a socket on another interface the kernel would let its user bind
        // this one, too.
        let reservation = PortReservation::bind(&PortReservationConfig {
            whole_trains: interface.kind.segments_in_software(),
            ..PortReservationConfig::default()
        });
        let reservation = reservation.map_err(OpenError::Port)?;
        if let Some(uid) = reservation.holder() {
            return Err(OpenError::Port(PortError::OtherUser { port: ROCE_V2_PORT, uid }));
        }
        let passing = Passing::new(&interface.name, senders.first_port())?;
        let (socket, _) = match senders::bind(ROCE_V2_PORT, Some(&interface.name)) {
            Ok(bound) => bound,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(OpenError::Port(explain_taken(ROCE_V2_PORT)));
            }
            Err(error) => return Err(failed("binding a UDP socket to port 4791")(error)),
        };
        let own_sources = OwnSources::of_host(&interface.name)
            .map_err(failed("listing this host's addresses"))?;
        let setup = Setup {
            interface: &interface,
            buffer_len: config.receive_buffer_len,
            filter: &own_sources.filter(),
        };
        setup.prepare(&socket).map_err(failed("setting options of a socket"))?;
        let segments = config.gso.sends_trains(&interface, socket.as_fd());
        let any = AnyReadable::new().map_err(failed("making an epoll descriptor"))?;
        let watched = any.add(socket.as_fd(), SHARED).and_then(|()| passing.watch(&any, PASSED));
        watched.map_err(failed("watching sockets"))?;
        // To this host's own addresses the kernel chooses `lo`.
        let leaves_by = if interface.flags.loopback { 0 } else { interface.index };
        Ok(Self {
            capabilities: DeviceCapabilities {
                mtu: interface.mtu as usize,
                max_frame_len: MAX_FRAME_LEN,
                max_train_packets: if segments { MAX_TRAIN_PACKETS } else { 1 },
            },
            socket,
            _reservation: reservation,
            passing,
            peers: Peers::default(),
            any,
            first: 0,
            receive_buffer_len: config.receive_buffer_len,
            identifications: Identifications::new(config.other_identifications),
            own_sources,
            transmitter: Transmitter::new::<UdpKernel>(TRANSMIT_SLOTS),
            kernel: UdpKernel { senders: senders.clone(), interface: leaves_by },
            buffers: vec![vec![0; PAYLOAD_AT + usize::from(u16::MAX)]; BATCH],
            datagrams: vec![Incoming::default(); BATCH],
            unusable: 0,
            empty_receives: 0,
            interface,
        })
    }

    /// Returns the interface as it was when the device was opened.
    pub fn interface(&self) -> &InterfaceInfo {
        &self.interface
    }

    /// Receives from the shared socket, or from that of a peer.
    fn receive_datagrams(
        &mut self,
        peer: Option<usize>,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < budget {
            let socket = match peer {
                Some(number) => self.peers.socket(number),
                None => Some(self.socket.as_fd()),
            };
            let Some(socket) = socket else { break };
            let len = BATCH.min(budget - count);
            let received =
                udp::receive(socket, &mut self.buffers[..len], PAYLOAD_AT, &mut self.datagrams);
            let received = match received {
                Err(error) if is_nothing(&error) => 0,
                // What the kernel says about a connected socket, such as that its peer is gone.
                Err(_) if peer.is_some() => 0,
                other => other?,
            };
            for number in 0..received {
                self.datagram(number, on_frame);
            }
            count += received;
            if received < len {
                break;
            }
        }
        Ok(count)
    }

    /// Lends a received datagram as a frame, or passes it on.
    fn datagram(&mut self, number: usize, on_frame: &mut dyn FnMut(RxFrame<'_>)) {
        let (datagram, buffer) = (self.datagrams[number], &mut self.buffers[number]);
        let mac = self.interface.mac.unwrap_or_default();
        let at = if datagram.truncated { None } else { headers::put(buffer, &datagram, mac) };
        let Some(at) = at else {
            self.unusable += 1;
            return;
        };
        let end = PAYLOAD_AT + datagram.len;
        let destination = destination(self.passing.filter(), &buffer[PAYLOAD_AT..end]);
        if let Destination::Block(_) | Destination::Management { .. } = destination {
            let segment_len = datagram.segment_len.unwrap_or(0) as u16;
            let message = &mut buffer[at - PREFIX_LEN..end];
            message[..PREFIX_LEN].copy_from_slice(&segment_len.to_le_bytes());
            self.passing.pass(destination, message);
        }
        if destination.is_here() {
            lend(&mut self.identifications, &mut buffer[at..end], datagram.segment_len, on_frame);
        }
    }

    fn receive_passed(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < budget {
            let Some(passed) = self.passing.receive()? else { break };
            // What this host sends to itself comes by `lo`, not by this interface.
            let source = passed.source.filter(|source| !source.is_here(&self.interface));
            let wanted = source.filter(|source| self.peers.on_passed(source));
            lend(&mut self.identifications, passed.bytes, passed.segment_len, on_frame);
            count += 1;
            if let Some(source) = wanted {
                if let Some(replaced) = self.peers.replaced() {
                    count += self.receive_datagrams(Some(replaced), MAX_DRAINED, on_frame)?;
                }
                let setup = Setup {
                    interface: &self.interface,
                    buffer_len: self.receive_buffer_len,
                    filter: &self.own_sources.filter(),
                };
                // A failure, such as too many descriptors, leaves all as it was.
                let _opened = self.peers.open(source, setup, &self.any);
            }
        }
        Ok(count)
    }

    /// Receives from the sockets that have something.
    fn receive_ready(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut ready = match self.any.readable() {
            Err(error) if is_nothing(&error) => 0,
            other => other?,
        };
        // Another one first each time: none waits for the others.
        self.first = (self.first + 1) % u64::BITS;
        ready = ready.rotate_right(self.first);
        let mut count = 0;
        while ready != 0 && count < budget {
            let number = (ready.trailing_zeros() + self.first) % u64::BITS;
            ready &= ready - 1;
            let left = budget - count;
            count += match number {
                SHARED => self.receive_datagrams(None, left, on_frame)?,
                PASSED => self.receive_passed(left, on_frame)?,
                number => self.receive_datagrams(Some(number as usize), left, on_frame)?,
            };
        }
        Ok(count)
    }
}

/// Numbers in the epoll set, behind those of peers.
const SHARED: u32 = MAX_PEERS as u32;
const PASSED: u32 = SHARED + 1;
/// Datagrams that are taken from a socket before it is closed.
const MAX_DRAINED: usize = 256;

/// Lends a frame with its identification, as far as that is found.
fn lend(
    identifications: &mut Identifications,
    frame: &mut [u8],
    segment_len: Option<usize>,
    on_frame: &mut dyn FnMut(RxFrame<'_>),
) {
    if let Some(headers) = headers::read(frame) {
        identifications.complete(frame, &headers, segment_len, Instant::now);
    }
    on_frame(RxFrame { bytes: frame, segment_len, udp_checksum_partial: true, vlan_tag: None });
}

impl FrameDevice for UdpSockets {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if !self.peers.is_empty() {
            let received = self.receive_ready(budget, on_frame);
            return received.map_err(|error| explain(error, &self.interface));
        }
        let received = self.receive_datagrams(None, budget, on_frame);
        let mut received = received.map_err(|error| explain(error, &self.interface))?;
        if received == 0 {
            self.empty_receives = self.empty_receives.wrapping_add(1);
        }
        if received > 0 || self.empty_receives.is_multiple_of(EMPTY_RECEIVES_PER_LOOK) {
            received += self.receive_passed(budget - received.min(budget), on_frame)?;
        }
        Ok(received)
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let device = (&self.interface, self.socket.as_fd());
        self.transmitter.transmit(&mut self.kernel, device, &mut self.capabilities, fill)
    }

    fn has_unsent(&self) -> bool {
        self.transmitter.has_unsent()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.any.as_fd()]
    }

    fn wake_at(&self) -> Option<Instant> {
        self.transmitter.next_attempt()
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        self.passing.set_filter(filter)
    }

    fn set_mtu(&mut self, mtu: usize) {
        self.capabilities.mtu = mtu;
    }

    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.own_sources.set(addresses);
        let filter = self.own_sources.filter();
        let attached =
            self.socket.attach_filter(&filter).and_then(|()| self.peers.attach_filter(&filter));
        if let Err(error) = attached {
            // That of before stays.
            tracing::warn!(%error, "processes of this host are not heard from new addresses");
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (peers, by_peers) = self.peers.counters();
        let dropped = udp::dropped(self.socket.as_fd()).unwrap_or(0) + by_peers;
        let mut all = vec![
            ("socket_rcvd_dropped", dropped),
            ("socket_rcvd_unusable", self.unusable),
            ("udp_peer_sockets", peers),
        ];
        all.extend(self.transmitter.counters());
        all.extend(self.identifications.counters());
        all.extend(self.passing.counters());
        all
    }
}
