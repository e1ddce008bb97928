//! Lessons and ladder diagrams: RDMA packet by packet, in virtual time.
//!
//! A [`World`] holds hosts with the engine of `roce-transport` and a `roce-simnet` network between
//! them. Its [`Timeline`] records all packets and all events of the engines. A [`FabricWorld`] puts switches
//! with queues, marks and pauses between the engines; the trials of lessons ([`TrialRun`]) use it.

#![forbid(unsafe_code)]

mod carrier;
mod connection;
mod event_recorder;
mod fabric;
mod host;
mod ladder;
mod lesson;
mod packet_label;
mod packet_layers;
mod plot;
mod ring;
mod run;
mod scale;
mod timeline;
mod trial;
mod world;

pub use carrier::FabricWorld;
pub use connection::{Connection, RECV_CQ, SEND_CQ, default_options};
pub use fabric::{
    FabricControl, FabricError, FabricReport, FabricResults, FabricSample, FabricScenario,
    FabricShape, FabricWorkload, FlowResult, FlowSizes, FlowSpec, QueueStats, Recovery,
    plot_fabric,
};
pub use host::Host;
pub use ladder::{CaptureLadderError, Ladder, LadderRow, PageError};
pub use lesson::{
    Action, ConnectionData, ControlName, FabricData, FaultData, FlowData, ImpairmentData, Inspect,
    Lesson, LessonError, PlotData, Quantity, Question, Rate, RegionData, Right, RingData, Rule,
    Section, ServiceName, Span, StateName, Trial, Until, WorldData,
};
pub use packet_label::{PacketClass, PacketLabel};
pub use plot::PlotError;
pub use ring::{Ring, RingError, RingOptions};
pub use roce_fabric::EcnMarking;
pub use roce_simnet::{ConnectOptions, Grant, PD, Region, Regions};
pub use run::{ChunkState, Inspection, LessonRun, SectionRun, TextOptions};
pub use scale::{Scale, ScaleResult, plot};
pub use timeline::{Event, EventKind, PacketRecord, Timeline};
pub use trial::{Figure, TrialPlot, TrialRun, TrialSample, Unit};
pub use world::{End, WIRE_OVERHEAD, World, WorldConfig};
