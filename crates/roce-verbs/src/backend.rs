//! The ways in which a device sends and receives packets.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use roce_io::{
    AfPacketConfig, CountingDevice, FrameDevice, GsoMode, InterfaceInfo, OpenError,
    OtherIdentifications, UdpSenders, UdpSockets, UdpSocketsConfig, XdpConfig, XdpError, XdpSocket,
};

use crate::process::purpose::Purpose;
use crate::sockets::growing_socket::{GrowingSocket, Successor};
use crate::sockets::idle_sockets::ReusedSocket;

/// The way in which a device sends and receives packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// [`AfPacket`](Self::AfPacket) where CAP_NET_RAW permits it, else [`Udp`](Self::Udp). Never
    /// [`AfXdp`](Self::AfXdp), which is slower where packet trains pass, and which changes how an interface
    /// works for all its users.
    #[default]
    Auto,
    /// Packet sockets, with rings: whole frames, and the fastest. They need CAP_NET_RAW.
    AfPacket,
    /// AF_XDP sockets, which a program at the interface gives the packets of this process: see
    /// [`roce_io::XdpSocket`]. They need CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and an interface that no
    /// other process uses so; otherwise it becomes [`AfPacket`](Self::AfPacket), as
    /// [`Device::backend_refusal`](crate::Device::backend_refusal) tells.
    AfXdp,
    /// UDP sockets, which need no privilege. All processes of a host that use them have one user, pauses of
    /// the link are not seen, and latency is higher: see [`roce_io::UdpSockets`].
    Udp,
}

/// A word names no back end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no back end; use auto, af-packet, af-xdp or udp")]
pub struct UnknownBackend {
    word: String,
}

impl Backend {
    /// Returns its name: `auto`, `af-packet`, `af-xdp` or `udp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AfPacket => "af-packet",
            Self::AfXdp => "af-xdp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(word: &str) -> Result<Self, UnknownBackend> {
        let all = [Self::Auto, Self::AfPacket, Self::AfXdp, Self::Udp];
        let found = all.into_iter().find(|backend| backend.name() == word);
        found.ok_or_else(|| UnknownBackend { word: word.to_owned() })
    }
}

/// A device, and its interface as it was when it was opened.
pub(crate) struct Opened {
    pub(crate) device: Box<dyn FrameDevice>,
    pub(crate) interface: InterfaceInfo,
    /// What takes the place of its socket, if that is small until the first queue pair.
    pub(crate) successor: Option<Arc<Successor>>,
}

/// What is said of UDP sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpChoices {
    pub(crate) other_identifications: OtherIdentifications,
    /// A device around that of the sockets makes single frames of trains. Their IPv4 identifications count up,
    /// and the kernel gives a datagram 0 that is not in a train.
    pub(crate) splits_trains: bool,
}

/// Opens the devices of one engine.
#[derive(Debug)]
pub(crate) struct Opener {
    kind: Kind,
    udp: UdpChoices,
    purpose: Purpose,
    /// Why the device has another back end than was asked for.
    refusal: Option<String>,
}

/// What the devices of an engine are, as far as they share anything.
#[derive(Debug)]
enum Kind {
    Packet,
    /// That of the interface; `lo` has a packet socket.
    Xdp,
    Udp(UdpSenders),
}

/// Bytes of send buffer of each UDP socket to request.
const SEND_BUFFER_LEN: usize = 4 << 20;

