//! Senders that share a receiver: goodput, fairness, latency and queues under each congestion
//! control, over switches with and without pauses.
//!
//! A cell of the table is one [`Scenario`]: so many senders write to one receiver as fast as they may,
//! and the first of them to another receiver too, at a quarter of the link's rate: the victim of a
//! switch that pauses. Real packets pass [`roce_switch`], or a bridge of the kernel whose ports are
//! shaped by tbf and marked by nftables. Every end waits by events. [`Scenario::simulate`] runs the same
//! engines over the same switch in virtual time.
//!
//! ```no_run
//! use roce_bench::congestion::{Control, Fabric, Scenario};
//!
//! let scenario = Scenario::new(4, Control::named("ecn").unwrap(), Fabric::Lossless);
//! let outcome = scenario.run()?;
//! println!("{:.1} Mbit/s, p99 {:.1} ms", outcome.goodput, outcome.latency_p99);
//! # Ok::<(), roce_bench::congestion::Failure>(())
//! ```

mod control;
mod document;
mod load;
mod network;
mod outcome;
mod plot;
mod row;
mod scenario;
mod simulated;
mod table;

pub use control::Control;
pub use document::put_tables;
pub use network::Failure;
pub use outcome::{Outcome, Packets};
pub use plot::plot;
pub use row::Row;
pub use scenario::{Fabric, Scenario};
pub use table::{beside_simulation, table};
