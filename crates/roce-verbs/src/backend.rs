//! The ways in which a device sends and receives packets.

use std::fmt;
use std::str::FromStr;

use roce_io::{
    AfPacketConfig, CountingDevice, FrameDevice, InterfaceInfo, OpenError, OtherIdentifications,
    UdpSenders, UdpSockets, UdpSocketsConfig,
};

use crate::idle_sockets::ReusedSocket;

/// The way in which a device sends and receives packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// [`AfPacket`](Self::AfPacket) where CAP_NET_RAW permits it, else [`Udp`](Self::Udp).
    #[default]
    Auto,
    /// Packet sockets, with rings: whole frames, and the fastest. They need CAP_NET_RAW.
    AfPacket,
    /// UDP sockets, which need no privilege. All processes of a host that use them have one user, pauses of
    /// the link are not seen, and latency is higher: see [`roce_io::UdpSockets`].
    Udp,
}

/// A word names no back end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no back end; use auto, af-packet or udp")]
pub struct UnknownBackend {
    word: String,
}

impl Backend {
    /// Returns its name: `auto`, `af-packet` or `udp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AfPacket => "af-packet",
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
        let all = [Self::Auto, Self::AfPacket, Self::Udp];
        let found = all.into_iter().find(|backend| backend.name() == word);
        found.ok_or_else(|| UnknownBackend { word: word.to_owned() })
    }
}

/// A device, and its interface as it was when it was opened.
pub(crate) struct Opened {
    pub(crate) device: Box<dyn FrameDevice>,
    pub(crate) interface: InterfaceInfo,
}

/// Opens the devices of one engine.
#[derive(Debug)]
pub(crate) struct Opener {
    /// `None`: packet sockets.
    senders: Option<UdpSenders>,
    other_identifications: OtherIdentifications,
}

/// Bytes of send buffer of each UDP socket to request.
const SEND_BUFFER_LEN: usize = 4 << 20;

impl Opener {
    /// Opens an interface by a back end, and returns what opens further ones by the same.
    pub(crate) fn open(
        backend: Backend,
        other_identifications: OtherIdentifications,
        config: &AfPacketConfig,
    ) -> Result<(Self, Opened), OpenError> {
        let packet = Self { senders: None, other_identifications };
        if backend != Backend::Udp {
            match packet.open_next(config) {
                Err(OpenError::NotPermitted { .. }) if backend == Backend::Auto => {}
                opened => return Ok((packet, opened?)),
            }
        }
        let senders = UdpSenders::open(SEND_BUFFER_LEN).map_err(|source| OpenError::Os {
            name: config.interface.clone(),
            step: "opening UDP sockets",
            source,
        })?;
        let udp = Self { senders: Some(senders), ..packet };
        let opened = udp.open_next(config)?;
        Ok((udp, opened))
    }

    /// Opens another interface.
    pub(crate) fn open_next(&self, config: &AfPacketConfig) -> Result<Opened, OpenError> {
        let Some(senders) = &self.senders else {
            let device = ReusedSocket::open(config)?;
            let interface = device.interface().clone();
            return Ok(Opened { device: Box::new(CountingDevice::new(device)), interface });
        };
        let config = UdpSocketsConfig {
            gso: config.gso,
            other_identifications: self.other_identifications,
            ..UdpSocketsConfig::new(config.interface.clone())
        };
        let device = UdpSockets::open(&config, senders)?;
        let interface = device.interface().clone();
        Ok(Opened { device: Box::new(CountingDevice::new(device)), interface })
    }

    /// Returns the back end, which is not [`Backend::Auto`].
    pub(crate) fn backend(&self) -> Backend {
        if self.senders.is_some() { Backend::Udp } else { Backend::AfPacket }
    }

    /// Returns the source ports that frames may have; none: any.
    pub(crate) fn source_ports(&self) -> Vec<u16> {
        self.senders.as_ref().map(UdpSenders::ports).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_is_parsed_by_its_name() {
        for backend in [Backend::Auto, Backend::AfPacket, Backend::Udp] {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "sockets".parse::<Backend>().unwrap_err().to_string();
        assert_eq!(error, r#""sockets" is no back end; use auto, af-packet or udp"#);
    }
}
