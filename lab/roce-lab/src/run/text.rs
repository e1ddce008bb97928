//! The run of a lesson as text, with ladders.

use std::fmt::Write;
use std::ops::Range;

use roce_transport::Instant;

use super::record::{Inspection, LessonRun, SectionRun};
use crate::packet_label::{PacketClass, PacketLabel};
use roce_simnet::{Event, EventKind, PacketRecord};

/// Options of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Print the layers of these packets; the first is 1.
    pub layers_of: Vec<usize>,
    /// Print the layers of every packet.
    pub all_layers: bool,
    /// Print all lines of long ladders.
    pub all_lines: bool,
    /// Use terminal colours.
    pub colour: bool,
}

impl Default for TextOptions {
    /// No layers, long ladders shortened, no colour.
    fn default() -> Self {
        Self { layers_of: Vec::new(), all_layers: false, all_lines: false, colour: false }
    }
}

impl LessonRun {
    /// Returns the whole text: title, sections, question and answer.
    pub fn text(&self, options: &TextOptions) -> String {
        let mut text = self.title(options);
        for place in 0..self.sections.len() {
            text += "\n";
            text += &self.section(place, options);
        }
        text + "\n" + &self.question(options) + "\n" + &self.answer(options)
    }

    /// Returns title, summary and hosts.
    pub fn title(&self, options: &TextOptions) -> String {
        let lesson = &self.lesson;
        let style = Style(options.colour);
        let line = lesson.full_title();
        let mut text = format!("{}\n", style.bold(&line));
        text += &fold(&lesson.summary, 0);
        let world = &lesson.world;
        if !lesson.fabric.is_empty() {
            return text;
        }
        if lesson.capture.is_some() {
            let _ = writeln!(text, "\n{}   times of one clock", world.hosts.join(", "));
            return text;
        }
        let rate = world.rate.map_or_else(String::new, |rate| format!(", {rate}"));
        let delay = world.delay;
        let way = if world.hosts.len() > 2 { "each link to the switch" } else { "one way" };
        let _ = writeln!(text, "\n{}   {way} takes {delay}{rate}", world.hosts.join(", "));
        text
    }

    /// Returns a section: text, ladder, inspections, text.
    ///
    /// # Panics
    /// If there is no such section.
    pub fn section(&self, place: usize, options: &TextOptions) -> String {
        let section = &self.sections[place];
        let words = &self.lesson.section[place];
        let mut text = fold(&words.say, 0);
        let ladder = self.ladder(section, options);
        if !ladder.is_empty() {
            if !text.is_empty() {
                text += "\n";
            }
            text += &ladder;
        }
        for shown in &section.shown {
            text += "\n";
            text += &inspection_text(shown, options);
        }
        for plot in &section.plots {
            text += "\n";
            let shown = Inspection { title: plot.title.clone(), lines: plot.lines.clone() };
            text += &inspection_text(&shown, options);
        }
        if !words.then.is_empty() {
            if !text.is_empty() {
                text += "\n";
            }
            text += &fold(&words.then, 0);
        }
        text
    }

    /// Returns the question.
    pub fn question(&self, options: &TextOptions) -> String {
        let style = Style(options.colour);
        format!("{}\n{}", style.bold("Question"), fold(&self.lesson.question.ask, 2))
    }

    /// Returns the answer.
    pub fn answer(&self, options: &TextOptions) -> String {
        let style = Style(options.colour);
        format!("{}\n{}", style.bold("Answer"), fold(&self.lesson.question.answer, 2))
    }

    fn ladder(&self, section: &SectionRun, options: &TextOptions) -> String {
        let mut rows = self.rows(section);
        if !options.all_lines {
            rows.retain(|row| match *row {
                Row::Packet(_) => true,
                Row::Event(place) => !self.is_hidden(&self.timeline.events[place].kind),
            });
        }
        let mut text = String::new();
        if rows.is_empty() {
            return text;
        }
        let writer = LadderWriter { run: self, options, style: Style(options.colour) };
        writer.head(&mut text);
        let hidden = if options.all_lines { 0..0 } else { self.hidden(&rows, options) };
        for (place, row) in rows.iter().enumerate() {
            if place == hidden.start && !hidden.is_empty() {
                writer.gap(&mut text, &rows[hidden.clone()]);
            }
            if hidden.contains(&place) {
                continue;
            }
            writer.row(&mut text, *row);
        }
        text
    }

