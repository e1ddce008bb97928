//! What a receiver in the observed state would do with a packet, and why.

use roce_wire::{Headers, NakCode, Opcode, OpcodeInfo, Operation, Psn, Service, Syndrome};

use crate::{
    Checksum, DisplayDuration, Finding, FlowState, Icrc, Packet, PacketKind, Roce, Severity,
};

/// What a receiver would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Take it.
    Accept,
    /// Drop it in silence.
    Drop,
    /// Refuse it with a NAK.
    Nak,
    /// Answer it again without doing it again.
    Repeat,
    /// Nothing: it is not for RoCE.
    Ignore,
}

/// What a receiver in the observed state would do with a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What it would do.
    pub action: Action,
    /// That in a sentence.
    pub verdict: String,
    /// Each check it makes, in order, and what came of it.
    pub reasons: Vec<String>,
}

impl Packet<'_> {
    /// What a receiver in the observed state would do with this packet, and why.
    ///
    /// The state is what the capture told up to here: of a receiver that knows more, such as the
    /// keys of its memory, it says what cannot be known. Allocates: not for the fast path.
    pub fn explain(&self) -> Explanation {
        let mut reasons = Reasons::default();
        let (action, verdict) = match &self.kind {
            PacketKind::Roce(roce) => explain_roce(self, roce, &mut reasons),
            PacketKind::Pause(pause) => {
                let verdict = match pause.pauses() {
                    true => "The neighbour on this link stops sending for that long.",
                    false => "The neighbour on this link may send again.",
                };
                reasons.say("It is a frame between two neighbours on a link, and goes no further.");
                (Action::Ignore, verdict.to_owned())
            }
            PacketKind::Other(other) => {
                (Action::Ignore, format!("No RoCE receiver sees it: it is {other}."))
            }
        };
        Explanation { action, verdict, reasons: reasons.0 }
    }
}

/// The checks made so far.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    fn say(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

type Verdict = (Action, String);

fn verdict(action: Action, text: impl Into<String>) -> Verdict {
    (action, text.into())
}

fn explain_roce(packet: &Packet<'_>, roce: &Roce<'_>, reasons: &mut Reasons) -> Verdict {
    let Ok(headers) = check_bytes(packet, roce, reasons) else {
        return verdict(Action::Drop, "It is dropped in silence, and only counted.");
    };
    let info = headers.bth.opcode.info();
    let state = packet.flow.map(|flow| flow.state).unwrap_or_default();
    match info.service {
        Service::Cnp => {
            reasons
                .say(format!("A congestion notification for queue pair {}.", headers.bth.dest_qp));
            verdict(Action::Accept, "The queue pair sends more slowly from now on.")
        }
        Service::Ud => explain_datagram(&headers, reasons),
        _ if info.is_request() => explain_request(&headers, roce, &state, reasons),
        _ => explain_response(&headers, &state, reasons),
    }
}

/// What can be seen of the bytes alone, in the order in which a receiver looks.
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
            reasons.say(format!("UDP: checksum {carried:#06x}, {expected:#06x} is right."));
            return Err(());
        }
        Checksum::Offloaded => reasons.say(
            "UDP: only the pseudo-header is summed up; a network card was to do the rest, or the \
             frame never met a wire.",
        ),
        Checksum::None => reasons.say("UDP: no checksum, as usual: the ICRC guards more."),
        Checksum::Right => reasons.say("UDP: the checksum is right."),
        Checksum::Unchecked => reasons.say("UDP: the checksum cannot be checked here."),
    }
    match roce.icrc {
        Icrc::Right => reasons.say("ICRC: right."),
        Icrc::Wrong { carried, expected } => {
            reasons.say(format!(
                "ICRC: {carried:#010x} came, {expected:#010x} is right; nothing that the packet \
                 says can be trusted."
            ));
            return Err(());
        }
        Icrc::Unchecked(why) => {
            reasons.say(format!("ICRC: cannot be checked ({why}); taken to be right."));
        }
    }
    if let Some(train) = roce.train {
        reasons.say(format!(
            "Train: the frame holds {} packets of up to {} bytes, and this is number {}; each is \
             a packet of its own.",
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
                reasons.say(format!("Headers: {finding}; a receiver takes no notice."));
            }
            _ => {}
        }
    }
    roce.headers.ok_or(())
}

