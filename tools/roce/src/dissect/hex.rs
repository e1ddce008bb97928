//! The bytes of a packet.

use roce_dissect::Packet;

use super::color::{Color, Coloring};
use super::number_format::put_fmt;

/// Writes sixteen bytes per line with offset and characters. The first packet of a train includes
/// the outer headers.
pub(crate) fn write(packet: &Packet<'_>, coloring: Coloring, text: &mut Vec<u8>) {
    let bytes = packet.frame.bytes;
    let range = match packet.roce() {
        Some(roce) if roce.train.is_some_and(|train| train.index > 0) => roce.range(&packet.frame),
        Some(roce) if roce.train.is_some() => 0..roce.range(&packet.frame).end,
        _ => 0..bytes.len(),
    };
    for at in range.clone().step_by(16) {
        let row = &bytes[at..range.end.min(at + 16)];
        coloring.start(Color::Dim, text);
        put_fmt(text, format_args!("        {at:04x} "));
        coloring.end(text);
        for byte in row {
            put_fmt(text, format_args!(" {byte:02x}"));
        }
        let missing = 3 * (16 - row.len());
        put_fmt(text, format_args!("{:missing$}  ", ""));
        text.extend(row.iter().map(|&byte| match byte {
            b' '..=b'~' => byte,
            _ => b'.',
        }));
        text.push(b'\n');
    }
}
