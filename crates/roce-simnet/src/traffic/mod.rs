//! Modelled traffic over a [`Fabric`](roce_fabric::Fabric): flows with rates, CNPs, ACKs and recovery, but
//! without bytes.
//!
//! A flow's packets are numbers. Its host paces them at the rate of the congestion control, the
//! receiver acknowledges them and turns CE into CNPs, and [`Recovery`] says what follows a loss.

mod control;
mod flow;
mod packet;
mod results;
mod round_trip;
mod simulation;
#[cfg(test)]
mod tests;
mod timely;
mod trace;
mod workload;

pub use control::CongestionModel;
pub use flow::{CnpTiming, FlowSpec, Recovery};
pub use results::{FlowResult, Results};
pub use simulation::{Simulation, SimulationConfig};
pub use timely::{PatchedTimely, TimelyParams};
pub use trace::{QueueStats, Sample, Trace};
pub use workload::{FlowSizes, all_to_all, incast, permutation, poisson, ring_allreduce};
