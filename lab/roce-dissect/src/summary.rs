//! One-line summaries of packets.

use std::fmt::{self, Write};

use roce_wire::{BthView, GapReport, Headers, opcode};

use crate::tree::{CmMessage, is_management};
use crate::{Other, Packet, PacketKind, Roce, Severity};

impl Packet<'_> {
    /// Returns one line with addresses, summary and findings, for people to read. Allocates.
    pub fn summary_line(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_summary_line(&mut text);
        text
    }

    fn write_summary_line(&self, f: &mut String) -> fmt::Result {
        match &self.kind {
            PacketKind::Roce(roce) => {
                write!(f, "{} > {} {}", roce.source, roce.destination, roce.summary())?;
            }
            PacketKind::Pause(pause) => write!(f, "{pause}")?,
            PacketKind::Other(other) => {
                if let Some((source, destination)) = other.addresses() {
                    write!(f, "{source} > {destination} ")?;
                }
                write!(f, "{other}")?;
            }
        }
        if let Some(train) = self.roce().and_then(|roce| roce.train) {
            write!(f, " ({} of {} in a train)", train.index + 1, train.count)?;
        }
        for (i, finding) in self.findings.iter().enumerate() {
            let sign = if finding.severity() == Severity::Problem { "! " } else { "" };
            write!(f, "{}{sign}{finding}", if i == 0 { " | " } else { "; " })?;
        }
        Ok(())
    }
}

impl Roce<'_> {
    /// Returns the gap report that the packet carries, if it is one.
    pub fn gap_report(&self) -> Option<GapReport<'_>> {
        let is_report = |it: &Headers| it.bth.opcode == opcode::GAP_REPORT;
        self.headers.as_ref().filter(|it| is_report(it))?;
        GapReport::parse(self.payload)
    }

    /// Returns opcode, queue pair, PSN and payload length as text.
    pub fn summary(&self) -> PacketSummary<'_> {
        PacketSummary(self)
    }

    /// Returns the content of a management datagram, if this is one. Its `Display` is for people;
    /// [`Packet::layers`] has every field.
    pub fn management(&self) -> Option<Management> {
        is_management(self).then(|| Management(CmMessage::parse(self.payload)))
    }
}

/// Text of a management datagram; returned by [`Roce::management`].
#[derive(Clone, Copy, Debug)]
pub struct Management(Option<CmMessage>);

impl fmt::Display for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(message) => write!(f, "{message}"),
            None => f.write_str("management datagram"),
        }
    }
}

/// Text of a RoCE packet's opcode, queue pair, PSN and payload length; returned by [`Roce::summary`].
#[derive(Clone, Copy, Debug)]
pub struct PacketSummary<'a>(&'a Roce<'a>);

impl fmt::Display for PacketSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.headers, self.0.bth) {
            (Some(headers), _) => write!(f, "{headers}")?,
            (None, Some(bth)) => raw(f, bth)?,
            (None, None) => f.write_str("less than a transport header")?,
        }
        facts(f, self.0)
    }
}

fn raw(f: &mut fmt::Formatter<'_>, bth: BthView<'_>) -> fmt::Result {
    let name = roce_wire::KnownOpcode::new(bth.opcode()).map(|known| known.name());
    match name {
        Some(name) => f.write_str(name)?,
        None => write!(f, "opcode {:#04x}", bth.opcode().0)?,
    }
    write!(f, " qp {} psn {}", bth.dest_qp(), bth.psn())
}

/// Writes the payload length or the management datagram, which the text of the headers omits.
fn facts(f: &mut fmt::Formatter<'_>, roce: &Roce<'_>) -> fmt::Result {
    if let Some(message) = roce.management() {
        return write!(f, " {message}");
    }
    if let Some(report) = roce.gap_report() {
        let mut runs = report.runs();
        return runs.try_for_each(|it| write!(f, " misses {} keeps {}", it.missing, it.kept));
    }
    let carries = |headers: &Headers| headers.bth.opcode.info().carries_payload();
    match roce.headers.as_ref().is_some_and(carries) || roce.payload_len > 0 {
        true => write!(f, " {} bytes", roce.payload_len),
        false => Ok(()),
    }
}

impl Other {
    /// Returns source and destination, if the frame has them.
    pub const fn addresses(&self) -> Option<(std::net::IpAddr, std::net::IpAddr)> {
        match *self {
            Self::Protocol { source, destination, .. }
            | Self::Udp { source, destination, .. }
            | Self::Fragment { source, destination } => Some((source, destination)),
            Self::EtherType(_) | Self::Link(_) | Self::Broken => None,
        }
    }
}
