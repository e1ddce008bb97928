//! Following connections.

use roce_wire::{Opcode, Psn, Qpn};

use crate::{Finding, Options, RawFrame, Roce};

/// Which connection a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// The connection's place in [`Dissector::connections`](crate::Dissector::connections).
    pub connection: u32,
    /// Does it go the way of the connection's first packet?
    pub forward: bool,
    /// The sender's own queue pair, once it was learnt.
    pub source_qp: Option<Qpn>,
    /// What was known before the packet came.
    pub before: Before,
}

/// What was known of a packet's receiver before the packet came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// The PSN that the receiver expects of the next request.
    pub expected: Option<Psn>,
    /// The opcode of the last packet of a message that is not complete.
    pub open: Option<Opcode>,
}

#[derive(Debug)]
pub(crate) struct Flows;

impl Flows {
    pub(crate) fn new(_options: Options) -> Self {
        Self
    }

    pub(crate) fn follow(
        &mut self,
        _frame: &RawFrame<'_>,
        _roce: &Roce<'_>,
        _findings: &mut Vec<Finding>,
    ) -> Option<Track> {
        None
    }
}

/// The connections seen so far.
#[derive(Debug)]
pub struct Connections<'a>(Option<&'a Flows>);

impl<'a> Connections<'a> {
    pub(crate) fn new(flows: Option<&'a Flows>) -> Self {
        Self(flows)
    }
}
