//! The binding of a memory window.

use crate::AccessFlags;

/// What a memory window is bound to; as `ibv_mw_bind_info`, with the window and its next key.
///
/// A window gives peers the right to a part of a region for as long as it is bound, without a
/// registration. Binding is a request of the send queue: see
/// [`SendOperation::BindWindow`](crate::SendOperation::BindWindow).
///
/// ```
/// use roce_transport::{AccessFlags, SendOperation, SendWr, WindowBinding};
///
/// let binding = WindowBinding {
///     window: 0x1234,
///     tag: 7,
///     lkey: 99,
///     addr: 0x1000,
///     len: 64,
///     access: AccessFlags::REMOTE_READ,
/// };
/// assert_eq!(binding.rkey(), 0x0012_3407);
/// let work = SendWr::new(1, SendOperation::BindWindow(binding), []).signaled();
/// assert_eq!(work.operation.completion_operation().name(), "BIND_MW");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBinding {
    /// The window: the 24 bits that all of its keys begin with.
    pub window: u32,
    /// The low 8 bits of the key that the binding gives the window.
    pub tag: u8,
    /// Local key of the region; of no meaning for an empty binding.
    pub lkey: u32,
    /// Address of the first byte, as work requests with `lkey` have it.
    pub addr: u64,
    /// Length in bytes. An empty binding takes the right from a window of type 1.
    pub len: u64,
    /// The rights of peers. With [`AccessFlags::ZERO_BASED`] they address the first byte as 0, not as
    /// `addr`. Other flags have no meaning here.
    pub access: AccessFlags,
}

impl WindowBinding {
    /// Returns the key that the binding gives the window.
    pub const fn rkey(&self) -> u32 {
        self.window << 8 | self.tag as u32
    }
}
