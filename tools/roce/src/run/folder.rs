//! The folders of a run and of its ranks, and what stages read there.

pub(crate) mod plan;
pub(crate) mod run_folder;
pub(crate) mod scratch;
