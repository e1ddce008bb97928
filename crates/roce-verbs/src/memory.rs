//! The objects that name memory: regions and windows.

pub(crate) mod memory_region;
pub(crate) mod memory_window;
pub(crate) mod null_region;
