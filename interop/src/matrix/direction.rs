//! Which side requests, and what of the matrix is wanted.

use std::ffi::OsString;

use crate::connection::Connection;
use crate::params::{ConnectionParams, Operation};
use crate::{Agent, Fault, World};

/// The requester and the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Our stack requests, rxe responds.
    OursToRxe,
    /// rxe requests, our stack responds.
    RxeToOurs,
    /// rxe on both sides: shows that the matrix itself is right.
    RxeToRxe,
}

impl Direction {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OursToRxe => "ours → rxe",
            Self::RxeToOurs => "rxe → ours",
            Self::RxeToRxe => "rxe → rxe",
        }
    }

    /// Starts the agents of requester and responder; `ours` are arguments of our agent.
    pub(super) fn agents(self, world: &World, ours: &[OsString]) -> Result<(Agent, Agent), Fault> {
        Ok(match self {
            Self::OursToRxe => (Agent::ours(world, ours)?, Agent::rxe(world)?),
            Self::RxeToOurs => (Agent::rxe(world)?, Agent::ours(world, ours)?),
            Self::RxeToRxe => (Agent::rxe(world)?, Agent::rxe(world)?),
        })
    }

    /// Opens both ends; `ours` are arguments of our agent.
    pub(super) fn connect(
        self,
        world: &World,
        settings: ConnectionParams,
        ours: &[OsString],
    ) -> Result<Connection, Fault> {
        let (requester, responder) = self.agents(world, ours)?;
        Connection::new(requester, responder, settings)
    }
}

/// Returns the row of an operation.
pub(super) fn row(operation: Operation, direction: Direction) -> String {
    format!("{operation:10} {}", direction.name())
}

/// What of the matrix is wanted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each operation in each of these.
    pub directions: Vec<Direction>,
    /// More arguments for our agent, such as `--pcap FILE`.
    pub ours: Vec<OsString>,
}