impl Opener {
    /// Opens an interface by a back end, and returns what opens further ones by the same.
    pub(crate) fn open(
        backend: Backend,
        udp: UdpChoices,
        purpose: Purpose,
        config: &AfPacketConfig,
    ) -> Result<(Self, Opened), OpenError> {
        let mut this = Self { kind: Kind::Packet, udp, purpose, refusal: None };
        if backend == Backend::AfXdp {
            let opened = this.open_xdp(config)?;
            return Ok((this, opened));
        }
        if backend != Backend::Udp {
            match this.open_next(config) {
                Err(OpenError::NotPermitted { .. })
                    if backend == Backend::Auto || config.giver.is_some() => {}
                opened => return Ok((this, opened?)),
            }
        }
        let senders = UdpSenders::open(SEND_BUFFER_LEN).map_err(|source| OpenError::Os {
            name: config.interface.clone(),
            step: "opening UDP sockets",
            source,
        })?;
        this.kind = Kind::Udp(senders);
        let opened = this.open_next(config)?;
        Ok((this, opened))
    }

    /// Opens an interface by AF_XDP sockets, or by a packet socket where they are not to be had.
    fn open_xdp(&mut self, config: &AfPacketConfig) -> Result<Opened, OpenError> {
        let packet = ReusedSocket::open(config).map_err(|error| match error {
            // With that right the next step is refused, and the sentence names all three.
            OpenError::NotPermitted { name } => OpenError::Xdp(XdpError::NotPermitted { name }),
            other => other,
        })?;
        let interface = packet.interface().clone();
        let xdp = XdpConfig { filter: config.filter.clone(), ..XdpConfig::default() };
        let device: Box<dyn FrameDevice> = match XdpSocket::around(packet, &interface, &xdp) {
            Ok(device) => {
                self.kind = Kind::Xdp;
                Box::new(CountingDevice::new(device))
            }
            Err(refused) => match refused.error {
                error @ XdpError::NotPermitted { .. } => return Err(OpenError::Xdp(error)),
                error => {
                    tracing::warn!("packets travel by packet sockets, not by AF_XDP: {error}");
                    self.refusal = Some(error.to_string());
                    Box::new(CountingDevice::new(refused.device))
                }
            },
        };
        Ok(Opened { device, interface, successor: None })
    }

    /// Opens another interface.
    pub(crate) fn open_next(&self, config: &AfPacketConfig) -> Result<Opened, OpenError> {
        let Kind::Udp(senders) = &self.kind else {
            if self.purpose == Purpose::Listening {
                let (device, successor) = GrowingSocket::open(config)?;
                let interface = device.interface().clone();
                let device = Box::new(CountingDevice::new(device));
                return Ok(Opened { device, interface, successor: Some(successor) });
            }
            let device = ReusedSocket::open(config)?;
            let interface = device.interface().clone();
            let device = Box::new(CountingDevice::new(device));
            return Ok(Opened { device, interface, successor: None });
        };
        let config = UdpSocketsConfig {
            gso: if self.udp.splits_trains { GsoMode::Off } else { config.gso },
            other_identifications: self.udp.other_identifications,
            may_be_down: config.may_be_down,
            ..UdpSocketsConfig::new(config.interface.clone())
        };
        let device = UdpSockets::open(&config, senders)?;
        let interface = device.interface().clone();
        let device = Box::new(CountingDevice::new(device));
        Ok(Opened { device, interface, successor: None })
    }

    /// Returns the back end of the interface, which is not [`Backend::Auto`].
    pub(crate) fn backend(&self) -> Backend {
        match self.kind {
            Kind::Packet => Backend::AfPacket,
            Kind::Xdp => Backend::AfXdp,
            Kind::Udp(_) => Backend::Udp,
        }
    }

    /// Returns why the interface does not have the back end that was named.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns the source ports that frames may have; none: any.
    pub(crate) fn source_ports(&self) -> Vec<u16> {
        match &self.kind {
            Kind::Udp(senders) => senders.ports(),
            Kind::Packet | Kind::Xdp => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_is_parsed_by_its_name() {
        for backend in [Backend::Auto, Backend::AfPacket, Backend::AfXdp, Backend::Udp] {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "sockets".parse::<Backend>().unwrap_err().to_string();
        assert_eq!(error, r#""sockets" is no back end; use auto, af-packet, af-xdp or udp"#);
    }
}
