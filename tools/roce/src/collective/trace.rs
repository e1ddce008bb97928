//! What happened at all ranks, in one timeline.

use std::fmt::Write as _;

use roce_collectives::{Report, TimelineEvent};
use roce_ring::{Collective, Machine};
use roce_verbs::TraceValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that happened, as ranks tell it: when (nanoseconds since the Unix epoch), what,
/// and details in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event(u64, String, Vec<(String, Value)>);

/// The same with its rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankEvent {
    pub(crate) rank: u32,
    pub(crate) event: Event,
}

/// How the timeline is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    Text,
    Json,
}

impl From<&TimelineEvent> for Event {
    fn from(moment: &TimelineEvent) -> Self {
        let mut fields: Vec<(String, Value)> = Vec::new();
        let mut say = |name: &str, value: Value| fields.push((name.to_owned(), value));
        let name = match moment {
            TimelineEvent::Device { event, step } => {
                let kind = event.kind.fields();
                // Changes of state come first, then the step of a message.
                for (name, value) in kind.iter().filter(|(name, _)| matches!(*name, "from" | "to"))
                {
                    say(name, json_value(value));
                }
                if let Some((step, piece)) = step {
                    say("step", Value::from(*step));
                    say("piece", Value::from(*piece));
                }
                say("qp", Value::from(event.qpn.get()));
                for (name, value) in kind.iter().filter(|(name, _)| !matches!(*name, "from" | "to"))
                {
                    say(name, json_value(value));
                }
                event.kind.name()
            }
            TimelineEvent::Began { number, operation, .. } => {
                say("operation", Value::from(*number));
                let collective = operation.collective;
                say("collective", Value::from(collective.name()));
                if collective != Collective::Barrier {
                    say("type", Value::from(operation.data_type.name()));
                    say("count", Value::from(operation.count));
                }
                if collective.reduces() {
                    say("op", Value::from(operation.op.name()));
                }
                if collective.has_root() {
                    say("root", Value::from(operation.root));
                }
                "begin"
            }
            TimelineEvent::Received { step, piece, lane, bytes, .. } => {
                say("step", Value::from(*step));
                say("piece", Value::from(*piece));
                say("lane", Value::from(*lane));
                say("bytes", Value::from(*bytes));
                "received"
            }
            TimelineEvent::Ended { number, .. } => {
                say("operation", Value::from(*number));
                "end"
            }
        };
        Self(moment.at(), name.to_owned(), fields)
    }
}

fn json_value(value: &TraceValue) -> Value {
    match value {
        TraceValue::Number(number) => Value::from(*number),
        TraceValue::Word(word) => Value::from(*word),
        TraceValue::Text(text) => Value::from(text.as_str()),
    }
}

