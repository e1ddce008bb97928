//! The message for a filter that no packet matches.

use std::collections::BTreeSet;

use roce_dissect::{Connection, Totals};
use roce_wire::Qpn;

/// Returns the message, with the first queue pairs of the capture.
pub(super) fn describe(totals: &Totals, connections: impl Iterator<Item = Connection>) -> String {
    let all: BTreeSet<u32> = connections
        .flat_map(|connection| [connection.a.qp, connection.b.qp])
        .flatten()
        .map(Qpn::get)
        .collect();
    let named: Vec<_> = all.iter().take(MAX_NAMED).map(|qp| format!("{qp:#08x}")).collect();
    let more = match all.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let (packets, named) = (totals.packets, named.join(", "));
    format!("none of the {packets} RoCE packets matches; the queue pairs are {named}{more}")
}

/// Queue pairs in the message.
const MAX_NAMED: usize = 16;
