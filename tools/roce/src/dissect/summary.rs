//! A table of connections.

use std::time::Duration;

use roce_dissect::{Connection, DisplayDuration, DisplayRate, FlowEnd, Reaction, Totals};
use roce_wire::Service;

use super::color::{Color, Coloring};
use super::number_format::put_fmt;

/// Writes one row for each connection, and a total.
pub(super) fn write(
    connections: impl Iterator<Item = Connection>,
    totals: &Totals,
    coloring: Coloring,
    text: &mut Vec<u8>,
) {
    let connections: Vec<Connection> = connections.collect();
    let rows: Vec<[String; COLUMNS]> = connections.iter().map(row).collect();
    let mut widths = HEADINGS.map(|heading| heading.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    if !rows.is_empty() {
        coloring.start(Color::Heading, text);
        write_row(&HEADINGS.map(str::to_owned), &widths, text);
        coloring.end(text);
        text.push(b'\n');
    }
    for row in &rows {
        write_row(row, &widths, text);
        text.push(b'\n');
    }
    for connection in &connections {
        let Connection { a, b, .. } = connection;
        write_reaction(a, b, connection.forward_reaction, connection.backward.becns, text);
        write_reaction(b, a, connection.backward_reaction, connection.forward.becns, text);
    }
    put_fmt(
        text,
        format_args!(
            "{} frames, {} RoCE packets, {} trains, {} pause frames, {} wrong ICRCs, {} packets \
             with problems\n",
            totals.frames,
            totals.packets,
            totals.trains,
            totals.pauses,
            totals.wrong_icrcs,
            totals.problems
        ),
    );
}

/// Writes what notifications made of a sender, if it got any.
fn write_reaction(
    from: &FlowEnd,
    to: &FlowEnd,
    reaction: Option<Reaction>,
    becns: u64,
    text: &mut Vec<u8>,
) {
    if reaction.is_none() && becns == 0 {
        return;
    }
    let reaction = reaction.unwrap_or_default();
    put_fmt(text, format_args!("CNPs for {} to {}: {}", end(from), end(to), reaction.cnps));
    if let Some(after) = reaction.answered_after {
        let after = DisplayDuration(after);
        put_fmt(text, format_args!(", {} after a mark by {after} on average", reaction.answers));
    }
    if let Some(interval) = reaction.min_interval {
        put_fmt(text, format_args!(", at least {} apart", DisplayDuration(interval)));
    }
    if let (Some(before), Some(after)) = (reaction.rate_before, reaction.rate_after) {
        let [before, after] = [before, after].map(|rate| DisplayRate(rate as f64));
        put_fmt(text, format_args!("; rate before {before}, after {after}"));
    }
    if becns > 0 {
        let noun = if becns == 1 { "response" } else { "responses" };
        put_fmt(text, format_args!("; BECN on {becns} {noun}"));
    }
    text.push(b'\n');
}

/// Writes a row: names are left-aligned, numbers right-aligned.
fn write_row(row: &[String; COLUMNS], widths: &[usize; COLUMNS], text: &mut Vec<u8>) {
    for (i, (cell, &width)) in row.iter().zip(widths).enumerate() {
        let gap = if i == 0 { "" } else { "  " };
        match i < NAMES {
            true => put_fmt(text, format_args!("{gap}{cell:width$}")),
            false => put_fmt(text, format_args!("{gap}{cell:>width$}")),
        }
    }
}

fn row(connection: &Connection) -> [String; COLUMNS] {
    let (there, back) = (&connection.forward, &connection.backward);
    let both = |of: fn(&roce_dissect::DirectionCounts) -> u64| of(there) + of(back);
    let packets = both(|counts| counts.packets);
    let good = both(|counts| counts.good_bytes);
    let first = [there.first, back.first].into_iter().flatten().min();
    let last = [there.last, back.last].into_iter().flatten().max();
    let lasted = match (first, last) {
        (Some(first), Some(last)) => last.since(first),
        _ => Duration::ZERO,
    };
    let goodput = match lasted.is_zero() {
        true => "-".to_owned(),
        false => DisplayRate(good as f64 * 8.0 / lasted.as_secs_f64()).to_string(),
    };
    let again = 100.0 * both(|counts| counts.retransmitted) as f64 / packets.max(1) as f64;
    let trips = connection.round_trips;
    let trip = |of: fn(&roce_dissect::RoundTrips) -> Duration| {
        trips
            .as_ref()
            .map_or_else(|| "-".to_owned(), |trips| DisplayDuration(of(trips)).to_string())
    };
    [
        end(&connection.a),
        end(&connection.b),
        service(connection.service).to_owned(),
        packets.to_string(),
        both(|counts| counts.wire_bytes).to_string(),
        both(|counts| counts.messages).to_string(),
        good.to_string(),
        goodput,
        format!("{again:.2}%"),
        trip(|trips| trips.min),
        trip(|trips| trips.median),
        trip(|trips| trips.p99),
        both(|counts| counts.gaps).to_string(),
        both(|counts| counts.naks).to_string(),
        both(|counts| counts.rnrs).to_string(),
        both(|counts| counts.ecn_marks).to_string(),
        both(|counts| counts.cnps).to_string(),
        both(|counts| counts.becns).to_string(),
        DisplayDuration(connection.longest_stall).to_string(),
    ]
}

fn end(end: &FlowEnd) -> String {
    match end.qp {
        Some(qp) => format!("{} {qp}", end.address),
        None => format!("{} ?", end.address),
    }
}

pub(super) fn service(service: Option<Service>) -> &'static str {
    match service {
        Some(Service::Rc) => "RC",
        Some(Service::Uc) => "UC",
        Some(Service::Ud) => "UD",
        Some(Service::Cnp | Service::Extension) | None => "-",
    }
}

const COLUMNS: usize = 19;
/// Columns that hold names.
const NAMES: usize = 3;
const HEADINGS: [&str; COLUMNS] = [
    "from",
    "to",
    "type",
    "packets",
    "bytes",
    "messages",
    "payload",
    "goodput",
    "resent",
    "RTT min",
    "median",
    "99%",
    "gaps",
    "NAKs",
    "RNRs",
    "ECN",
    "CNPs",
    "BECN",
    "longest stall",
];
