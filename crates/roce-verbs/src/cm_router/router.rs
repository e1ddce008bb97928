//! Which identifier gets an event of a device's agent.

use std::collections::HashMap;
use std::sync::Arc;

use roce_cm::{Event, ListenerHandle};
use roce_wire::management::CommunicationId;

use super::event_target::{DeviceNumber, EventTarget, What};

/// The identifiers of a device. It is used with the lock of the device's engine held.
#[derive(Debug)]
pub(crate) struct Router {
    device: DeviceNumber,
    ids: HashMap<CommunicationId, Entry>,
    listeners: HashMap<ListenerHandle, Arc<EventTarget>>,
}

#[derive(Debug)]
struct Entry {
    target: Arc<EventTarget>,
    /// Listener of a request that the program may not have yet.
    listener: Option<ListenerHandle>,
}

impl Router {
    pub(crate) fn new(device: DeviceNumber) -> Self {
        Self { device, ids: HashMap::new(), listeners: HashMap::new() }
    }

    /// Passes an event to its identifier, or makes one of a request.
    pub(crate) fn push(&mut self, event: Event) {
        let id = event.id();
        match &event {
            Event::ConnectRequest { listener, .. } | Event::ServiceRequest { listener, .. } => {
                let listener = *listener;
                // One that has ended has refused the request.
                if let Some(of_listener) = self.listeners.get(&listener) {
                    let target = of_listener.push_request(self.device, event);
                    self.ids.insert(id, Entry { target, listener: Some(listener) });
                }
            }
            _ => {
                if let Some(entry) = self.ids.get(&id) {
                    entry.target.push(What::Agent(event));
                }
            }
        }
    }

    /// Adds a connection or resolution.
    pub(crate) fn add(&mut self, id: CommunicationId, target: &Arc<EventTarget>) {
        self.ids.insert(id, Entry { target: Arc::clone(target), listener: None });
    }

    /// Notes that the program has a request.
    pub(crate) fn note_reported(&mut self, id: CommunicationId) {
        if let Some(entry) = self.ids.get_mut(&id) {
            entry.listener = None;
        }
    }

    pub(crate) fn remove(&mut self, id: CommunicationId) {
        self.ids.remove(&id);
    }

    pub(crate) fn add_listener(&mut self, listener: ListenerHandle, target: &Arc<EventTarget>) {
        self.listeners.insert(listener, Arc::clone(target));
    }

    /// Removes a listener, and the requests to it that the program does not have.
    pub(crate) fn remove_listener(&mut self, listener: ListenerHandle) {
        self.listeners.remove(&listener);
        self.ids.retain(|_, entry| entry.listener != Some(listener));
    }
}
