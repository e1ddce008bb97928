//! Layers of a frame as text.

use std::fmt::Write;

use roce_dissect::{Dissector, Layer, Options, RawFrame};

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

/// Returns a line for each layer and each field, with its bytes.
pub(crate) fn lines(frame: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for layer in of_frame(frame) {
        lines.push(format!("{}  ({} bytes)", layer.name, layer.range.len()));
        for field in &layer.fields {
            let value = field.value.to_string();
            let value =
                if field.note.is_empty() { value } else { format!("{value} ({})", field.note) };
            let bytes = frame.get(field.bytes.clone()).unwrap_or_default();
            let line = format!("  {:<22} {value:<44} {}", field.name, hex(bytes));
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

/// Maximum bytes displayed for a field.
const MAX_HEX_BYTES: usize = 8;
