//! Communication id.

use core::fmt;

/// A number that one end of a connection gives the connection.
///
/// Each end chooses its own, and names both in its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicationId(pub u32);

impl fmt::Display for CommunicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}
