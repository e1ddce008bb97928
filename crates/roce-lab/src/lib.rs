//! Lessons and ladders: RDMA packet by packet, in virtual time.
//!
//! A [`World`] holds hosts with the real engine of `roce-transport` and a network of
//! `roce-sim` between them. What happens in it is kept in a [`Timeline`]: every packet, and
//! every word of the engines.

#![forbid(unsafe_code)]

mod connection;
mod host;
mod ladder;
mod layers;
mod lesson;
mod memory;
mod recorder;
mod ring;
mod scale;
mod story;
mod timeline;
mod world;

pub use connection::{Connection, ConnectionOptions, RECV_CQ, SEND_CQ};
pub use host::Host;
pub use ladder::{CaptureLadderError, Ladder, PageError, Rung};
pub use lesson::{
    Action, ConnectionData, Lesson, LessonError, Moment, Question, Rate, RegionData, Right,
    RingData, Show, Span, StateName, Until, WorldData,
};
pub use memory::{Grant, PD, Region, Regions};
pub use ring::{Ring, RingError, RingOptions};
pub use scale::{PlotError, Scale, ScaleResult, plot};
pub use story::{ChunkState, Label, PacketClass, Shown, Story, TextOptions, Told};
pub use timeline::{Event, EventKind, PacketRecord, Timeline};
pub use world::{End, WIRE_OVERHEAD, World, WorldConfig};
