//! Processes of a run: their signals, their ends, and those that they have started.

pub(crate) mod child;
pub(crate) mod descendants;
pub(crate) mod signals;
