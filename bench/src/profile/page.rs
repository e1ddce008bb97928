//! The tables: what each end's time goes into, by group of functions, and by function.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::groups::ALL;
use super::{Profile, Recorded, Stack, Workload, group};
use crate::report::{Figure, Figures};

/// The part of the page about a workload; `graph` names the file of an end's graph.
pub fn page(
    workload: &Workload,
    recorded: &[Recorded],
    graph: &dyn Fn(&str, &str) -> String,
) -> String {
    let mut text = format!("## {}\n\n", workload.title);
    for one in recorded {
        // A String takes everything.
        let _ = writeln!(text, "- {}: {}", one.title, reached(&one.figures));
    }
    let columns: Vec<Column<'_>> = recorded
        .iter()
        .flat_map(|one| one.ends.iter().map(move |end| (one, end)))
        .map(|(one, end)| Column {
            head: format!("[{}, {}]({})", one.title, end.name, graph(&one.name, &end.name)),
            profile: &end.profile,
            unit: unit(&one.figures),
        })
        .collect();
    let _ = write!(text, "\n{}\n", by_group(&columns));
    if let Some(unit) = columns.first().and_then(|column| column.unit.as_ref()) {
        let _ = writeln!(text, "{}", in_time(&columns, unit.name));
    }
    let _ = write!(text, "By function, those with {MIN_PERCENT} % somewhere:\n\n");
    let _ = writeln!(text, "{}", by_function(&columns));
    text
}

struct Column<'a> {
    head: String,
    profile: &'a Profile,
    unit: Option<Unit>,
}

/// What an end's time can be told by: how long it takes for one of what is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unit {
    name: &'static str,
    long: f64,
}

impl Column<'_> {
    fn percent(&self, wanted: impl Fn(&Stack) -> bool) -> f64 {
        let stacks = self.profile.stacks.iter().filter(|stack| wanted(stack));
        let count: u64 = stacks.map(|stack| stack.count).sum();
        count as f64 * 100.0 / self.profile.count().max(1) as f64
    }
}

