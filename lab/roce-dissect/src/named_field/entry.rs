//! Entries of the list of all fields.

use super::value::{FieldKind, FieldValue};
use crate::Packet;

/// An entry of the list of all fields.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    pub(super) source: Source,
    /// Layers and fields of them, one of which has the value in its bytes.
    pub(super) places: Vec<(&'static str, &'static str)>,
}

/// How the values of a field are found.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Packet(PacketValues),
    Layer {
        layer: &'static str,
        field: &'static str,
    },
    /// The layer itself.
    Presence {
        layer: &'static str,
    },
}

/// Passes the values of a packet's field to a function.
pub(super) type PacketValues = fn(&Packet<'_>, &mut dyn FnMut(FieldValue<'_>));
