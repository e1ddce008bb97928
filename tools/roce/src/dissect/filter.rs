//! The filter of packets.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use roce_dissect::{Connection, Finding, Packet, PacketKind, Roce};
use roce_wire::{KnownOpcode, Opcode, Psn, Qpn};

use crate::parse_number;

/// The filter of packets: any value of one kind, and all kinds.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which packets")]
pub(super) struct Filter {
    /// Packets to or from this queue pair (from: once its number is known)
    #[arg(long, value_name = "QPN", value_parser = parse_qpn)]
    qp: Vec<Qpn>,
    /// Packets that meet a condition on their fields, such as `qp == 0x12 and not findings == gap`
    #[arg(short = 'Y', long = "filter", alias = "display-filter", value_name = "FILTER")]
    display: Option<roce_dissect::Filter>,
    /// Packets with this finding, such as nak or gap
    #[arg(long, value_name = "NAME", value_parser = parse_finding)]
    finding: Vec<String>,
    /// Packets of this opcode: a number, or a part of its name such as `write` or `"uc send"`
    #[arg(long, value_name = "OPCODE", value_parser = parse_opcodes)]
    opcode: Vec<Opcodes>,
    /// Packets with a PSN from A to B, both included
    #[arg(long, value_name = "A..B", value_parser = parse_psns)]
    psn: Vec<Psns>,
    /// Packets to or from this address
    #[arg(long, value_name = "ADDRESS")]
    host: Vec<IpAddr>,
    /// Packets with problems, or RoCE packets and pause frames only
    #[arg(long, value_name = "WHAT", value_enum)]
    only: Option<Only>,
}

/// The values of `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    Problems,
    Roce,
}

/// The opcodes that match a word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Opcodes(Vec<Opcode>);

/// A range of PSNs, which may wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Psns {
    first: Psn,
    len: u32,
}

impl Filter {
    /// Returns true if the packet is shown.
    pub(super) fn takes(&self, packet: &Packet<'_>) -> bool {
        match self.only {
            Some(Only::Problems) if !packet.has_problem() => return false,
            Some(Only::Roce) if matches!(packet.kind, PacketKind::Other(_)) => return false,
            _ => {}
        }
        let has_finding = |wanted: &String| packet.findings.iter().any(|it| it.name() == wanted);
        if !self.finding.is_empty() && !self.finding.iter().any(has_finding) {
            return false;
        }
        if self.display.as_ref().is_some_and(|filter| !filter.matches(packet)) {
            return false;
        }
        match &packet.kind {
            PacketKind::Roce(roce) => self.takes_roce(packet, roce),
            PacketKind::Pause(_) => !self.is_narrow() && self.host.is_empty(),
            PacketKind::Other(other) => {
                let is_host = |(source, destination)| {
                    self.host.iter().any(|host| *host == source || *host == destination)
                };
                !self.is_narrow()
                    && (self.host.is_empty() || other.addresses().is_some_and(is_host))
            }
        }
    }

    /// Returns true if the connection is in the table.
    pub(super) fn takes_connection(&self, connection: &Connection) -> bool {
        let ends = [connection.a, connection.b];
        let has_qp = |qp: &Qpn| ends.iter().any(|end| end.qp == Some(*qp));
        let has_host = |host: &IpAddr| ends.iter().any(|end| end.address == *host);
        (self.qp.is_empty() || self.qp.iter().any(has_qp))
            && (self.host.is_empty() || self.host.iter().any(has_host))
    }

    /// Returns true if the filter names conditions, findings, queue pairs, opcodes, PSNs or hosts.
    pub(super) fn names_packets(&self) -> bool {
        let is_named = self.display.is_some() || !self.finding.is_empty();
        is_named || self.is_narrow() || !self.host.is_empty()
    }

    /// Returns true if only RoCE packets can match.
    fn is_narrow(&self) -> bool {
        !(self.qp.is_empty() && self.opcode.is_empty() && self.psn.is_empty())
    }

