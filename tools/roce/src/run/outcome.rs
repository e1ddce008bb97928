//! What a run leaves: exit code, messages, counters, captures, and what became of faults and requirements.

pub(crate) mod capture;
pub(crate) mod counters;
pub(crate) mod exit_code;
pub(crate) mod failure;
pub(crate) mod fault_log;
pub(crate) mod verdict;
