//! Calls on management datagrams.

use roce_wire::Qpn;

use super::Endpoint;
use super::management_queue::ManagementDatagram;
use crate::{ApiMisuse, Observer};

/// Management datagrams.
///
/// ```
/// use roce_transport::{Endpoint, EndpointConfig};
///
/// let mut endpoint = Endpoint::new(EndpointConfig::default());
/// endpoint.take_management()?;
/// // No queue pair can have the number 1 any more.
/// assert!(endpoint.takes_management());
/// assert_eq!(endpoint.poll_management(), None);
/// # Ok::<(), roce_transport::ApiMisuse>(())
/// ```
impl<O: Observer> Endpoint<O> {
    /// Keeps management datagrams for [`poll_management`](Self::poll_management) from now on.
    ///
    /// # Errors
    /// [`ApiMisuse::QpExists`] if a queue pair has the number 1.
    pub fn take_management(&mut self) -> Result<(), ApiMisuse> {
        if self.by_qpn.contains_key(&Qpn::GSI) {
            return Err(ApiMisuse::QpExists(Qpn::GSI));
        }
        self.management.open();
        Ok(())
    }

    /// Returns true if management datagrams are kept.
    pub fn takes_management(&self) -> bool {
        self.management.is_open()
    }

    /// Takes the next management datagram. At most
    /// [`MAX_MANAGEMENT_DATAGRAMS`](crate::MAX_MANAGEMENT_DATAGRAMS) wait; more are dropped.
    pub fn poll_management(&mut self) -> Option<ManagementDatagram> {
        self.management.pop()
    }
}
