//! Citations of rules in the comments of a file.

use super::source::Source;

/// A citation, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Citation {
    pub(super) rule: String,
    pub(super) place: Place,
    pub(super) kind: Kind,
}

/// What a citation says of the rule.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// It is implemented here, and defined.
    Rule(Definition),
    /// It is implemented here, too.
    Also,
    /// It is tested here.
    Test,
}

/// What a rule is.
#[derive(Clone, Debug, Default)]
pub(super) struct Definition {
    pub(super) sources: Vec<Source>,
    /// The rule in our own words.
    pub(super) text: String,
    /// Why no test holds it.
    pub(super) untested: Option<String>,
}

/// A function, type or constant in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    /// Line of the citation, from 1 on.
    pub(super) line: usize,
    pub(super) item: String,
}

/// Reads the citations of a file.
pub(super) fn read(
    file: &str,
    text: &str,
    citations: &mut Vec<Citation>,
    faults: &mut Vec<String>,
) {
    let lines: Vec<&str> = text.lines().collect();
    // Index of the rule that the lines above defined.
    let mut open = None;
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        let mut fault = |what: String| faults.push(format!("{file}:{}: {what}", at + 1));
        let (is_words, said) = match (line.strip_prefix("//= "), line.strip_prefix("//# ")) {
            (Some(said), _) => (false, said),
            (_, Some(said)) => (true, said),
            _ => {
                open = None;
                continue;
            }
        };
        if is_words || said.starts_with("untested: ") {
            let definition = open.and_then(|index: usize| match &mut citations[index].kind {
                Kind::Rule(definition) => Some(definition),
                _ => None,
            });
            match (definition, said.strip_prefix("untested: ")) {
                (None, _) => fault(format!("{line} belongs to no rule above it")),
                (Some(definition), Some(why)) if !is_words => {
                    definition.untested = Some(why.to_owned());
                }
                (Some(definition), _) => {
                    if !definition.text.is_empty() {
                        definition.text.push(' ');
                    }
                    definition.text.push_str(said);
                }
            }
            continue;
        }
        let Some(item) = item_at(&lines, at) else {
            fault(format!("{line} is at no function, type or constant"));
            continue;
        };
        match read_line(said) {
            Ok((rule, kind)) => {
                if matches!(kind, Kind::Test) && !is_test(&lines, item) {
                    fault(format!("{} is not a test", name_of(lines[item]).unwrap_or_default()));
                    continue;
                }
                let name = name_of(lines[item]).unwrap_or_default().to_owned();
                let place = Place { file: file.to_owned(), line: at + 1, item: name };
                open = matches!(kind, Kind::Rule(_)).then_some(citations.len());
                citations.push(Citation { rule, place, kind });
            }
            Err(what) => fault(what),
        }
    }
}

/// Reads what stands behind `//= `.
fn read_line(said: &str) -> Result<(String, Kind), String> {
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    let (name, kind) = match word {
        "also" => (rest, Kind::Also),
        "test" => (rest, Kind::Test),
        "rule" => {
            let (name, sources) =
                rest.split_once(": ").ok_or_else(|| format!("`{said}` has no source"))?;
            let read = |text: &str| {
                Source::read(text).ok_or_else(|| format!("{text} is a source of no known form"))
            };
            let sources = sources.split("; ").map(read).collect::<Result<_, _>>()?;
            (name, Kind::Rule(Definition { sources, ..Definition::default() }))
        }
        _ => return Err(format!("`{said}` is none of rule, also, test, untested")),
    };
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(format!("`{name}` is no name of a rule"));
    }
    Ok((name.to_owned(), kind))
}

/// Returns the line of the item that a comment in line `at` is about: the item that begins below it,
/// or else the one that it stands in.
fn item_at(lines: &[&str], at: usize) -> Option<usize> {
    let is_between = |line: &str| line.starts_with("//") || line.starts_with("#[");
    let next = lines[at..].iter().position(|line| !is_between(line.trim_start()));
    if let Some(next) = next.map(|skipped| at + skipped).filter(|line| is_item(lines[*line])) {
        return Some(next);
    }
    let inside = indentation(lines[at]);
    lines[..at].iter().rposition(|line| {
        // A constant within a function is one line, and nothing stands in it.
        indentation(line) < inside && is_item(line) && !line.ends_with(';')
    })
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_item(line: &str) -> bool {
    name_of(line).is_some()
}

/// Returns the name of the item that begins in a line.
fn name_of(line: &str) -> Option<&str> {
    // A macro that makes items, at the left margin.
    if let Some(name) = line.strip_suffix("! {").filter(|name| !name.contains(' ')) {
        return Some(name);
    }
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || matches!(*word, "async" | "unsafe" | "extern" | "\"C\"" | "in")
    });
    let mut keyword = words.next()?;
    let mut name = words.next()?;
    if keyword == "const" && matches!(name, "fn" | "unsafe") {
        keyword = "fn";
        name = words.find(|word| *word != "fn")?;
    }
    match keyword {
        "fn" | "const" | "static" | "struct" | "enum" | "trait" | "type" | "union"
        | "macro_rules!" => {}
        _ => return None,
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
    Some(&name[..end]).filter(|name| !name.is_empty())
}

/// Returns true if the item that begins in line `item` is a test: its attributes say so.
fn is_test(lines: &[&str], item: usize) -> bool {
    let above = lines[..item].iter().rev().map(|line| line.trim_start());
    let mut attributes = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    attributes.any(|line| line == "#[test]" || line.starts_with("#[tier"))
}
