//! What the tests share that need namespaces, guests or several processes.

pub mod datagrams;
pub mod echo;
pub mod fixtures;
pub mod forged_datagrams;
pub mod identified_ends;
pub mod ip;
pub mod kernel_objects;
pub mod outage;
pub mod ranks;
pub mod raw_sender;
pub mod services;
pub mod soak;
pub mod stranger;
pub mod switched_network;
pub mod verbs_program;
pub mod writer;

/// The example of the repository's README.md. No published crate can have it: its package lacks the file.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