fn by_group(columns: &[Column<'_>]) -> String {
    let mut text = head("share of ticks, %", columns);
    for known in ALL {
        let shares: Vec<f64> =
            columns.iter().map(|column| column.percent(|stack| group(stack) == *known)).collect();
        // Nowhere found, or too seldom to say anything. What has no name is always shown.
        if known.name == "other" || shares.iter().any(|share| *share >= 0.05) {
            text += &row(known.name, shares);
        }
    }
    text += &row("all", columns.iter().map(|column| column.percent(|_| true)));
    let busy = columns.iter().map(|column| column.profile.busy() * 100.0);
    text + &row("of the time, on a processor", busy)
}

/// The same as processor time for one of what is counted: this can be compared between candidates
/// that are not equally fast.
fn in_time(columns: &[Column<'_>], unit: &str) -> String {
    let mut text = head(unit, columns);
    let scale = |column: &Column<'_>| {
        column.unit.as_ref().map_or(0.0, |unit| unit.long * column.profile.busy().min(1.0) / 100.0)
    };
    for known in ALL {
        let times: Vec<f64> = columns
            .iter()
            .map(|column| column.percent(|stack| group(stack) == *known) * scale(column))
            .collect();
        if times.iter().any(|time| *time >= 0.05) {
            text += &row(known.name, times);
        }
    }
    text + &row("all", columns.iter().map(|column| 100.0 * scale(column)))
}

fn by_function(columns: &[Column<'_>]) -> String {
    let mut functions: BTreeMap<(String, &str), f64> = BTreeMap::new();
    for column in columns {
        let all = column.profile.count().max(1) as f64;
        let mut here: BTreeMap<(String, &str), u64> = BTreeMap::new();
        for stack in &column.profile.stacks {
            *here.entry((innermost(stack), group(stack).name)).or_default() += stack.count;
        }
        for (function, count) in here {
            let share = count as f64 * 100.0 / all;
            let most = functions.entry(function).or_default();
            *most = most.max(share);
        }
    }
    let mut functions: Vec<_> =
        functions.into_iter().filter(|(_, most)| *most >= MIN_PERCENT).collect();
    functions.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut text = head("function (what it does)", columns);
    for ((function, group_name), _) in functions {
        let shares = columns.iter().map(|column| {
            column.percent(|stack| innermost(stack) == function && group(stack).name == group_name)
        });
        text += &row(&format!("`{function}` ({group_name})"), shares);
    }
    text
}

fn innermost(stack: &Stack) -> String {
    let Some(frame) = stack.frames.first() else { return "?".to_owned() };
    match &frame.file {
        // An inlined function's name alone says little.
        Some(file) if !frame.name.contains("::") && !frame.name.starts_with("in ") => {
            format!("{}, {}", frame.name, file.rsplit('/').next().unwrap_or(file))
        }
        _ => frame.name.clone(),
    }
}

fn head(first: &str, columns: &[Column<'_>]) -> String {
    let heads: Vec<&str> = columns.iter().map(|column| column.head.as_str()).collect();
    format!("| {first} | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(columns.len()))
}

fn row(name: &str, values: impl IntoIterator<Item = f64>) -> String {
    let cell = |value: f64| match value {
        // As good as none: a column of zeros hides what there is.
        small if small < 0.05 => String::new(),
        value => format!("{value:.1}"),
    };
    let cells: Vec<String> = values.into_iter().map(cell).collect();
    format!("| {} | {} |\n", name.replace('|', "\\|"), cells.join(" | "))
}

/// What was reached.
fn reached(figures: &Figures) -> String {
    let told = |figure: Figure| figures.get(&figure).map(|value| figure.with_unit(*value));
    if let Some(median) = told(Figure::MicrosMedian) {
        return format!("{median} half a round trip");
    }
    if let Some(busbw) = told(Figure::BusGbytes) {
        return format!("busbw {busbw}");
    }
    let figure = if is_rate(figures) { Figure::PerSecond } else { Figure::Gbits };
    told(figure).unwrap_or_else(|| "nothing".to_owned())
}

/// Of small messages it is the number that counts.
fn is_rate(figures: &Figures) -> bool {
    figures.get(&Figure::PerSecond).is_some_and(|rate| *rate > 1e6)
}

fn unit(figures: &Figures) -> Option<Unit> {
    if let Some(micros) = figures.get(&Figure::MicrosMedian) {
        return Some(Unit { name: "nanoseconds, half a round trip", long: micros * 1e3 });
    }
    if let Some(rate) = figures.get(&Figure::PerSecond).filter(|_| is_rate(figures)) {
        return Some(Unit { name: "nanoseconds a message", long: 1e9 / rate });
    }
    // Bits of a MiB, and 10⁹ a second in microseconds.
    let gbits = figures.get(&Figure::Gbits).filter(|gbits| **gbits > 0.0)?;
    Some(Unit { name: "microseconds a MiB", long: 8.0 * f64::from(1 << 20) / 1e3 / gbits })
}

const MIN_PERCENT: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{EndProfile, Frame, Place};
    use crate::suite::Topology;

    fn recorded() -> Recorded {
        let frame = |name: &str| Frame { name: name.to_owned(), file: None, place: Place::Kernel };
        let stack = |names: &[&str], count| Stack {
            frames: names.iter().map(|name| frame(name)).collect(),
            count,
        };
        let stacks = vec![
            stack(&["__pi_memcpy", "skb_copy_bits", "tpacket_rcv"], 600),
            stack(&["tpacket_rcv"], 395),
            stack(&["nobody_knows"], 5),
        ];
        // Half of the time it was running.
        let profile = Profile { stacks, seconds: 2000.0 / 1999.0 };
        Recorded {
            name: "roce".to_owned(),
            title: "roce write".to_owned(),
            figures: [(Figure::Gbits, 50.0)].into(),
            ends: vec![EndProfile { name: "client".to_owned(), profile }],
        }
    }

    #[test]
    fn shares_add_up_and_what_has_no_name_is_shown() {
        let workload = Workload {
            name: "write-1m",
            title: "WRITE",
            longer: 1.0,
            topology: Topology::Cable { mtu: 4300 },
            candidates: Vec::new(),
        };
        let text = page(&workload, &[recorded()], &|one, end| format!("{one}-{end}.svg"));
        for line in [
            "## WRITE",
            "- roce write: 50.0 Gbit/s",
            "| share of ticks, % | [roce write, client](roce-client.svg) |",
            "| kernel: copy into the peer's ring | 60.0 |",
            "| kernel: receiving socket | 39.5 |",
            "| other | 0.5 |",
            "| of the time, on a processor | 50.0 |",
            "| microseconds a MiB | [roce write, client](roce-client.svg) |",
            "| all | 83.9 |",
            "| all | 100.0 |",
            "| `__pi_memcpy` (kernel: copy into the peer's ring) | 60.0 |",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("nobody_knows"), "less than a percent\n{text}");
    }

    #[test]
    fn what_was_reached_is_told_in_what_is_counted() {
        let rate = [(Figure::PerSecond, 8e6), (Figure::Gbits, 0.5)].into();
        assert_eq!(reached(&rate), "8.00 M/s");
        assert_eq!(unit(&rate).map(|unit| unit.long), Some(125.0));
        let messages = [(Figure::PerSecond, 6e3), (Figure::Gbits, 50.0)].into();
        assert_eq!(reached(&messages), "50.0 Gbit/s");
        assert!(unit(&messages).is_some_and(|unit| (unit.long - 167.77).abs() < 0.01));
        let latency = [(Figure::MicrosMedian, 1.5)].into();
        assert_eq!(reached(&latency), "1.50 µs half a round trip");
        assert_eq!(unit(&latency).map(|unit| unit.long), Some(1500.0));
    }
}
