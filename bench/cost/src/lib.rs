//! Two engines in one process, connected through memory: the cost of a packet without the kernel.
//!
//! A [`Run`] posts messages of one [`Workload`] and drives the two sides in
//! turn, as a driver does: it receives frames (parses them, checks ICRCs), handles timers, transmits
//! frames (written by the engine, sealed) and polls completions. The `cost` program runs under
//! callgrind with two numbers of messages; `benches/` times single steps.
//!
//! ```
//! use roce_cost::{Run, Workload};
//!
//! let workload = Workload::by_name("write-8").unwrap();
//! let mut run = Run::new(workload, 100);
//! while !run.is_done() {
//!     run.drive_requester();
//!     run.drive_responder();
//! }
//! let tally = run.finish();
//! assert_eq!((tally.messages, tally.data_packets), (100, 100));
//! ```

#![forbid(unsafe_code)]

mod memory;
mod run;
mod side;
mod wire;
mod workload;

pub use memory::Bytes;
pub use run::{Run, Tally};
pub use side::{Side, connected_pair};
pub use wire::Wire;
pub use workload::{Sender, Workload};
