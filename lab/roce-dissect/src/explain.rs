//! Explains how a receiver in the observed state handles a packet.

mod congestion;
mod flush;
mod reasons;

use roce_wire::{
    ATOMIC_WRITE_LEN, Headers, NakCode, Opcode, OpcodeInfo, Operation, Psn, Service, Syndrome,
};

use self::reasons::Reasons;
use crate::{
    Checksum, DisplayDuration, Finding, FlowState, Icrc, Packet, PacketKind, Roce, Severity,
};

/// Action of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Accepts the packet.
    Accept,
    /// Drops the packet without a NAK.
    Drop,
    /// Keeps the packet until an earlier one arrives, or drops it: then it is sent again. Which of
    /// both depends on the receiver.
    KeepOrDrop,
    /// Refuses the packet and sends a NAK. Behind a gap it may keep the packet.
    Nak,
    /// Repeats the response without executing the request again.
    Repeat,
    /// None: the frame is not RoCE.
    Ignore,
}

/// How a receiver in the observed state handles a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The action.
    pub action: Action,
    /// The action as a sentence.
    pub verdict: String,
    /// Results of the receiver's checks, in order.
    pub reasons: Vec<String>,
}

impl Packet<'_> {
    /// Explains how a receiver handles this packet.
    ///
    /// The receiver's state is taken from the capture up to this packet. What a capture cannot
    /// show, such as memory keys, is named as unknown. Allocates: not for the fast path.
    pub fn explain(&self) -> Explanation {
        let mut reasons = Reasons::default();
        let (action, verdict) = match &self.kind {
            PacketKind::Roce(roce) => explain_roce(self, roce, &mut reasons),
            PacketKind::Pause(pause) => {
                let verdict = match pause.pauses() {
                    true => "The neighbour on this link stops sending for that time.",
                    false => "The neighbour on this link may send again.",
                };
                reasons.say("A pause frame is not forwarded: it holds for this link only.");
                (Action::Ignore, verdict.to_owned())
            }
            PacketKind::Other(other) => {
                (Action::Ignore, format!("No RoCE receiver handles it: it is {other}."))
            }
        };
        Explanation { action, verdict, reasons: reasons.0 }
    }
}

type Verdict = (Action, String);

fn verdict(action: Action, text: impl Into<String>) -> Verdict {
    (action, text.into())
}

fn explain_roce(packet: &Packet<'_>, roce: &Roce<'_>, reasons: &mut Reasons) -> Verdict {
    let Ok(headers) = check_bytes(packet, roce, reasons) else {
        return verdict(Action::Drop, "The receiver drops it without a NAK and counts it.");
    };
    let info = headers.bth.opcode.info();
    let state = packet.flow.map(|flow| flow.state).unwrap_or_default();
    if info.service == Service::Cnp {
        reasons.say(format!("Congestion notification for queue pair {}.", headers.bth.dest_qp));
    }
    congestion::explain(packet, &headers, reasons);
    match info.service {
        Service::Cnp => verdict(Action::Accept, "The queue pair reduces its rate."),
        Service::Extension => {
            reasons.say(format!("Gap report for queue pair {}.", headers.bth.dest_qp));
            verdict(
                Action::Accept,
                "The requester repairs each gap. Other implementations drop it.",
            )
        }
        Service::Ud => explain_datagram(&headers, reasons),
        _ if info.is_request() => explain_request(&headers, roce, &state, reasons),
        _ => explain_response(&headers, roce.payload_len, &state, reasons),
    }
}