    /// Returns the text of an event. Where hosts have several queue pairs, it names the one concerned.
    pub(crate) fn words(&self, event: &Event) -> String {
        match event.qpn.filter(|_| self.lesson.connection.queue_pairs > 1) {
            Some(qpn) => format!("{}, QP {:#x}", event.kind, qpn.get()),
            None => event.kind.to_string(),
        }
    }

    /// Returns what a packet shows. Where hosts have several queue pairs, it names the receiving one.
    pub(crate) fn label(&self, packet: &PacketRecord) -> PacketLabel {
        let mut label = PacketLabel::of_frame(&packet.frame);
        if packet.marked {
            label.facts.push("marked".to_owned());
        }
        if self.lesson.connection.queue_pairs > 1 {
            label.facts.extend(label.dest_qp.map(|qpn| format!("to QP {qpn:#x}")));
        }
        label
    }

    /// Returns true if events of this kind are shown only with `all_lines`.
    pub(crate) fn is_hidden(&self, kind: &EventKind) -> bool {
        self.lesson.hide.iter().any(|class| class == kind.class())
    }

    /// Returns the packets and events of a section in order of time.
    fn rows(&self, section: &SectionRun) -> Vec<Row> {
        let timeline = &self.timeline;
        let packets = section.packets.clone().map(|place| {
            let packet = &timeline.packets[place];
            ((packet.sent, 2 * packet.events_before), Row::Packet(place))
        });
        let events = section
            .events
            .clone()
            .map(|place| ((timeline.events[place].at, 2 * place + 1), Row::Event(place)));
        let mut rows: Vec<_> = packets.chain(events).collect();
        rows.sort_by_key(|(key, _)| *key);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Returns the rows of a long ladder that are left out: ordinary ones in the middle.
    fn hidden(&self, rows: &[Row], options: &TextOptions) -> Range<usize> {
        if rows.len() <= MAX_ROWS {
            return 0..0;
        }
        let is_remarkable = |row: &Row| match *row {
            Row::Packet(place) => {
                let packet = &self.timeline.packets[place];
                packet.lost || packet.again || packet.damaged || options.shows_layers(place)
            }
            Row::Event(place) => !matches!(
                self.timeline.events[place].kind,
                EventKind::Acknowledged { .. } | EventKind::WindowResized { .. }
            ),
        };
        // The longest run of ordinary rows without the head and the tail.
        let (mut best, mut start) = (0..0, HEAD_ROWS);
        for (place, row) in rows.iter().enumerate().take(rows.len() - TAIL_ROWS).skip(HEAD_ROWS) {
            if is_remarkable(row) {
                start = place + 1;
            } else if place + 1 - start > best.len() {
                best = start..place + 1;
            }
        }
        if best.len() < MIN_HIDDEN_ROWS { 0..0 } else { best }
    }
}

impl TextOptions {
    fn shows_layers(&self, place: usize) -> bool {
        self.all_layers || self.layers_of.contains(&(place + 1))
    }
}

/// A row of a ladder.
#[derive(Clone, Copy, Debug)]
enum Row {
    Packet(usize),
    Event(usize),
}

/// Writes the rows of a ladder.
struct LadderWriter<'a> {
    run: &'a LessonRun,
    options: &'a TextOptions,
    style: Style,
}

/// Maximum number of rows of a ladder that is printed in full.
const MAX_ROWS: usize = 48;
/// Rows that are always printed at the start of a ladder.
const HEAD_ROWS: usize = 14;
/// Rows that are always printed at the end of a ladder.
const TAIL_ROWS: usize = 10;
/// Minimum number of rows to leave out.
const MIN_HIDDEN_ROWS: usize = 8;
/// Characters between the two life lines.
const BETWEEN: usize = 62;

