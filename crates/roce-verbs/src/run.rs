//! What a process and a run tell each other: variables, the plan of `roce run`, and files of counters.

pub(crate) mod counter_file;
pub mod environment;
pub(crate) mod numbered_file;
pub(crate) mod run_plan;
