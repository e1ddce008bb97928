//! The program of a run: what it is, which libraries and files it sees, and how it begins.

pub(crate) mod exec;
pub(crate) mod executable;
pub(crate) mod library;
pub(crate) mod mounts;
pub(crate) mod privileges;
pub(crate) mod socket_giver;
