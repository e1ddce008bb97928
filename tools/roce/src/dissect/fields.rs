//! Chosen fields of each packet, as lines of a table (`-T fields`).

use std::fmt::Write as _;

use clap::Args;
use roce_dissect::{FieldKind, NamedField, Packet, PacketFields};

/// Which fields, and how they are written: the options of tshark.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Fields")]
pub(super) struct FieldOptions {
    /// Print this field; several are columns. `--fields` lists the names
    #[arg(short = 'e', value_name = "NAME", value_parser = parse_field)]
    columns: Vec<NamedField>,
    /// How fields are printed: `header=y`, `separator=,` (or /t, /s), `occurrence=f` (first, l last,
    /// a all), `aggregator=;`, `quote=d` (double, s single, n none)
    #[arg(short = 'E', value_name = "KEY=VALUE", value_parser = parse_style)]
    style: Vec<Style>,
    /// List the names and kinds of all fields
    #[arg(long)]
    fields: bool,
}

/// A setting of `-E`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Header(bool),
    Separator(char),
    Occurrence(Occurrence),
    Aggregator(char),
    Quote(Option<char>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occurrence {
    First,
    Last,
    All,
}

/// A table of fields, a line for each packet.
#[derive(Debug)]
pub(super) struct FieldTable<'o> {
    columns: &'o [NamedField],
    header: bool,
    separator: char,
    occurrence: Occurrence,
    aggregator: char,
    quote: Option<char>,
    line: String,
}

impl FieldOptions {
    /// Returns true if the names of the fields are asked for.
    pub(super) fn asks_for_names(&self) -> bool {
        self.fields
    }

    /// Returns true if columns are named.
    pub(super) fn has_columns(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Returns the table.
    pub(super) fn table(&self) -> FieldTable<'_> {
        let mut table = FieldTable {
            columns: &self.columns,
            header: false,
            separator: '\t',
            occurrence: Occurrence::All,
            aggregator: ',',
            quote: None,
            line: String::new(),
        };
        for style in &self.style {
            match *style {
                Style::Header(header) => table.header = header,
                Style::Separator(letter) => table.separator = letter,
                Style::Occurrence(occurrence) => table.occurrence = occurrence,
                Style::Aggregator(letter) => table.aggregator = letter,
                Style::Quote(mark) => table.quote = mark,
            }
        }
        table
    }
}

impl FieldTable<'_> {
    /// Writes the line with the names, if it is asked for.
    pub(super) fn write_header(&self, text: &mut Vec<u8>) {
        if self.header {
            let names: Vec<_> = self.columns.iter().map(|column| column.name()).collect();
            text.extend_from_slice(names.join(&self.separator.to_string()).as_bytes());
            text.push(b'\n');
        }
    }

    /// Writes the line of a packet.
    pub(super) fn write(&mut self, packet: &Packet<'_>, text: &mut Vec<u8>) {
        let fields = PacketFields::new(packet);
        self.line.clear();
        for (index, column) in self.columns.iter().enumerate() {
            if index > 0 {
                self.line.push(self.separator);
            }
            self.write_cell(&fields, *column);
        }
        self.line.push('\n');
        text.extend_from_slice(self.line.as_bytes());
    }

    fn write_cell(&mut self, fields: &PacketFields<'_, '_>, column: NamedField) {
        let (occurrence, aggregator) = (self.occurrence, self.aggregator);
        self.line.extend(self.quote);
        let (line, quote) = (&mut self.line, self.quote);
        let start = line.len();
        fields.values(column, &mut |value| {
            match (line.len() > start, occurrence) {
                (true, Occurrence::First) => return,
                (true, Occurrence::Last) => line.truncate(start),
                (true, Occurrence::All) => line.push(aggregator),
                (false, _) => {}
            }
            let text = value.to_string();
            match quote {
                // As in CSV, a mark inside is written twice.
                Some(mark) => line.push_str(&text.replace(mark, &format!("{mark}{mark}"))),
                None => line.push_str(&text),
            }
        });
        self.line.extend(self.quote);
    }
}

/// Returns the list of all fields.
pub(super) fn list() -> String {
    let mut list = String::new();
    for field in NamedField::all() {
        let kind = match field.kind() {
            FieldKind::Layer => "layer: compare nothing with it".to_owned(),
            kind => kind.to_string(),
        };
        let _ = writeln!(list, "{:42} {kind}", field.name());
    }
    list
}

fn parse_field(text: &str) -> Result<NamedField, String> {
    let name = if text == "findings" { "findings.name" } else { text };
    NamedField::find(&name.to_ascii_lowercase()).ok_or_else(|| {
        match NamedField::similar(name).as_slice() {
            [] => "no field has that name; --fields lists them".to_owned(),
            similar => format!("no field has that name; similar: {}", similar.join(", ")),
        }
    })
}

fn parse_style(text: &str) -> Result<Style, String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE, such as header=y")?;
    Ok(match (key, value) {
        ("header", "y") => Style::Header(true),
        ("header", "n") => Style::Header(false),
        ("occurrence", "f") => Style::Occurrence(Occurrence::First),
        ("occurrence", "l") => Style::Occurrence(Occurrence::Last),
        ("occurrence", "a") => Style::Occurrence(Occurrence::All),
        ("quote", "d") => Style::Quote(Some('"')),
        ("quote", "s") => Style::Quote(Some('\'')),
        ("quote", "n") => Style::Quote(None),
        ("separator", value) => Style::Separator(letter(value)?),
        ("aggregator", value) => Style::Aggregator(letter(value)?),
        ("header", _) => return Err("header is y or n".to_owned()),
        ("occurrence", _) => return Err("occurrence is f, l or a".to_owned()),
        ("quote", _) => return Err("quote is d, s or n".to_owned()),
        _ => {
            let text = "the keys are header, separator, occurrence, aggregator and quote";
            return Err(text.to_owned());
        }
    })
}

/// Reads a letter: itself, /t for a tabulator, /s for a space.
fn letter(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (text, letters.next(), letters.next()) {
        ("/t" | "\\t", ..) => Ok('\t'),
        ("/s", ..) => Ok(' '),
        (_, Some(letter), None) => Ok(letter),
        _ => Err("a separator is one letter, /t for a tabulator or /s for a space".to_owned()),
    }
}
