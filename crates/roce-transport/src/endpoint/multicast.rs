//! Calls on multicast groups.

use core::net::IpAddr;

use roce_wire::{Qpn, Service};

use super::Endpoint;
use crate::{AttachError, Observer};

/// Multicast groups.
///
/// ```
/// use roce_transport::{Endpoint, EndpointConfig, CqHandle, PdHandle, QpInit, Service};
///
/// let mut endpoint = Endpoint::new(EndpointConfig::default());
/// let qpn = roce_wire::Qpn::new(0x11).unwrap();
/// endpoint.create_qp(qpn, QpInit::new(Service::Ud, PdHandle(1), CqHandle(1))).unwrap();
///
/// let group = "239.1.2.3".parse().unwrap();
/// assert!(endpoint.attach(qpn, group).unwrap());
/// assert!(endpoint.has_members(group));
/// endpoint.destroy_qp(qpn);
/// assert!(!endpoint.has_members(group));
/// ```
impl<O: Observer> Endpoint<O> {
    /// Makes a queue pair of datagrams a member of a multicast group: from now on it receives the
    /// packets to the group's address and [`Qpn::MULTICAST`] as if they were its own. Returns false if it
    /// was a member before.
    ///
    /// The driver passes on packets of all groups that [have members](Self::has_members). The membership
    /// ends with [`detach`](Self::detach), or with the queue pair.
    ///
    /// # Errors
    /// [`AttachError`]; then nothing has changed.
    pub fn attach(&mut self, qpn: Qpn, group: IpAddr) -> Result<bool, AttachError> {
        let index = self.index_of(qpn).ok_or(AttachError::UnknownQp(qpn))?;
        let slot = self.qps[index].as_ref().ok_or(AttachError::UnknownQp(qpn))?;
        if slot.queue_pair.init().service != Service::Ud {
            return Err(AttachError::NotDatagrams(qpn));
        }
        self.groups.attach(group, qpn)
    }

    /// Ends a membership. Returns false if there was none.
    pub fn detach(&mut self, qpn: Qpn, group: IpAddr) -> bool {
        self.groups.detach(group, qpn)
    }

    /// Returns true if a queue pair is a member of the group of this address.
    pub fn has_members(&self, group: IpAddr) -> bool {
        !self.groups.members(group).is_empty()
    }

    /// Returns true if a queue pair is a member of any group.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }
}
