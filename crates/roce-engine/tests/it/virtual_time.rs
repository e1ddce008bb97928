//! The engine and its policies in virtual time, with a driver thread and programs that do anything.

mod driver;
mod host;
pub(crate) mod queues;
mod random_programs;
mod wire;
mod world;
