//! Packets as columns with shared strings, for the page's data.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use roce_dissect::Layer;
use roce_transport::Instant;
use serde::Serialize;

use crate::packet_label::{PacketClass, PacketLabel};

/// A packet of a ladder.
#[derive(Clone, Debug)]
pub struct LadderRow {
    /// Number of the packet; in a capture, of its frame, from 1.
    pub number: u64,
    /// Index of the sending host.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// Time of the first bit, or capture time.
    pub sent: Instant,
    /// Arrival times of the last bit; empty if unknown.
    pub arrivals: Vec<Instant>,
    /// The packet is lost.
    pub lost: bool,
    /// The packet is corrupted, or its ICRC is wrong.
    pub damaged: bool,
    /// The packet is a retransmission.
    pub again: bool,
    /// Label on the arrow.
    pub label: PacketLabel,
    /// Findings as text.
    pub findings: String,
    /// Length of the frame in bytes.
    pub len: usize,
}

/// Returns the number of bytes of each frame to keep, which limits the size of the page.
pub(crate) fn kept_for(packets: usize, total: usize) -> usize {
    match (packets, total) {
        (_, total) if total <= 2 << 20 => usize::MAX,
        (packets, _) if packets <= 10_000 => 256,
        _ => 128,
    }
}

/// Packets of a page.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Columns {
    /// Bytes to keep of each frame.
    #[serde(skip)]
    kept: usize,
    #[serde(skip)]
    interner: HashMap<String, u32>,
    #[serde(skip)]
    known_shapes: HashMap<Vec<ShapeLayer>, u32>,
    /// Distinct strings.
    strings: Vec<String>,
    /// Distinct arrangements of layers and fields.
    shapes: Vec<Vec<ShapeLayer>>,
    number: Vec<u64>,
    from: Vec<u32>,
    to: Vec<u32>,
    /// Nanoseconds; above 104 days JavaScript loses precision.
    sent: Vec<u64>,
    /// Nanoseconds after `sent`; -1 if unknown.
    took: Vec<i64>,
    /// Duplicated packets: index and nanoseconds after `sent`.
    copies: Vec<(usize, u64)>,
    /// Flags: 1 lost, 2 damaged, 4 retransmission.
    flags: Vec<u8>,
    class: Vec<u8>,
    name: Vec<u32>,
    /// -1 if none.
    psn: Vec<i64>,
    qp: Vec<i64>,
    facts: Vec<u32>,
    findings: Vec<u32>,
    len: Vec<u32>,
    shape: Vec<u32>,
    /// Values of all fields, packet by packet.
    values: Vec<u32>,
    /// First bytes of each frame in base64.
    bytes: Vec<String>,
}

/// Name, first byte, end, fields.
type ShapeLayer = (u32, u32, u32, Vec<(u32, u32, u32)>);

/// Classes in the order of the page's indexes.
pub(crate) const CLASSES: [PacketClass; 6] = [
    PacketClass::Data,
    PacketClass::Request,
    PacketClass::Response,
    PacketClass::Ack,
    PacketClass::Nak,
    PacketClass::Other,
];

impl Columns {
    pub(crate) fn new(kept: usize) -> Self {
        Self { kept, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.from.len()
    }

    pub(crate) fn push(&mut self, row: &LadderRow, layers: &[Layer], frame: &[u8]) {
        let place = self.len();
        let sent = row.sent.as_nanos();
        let took = |at: &Instant| at.as_nanos().saturating_sub(sent);
        self.number.push(row.number);
        self.from.push(row.from as u32);
        self.to.push(row.to as u32);
        self.sent.push(sent);
        self.took.push(row.arrivals.first().map_or(-1, |at| took(at) as i64));
        self.copies.extend(row.arrivals.iter().skip(1).map(|at| (place, took(at))));
        let flags = [(row.lost, 1), (row.damaged, 2), (row.again, 4)];
        self.flags.push(flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum());
        let class = CLASSES.iter().position(|class| *class == row.label.class);
        self.class.push(class.unwrap_or(CLASSES.len() - 1) as u8);
        let name = self.intern(&row.label.name);
        self.name.push(name);
        self.psn.push(row.label.psn.map_or(-1, i64::from));
        self.qp.push(row.label.dest_qp.map_or(-1, i64::from));
        let facts = self.intern(&row.label.facts.join(", "));
        self.facts.push(facts);
        let findings = self.intern(&row.findings);
        self.findings.push(findings);
        self.len.push(row.len as u32);
        self.push_layers(layers);
        let kept = &frame[..frame.len().min(self.kept)];
        self.bytes.push(STANDARD_NO_PAD.encode(kept));
    }

    fn push_layers(&mut self, layers: &[Layer]) {
        let mut shape = Vec::with_capacity(layers.len());
        for layer in layers {
            let name = self.intern(layer.name);
            let mut fields = Vec::with_capacity(layer.fields.len());
            for field in &layer.fields {
                let bytes = (field.bytes.start as u32, field.bytes.end as u32);
                fields.push((self.intern(field.name), bytes.0, bytes.1));
                let value = if field.note.is_empty() {
                    self.intern(&field.value.to_string())
                } else {
                    self.intern(&format!("{} ({})", field.value, field.note))
                };
                self.values.push(value);
            }
            shape.push((name, layer.range.start as u32, layer.range.end as u32, fields));
        }
        let place = match self.known_shapes.get(&shape) {
            Some(place) => *place,
            None => {
                let place = self.shapes.len() as u32;
                self.shapes.push(shape.clone());
                self.known_shapes.insert(shape, place);
                place
            }
        };
        self.shape.push(place);
    }

    fn intern(&mut self, text: &str) -> u32 {
        if let Some(place) = self.interner.get(text) {
            return *place;
        }
        let place = self.strings.len() as u32;
        self.strings.push(text.to_owned());
        self.interner.insert(text.to_owned(), place);
        place
    }
}
