//! A packet's layers as an indented tree, and explanations.

use roce_dissect::{Action, Explanation, Packet};

use super::color::{Color, Coloring};
use super::number_format::put_fmt;

/// Writes every layer and field: name, value, bytes and meaning.
pub(crate) fn write(packet: &Packet<'_>, coloring: Coloring, text: &mut Vec<u8>) {
    for layer in packet.layers() {
        coloring.start(Color::Heading, text);
        put_fmt(text, format_args!("        {}", layer.name));
        coloring.end(text);
        let bytes = &layer.range;
        coloring.start(Color::Dim, text);
        put_fmt(text, format_args!(" bytes {}..{}\n", bytes.start, bytes.end));
        coloring.end(text);
        for field in &layer.fields {
            put_fmt(text, format_args!("          {:26} ", field.name));
            put_fmt(text, format_args!("{:18}", field.value.to_string()));
            coloring.start(Color::Dim, text);
            text.extend_from_slice(b" ");
            let shown = packet.frame.bytes.get(field.bytes.clone()).unwrap_or_default();
            for byte in shown.iter().take(BYTES_PER_ROW) {
                put_fmt(text, format_args!(" {byte:02x}"));
            }
            if shown.len() > BYTES_PER_ROW {
                text.extend_from_slice(" …".as_bytes());
            }
            coloring.end(text);
            if !field.note.is_empty() {
                put_fmt(text, format_args!("  ({})", field.note));
            }
            text.push(b'\n');
        }
    }
}

/// Writes the checks in order, then the verdict.
pub(super) fn write_explanation(explanation: &Explanation, coloring: Coloring, text: &mut Vec<u8>) {
    for reason in &explanation.reasons {
        put_fmt(text, format_args!("        - {reason}\n"));
    }
    let color = match explanation.action {
        Action::Accept => Color::Response,
        Action::Repeat | Action::Ignore => Color::Notice,
        _ => Color::Problem,
    };
    text.extend_from_slice(b"        => ");
    coloring.start(color, text);
    text.extend_from_slice(explanation.verdict.as_bytes());
    coloring.end(text);
    text.push(b'\n');
}

/// The most bytes shown of a field; -x shows all.
const BYTES_PER_ROW: usize = 16;
