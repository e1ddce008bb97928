//! How the devices of identifiers are opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Device, EngineKey, WeakDevice};
use crate::device_config::DeviceConfig;
use crate::error::Error;
use crate::process::purpose::Purpose;

/// Opens a device by the name of its interface.
type Open = dyn Fn(&str, Purpose) -> Result<Device, Error> + Send + Sync;

/// Opens the devices that identifiers of a channel need, unless the process has opened them.
#[derive(Clone)]
pub(super) struct Opener {
    open: Arc<Open>,
    /// The contexts of the identifiers, one for each device: a context costs a descriptor.
    contexts: Arc<Mutex<HashMap<EngineKey, WeakDevice>>>,
}

impl Opener {
    pub(super) fn new(
        open: impl Fn(&str, Purpose) -> Result<Device, Error> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), contexts: Arc::default() }
    }

    pub(super) fn with_config(config: DeviceConfig) -> Self {
        Self::new(move |interface, purpose| Device::open_for(interface, config.clone(), purpose))
    }

    /// Returns the device of an interface: the open one, whatever its configuration is.
    pub(super) fn open(&self, interface: &str, purpose: Purpose) -> Result<Device, Error> {
        let Some(key) = Device::key_of(interface)? else { return (self.open)(interface, purpose) };
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = contexts.get(&key).and_then(WeakDevice::upgrade) {
            return Ok(device);
        }
        let device = match Device::opened(key)? {
            Some(device) => device,
            None => (self.open)(interface, purpose)?,
        };
        contexts.retain(|_, device| device.upgrade().is_some());
        contexts.insert(key, device.downgrade());
        Ok(device)
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}
