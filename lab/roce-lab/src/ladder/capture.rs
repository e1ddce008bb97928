//! Ladders from captures.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

use roce_dissect::{
    Capture, CaptureError, Dissector, Event, Finding, NotACapture, Options, Packet, PacketKind,
    Severity,
};
use roce_transport::Instant;
use thiserror::Error;

use super::Ladder;
use super::columns::{Columns, LadderRow, kept_for};
use crate::packet_label::PacketLabel;

/// Reason why a capture cannot be converted to a ladder.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureLadderError {
    /// The read failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is not a capture.
    #[error("{0}")]
    NotACapture(NotACapture),
}

impl From<CaptureError> for CaptureLadderError {
    fn from(why: CaptureError) -> Self {
        match why {
            CaptureError::Io(why) => Self::Io(why),
            CaptureError::NotACapture(what) => Self::NotACapture(what),
        }
    }
}

impl Ladder {
    /// Returns the ladder of a capture's first `max_packets` RoCE packets.
    ///
    /// A capture has one time for each packet, so arrows have no slope. Connection tracking marks
    /// retransmissions and gaps.
    ///
    /// # Errors
    /// [`CaptureLadderError`]. A capture without RoCE packets gives an empty ladder.
    pub fn of_capture(
        reader: impl Read,
        name: &str,
        max_packets: usize,
    ) -> Result<Self, CaptureLadderError> {
        let mut capture = Capture::open(reader)?;
        let mut dissector = Dissector::new(Options::default());
        let mut collector = PacketCollector::new(max_packets);
        let mut damages = 0u64;
        while let Some(event) = capture.next_event()? {
            match event {
                Event::Frame(frame) => {
                    dissector.handle_frame(frame, |packet| collector.add(packet))
                }
                Event::Damage(_) => damages += 1,
            }
        }
        let mut subtitle = format!(
            "{} RoCE packets between {} hosts",
            collector.columns.len() as u64 + collector.left_out,
            collector.hosts.len()
        );
        if damages > 0 {
            subtitle += &format!("; {damages} damaged parts of the file were skipped");
        }
        Ok(Self {
            title: name.to_owned(),
            subtitle,
            hosts: collector.hosts.iter().map(ToString::to_string).collect(),
            columns: collector.columns,
            remarks: Vec::new(),
            sections: Vec::new(),
            question: None,
            chunks: Vec::new(),
            left_out: collector.left_out,
            losses: Vec::new(),
            hex_psns: true,
        })
    }
}

/// Collects the packets of a capture.
struct PacketCollector {
    columns: Columns,
    hosts: Vec<IpAddr>,
    places: HashMap<IpAddr, usize>,
    start: Option<u64>,
    max_packets: usize,
    left_out: u64,
}

impl PacketCollector {
    fn new(max_packets: usize) -> Self {
        Self {
            // The total size is known only at the end, so assume the largest.
            columns: Columns::new(kept_for(max_packets, usize::MAX)),
            hosts: Vec::new(),
            places: HashMap::new(),
            start: None,
            max_packets,
            left_out: 0,
        }
    }

    fn add(&mut self, packet: &Packet<'_>) {
        let PacketKind::Roce(roce) = &packet.kind else { return };
        if self.columns.len() >= self.max_packets {
            self.left_out += 1;
            return;
        }
        let (from, to) = (self.place(roce.source), self.place(roce.destination));
        let start = *self.start.get_or_insert(packet.frame.time.0);
        let mut label = match &roce.headers {
            Some(headers) => PacketLabel::of(headers, roce.payload, roce.payload_len),
            None => PacketLabel::other(roce.summary().to_string()),
        };
        for finding in packet.findings {
            if let Finding::Gap { missing, .. } = finding {
                label.facts.push(format!("{missing} missing before"));
            }
        }
        let is_again = |finding: &Finding| {
            matches!(finding, Finding::Retransmission | Finding::Duplicate { .. })
        };
        let is_damage = |finding: &Finding| matches!(finding, Finding::Icrc { .. });
        let findings = packet.findings.iter().filter(|it| {
            it.severity() >= Severity::Notice || matches!(it, Finding::MessageEnd { .. })
        });
        let findings: Vec<_> = findings.map(ToString::to_string).collect();
        let row = LadderRow {
            number: packet.frame.number,
            from,
            to,
            sent: Instant::from_nanos(packet.frame.time.0.saturating_sub(start)),
            arrivals: Vec::new(),
            lost: false,
            damaged: packet.findings.iter().any(is_damage),
            again: packet.findings.iter().any(is_again),
            label,
            findings: findings.join("; "),
            len: packet.frame.original_len as usize,
        };
        self.columns.push(&row, &packet.layers(), packet.frame.bytes);
    }

    /// Returns the column of a host. Hosts above the limit share the last one.
    fn place(&mut self, address: IpAddr) -> usize {
        if let Some(place) = self.places.get(&address) {
            return *place;
        }
        let place = self.hosts.len().min(MAX_HOSTS - 1);
        if self.hosts.len() < MAX_HOSTS {
            self.hosts.push(address);
        }
        // Addresses that share a column are not stored: their number is not bounded.
        if place + 1 < MAX_HOSTS {
            self.places.insert(address, place);
        }
        place
    }
}

/// Maximum number of host columns on a page.
const MAX_HOSTS: usize = 64;
