//! How the devices of identifiers are opened.

use std::sync::Arc;

use crate::device::Device;
use crate::device_config::DeviceConfig;
use crate::error::Error;

/// Opens a device by the name of its interface.
type Open = dyn Fn(&str) -> Result<Device, Error> + Send + Sync;

/// Opens the devices that identifiers of a channel need, unless the process has opened them.
#[derive(Clone)]
pub(super) struct Opener(Arc<Open>);

impl Opener {
    pub(super) fn new(
        open: impl Fn(&str) -> Result<Device, Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub(super) fn with_config(config: DeviceConfig) -> Self {
        Self::new(move |interface| Device::open(interface, config.clone()))
    }

    /// Returns the device of an interface: the open one, whatever its configuration is.
    pub(super) fn open(&self, interface: &str) -> Result<Device, Error> {
        match Device::opened(interface)? {
            Some(device) => Ok(device),
            None => (self.0)(interface),
        }
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}
