//! Null regions: pieces of a request that stand for no memory.

use std::sync::Arc;

use roce_transport::{PdHandle, Sge};

use crate::driver::Driver;
use crate::error::Error;
use crate::protection_domain::ProtectionDomain;

/// A region without memory; as the `ibv_mr` of `ibv_alloc_null_mr`.
///
/// Bytes that are written to it are discarded, and those that are read from it are zero. Any address
/// and length lies in it. Peers cannot access it. Dropping it removes its key.
///
/// ```no_run
/// # use roce_verbs::{Device, DeviceConfig, Error, RecvWr};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Device::open("eth0", DeviceConfig::default())?;
/// # let pd = device.alloc_pd()?;
/// # let cq = device.create_cq(16, None)?;
/// # let qp = pd.queue_pair(&cq, &cq).build()?;
/// // The receive takes messages of up to 4096 bytes, and keeps none of them.
/// let nothing = pd.alloc_null_region()?;
/// qp.post_recv([RecvWr::new(1, [nothing.sge(4096)])])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NullRegion {
    driver: Arc<Driver>,
    key: u32,
}

impl ProtectionDomain {
    /// Makes a region without memory; as `ibv_alloc_null_mr`.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn alloc_null_region(&self) -> Result<NullRegion, Error> {
        NullRegion::new(&self.driver, self.handle)
    }
}

impl NullRegion {
    pub(crate) fn new(driver: &Arc<Driver>, pd: PdHandle) -> Result<Self, Error> {
        let key = driver.register_null(pd)?;
        Ok(Self { driver: Arc::clone(driver), key })
    }

    /// Returns the local key, for work requests.
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// Returns an SGE of `len` bytes.
    pub fn sge(&self, len: u32) -> Sge {
        Sge { lkey: self.key, addr: 0, len }
    }
}

impl Drop for NullRegion {
    fn drop(&mut self) {
        self.driver.deregister_null(self.key);
    }
}
