//! The interop matrix: this stack and the kernel's `rdma_rxe`, each as requester and responder.
//!
//! `cargo xtask interop` runs it. A [`World`] is a network namespace of ours and a guest on one
//! tap; an [`Agent`] is a program that has one end of connections, on either side; a
//! [`matrix::Case`] shows one thing, such as a READ of every size over IPv6. A [`RingWorld`] has
//! several of each on a switch, for rings of ranks of both kinds ([`ring`]). [`dropin`] has unmodified
//! RDMA programs on our libibverbs instead of agents; [`call_sequences`] compares calls of libraries.

mod agent;
pub mod call_sequences;
mod case;
pub mod cases;
pub mod connection;
pub mod dropin;
mod fault;
pub mod matrix;
mod numbering;
mod pair;
pub mod params;
pub mod pattern;
mod process;
mod rdma_cm_peer;
pub mod report;
pub mod ring;
pub mod ring_matrix;
mod rxe_agent;
mod testbed;
mod world;

pub use agent::Agent;
pub use fault::Fault;
pub use ring::RingWorld;
pub use testbed::Testbed;
pub use world::World;