impl LadderWriter<'_> {
    /// Returns the names of two hosts, which stand at either side; `None` for more hosts, which are
    /// named on every line.
    fn names(&self) -> Option<[&str; 2]> {
        match &self.run.lesson.world.hosts[..] {
            [a, b] => Some([a, b]),
            _ => None,
        }
    }

    fn head(&self, text: &mut String) {
        if let Some([left, right]) = self.names() {
            let gap = (BETWEEN + 2).saturating_sub(left.chars().count());
            let names = format!("{left}{right:>gap$}");
            let _ = writeln!(text, "{:>11}  {}", "", self.style.bold(&names));
        }
    }

    fn row(&self, text: &mut String, row: Row) {
        match row {
            Row::Packet(place) => {
                let packet = &self.run.timeline.packets[place];
                match self.names() {
                    Some(_) => self.packet(text, place, packet),
                    None => self.packet_of_many(text, place, packet),
                }
                if self.options.shows_layers(place) {
                    let lines = crate::packet_layers::lines(&packet.frame);
                    let title = format!("packet {}, layer by layer", place + 1);
                    text.push_str(&inspection_text(&Inspection { title, lines }, self.options));
                }
            }
            Row::Event(place) => {
                let event = &self.run.timeline.events[place];
                match self.names() {
                    Some(_) => self.event(text, event),
                    None => self.event_of_many(text, event),
                }
            }
        }
    }

    fn packet(&self, text: &mut String, place: usize, packet: &PacketRecord) {
        let label = self.run.label(packet);
        let again = if packet.again { "again: " } else { "" };
        let words =
            format!(" #{} {again}{} ", place + 1, label.line(self.run.lesson.capture.is_some()));
        let to_right = packet.from == 0;
        let fill = BETWEEN.saturating_sub(words.chars().count() + 4).max(2);
        let line = "─".repeat(fill);
        let arrow = match (to_right, packet.lost) {
            (true, false) => format!("├──{words}{line}─▶│"),
            (true, true) => format!("├──{words}{} ╳ │", "─".repeat(fill - 1)),
            (false, false) => format!("│◀─{line}{words}──┤"),
            (false, true) => format!("│ ╳ {}{words}──┤", "─".repeat(fill - 1)),
        };
        let _ = writeln!(
            text,
            "{:>11}  {}  {}",
            time(packet.sent),
            self.style.packet(label.class, packet, &arrow),
            fate(packet)
        );
    }

    fn event(&self, text: &mut String, event: &Event) {
        let words = self.run.words(event);
        let is_staged = matches!(event.kind, EventKind::Scripted { .. });
        let mark = if is_staged { ' ' } else { '•' };
        for (place, line) in wrap(&words, BETWEEN - 4).into_iter().enumerate() {
            let (at, mark) = match place {
                0 => (time(event.at), mark),
                _ => (String::new(), ' '),
            };
            let line = match event.host {
                0 => format!("│ {mark} {line:<width$}│", width = BETWEEN - 3),
                _ => format!("│{line:>width$} {mark} │", width = BETWEEN - 3),
            };
            let _ = writeln!(text, "{at:>11}  {}", self.style.event(&event.kind, &line));
        }
    }

    fn packet_of_many(&self, text: &mut String, place: usize, packet: &PacketRecord) {
        let hosts = &self.run.lesson.world.hosts;
        let label = PacketLabel::of_frame(&packet.frame);
        let again = if packet.again { "again: " } else { "" };
        let arrow = if packet.lost { "─╳ " } else { "──▶" };
        let words = format!(
            "{:>8} {arrow} {:<8} #{} {again}{}",
            hosts[packet.from],
            hosts[packet.to],
            place + 1,
            label.line(self.run.lesson.capture.is_some())
        );
        let words = self.style.packet(label.class, packet, &format!("{words:<72}"));
        let _ = writeln!(text, "{:>11}  {words}  {}", time(packet.sent), fate(packet));
    }

    fn event_of_many(&self, text: &mut String, event: &Event) {
        let host = &self.run.lesson.world.hosts[event.host];
        let line = format!("{host:>8}  •  {}", event.kind);
        let _ = writeln!(text, "{:>11}  {}", time(event.at), self.style.event(&event.kind, &line));
    }

    /// Writes the number of packets and events left out.
    fn gap(&self, text: &mut String, rows: &[Row]) {
        let mut packets = vec![0usize; self.run.lesson.world.hosts.len()];
        let mut events = 0;
        for row in rows {
            match row {
                Row::Packet(place) => packets[self.run.timeline.packets[*place].from] += 1,
                Row::Event(_) => events += 1,
            }
        }
        let hosts = &self.run.lesson.world.hosts;
        let mut parts: Vec<String> = packets
            .iter()
            .zip(hosts)
            .filter(|(count, _)| **count > 0)
            .map(|(count, host)| format!("{} from {host}", counted(*count, "packet")))
            .collect();
        if events > 0 {
            parts.push(counted(events, "event"));
        }
        let words = format!("⋮  {} more like these; --all prints them", parts.join(", "));
        let _ = writeln!(text, "{:>11}  {}", "", self.style.faint(&words));
    }
}