fn explain_datagram(headers: &Headers, reasons: &mut Reasons) -> Verdict {
    if let Some(deth) = headers.deth {
        reasons.say(format!(
            "Datagram from queue pair {}: taken if {:#010x} is the receiver's Q_Key, which the \
             capture does not tell.",
            deth.source_qp, deth.q_key
        ));
    }
    reasons.say("A datagram is a message of its own; its PSN is not looked at.");
    verdict(Action::Accept, "It goes to the next posted receive, or is dropped where none is.")
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
            "PSN {}: what came before is not known; taken to be the one that is expected.",
            bth.psn
        )),
        Some(expected) => {
            let distance = bth.psn.distance_from(expected);
            if distance > 0 && is_reliable {
                return explain_gap(bth.psn, expected, distance, state.gap_reported, reasons);
            }
            if distance > 0 {
                reasons.say(format!(
                    "PSN {}: {expected} was expected, so {distance} are lost; an unreliable \
                     connection goes on here.",
                    bth.psn
                ));
            } else if distance < 0 && is_reliable {
                return explain_duplicate(bth.psn, expected, info, reasons);
            } else if distance < 0 {
                reasons.say(format!("PSN {}: behind {expected}, which is expected.", bth.psn));
                return verdict(Action::Drop, "It is dropped in silence: it is late.");
            } else {
                reasons.say(format!("PSN {}: the one that is expected.", bth.psn));
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

fn explain_gap(
    psn: Psn,
    expected: Psn,
    missing: i32,
    gap_reported: bool,
    reasons: &mut Reasons,
) -> Verdict {
    reasons.say(format!("PSN {psn}: {expected} is expected, so {missing} packets are missing."));
    if gap_reported {
        reasons.say("The gap was told already, and is told once only.");
        return verdict(Action::Drop, format!("It is dropped in silence until {expected} comes."));
    }
    let text = format!("It is dropped, and refused with NAK PSN sequence error for {expected}.");
    verdict(Action::Nak, text)
}

fn explain_duplicate(psn: Psn, expected: Psn, info: OpcodeInfo, reasons: &mut Reasons) -> Verdict {
    let behind = expected.distance_from(psn);
    reasons.say(format!(
        "PSN {psn}: {behind} behind {expected}, which is expected: it was taken before, or the \
         capture began later."
    ));
    let text = match info.operation {
        Operation::ReadRequest => "The bytes are read again and sent again.",
        Operation::CompareSwap | Operation::FetchAdd => {
            "It is not done again: the answer that was kept is sent again."
        }
        _ => "It is not done again; everything up to now is acknowledged again.",
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
    if state.expected.is_none() || (open.is_none() && !info.position.is_first()) {
        reasons.say("Opcode: the message's beginning was not seen.");
        return None;
    }
    if info.may_follow(open) {
        reasons.say(match open {
            Some(_) => "Opcode: it goes on with the open message.",
            None => "Opcode: it begins a message.",
        });
        return None;
    }
    reasons.say("Opcode: a message is open, and this does not belong to it.");
    Some(invalid_request(is_reliable))
}

fn invalid_request(is_reliable: bool) -> Verdict {
    match is_reliable {
        true => verdict(
            Action::Nak,
            "It is refused with NAK invalid request, and the receiver's queue pair goes to error.",
        ),
        false => verdict(Action::Drop, "The message is dropped in silence."),
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
        (true, Some(mtu)) => len == mtu,
        (true, None) => roce_wire::PathMtu::from_bytes(len).is_some(),
        (false, mtu) => len <= mtu.unwrap_or(4096) && (len > 0 || info.position.is_first()),
    };
    let path_mtu = mtu.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
    if fits {
        reasons.say(format!("Length: {len} bytes, path MTU {path_mtu}."));
        return None;
    }
    reasons.say(format!("Length: {len} bytes do not fit a path MTU of {path_mtu} here."));
    Some(invalid_request(is_reliable))
}

fn accept_request(headers: &Headers, roce: &Roce<'_>, reasons: &mut Reasons) -> Verdict {
    let info = headers.bth.opcode.info();
    if let Some(reth) = headers.reth {
        reasons.say(format!(
            "Memory: {} bytes at {:#x} under key {:#010x}; whether the key gives that right the \
             capture does not tell. Where it does not: NAK remote access error.",
            reth.len, reth.address, reth.key
        ));
    }
    if let Some(atomic) = headers.atomic_eth {
        reasons.say(format!(
            "Memory: 8 bytes at {:#x} under key {:#010x}; {}.",
            atomic.address,
            atomic.key,
            match atomic.address % 8 {
                0 => "aligned as an atomic has to be",
                _ => "not a multiple of 8, which is refused with NAK invalid request",
            }
        ));
    }
    let len = roce.payload_len;
    let done = match info.operation {
        Operation::Send => format!("{len} bytes go to a posted receive (RNR NAK where none is)"),
        Operation::Write => format!("{len} bytes go to memory"),
        Operation::ReadRequest => "The bytes are read and sent back".to_owned(),
        _ => "Eight bytes are changed, and what they held is sent back".to_owned(),
    };
    let completes = match info.position.is_last() && info.operation == Operation::Send
        || headers.immediate.is_some()
    {
        true => "; a receive completes",
        false => "",
    };
    let acknowledged = match (headers.bth.ack_request, info.service) {
        (true, Service::Rc) => "; it is acknowledged at once, as it asks",
        (false, Service::Rc) if info.carries_payload() => "; it need not be acknowledged by itself",
        _ => "",
    };
    verdict(Action::Accept, format!("{done}{completes}{acknowledged}."))
}

fn explain_response(headers: &Headers, state: &FlowState, reasons: &mut Reasons) -> Verdict {
    let psn = headers.bth.psn;
    let (Some(unacknowledged), Some(sent)) = (state.unacknowledged, state.sent) else {
        reasons.say("The requests that it answers were not seen.");
        return verdict(Action::Accept, "The requester takes it, if it has asked for it.");
    };
    let last = sent.previous();
    if psn.distance_from(last) > 0 && headers.aeth.is_some_and(is_plain_ack) {
        reasons.say(format!("PSN {psn}: the last request that was sent has {last}."));
        return verdict(Action::Drop, "It acknowledges what was never sent, and is ignored.");
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
                "The requester waits {} and sends again from {psn} on; what is before is done.",
                DisplayDuration(timer.duration())
            ),
        ),
        Some(Syndrome::Nak(NakCode::PsnSequence)) => {
            verdict(Action::Accept, format!("The requester sends again from {psn} on, at once."))
        }
        Some(Syndrome::Nak(code)) => verdict(
            Action::Accept,
            format!("The request at {psn} fails ({code}), and the queue pair goes to error."),
        ),
        Some(Syndrome::Reserved(byte)) => {
            verdict(Action::Drop, format!("Nobody has defined syndrome {byte:#04x}."))
        }
        _ => explain_progress(headers, psn, unacknowledged, reasons),
    }
}

fn is_plain_ack(aeth: roce_wire::Aeth) -> bool {
    matches!(aeth.syndrome, Syndrome::Ack { .. })
}

fn explain_progress(
    headers: &Headers,
    psn: Psn,
    unacknowledged: Psn,
    reasons: &mut Reasons,
) -> Verdict {
    let packets = psn.advanced_by(1).distance_from(unacknowledged);
    let operation = headers.bth.opcode.info().operation;
    if packets <= 0 {
        reasons.say("Everything that it acknowledges was acknowledged before.");
        let text = match operation {
            Operation::Acknowledge => "It tells nothing new, and is ignored.",
            _ => "It belongs to an answer that is asked for again, or is ignored.",
        };
        return verdict(Action::Accept, text);
    }
    if packets > 1 {
        reasons.say(format!(
            "An answer to {psn} says that the {} packets before it have arrived too.",
            packets - 1
        ));
    }
    let text = match operation {
        Operation::ReadResponse => "The bytes go to where the READ wants them.".to_owned(),
        Operation::AtomicAck => "What the eight bytes held goes to the requester.".to_owned(),
        _ => format!("{packets} packets are done; messages that end there complete."),
    };
    verdict(Action::Accept, text)
}

/// A packet with a problem: for those who want to see only these.
impl Packet<'_> {
    /// Was anything found that is wrong, or was lost?
    pub fn has_problem(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity() == Severity::Problem)
    }
}
