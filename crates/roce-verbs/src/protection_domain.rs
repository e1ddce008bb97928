//! Protection domains: which queue pairs may use which memory.

use std::sync::Arc;

use roce_transport::PdHandle;

use crate::driver::Driver;
use crate::events::EventQueue;

/// A domain whose queue pairs may access its memory regions, and no others; as `ibv_pd`.
///
/// A queue pair reaches the regions of its own domain and no others. Cheap to clone.
///
/// ```no_run
/// # use roce_verbs::{AccessFlags, Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let pd = device.alloc_pd()?;
/// let region = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
/// println!("peers write to {:#x} with key {:#x}", region.address(), region.rkey());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) driver: Arc<Driver>,
    /// The asynchronous events of its context.
    pub(crate) events: Arc<EventQueue>,
    pub(crate) handle: PdHandle,
}

impl ProtectionDomain {
    pub(crate) fn new(driver: Arc<Driver>, events: Arc<EventQueue>, handle: PdHandle) -> Self {
        Self { driver, events, handle }
    }

    /// Returns the handle of the domain if it belongs to this device.
    pub(crate) fn handle_for(&self, driver: &Arc<Driver>) -> Option<PdHandle> {
        Arc::ptr_eq(&self.driver, driver).then_some(self.handle)
    }
}
