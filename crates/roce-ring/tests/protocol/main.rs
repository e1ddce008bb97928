//! Properties of the ring: all ranks in one process, with any order of events.
//!
//! A random test that fails prints the seed and the command to repeat it.

mod allocations;
mod collectives;
mod document;
mod hostile;
mod queues;
mod repeat;
mod rules;
mod scenario;
mod symbols;
mod values;
mod world;
