//! What belongs to one process, and not to its children.

pub use crate::sys::fork::Generation;
pub use crate::sys::own::Own;