    fn takes_roce(&self, packet: &Packet<'_>, roce: &Roce<'_>) -> bool {
        let source_qp = packet.flow.and_then(|flow| flow.source_qp);
        let has_qp = |qp: &Qpn| roce.dest_qp() == Some(*qp) || source_qp == Some(*qp);
        let has_opcode =
            |wanted: &Opcodes| roce.opcode().is_some_and(|opcode| wanted.0.contains(&opcode));
        let has_psn = |wanted: &Psns| roce.psn().is_some_and(|psn| wanted.contains(psn));
        let has_host = |host: &IpAddr| roce.source == *host || roce.destination == *host;
        (self.qp.is_empty() || self.qp.iter().any(has_qp))
            && (self.opcode.is_empty() || self.opcode.iter().any(has_opcode))
            && (self.psn.is_empty() || self.psn.iter().any(has_psn))
            && (self.host.is_empty() || self.host.iter().any(has_host))
    }
}

impl Psns {
    fn contains(self, psn: Psn) -> bool {
        (psn.get().wrapping_sub(self.first.get()) & (Psn::MODULUS - 1)) < self.len
    }
}

fn parse_qpn(text: &str) -> Result<Qpn, String> {
    let number = parse_number::parse_u32(text)?;
    Qpn::new(number).ok_or_else(|| "a queue pair number has 24 bits".to_owned())
}

fn parse_psn(text: &str) -> Result<Psn, String> {
    let number = parse_number::parse_u32(text)?;
    Psn::new(number).ok_or_else(|| "a PSN has 24 bits".to_owned())
}

fn parse_psns(text: &str) -> Result<Psns, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (parse_psn(first)?, parse_psn(last)?);
    let len = (last.get().wrapping_sub(first.get()) & (Psn::MODULUS - 1)) + 1;
    if last.get() < first.get() && len > Psn::MODULUS / 2 {
        return Err(format!(
            "{text} ends before it begins: write the smaller PSN first (a range may pass 0xffffff, \
             such as 0xfffff0..5, but then covers at most half of all PSNs)"
        ));
    }
    Ok(Psns { first, len })
}

fn parse_finding(text: &str) -> Result<String, String> {
    let name = text.to_lowercase();
    if Finding::NAMES.contains(&name.as_str()) || name.starts_with("drop_") {
        return Ok(name);
    }
    Err(format!("no finding has that name; there are {}", Finding::NAMES.join(", ")))
}

fn parse_opcodes(text: &str) -> Result<Opcodes, String> {
    if let Ok(number) = parse_number::parse(text) {
        let code = u8::try_from(number).map_err(|_| "an opcode has 8 bits".to_owned())?;
        return Ok(Opcodes(vec![Opcode(code)]));
    }
    let wanted = text.to_lowercase();
    let named = KnownOpcode::all().filter(|known| known.name().to_lowercase().contains(&wanted));
    let opcodes: Vec<Opcode> = named.map(KnownOpcode::code).collect();
    match opcodes.is_empty() {
        true if Finding::NAMES.contains(&wanted.as_str()) => {
            Err(format!("that is a finding and no opcode: write --finding {wanted}"))
        }
        true => Err("no opcode has that in its name; try send, write, read, ack, cnp".to_owned()),
        false => Ok(Opcodes(opcodes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_psns_may_wrap_around() {
        let psns = parse_psns("0xfffffe..1").unwrap();
        for psn in [0xff_fffe, 0xff_ffff, 0, 1] {
            assert!(psns.contains(Psn::wrapping(psn)));
        }
        assert!(!psns.contains(Psn::wrapping(2)) && !psns.contains(Psn::wrapping(0xff_fffd)));
        assert!(parse_psns("7").unwrap().contains(Psn::wrapping(7)));
        assert!(parse_psns("1..0x1000000").is_err());
    }

    #[test]
    fn a_range_of_psns_that_ends_before_it_begins_is_refused() {
        let error = parse_psns("9..5").unwrap_err();
        assert!(error.starts_with("9..5 ends before it begins"), "{error}");
        assert!(parse_psns("0..0xffffff").unwrap().contains(Psn::wrapping(7)));
    }

    #[test]
    fn an_opcode_is_found_by_number_and_by_any_part_of_its_name() {
        assert_eq!(parse_opcodes("0x81"), Ok(Opcodes(vec![Opcode(0x81)])));
        assert_eq!(parse_opcodes("cnp"), Ok(Opcodes(vec![Opcode(0x81)])));
        assert_eq!(parse_opcodes("UD send").unwrap().0.len(), 2);
        assert_eq!(parse_opcodes("write").unwrap().0.len(), 13);
        assert!(parse_opcodes("frobnicate").is_err());
    }
}
