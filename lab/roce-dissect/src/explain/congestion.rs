//! Explains marks and congestion notifications: what the receiver does, and where to look next.

use roce_wire::{Ecn, Headers};

use super::reasons::Reasons;
use crate::{Finding, Packet};

/// Adds what the findings about congestion say, and BECN.
pub(super) fn explain(packet: &Packet<'_>, headers: &Headers, reasons: &mut Reasons) {
    for finding in packet.findings {
        if let Some(text) = text(finding) {
            reasons.say(text);
        }
    }
    if headers.bth.becn && headers.bth.opcode.info().is_response() {
        reasons.say(
            "BECN: the responder has received marked packets. A requester reduces its window or \
             its rate, or ignores the bit and waits for a CNP.",
        );
    }
}

fn text(finding: &Finding) -> Option<String> {
    let text = match finding {
        Finding::CongestionMarked => {
            "ECN: a switch marked it (CE). The receiver handles it as any other packet, and sends \
             a CNP to the sender's queue pair unless the last one is too recent."
        }
        Finding::MarkWithoutEct => {
            "ECN: such packets of this sender are Not-ECT, and switches drop these instead of \
             marking them. The sender changed its traffic class, or a device on the path rewrites \
             it. The receiver sends a CNP all the same. Compare the traffic class with a capture \
             at the sender's port."
        }
        Finding::CnpWithoutMark { is_capable: true } => {
            "ECN: the capture has no marked packet of this queue pair. It was taken before the \
             switch that marks, or a switch sends CNPs itself. Look for marks in a capture at the \
             receiver's port."
        }
        Finding::CnpWithoutMark { is_capable: false } => {
            "ECN: this queue pair sends Not-ECT packets, and no switch marks them. A switch sends \
             CNPs itself, or a device behind this point rewrites the traffic class. Look at the \
             traffic class in a capture at the receiver's port."
        }
        Finding::CnpRate { .. } => {
            return Some(format!(
                "Rate: {finding}, the shortest interval of cards; the DCQCN paper has 50 µs. The \
                 queue pair reduces its rate with each, or with one in its own period. Look at the \
                 receiver's time between CNPs (np_min_time_between_cnps), and whether a switch \
                 sends CNPs itself."
            ));
        }
        Finding::CnpEcn(Ecn::CongestionExperienced) => {
            "ECN: CNPs are sent as Not-ECT, and this one was even marked: it waited in a congested \
             queue. Look at the traffic class that the receiver gives CNPs, and at its queue."
        }
        Finding::CnpEcn(_) => {
            "ECN: CNPs are sent as Not-ECT. Look at the traffic class that the receiver gives \
             CNPs."
        }
        _ => return None,
    };
    Some(text.to_owned())
}
