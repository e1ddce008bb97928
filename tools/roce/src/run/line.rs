//! The command line of a run: its options, and what stands in the arguments of its program.

pub(crate) mod options;
pub(crate) mod placeholder;
pub(crate) mod prefix;
pub(crate) mod requirement;
pub(crate) mod timeout;
