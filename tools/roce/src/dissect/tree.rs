//! A packet's layers as an indented tree, and the words of an explanation.

use roce_dissect::{Action, Explanation, Packet};

use super::line::put_fmt;
use super::paint::{Paint, Tint};

/// Every layer, every field: its name, what it holds, its bytes, what that means.
pub(super) fn write(packet: &Packet<'_>, paint: Paint, text: &mut Vec<u8>) {
    for layer in packet.layers() {
        paint.start(Tint::Heading, text);
        put_fmt(text, format_args!("        {}", layer.name));
        paint.end(text);
        let bytes = &layer.range;
        paint.start(Tint::Dim, text);
        put_fmt(text, format_args!(" bytes {}..{}\n", bytes.start, bytes.end));
        paint.end(text);
        for field in &layer.fields {
            put_fmt(text, format_args!("          {:26} ", field.name));
            put_fmt(text, format_args!("{:18}", field.value.to_string()));
            paint.start(Tint::Dim, text);
            text.extend_from_slice(b" ");
            let shown = packet.frame.bytes.get(field.bytes.clone()).unwrap_or_default();
            for byte in shown.iter().take(MOST_BYTES) {
                put_fmt(text, format_args!(" {byte:02x}"));
            }
            if shown.len() > MOST_BYTES {
                text.extend_from_slice(" …".as_bytes());
            }
            paint.end(text);
            if !field.note.is_empty() {
                put_fmt(text, format_args!("  ({})", field.note));
            }
            text.push(b'\n');
        }
    }
}

/// The checks in order, then the verdict.
pub(super) fn write_explanation(explanation: &Explanation, paint: Paint, text: &mut Vec<u8>) {
    for reason in &explanation.reasons {
        put_fmt(text, format_args!("        - {reason}\n"));
    }
    let tint = match explanation.action {
        Action::Accept => Tint::Answer,
        Action::Repeat | Action::Ignore => Tint::Notice,
        _ => Tint::Problem,
    };
    text.extend_from_slice(b"        => ");
    paint.start(tint, text);
    text.extend_from_slice(explanation.verdict.as_bytes());
    paint.end(text);
    text.push(b'\n');
}

/// A field of more bytes shows these, and that there are more; -x shows all.
const MOST_BYTES: usize = 16;