/// Makes the checks that need the bytes alone, in the order of a receiver.
fn check_bytes(packet: &Packet<'_>, roce: &Roce<'_>, reasons: &mut Reasons) -> Result<Headers, ()> {
    for finding in packet.findings {
        if let Finding::Ipv4Checksum { .. } | Finding::Fragment | Finding::IpLength { .. } = finding
        {
            reasons.say(format!("IP: {finding}."));
            return Err(());
        }
    }
    match roce.udp_checksum {
        Checksum::Wrong { carried, expected } => {
            reasons
                .say(format!("UDP: checksum {carried:#06x} is wrong, expected {expected:#06x}."));
            return Err(());
        }
        Checksum::Offloaded => reasons.say(
            "UDP: checksum over the pseudo-header alone: captured before the network card \
             completed it, or on a virtual link.",
        ),
        Checksum::None => {
            reasons.say("UDP: no checksum, as usual in RoCEv2: the ICRC covers more.")
        }
        Checksum::Right => reasons.say("UDP: the checksum is correct."),
        Checksum::Unchecked => {
            reasons.say("UDP: checksum not checked: part of the datagram was not captured.")
        }
    }
    match roce.icrc {
        Icrc::Right => reasons.say("ICRC: correct."),
        Icrc::Wrong { carried, expected } => {
            reasons.say(format!(
                "ICRC: {carried:#010x} is wrong, expected {expected:#010x}: any field may be \
                 damaged."
            ));
            return Err(());
        }
        Icrc::Unchecked(why) => {
            reasons.say(format!("ICRC: not checked ({why}); assumed correct."));
        }
    }
    if let Some(train) = roce.train {
        reasons.say(format!(
            "Train: the frame holds {} packets of up to {} bytes; this is number {}.",
            train.count,
            train.segment_len,
            train.index + 1
        ));
    }
    for finding in packet.findings {
        match finding {
            Finding::Wire(error) => {
                reasons.say(format!("Headers: {error}."));
                return Err(());
            }
            Finding::ReservedBits { .. } | Finding::PadNotZero => {
                reasons.say(format!("Headers: {finding}; receivers ignore this."));
            }
            _ => {}
        }
    }
    roce.headers.ok_or(())
}

fn explain_datagram(headers: &Headers, reasons: &mut Reasons) -> Verdict {
    if let Some(deth) = headers.deth {
        reasons.say(format!(
            "Datagram from queue pair {}: accepted if {:#010x} is the receiver's Q_Key, which the \
             capture does not show.",
            deth.source_qp, deth.q_key
        ));
    }
    reasons.say("A datagram is a complete message; the receiver ignores its PSN.");
    verdict(
        Action::Accept,
        "The data go to the next posted receive; without one the datagram is dropped.",
    )
}

fn explain_request(
    headers: &Headers,
    roce: &Roce<'_>,
    state: &FlowState,
    reasons: &mut Reasons,
) -> Verdict {
    let bth = &headers.bth;
    let info = bth.opcode.info();
    let is_reliable = info.service == Service::Rc;
    match state.expected {
        None => reasons.say(format!(
            "PSN {}: no earlier packet was captured; assumed to be the expected PSN.",
            bth.psn
        )),
        Some(expected) => {
            let distance = bth.psn.distance_from(expected);
            let seen = state.seen_ahead;
            if is_reliable && u32::try_from(distance).is_ok_and(|ahead| ahead > seen) {
                return explain_gap(bth.psn, expected.advanced_by(seen), state, reasons);
            }
            if distance > 0 && is_reliable {
                reasons.say(format!(
                    "PSN {}: the {distance} packets from {expected} on were sent before, and not \
                     again: the receiver has kept them, or asks for them.",
                    bth.psn
                ));
            } else if distance > 0 {
                reasons.say(format!(
                    "PSN {}: {expected} was expected, so {distance} packets are lost; an \
                     unreliable connection continues here.",
                    bth.psn
                ));
            } else if distance < 0 && is_reliable {
                return explain_duplicate(bth.psn, expected, info, reasons);
            } else if distance < 0 {
                reasons.say(format!("PSN {}: earlier than the expected {expected}.", bth.psn));
                return verdict(Action::Drop, "The receiver drops it: it is late.");
            } else {
                reasons.say(format!("PSN {}: the expected one.", bth.psn));
            }
        }
    }
    if let Some(refused) = check_opcode(info, state, is_reliable, reasons) {
        return refused;
    }
    if let Some(refused) = check_lengths(headers, roce, state, is_reliable, reasons) {
        return refused;
    }
    accept_request(headers, roce, reasons)
}

fn explain_gap(psn: Psn, missing: Psn, state: &FlowState, reasons: &mut Reasons) -> Verdict {
    reasons.say(format!("PSN {psn}: {missing} is missing before it."));
    reasons.say(
        "Receivers either keep packets behind a gap or drop them; dropped ones are sent again.",
    );
    if state.gap_reported {
        reasons.say("The receiver has sent a NAK for this gap; it sends one NAK for a gap.");
        let text = format!("The receiver keeps it until {missing} arrives, or drops it.");
        return verdict(Action::KeepOrDrop, text);
    }
    let text = format!(
        "The receiver keeps it until {missing} arrives, or drops it, and sends NAK PSN sequence \
         error for {missing}."
    );
    verdict(Action::Nak, text)
}

