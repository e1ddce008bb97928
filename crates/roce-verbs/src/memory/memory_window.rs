//! Memory windows: keys that open a part of a region while they are bound.
//!
//! A window gives peers the right to some bytes of a region without a registration, and takes it
//! back without a deregistration. It is bound by a request of the send queue,
//! [`SendOperation::BindWindow`](crate::SendOperation::BindWindow), which is executed once the
//! requests before it are complete.
//!
//! | type | its key opens the bytes to | ends by |
//! |---|---|---|
//! | [`WindowType::Type1`] | the queue pairs of its protection domain | another binding, of 0 bytes too |
//! | [`WindowType::Type2B`] | the queue pair that bound it | a local invalidation, or a SEND with invalidate of that queue pair's peer |
//!
//! Each binding has a key of its own: the 24 bits of the window, and 8 that the program chooses.
//! The window, and a window of type 2B its queue pair, take the binding with them when they are
//! dropped, and so does the region.
//!
//! The binding is part of the device of the queue pair that bound the window: queue pairs of all
//! its shards find the window under its key, those of another interface do not. Once the request
//! that ends a binding has completed, no shard accesses memory by it.

use std::ops::RangeBounds;
use std::sync::Arc;

use roce_engine::WindowType;
use roce_faults::VerbMoment;
use roce_transport::{AccessFlags, WindowBinding};

use crate::driver::Driver;
use crate::error::Error;
use crate::memory::memory_region::MemoryRegion;
use crate::process::fork;
use crate::protection_domain::ProtectionDomain;

/// A memory window; as `ibv_mw`. Dropping it ends its binding.
///
/// ```no_run
/// use std::time::Duration;
///
/// use roce_verbs::{
///     AccessFlags, ConnectOptions, Device, DeviceConfig, RemoteAddr, SendOperation, SendWr, WindowType,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let pd = device.alloc_pd()?;
/// let cq = device.create_cq(16, None)?;
/// let owner = pd.queue_pair(&cq, &cq).signal_all(true).build()?;
/// let peer = pd.queue_pair(&cq, &cq).signal_all(true).build()?;
/// owner.connect(&peer.dest(None)?, &ConnectOptions::default())?;
/// peer.connect(&owner.dest(None)?, &ConnectOptions::default())?;
///
/// // Peers have no right to the region itself.
/// let region = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)?;
/// let window = pd.alloc_window(WindowType::Type2B)?;
/// let binding = window.binding(window.next_tag(), &region, 128..192, AccessFlags::REMOTE_WRITE)?;
/// owner.post_send([SendWr::new(1, SendOperation::BindWindow(binding), [])])?;
/// assert!(cq.spin_wait(Duration::from_secs(1)).is_some());
///
/// // The peer writes to the 64 bytes, and then gives the right back.
/// let remote = RemoteAddr { addr: binding.addr, rkey: binding.rkey() };
/// peer.post_send([SendWr::inline(2, SendOperation::write(remote), b"hello")])?;
/// assert!(cq.spin_wait(Duration::from_secs(1)).is_some());
/// let shut = SendOperation::LocalInvalidate { key: window.rkey() };
/// owner.post_send([SendWr::new(3, shut, [])])?;
/// assert!(cq.spin_wait(Duration::from_secs(1)).is_some());
/// assert!(!window.is_bound());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryWindow {
    driver: Arc<Driver>,
    /// The 24 bits that all of its keys begin with.
    number: u32,
    window_type: WindowType,
}

impl ProtectionDomain {
    /// Makes a memory window that is not bound; as `ibv_alloc_mw`.
    ///
    /// # Errors
    /// [`Error::TooManyWindows`] beyond 2^19 of a device; [`Error::Forked`].
    pub fn alloc_window(&self, window_type: WindowType) -> Result<MemoryWindow, Error> {
        self.driver.check_verb(VerbMoment::AllocMw)?;
        let driver = Arc::clone(&self.driver);
        let key =
            driver.engine()?.memory_mut().alloc_window(self.handle, window_type, fork::random);
        let number = key.ok_or(Error::TooManyWindows)? >> 8;
        Ok(MemoryWindow { driver, number, window_type })
    }
}

impl MemoryWindow {
    /// Returns the type.
    pub fn window_type(&self) -> WindowType {
        self.window_type
    }

    /// Returns the 24 bits that all keys of the window begin with; see
    /// [`WindowBinding::window`](roce_transport::WindowBinding).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the remote key of the last binding that was executed. It opens nothing unless the window
    /// [is bound](Self::is_bound).
    pub fn rkey(&self) -> u32 {
        self.state().map_or(self.number << 8, |(key, _)| key)
    }

    /// Returns the tag behind that of [`rkey`](Self::rkey), for the next binding: a tag that is used
    /// again lets peers in that know the key of before.
    pub fn next_tag(&self) -> u8 {
        (self.rkey() as u8).wrapping_add(1)
    }

    /// Returns true while the key opens the bytes of a binding.
    pub fn is_bound(&self) -> bool {
        self.state().is_some_and(|(_, is_bound)| is_bound)
    }

    /// Returns the binding of this window to a range of a region, with these rights of peers and
    /// [`AccessFlags::ZERO_BASED`] if they address its first byte as 0, for
    /// [`SendOperation::BindWindow`](crate::SendOperation::BindWindow).
    ///
    /// The request fails with
    /// [`CompletionStatus::MemoryWindowBindError`](crate::CompletionStatus::MemoryWindowBindError) where
    /// window, region and queue pair are not of one domain, the region was registered without
    /// [`AccessFlags::MW_BIND`], or without [`AccessFlags::LOCAL_WRITE`] for a window that peers write
    /// to, the window is of type 1 and zero-based, or of type 2B and bound or empty.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`], also for a range of more than 2^31 bytes.
    pub fn binding(
        &self,
        tag: u8,
        region: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: AccessFlags,
    ) -> Result<WindowBinding, Error> {
        let piece = region.sge(range)?;
        let (lkey, addr, len) = (piece.lkey, piece.addr, u64::from(piece.len));
        Ok(WindowBinding { window: self.number, tag, lkey, addr, len, access })
    }

    /// Returns the present key, and whether the window is bound.
    fn state(&self) -> Option<(u32, bool)> {
        self.driver.engine().ok()?.memory().window_state(self.number)
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // In a child after fork there is nothing to end.
        if let Ok(mut engine) = self.driver.engine() {
            engine.memory_mut().free_window(self.number);
        }
    }
}
