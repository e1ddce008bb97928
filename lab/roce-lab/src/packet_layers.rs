//! Layers of a frame as text.

use std::fmt::Write;

use roce_dissect::{Dissector, Layer, Options, PacketKind, RawFrame};

/// Returns the layers of an Ethernet frame, outermost first.
pub(crate) fn of_frame(frame: &[u8]) -> Vec<Layer> {
    let mut dissector = Dissector::new(Options { follow: false, ..Options::default() });
    let mut layers = Vec::new();
    // The only packet, or the first of a train.
    dissector.handle_frame(RawFrame::ethernet(1, frame), |packet| {
        if layers.is_empty() {
            layers = packet.layers();
        }
    });
    layers
}

/// Returns what a frame is that is no RoCE packet: `IGMP`.
pub(crate) fn kind(frame: &[u8]) -> String {
    let mut dissector = Dissector::new(Options { follow: false, ..Options::default() });
    let mut kind = None;
    dissector.handle_frame(RawFrame::ethernet(1, frame), |packet| {
        if let PacketKind::Other(other) = &packet.kind {
            kind = Some(other.to_string());
        }
    });
    kind.unwrap_or_else(|| "not a RoCE packet".to_owned())
}

/// Returns a line for each layer and each field, with its bytes.
pub(crate) fn lines(frame: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for layer in of_frame(frame) {
        lines.push(format!("{}  ({} bytes)", layer.name, layer.range.len()));
        let longest = layer.fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
        let width = longest.max(MIN_NAME_WIDTH);
        for field in &layer.fields {
            let value = field.value.to_string();
            let value =
                if field.note.is_empty() { value } else { format!("{value} ({})", field.note) };
            let bytes = frame.get(field.bytes.clone()).unwrap_or_default();
            let line = format!("  {:<width$} {value:<44} {}", field.name, hex(bytes));
            lines.push(line.trim_end().to_owned());
        }
    }
    lines
}

/// Formats the first bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (place, byte) in bytes.iter().take(MAX_HEX_BYTES).enumerate() {
        let gap = if place == 0 { "" } else { " " };
        let _ = write!(text, "{gap}{byte:02x}");
    }
    if bytes.len() > MAX_HEX_BYTES {
        text.push_str(" …");
    }
    text
}

/// Width of the names' column, unless one is longer.
const MIN_NAME_WIDTH: usize = 22;
/// Maximum bytes displayed for a field.
const MAX_HEX_BYTES: usize = 8;
