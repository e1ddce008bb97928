//! Two engines in one process, with plain memory for a wire between them: what a packet costs
//! where no kernel is involved.
//!
//! A [`Run`] posts messages of one [`Workload`] and lets the two sides take turns, as a driver
//! would: frames in (parsed, ICRCs checked, handed to the engine), timers, frames out (written
//! by the engine, sealed), completions. The `cost` program runs that under callgrind, side by
//! side for two numbers of messages; `benches/` times single steps of it.
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
