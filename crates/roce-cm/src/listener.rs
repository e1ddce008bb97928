//! Listeners of an agent, by port.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce_wire::management::{CommunicationId, PortSpace, ServiceId};

use crate::error::AgentError;
use crate::limits::MAX_BACKLOG;
use crate::parameters::ListenParameters;

/// Number of a listener in its agent. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerHandle(pub u64);

#[derive(Debug)]
struct Listener {
    space: PortSpace,
    port: u16,
    address: IpAddr,
    backlog: u32,
    waiting: u32,
    /// Requests in the backlog whose answers have no path yet, the oldest first.
    without_path: VecDeque<CommunicationId>,
}

/// The listeners of an agent.
#[derive(Debug)]
pub(crate) struct Listeners {
    next: u64,
    by_handle: BTreeMap<ListenerHandle, Listener>,
    by_port: BTreeMap<(PortSpace, u16, IpAddr), ListenerHandle>,
}

impl Listeners {
    pub(crate) const fn new() -> Self {
        Self { next: 0, by_handle: BTreeMap::new(), by_port: BTreeMap::new() }
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// The port is 0, or has a listener for an address in common.
    pub(crate) fn add(
        &mut self,
        parameters: &ListenParameters,
    ) -> Result<ListenerHandle, AgentError> {
        let &ListenParameters { space, port, address, backlog } = parameters;
        if port == 0 {
            return Err(AgentError::NoPort);
        }
        let any_v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let mut of_port = self
            .by_port
            .range((space, port, any_v4)..)
            .take_while(|((it_space, it_port, _), _)| (*it_space, *it_port) == (space, port))
            .map(|((_, _, address), _)| *address);
        let overlaps = |a: IpAddr, b: IpAddr| a == any || (a == any_v4 && b.is_ipv4());
        if of_port.any(|it| it == address || overlaps(it, address) || overlaps(address, it)) {
            return Err(AgentError::PortInUse(port));
        }
        let handle = ListenerHandle(self.next);
        self.next += 1;
        let backlog = if (1..=MAX_BACKLOG).contains(&backlog) { backlog } else { MAX_BACKLOG };
        let without_path = VecDeque::new();
        let listener = Listener { space, port, address, backlog, waiting: 0, without_path };
        self.by_handle.insert(handle, listener);
        self.by_port.insert((space, port, address), handle);
        Ok(handle)
    }

    /// Removes a listener. Returns false if there is none.
    pub(crate) fn remove(&mut self, handle: ListenerHandle) -> bool {
        let Some(listener) = self.by_handle.remove(&handle) else {
            return false;
        };
        self.by_port.remove(&(listener.space, listener.port, listener.address));
        true
    }

    /// Returns the listener for requests to `service` at `address`, and the port.
    pub(crate) fn find(
        &self,
        service: ServiceId,
        address: IpAddr,
    ) -> Option<(ListenerHandle, u16)> {
        let (space, port) = service.port()?;
        let any_v4 = address.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        [Some(address), any_v4, Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
            .into_iter()
            .flatten()
            .find_map(|address| self.by_port.get(&(space, port, address)))
            .map(|handle| (*handle, port))
    }

    /// Returns true if the backlog has space for a request.
    pub(crate) fn has_space(&self, handle: ListenerHandle) -> bool {
        self.by_handle.get(&handle).is_some_and(|it| it.waiting < it.backlog)
    }

    /// Takes a place in the backlog.
    pub(crate) fn add_waiting(&mut self, handle: ListenerHandle) {
        if let Some(listener) = self.by_handle.get_mut(&handle) {
            listener.waiting += 1;
        }
    }

    /// Frees a place in the backlog.
    pub(crate) fn remove_waiting(&mut self, handle: ListenerHandle) {
        if let Some(listener) = self.by_handle.get_mut(&handle) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Notes that the answer to a request in the backlog has no path yet.
    pub(crate) fn add_without_path(&mut self, handle: ListenerHandle, id: CommunicationId) {
        if let Some(listener) = self.by_handle.get_mut(&handle) {
            listener.without_path.push_back(id);
        }
    }

    /// Notes that a request is in the backlog no longer, or that the path of its answer is known.
    pub(crate) fn remove_without_path(&mut self, handle: ListenerHandle, id: CommunicationId) {
        if let Some(listener) = self.by_handle.get_mut(&handle) {
            listener.without_path.retain(|it| *it != id);
        }
    }

    /// Returns true if a request in the backlog waits for the path of its answer.
    pub(crate) fn has_without_path(&self, handle: ListenerHandle) -> bool {
        self.by_handle.get(&handle).is_some_and(|it| !it.without_path.is_empty())
    }

    /// Removes and returns the request that has waited for a path for the longest time.
    pub(crate) fn pop_without_path(&mut self, handle: ListenerHandle) -> Option<CommunicationId> {
        self.by_handle.get_mut(&handle)?.without_path.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_handle.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(port: u16, address: &str) -> ListenParameters {
        let address = address.parse().unwrap();
        ListenParameters { space: PortSpace::TCP, port, address, backlog: 1 }
    }

    #[test]
    fn a_port_has_one_listener_for_each_address() {
        let mut listeners = Listeners::new();
        assert_eq!(listeners.add(&parameters(0, "::")), Err(AgentError::NoPort));
        let first = listeners.add(&parameters(7, "10.0.0.1")).unwrap();
        for address in ["10.0.0.1", "0.0.0.0", "::"] {
            let refused = listeners.add(&parameters(7, address));
            assert_eq!(refused, Err(AgentError::PortInUse(7)), "{address}");
        }
        listeners.add(&parameters(7, "10.0.0.2")).unwrap();
        listeners.add(&parameters(7, "fe80::1")).unwrap();
        listeners.add(&parameters(8, "0.0.0.0")).unwrap();
        listeners.add(&parameters(8, "fe80::1")).unwrap();
        assert_eq!(listeners.add(&parameters(8, "10.0.0.1")), Err(AgentError::PortInUse(8)));
        assert!(listeners.remove(first) && !listeners.remove(first));
        listeners.add(&parameters(7, "10.0.0.1")).unwrap();
    }

    #[test]
    fn a_request_goes_to_the_listener_of_its_address() {
        let mut listeners = Listeners::new();
        let v4 = listeners.add(&parameters(7, "0.0.0.0")).unwrap();
        let one = listeners.add(&parameters(7, "fe80::1")).unwrap();
        let any = listeners.add(&parameters(8, "::")).unwrap();
        let find = |port, address: &str| {
            let service = ServiceId::from_port(PortSpace::TCP, port);
            listeners.find(service, address.parse().unwrap()).map(|it| it.0)
        };
        assert_eq!(find(7, "10.0.0.1"), Some(v4));
        assert_eq!(find(7, "fe80::1"), Some(one));
        assert_eq!(find(7, "fe80::2"), None);
        assert_eq!([find(8, "10.0.0.1"), find(8, "fe80::1")], [Some(any); 2]);
        assert_eq!(find(9, "10.0.0.1"), None);
        assert_eq!(listeners.find(ServiceId(u64::MAX), "fe80::1".parse().unwrap()), None);
    }
}