/// Returns a number with its noun, in the plural where it is not 1.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn fate(packet: &PacketRecord) -> String {
    let mut words = match (packet.lost, &packet.arrivals[..]) {
        (true, _) => "lost".to_owned(),
        (false, []) => "in flight".to_owned(),
        // A capture has one time for each packet.
        (false, [at]) if *at == packet.sent => String::new(),
        (false, arrivals) => {
            let times: Vec<_> = arrivals.iter().map(|at| time(*at)).collect();
            times.join(" and ")
        }
    };
    if packet.damaged {
        words += " damaged";
    }
    words
}

/// Formats microseconds with three decimals, and milliseconds from a second on.
fn time(at: Instant) -> String {
    let nanos = at.as_nanos();
    if nanos >= 1_000_000_000 {
        let micros = nanos / 1000;
        return format!("{}.{:03} ms", micros / 1000, micros % 1000);
    }
    format!("{}.{:03} µs", nanos / 1000, nanos % 1000)
}

fn inspection_text(shown: &Inspection, options: &TextOptions) -> String {
    let style = Style(options.colour);
    let mut text = format!("  {}\n", style.bold(&shown.title));
    for line in &shown.lines {
        let _ = writeln!(text, "    {line}");
    }
    text
}

/// Wraps paragraphs at 88 columns; an empty line separates them.
fn fold(prose: &str, indent: usize) -> String {
    let mut text = String::new();
    for (place, paragraph) in prose.trim().split("\n\n").enumerate() {
        if paragraph.is_empty() {
            continue;
        }
        if place > 0 {
            text.push('\n');
        }
        for line in wrap(paragraph, 88 - indent) {
            let _ = writeln!(text, "{:indent$}{line}", "");
        }
    }
    text
}

/// Splits text into lines of at most `width` characters, unless a word is longer.
fn wrap(words: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines
}

/// Terminal style, if enabled.
#[derive(Clone, Copy)]
struct Style(bool);

impl Style {
    fn with(self, code: &str, words: &str) -> String {
        if self.0 { format!("\x1b[{code}m{words}\x1b[0m") } else { words.to_owned() }
    }

    fn bold(self, words: &str) -> String {
        self.with("1", words)
    }

    fn faint(self, words: &str) -> String {
        self.with("2", words)
    }

    fn packet(self, class: PacketClass, packet: &PacketRecord, words: &str) -> String {
        let code = match class {
            _ if packet.lost || packet.damaged => "31",
            PacketClass::Nak => "31",
            _ if packet.again => "33",
            PacketClass::Data => "36",
            PacketClass::Request => "34",
            PacketClass::Response => "35",
            PacketClass::Ack => "32",
            PacketClass::Other => "0",
        };
        self.with(code, words)
    }

    fn event(self, kind: &EventKind, words: &str) -> String {
        match kind {
            EventKind::Completed(_) => self.bold(words),
            EventKind::Scripted { .. } => self.faint(words),
            EventKind::Refused { .. }
            | EventKind::NakSent { .. }
            | EventKind::Retransmit { .. } => self.with("33", words),
            _ => words.to_owned(),
        }
    }
}
