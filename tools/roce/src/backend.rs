//! The option that chooses how packets are sent and received.

use clap::Args;
use roce_verbs::{Backend, Device, environment};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::error::{CliError, Result};

/// The option that chooses how packets are sent and received.
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BackendOption {
    /// How packets travel: auto, af-packet (needs CAP_NET_RAW), af-xdp (needs CAP_BPF,
    /// CAP_NET_ADMIN and CAP_NET_RAW) or udp (needs no privileges) [default: ROCE_BACKEND, else
    /// auto]
    #[arg(long, value_name = "WHAT")]
    #[serde(with = "as_text::optional")]
    backend: Option<Backend>,
}

/// What a user is told once where packets travel by UDP sockets unasked.
pub(crate) const FALLBACK: &str = "CAP_NET_RAW is missing, so packets travel by UDP sockets, which is \
                                   slower (docs/backends.md); --backend udp says so without this line";

impl BackendOption {
    /// Returns the chosen back end.
    ///
    /// # Errors
    /// What is wrong with the environment.
    pub(crate) fn choice(self) -> Result<Backend> {
        match self.backend {
            Some(backend) => Ok(backend),
            None => environment::backend().map_err(CliError::new),
        }
    }
}

/// Tells of the back end of a device that was opened with this choice, if it is not what is usual.
pub(crate) fn tell(choice: Backend, device: &Device) {
    if choice == Backend::Auto && device.backend() == Backend::Udp {
        eprintln!("roce: {FALLBACK}");
    }
}

/// Returns which back end a device would have, and why.
///
/// # Errors
/// What is wrong with the environment.
pub(crate) fn of_devices() -> Result<(Backend, &'static str)> {
    Ok(match environment::backend().map_err(CliError::new)? {
        Backend::Auto if has_packet_sockets() => (
            Backend::AfPacket,
            "CAP_NET_RAW permits it; af-xdp, which carries no packet trains, is used only where it is named",
        ),
        Backend::Auto => (Backend::Udp, "CAP_NET_RAW is missing"),
        named => (named, "ROCE_BACKEND names it"),
    })
}

/// Returns true if this process may have packet sockets, and give them to its program.
pub(crate) fn has_packet_sockets() -> bool {
    capabilities(None).is_ok_and(|own| own.permitted.contains(CapabilitySet::NET_RAW))
}

/// The capabilities that AF_XDP needs.
pub(crate) const OF_XDP: CapabilitySet =
    CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::NET_RAW);

/// Returns true if this process may use AF_XDP, and let its program do so, as far as capabilities tell.
pub(crate) fn has_xdp() -> bool {
    capabilities(None).is_ok_and(|own| own.permitted.contains(OF_XDP))
}