fn explain_duplicate(psn: Psn, expected: Psn, info: OpcodeInfo, reasons: &mut Reasons) -> Verdict {
    let behind = expected.distance_from(psn);
    reasons.say(format!(
        "PSN {psn}: {behind} before the expected {expected}: the receiver has it already, or the \
         capture began later."
    ));
    let text = match info.operation {
        Operation::ReadRequest => "The responder reads the memory again and sends the data again.",
        Operation::CompareSwap | Operation::FetchAdd => {
            "The responder does not execute it again: it repeats the stored response."
        }
        Operation::Flush | Operation::AtomicWrite => {
            "The responder does not execute it again, and repeats the empty response."
        }
        _ => "The responder does not execute it again, and repeats the acknowledgement.",
    };
    verdict(Action::Repeat, text)
}

fn check_opcode(
    info: OpcodeInfo,
    state: &FlowState,
    is_reliable: bool,
    reasons: &mut Reasons,
) -> Option<Verdict> {
    let open = state.open.and_then(Opcode::info);
    if open.is_none() && !info.position.is_first() {
        reasons.say("Opcode: the first packet of the message was not captured.");
        return None;
    }
    if info.may_follow(open) {
        reasons.say(match open {
            Some(_) => "Opcode: continues the current message.",
            None => "Opcode: begins a message.",
        });
        return None;
    }
    reasons.say("Opcode: does not continue the current message.");
    Some(invalid_request(is_reliable))
}

fn invalid_request(is_reliable: bool) -> Verdict {
    match is_reliable {
        true => verdict(
            Action::Nak,
            "The responder sends NAK invalid request, and its queue pair enters the error state.",
        ),
        false => verdict(Action::Drop, "The receiver drops the message without a NAK."),
    }
}

fn check_lengths(
    headers: &Headers,
    roce: &Roce<'_>,
    state: &FlowState,
    is_reliable: bool,
    reasons: &mut Reasons,
) -> Option<Verdict> {
    let info = headers.bth.opcode.info();
    let (len, mtu) = (roce.payload_len, state.mtu.map(usize::from));
    if !info.carries_payload() {
        return None;
    }
    let fits = match (info.position.opens(), mtu) {
        _ if info.operation == Operation::AtomicWrite => len == ATOMIC_WRITE_LEN,
        (true, Some(mtu)) => len == mtu,
        (true, None) => roce_wire::PathMtu::from_bytes(len).is_some(),
        (false, mtu) => len <= mtu.unwrap_or(4096) && (len > 0 || info.position.is_first()),
    };
    if info.operation == Operation::AtomicWrite {
        reasons.say(format!("Length: {len} bytes; an ATOMIC WRITE has {ATOMIC_WRITE_LEN}."));
        return (!fits).then(|| invalid_request(is_reliable));
    }
    let path_mtu = mtu.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
    if fits {
        reasons.say(format!("Length: {len} bytes, path MTU {path_mtu}."));
        return None;
    }
    reasons.say(format!("Length: {len} bytes are wrong for a path MTU of {path_mtu}."));
    Some(invalid_request(is_reliable))
}

fn accept_request(headers: &Headers, roce: &Roce<'_>, reasons: &mut Reasons) -> Verdict {
    let info = headers.bth.opcode.info();
    if let Some(feth) = headers.feth {
        reasons.say(flush::sentence(feth));
        if feth.extent().is_none() {
            return invalid_request(true);
        }
    }
    if let Some(reth) = headers.reth {
        if info.operation == Operation::AtomicWrite && reth.addr % 8 != 0 {
            reasons.say(format!("Memory: {:#x} is not a multiple of 8.", reth.addr));
            return invalid_request(true);
        }
        reasons.say(format!(
            "Memory: {} bytes at {:#x} under key {:#010x}. The capture does not show whether the \
             key allows that; if not, the responder sends NAK remote access error.",
            reth.len, reth.addr, reth.rkey
        ));
    }
    if let Some(atomic) = headers.atomic_eth {
        reasons.say(format!(
            "Memory: 8 bytes at {:#x} under key {:#010x}; {}.",
            atomic.addr,
            atomic.rkey,
            match atomic.addr % 8 {
                0 => "aligned",
                _ => "not a multiple of 8: the responder sends NAK invalid request",
            }
        ));
    }
    let len = roce.payload_len;
    let done = match info.operation {
        Operation::Send => format!("{len} bytes go to a posted receive (without one: RNR NAK)"),
        Operation::Write => format!("{len} bytes go to memory"),
        Operation::ReadRequest => "The responder reads the memory and sends the data".to_owned(),
        Operation::Flush => {
            "The responder sends an empty response once earlier WRITEs are placed as asked"
                .to_owned()
        }
        Operation::AtomicWrite => {
            "The responder stores eight bytes at once and sends an empty response".to_owned()
        }
        _ => "The responder changes eight bytes and sends their previous value".to_owned(),
    };
    let completes = match info.position.is_last() && info.operation == Operation::Send
        || headers.immediate.is_some()
    {
        true => "; a receive completes",
        false => "",
    };
    let acknowledged = match (headers.bth.ack_request, info.service) {
        _ if matches!(info.operation, Operation::Flush | Operation::AtomicWrite) => "",
        (true, Service::Rc) => "; the responder acknowledges it, as requested",
        (false, Service::Rc) if info.carries_payload() => {
            "; it requests no acknowledgement of its own"
        }
        _ => "",
    };
    verdict(Action::Accept, format!("{done}{completes}{acknowledged}."))
}

