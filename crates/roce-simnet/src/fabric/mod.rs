//! A fabric of switches with queues, marks and pauses, event-driven and in virtual time.
//!
//! [`Switch`] is the model of one switch: a buffer that all ports share, a queue per port and class,
//! ECN marking, priority-based flow control, a watchdog of pauses. It has neither clock nor links.
//! [`Fabric`] drives switches over the links of a [`Topology`], in virtual time. Its frames are those of
//! modelled flows ([`traffic`](crate::traffic)), or real ones: [`EthernetFrame`].
//!
//! ```text
//!              route (Fabric)       threshold, headroom     RED         strict, DWRR
//!   frame in ───────────────► admit ──────────────────► mark ► queue ───────────────► frame out
//!                               │ above the threshold            ▲ paused by the other end
//!   XOFF, XON out ◄─────────────┘                  pause frame in┘
//! ```

mod ethernet_frame;
mod frame;
mod marking;
mod network;
mod output_port;
mod shared_buffer;
mod switch;
#[cfg(test)]
mod test_frame;
#[cfg(test)]
mod tests;
mod topology;

pub use ethernet_frame::EthernetFrame;
pub use frame::{FabricFrame, SwitchFrame};
pub use marking::EcnMarking;
pub use network::{Fabric, FabricConfig, FabricCounters, FabricEvent, Routing};
pub use output_port::ClassScheduling;
pub use switch::{MarkingPoint, Output, PfcConfig, PortCounters, Switch, SwitchConfig};
pub use topology::{Topology, TopologyLink};

/// Number of traffic classes of a port.
pub const CLASSES: usize = roce_wire::PFC_PRIORITIES;