/// Packs events into texts that each fit a message of the bootstrap.
pub(crate) fn pack(events: &[Event]) -> Vec<String> {
    let mut packs = Vec::new();
    let mut text = String::new();
    let mut weight = 0;
    for event in events {
        // Events consist of numbers and names: this cannot fail.
        let Ok(one) = serde_json::to_string(event) else { continue };
        // Percent-encoding turns some bytes into three.
        let escaped = |byte: &u8| !byte.is_ascii_graphic() || *byte == b'%';
        let len = 1 + one.len() + 2 * one.as_bytes().iter().filter(|byte| escaped(byte)).count();
        if weight + len > MAX_MESSAGE_TEXT && !text.is_empty() {
            packs.push(format!("[{text}]"));
            text.clear();
            weight = 0;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{one}");
        weight += len;
    }
    if !text.is_empty() {
        packs.push(format!("[{text}]"));
    }
    packs
}

/// Unpacks the events of a report; malformed ones are left out.
pub(crate) fn unpack(report: &Report) -> Vec<RankEvent> {
    let text = report.value("events").unwrap_or_default();
    let events: Vec<Event> = serde_json::from_str(text).unwrap_or_default();
    events.into_iter().map(|event| RankEvent { rank: report.rank, event }).collect()
}

/// Sorts the events of all ranks into one timeline.
pub(crate) fn merge(mut events: Vec<RankEvent>) -> Vec<RankEvent> {
    // Stable: events of one rank in one nanosecond keep their order.
    events.sort_by_key(|one| one.event.0);
    events
}

/// Returns the lines of the timeline, the first event at 0.
pub(crate) fn lines(events: &[RankEvent], form: Form) -> impl Iterator<Item = String> {
    let start = events.first().map_or(0, |first| first.event.0);
    // The text groups repeated events; JSON has every event.
    let same = move |one: &RankEvent, next: &RankEvent| {
        form == Form::Text
            && (one.rank, &one.event.1, &one.event.2) == (next.rank, &next.event.1, &next.event.2)
    };
    events.chunk_by(same).map(move |run| match (form, run.len()) {
        (Form::Json, _) => json_line(&run[0], start),
        (Form::Text, 1) => text_line(&run[0], start),
        (Form::Text, times) => format!("{}  ({times} times)", text_line(&run[0], start)),
    })
}

/// The names of the columns.
pub(crate) const COLUMNS: &str = "\
#
# Events of all ranks (us since the first event, by the clocks of the hosts)
#         us  rank  event         detail";

fn text_line(RankEvent { rank, event: Event(at, name, fields) }: &RankEvent, start: u64) -> String {
    let mut detail = String::new();
    let is_write = fields.iter().any(|(key, value)| key == "op" && value == "RDMA_WRITE");
    for (key, value) in fields {
        let space = if detail.is_empty() { "" } else { " " };
        let _ = match (key.as_str(), value) {
            ("id", Value::Number(id)) if is_write => {
                let (_, lane, request) = Machine::send_of(id.as_u64().unwrap_or_default());
                write!(detail, "{space}lane={lane} request={request}")
            }
            ("qp" | "psn", Value::Number(number)) => {
                write!(detail, "{space}{key}=0x{:06x}", number.as_u64().unwrap_or_default())
            }
            ("from", Value::String(from)) => write!(detail, "{space}{from}->"),
            ("to", Value::String(to)) => write!(detail, "{to}"),
            // The status needs no name.
            ("status", Value::String(text)) => write!(detail, "{space}{text}"),
            (_, Value::String(text)) => write!(detail, "{space}{key}={text}"),
            _ => write!(detail, "{space}{key}={value}"),
        };
    }
    format!("{:>12.1}  {rank:>4}  {name:<12}  {detail}", micros(*at, start))
}

fn json_line(RankEvent { rank, event: Event(at, name, fields) }: &RankEvent, start: u64) -> String {
    let mut line = Map::new();
    line.insert("at_us".to_owned(), Value::from(micros(*at, start)));
    line.insert("rank".to_owned(), Value::from(*rank));
    line.insert("event".to_owned(), Value::from(name.as_str()));
    line.extend(fields.iter().cloned());
    Value::Object(line).to_string()
}

fn micros(at: u64, start: u64) -> f64 {
    at.saturating_sub(start) as f64 / 1e3
}

/// Bytes of events per message of at most 8192 bytes.
const MAX_MESSAGE_TEXT: usize = 7500;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roce_collectives::{DataType, Operation, ReduceOp};
    use roce_verbs::{QpState, Qpn, TraceEvent, TraceKind};

    use super::*;

    fn moments() -> Vec<TimelineEvent> {
        let event = |at, kind, step| TimelineEvent::Device {
            event: TraceEvent { at, qpn: Qpn::new(17).unwrap(), kind },
            step,
        };
        let operation = roce_verbs::CompletionOperation::Write;
        let status = roce_verbs::CompletionStatus::Success;
        vec![
            event(5_000, TraceKind::StateChanged { from: QpState::Reset, to: QpState::Init }, None),
            event(6_500, TraceKind::PostRecv { wr_id: 7 }, None),
            TimelineEvent::Began {
                at: 8_000,
                number: 0,
                operation: Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1),
            },
            event(9_000, TraceKind::PostSend { wr_id: 1, operation, bytes: 4 }, Some((0, 0))),
            TimelineEvent::Received { at: 12_345, step: 0, piece: 0, lane: 0, bytes: 4 },
            event(
                13_000,
                TraceKind::PollCq { wr_id: 1, operation, status, bytes: 4 },
                Some((0, 0)),
            ),
            TimelineEvent::Ended { at: 14_000, number: 0 },
        ]
    }

    fn sent(rank: u32, moments: &[TimelineEvent]) -> Vec<RankEvent> {
        let events: Vec<Event> = moments.iter().map(Event::from).collect();
        let packs = pack(&events).into_iter();
        let report = |text| {
            let fields = vec![("events".to_owned(), text)];
            Report { rank, kind: "trace".to_owned(), fields }
        };
        packs.flat_map(|text| unpack(&report(text))).collect()
    }

    #[test]
    fn repeated_events_are_one_line_of_text() {
        let events = merge(sent(0, &[moments()[1], moments()[1], moments()[1], moments()[2]]));
        let text: Vec<_> = lines(&events, Form::Text).collect();
        assert_eq!(text.len(), 2);
        assert!(text[0].ends_with("post_recv     qp=0x000011 id=7  (3 times)"), "{}", text[0]);
        assert_eq!(lines(&events, Form::Json).count(), 4);
    }

    #[test]
    fn the_timelines_of_all_ranks_become_one() {
        let mut both = sent(1, &moments()[1..]);
        both.extend(sent(0, &moments()));
        let merged = merge(both);
        let text: Vec<_> = lines(&merged, Form::Text).collect();
        insta::assert_snapshot!("trace", format!("{COLUMNS}\n{}", text.join("\n")));
        let json: Vec<_> = lines(&merged, Form::Json).collect();
        assert!(json.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()));
        insta::assert_snapshot!("trace_json", json.join("\n"));
    }

    proptest! {
        #[test]
        fn packed_events_fit_a_message_and_are_unpacked_unchanged(
            words in proptest::collection::vec(".{0,200}", 0..200),
        ) {
            let fields = |word: &String| vec![("why".to_owned(), Value::from(word.as_str()))];
            let events: Vec<_> =
                words.iter().map(|word| Event(1, "dropped".to_owned(), fields(word))).collect();
            let packs = pack(&events);
            for text in &packs {
                let line = roce_collectives::Message::new("REPORT").with("kind", "trace").with("events", text);
                prop_assert!(line.encode().is_ok());
            }
            let back = packs.into_iter().flat_map(|text| {
                let fields = vec![("events".to_owned(), text)];
                unpack(&Report { rank: 0, kind: "trace".to_owned(), fields })
            });
            prop_assert!(back.map(|one| one.event).eq(events));
        }
    }
}