fn explain_response(
    headers: &Headers,
    payload_len: usize,
    state: &FlowState,
    reasons: &mut Reasons,
) -> Verdict {
    let psn = headers.bth.psn;
    let (Some(unacknowledged), Some(sent)) = (state.unacknowledged, state.sent) else {
        reasons.say("The requests were not captured.");
        return verdict(Action::Accept, "The requester accepts it if it has sent such a request.");
    };
    let last = sent.previous();
    if psn.distance_from(last) > 0 && headers.aeth.is_some_and(is_plain_ack) {
        reasons.say(format!("PSN {psn}: the last request sent has {last}."));
        return verdict(
            Action::Drop,
            "The requester ignores it: it acknowledges a PSN that was never sent.",
        );
    }
    let outstanding = match sent.distance_from(unacknowledged) {
        0 => "nothing is outstanding".to_owned(),
        1 => format!("{unacknowledged} is outstanding"),
        many => format!("{many} from {unacknowledged} on are outstanding"),
    };
    reasons.say(format!("PSN {psn}: {outstanding}."));
    match headers.aeth.map(|aeth| aeth.syndrome) {
        Some(Syndrome::RnrNak { timer }) => verdict(
            Action::Accept,
            format!(
                "The requester waits {} and retransmits from {psn} on; earlier requests are complete.",
                DisplayDuration(timer.duration())
            ),
        ),
        Some(Syndrome::Nak(NakCode::PsnSequence)) => {
            let text = format!(
                "The requester retransmits {psn}, and what follows unless the receiver keeps it."
            );
            verdict(Action::Accept, text)
        }
        Some(Syndrome::Nak(code)) => verdict(
            Action::Accept,
            format!(
                "The request at {psn} fails ({code}), and the queue pair enters the error state."
            ),
        ),
        Some(Syndrome::Reserved(byte)) => {
            verdict(Action::Drop, format!("Syndrome {byte:#04x} is reserved."))
        }
        _ => explain_progress(headers, payload_len, unacknowledged, reasons),
    }
}

fn is_plain_ack(aeth: roce_wire::Aeth) -> bool {
    matches!(aeth.syndrome, Syndrome::Ack { .. })
}

fn explain_progress(
    headers: &Headers,
    payload_len: usize,
    unacknowledged: Psn,
    reasons: &mut Reasons,
) -> Verdict {
    let psn = headers.bth.psn;
    let packets = psn.advanced_by(1).distance_from(unacknowledged);
    let operation = headers.bth.opcode.info().operation;
    if packets <= 0 {
        reasons.say("All requests up to this PSN were acknowledged before.");
        let text = match operation {
            Operation::Acknowledge => "The requester ignores it: it acknowledges nothing new.",
            _ => "The requester accepts it as part of a repeated response, or ignores it.",
        };
        return verdict(Action::Accept, text);
    }
    if packets > 1 {
        reasons.say(format!(
            "A response to {psn} also acknowledges the {} packets before it.",
            packets - 1
        ));
    }
    let text = match operation {
        Operation::ReadResponse if payload_len == 0 => {
            "The READ of no bytes, FLUSH or ATOMIC WRITE is executed.".to_owned()
        }
        Operation::ReadResponse => "The data go to the memory that the READ named.".to_owned(),
        Operation::AtomicAck => {
            "The previous value of the eight bytes goes to the requester.".to_owned()
        }
        _ => format!("{packets} packets are acknowledged; messages that end there complete."),
    };
    verdict(Action::Accept, text)
}

impl Packet<'_> {
    /// Returns true if a finding has [`Severity::Problem`].
    pub fn has_problem(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity() == Severity::Problem)
    }
}
