//! What a device does of connection management by itself, below [`cm`](crate::cm).
//!
//! Its driver gives events of the agent to the [`Router`], which enters them in lists that programs
//! fetch from, keeps the record of connections in a [`ConnectionFile`], and decides with [`Strays`]
//! whether this process answers datagrams that none takes. Identifiers and channels, which call the
//! driver, are in `cm`.

pub(crate) mod address;
mod connection_file;
mod error;
mod event_list;
mod event_target;
mod join_name;
mod port_claim;
mod router;
mod stray;

pub(crate) use self::connection_file::{ConnectionFile, Owner, read_owner, read_records};
pub use self::error::Error;
pub(crate) use self::error::errno_of_route;
pub use self::event_list::EventNotifier;
pub(crate) use self::event_list::{EventList, Signal};
pub(crate) use self::event_target::{
    DeviceNumber, EventTarget, Queued, Resolution, What, is_of_datagrams,
};
pub(crate) use self::join_name::JoinName;
pub use self::port_claim::LISTENERS;
pub(crate) use self::port_claim::{PortClaim, automatic_port};
pub(crate) use self::router::Router;
pub(crate) use self::stray::Strays;
