//! Calls that an agent refuses.

use roce_wire::management::CommunicationId;

/// Reason why an agent refused a call. The call had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No connection, resolution or listener of this number.
    #[error("{0} is no connection or resolution of this agent; it may have been destroyed")]
    UnknownId(CommunicationId),
    /// The state of the connection or resolution does not allow the call.
    #[error("{id} is {state}, which does not allow this call")]
    WrongState {
        /// The connection or resolution.
        id: CommunicationId,
        /// Its state.
        state: &'static str,
    },
    /// The connection is established already.
    #[error("{0} is established already")]
    Established(CommunicationId),
    /// A listener has the port.
    #[error("port {0} has a listener; choose another port, or end that listener first")]
    PortInUse(u16),
    /// Port 0 names no listener.
    #[error("port 0 names no listener; choose a port")]
    NoPort,
    /// More private data than the message has space for.
    #[error("{len} bytes of private data, of which at most {max} fit")]
    PrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// One address is IPv4 and the other IPv6.
    #[error("addresses of two IP versions; use two of one version")]
    MixedAddresses,
    /// Every communication id is in use.
    #[error("every communication id is in use; destroy connections")]
    NoIds,
}
