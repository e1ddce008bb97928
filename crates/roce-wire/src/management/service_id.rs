//! Service ids: what a REQ or a SIDR_REQ asks for.

use core::fmt;

/// Number of a service, which a listener has and a request asks for.
///
/// rdma_cm makes it of a port space and a port.
///
/// ```
/// use roce_wire::management::{PortSpace, ServiceId};
/// let id = ServiceId::from_port(PortSpace::TCP, 7174);
/// assert_eq!(id, ServiceId(0x0106_1c06));
/// assert_eq!(id.port(), Some((PortSpace::TCP, 7174)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u64);

/// Port space of rdma_cm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortSpace(pub u16);

impl PortSpace {
    /// Ports of IPoIB's queue pair.
    pub const IPOIB: Self = Self(0x0002);
    /// Ports of reliable connections.
    pub const TCP: Self = Self(0x0106);
    /// Ports of datagrams.
    pub const UDP: Self = Self(0x0111);
    /// Ports of InfiniBand's own addresses.
    pub const IB: Self = Self(0x013f);
}

impl ServiceId {
    /// Returns the service id of a port.
    //= rule cm-service-id: cma.c: rdma_get_service_id
    //# The service id of a port is the port below its port space, which stands above 16 bits.
    pub const fn from_port(space: PortSpace, port: u16) -> Self {
        Self((space.0 as u64) << 16 | port as u64)
    }

    /// Returns port space and port; `None` if it has bits beyond them.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        if self.0 >> 32 != 0 {
            return None;
        }
        Some((PortSpace((self.0 >> 16) as u16), self.0 as u16))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}
