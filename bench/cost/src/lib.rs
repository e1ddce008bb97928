//! Two engines in one process, connected through memory: the cost of a packet without the kernel.
//!
//! A [`Run`] posts messages of one [`Workload`] and drives the two sides in turn, as a driver does:
//! it receives frames (parses them, checks ICRCs), handles timers, transmits frames (written by the
//! endpoint, sealed) and polls completions. A [`Side`] does so for an endpoint, with nothing around
//! it. The `cost` program runs under callgrind with two numbers of messages; `benches/` times
//! single steps.
//!
//! The program `engine_cost` counts the same with the engine of a device around the endpoint: its
//! rounds, memory table, paths, policies and an interface. It has its sides for itself, since code
//! with two callers is inlined otherwise than code with one: each received packet would take 200
//! instructions more.
//!
//! ```
//! use roce_cost::{Run, Side, Workload};
//!
//! let workload = Workload::by_name("write-8").unwrap();
//! let mut run = Run::<Side>::new(workload, 100);
//! while !run.is_done() {
//!     run.drive_requester();
//!     run.drive_responder();
//! }
//! let tally = run.finish();
//! assert_eq!((tally.messages, tally.data_packets), (100, 100));
//! ```

#![forbid(unsafe_code)]

mod drive;
mod memory;
pub mod program;
mod run;
mod side;
mod wire;
mod workload;

pub use drive::{ADDRESSES, Drive, NUMBERS, bring_up};
pub use memory::Bytes;
pub use run::{Run, Tally};
pub use side::Side;
pub use wire::Wire;
pub use workload::{Sender, Workload};
