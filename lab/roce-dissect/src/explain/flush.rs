//! What the header of a FLUSH asks for.

use roce_wire::{Feth, FlushExtent};

/// Returns the sentence for a FETH.
pub(super) fn sentence(feth: Feth) -> String {
    let placement = match (feth.is_global(), feth.is_persistent()) {
        (true, true) => "visible to every reader and persistent",
        (true, false) => "visible to every reader",
        (false, true) => "persistent",
        (false, false) => "no placement named",
    };
    let extent = match feth.extent() {
        Some(FlushExtent::Range) => "the bytes of the RETH".to_owned(),
        Some(FlushExtent::Region) => "the whole memory region".to_owned(),
        None => format!("selectivity {} is reserved", feth.selectivity()),
    };
    format!("Placement: {placement}; {extent}.")
}
