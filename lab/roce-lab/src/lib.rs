//! Lessons and ladder diagrams: RDMA packet by packet, in virtual time or from captures.
//!
//! Lessons, trials and rings run in a [`World`] of `roce-simnet`: hosts with the engine of
//! `roce-transport`, and a network between them. Ladders show its [`Timeline`], or a capture.

#![forbid(unsafe_code)]

pub mod chart;

mod fabric;
mod flows;
mod ladder;
mod lesson;
mod packet_label;
mod packet_layers;
mod ring;
mod run;
mod scale;
mod trial;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use chart::PlotError;
pub use fabric::{
    FabricControl, FabricError, FabricReport, FabricResults, FabricSample, FabricScenario,
    FabricShape, FabricWorkload, FlowResult, FlowSizes, FlowSpec, QueueStats, Recovery,
    plot_fabric,
};
pub use ladder::{CaptureLadderError, Ladder, LadderRow, PageError, PageLink, PageLinks};
pub use lesson::{
    Action, CaptureData, ConnectionData, ControlName, FabricData, FaultData, FlowData,
    ImpairmentData, Inspect, LESSON_TEMPLATE, Lesson, LessonError, LessonFileError, PlotData,
    Quantity, Question, Rate, RegionData, Right, RingData, Rule, Section, ServiceName, Span,
    StateName, Trial, Until, Verdict, WorldData,
};
pub use packet_label::{PacketClass, PacketLabel};
pub use ring::{Ring, RingError, RingOptions};
pub use roce_fabric::EcnMarking;
pub use roce_simnet::{
    ConnectOptions, Connection, End, Event, EventKind, FabricWorld, Host, PD, PacketRecord,
    RECV_CQ, Region, Regions, SEND_CQ, Timeline, WIRE_OVERHEAD, World, WorldConfig,
    default_options,
};
pub use run::{ChunkState, Inspection, LessonRun, SectionRun, TextOptions};
pub use scale::{Scale, ScaleResult, plot};
pub use trial::{Figure, TrialPlot, TrialRun, TrialSample, Unit};
