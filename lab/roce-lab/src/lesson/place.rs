//! Where in its file the error of a lesson is.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Lesson, LessonError};

/// Error of a lesson in a file, with the place.
#[derive(Debug, Error)]
#[error("{}:{line}:{column}: {what}\n{shown}", path.display())]
pub struct LessonFileError {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub what: String,
    /// The line, with the place below it.
    shown: String,
}

impl Lesson {
    /// Parses the lesson of a file with this text. Without a name it has that of the file.
    ///
    /// # Errors
    /// [`LessonFileError`].
    ///
    /// ```
    /// let error = roce_lab::Lesson::parse_file("my.toml".as_ref(), "title = 7\n").unwrap_err();
    /// assert_eq!((error.line, error.column), (1, 9));
    /// ```
    pub fn parse_file(path: &Path, text: &str) -> Result<Self, LessonFileError> {
        let parsed = Self::parse(text);
        let mut lesson = parsed.map_err(|error| LessonFileError::of(path, text, &error))?;
        let capture = lesson.capture.as_mut().filter(|capture| capture.bytes().is_none());
        if let Some(capture) = capture {
            let file = path.with_file_name(&capture.file);
            capture.loaded = Some(read_capture(&file).map_err(|error| {
                let what = format!("cannot read the capture {}: {error}", file.display());
                let at = root_span(text, "file").unwrap_or_default();
                LessonFileError::at(path, text, at, what)
            })?);
        }
        if lesson.name.is_empty() {
            lesson.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        Ok(lesson)
    }
}

impl LessonFileError {
    /// Finds the place of an error in the text of its file.
    pub fn of(path: &Path, text: &str, error: &LessonError) -> Self {
        let (at, what) = match error {
            LessonError::Syntax(error) => {
                (error.span().unwrap_or_default(), error.message().to_owned())
            }
            error => (span_of(text, error).unwrap_or_default(), error.to_string()),
        };
        Self::at(path, text, at, what)
    }

    fn at(path: &Path, text: &str, at: Range<usize>, what: String) -> Self {
        let start = (0..=at.start.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
        let (before, rest) = text.split_at(start.unwrap_or(0));
        let line = before.matches('\n').count() + 1;
        let from = before.rfind('\n').map_or(0, |it| it + 1);
        let column = before[from..].chars().count() + 1;
        let first = text[from..].lines().next().unwrap_or_default();
        let marked = rest.chars().take_while(|letter| *letter != '\n');
        let len = marked.count().min(at.len()).max(1);
        let margin = " ".repeat(line.to_string().len());
        let shown = format!(
            "{margin} |\n{line} | {first}\n{margin} | {}{}",
            " ".repeat(column - 1),
            "^".repeat(len)
        );
        Self { path: path.to_owned(), line, column, what, shown }
    }
}

/// Most bytes of a capture.
const MAX_CAPTURE: u64 = 64 << 20;

fn read_capture(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_CAPTURE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns where the value of a key is, wherever that is.
fn root_span(text: &str, key: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    root.get_ref().values().find_map(|value| find_key(value, key))
}

/// Returns where what an error names stands.
fn span_of(text: &str, error: &LessonError) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let section = |number: usize| {
        let sections = root.get_ref().get("section")?.get_ref().as_array()?;
        number.checked_sub(1).and_then(|place| sections.get(place))
    };
    // The name of a figure stands in a longer text.
    let named = |number: usize, name: &str| {
        let found = match section(number) {
            Some(section) => find_text(section, name).or_else(|| Some(section.span())),
            None => None,
        };
        found.or_else(|| root.get_ref().values().find_map(|value| find_text(value, name)))
    };
    match error {
        LessonError::Unknown { section, name, .. } => named(*section, name),
        LessonError::False { section, statement, .. } => named(*section, statement),
        LessonError::NeverHappens { section: number, .. } => {
            find_key(section(*number)?, "until").or_else(|| Some(section(*number)?.span()))
        }
        LessonError::Refused { section: number, .. } => {
            find_key(section(*number)?, "do").or_else(|| Some(section(*number)?.span()))
        }
        LessonError::OutOfRange { what, value } => {
            let key = what.rsplit(' ').next().unwrap_or(what);
            let found = root_span(text, key);
            found.or_else(|| root.get_ref().values().find_map(|it| find_text(it, value)))
        }
        LessonError::Syntax(_) => None,
    }
}

/// Returns where a text stands that is, or else has, these words.
fn find_text(value: &Spanned<DeValue<'_>>, words: &str) -> Option<Range<usize>> {
    let is = |text: &str| text == words;
    let has = |text: &str| text.contains(words);
    find(value, &is).or_else(|| find(value, &has))
}

fn find(value: &Spanned<DeValue<'_>>, is_it: &dyn Fn(&str) -> bool) -> Option<Range<usize>> {
    match value.get_ref() {
        DeValue::String(text) => is_it(text).then(|| value.span()),
        DeValue::Integer(number) => is_it(number.as_str()).then(|| value.span()),
        DeValue::Array(values) => values.iter().find_map(|it| find(it, is_it)),
        DeValue::Table(table) => table.values().find_map(|it| find(it, is_it)),
        _ => None,
    }
}

/// Returns where the value of a key is.
fn find_key(value: &Spanned<DeValue<'_>>, key: &str) -> Option<Range<usize>> {
    match value.get_ref() {
        DeValue::Table(table) => table.iter().find_map(|(name, value)| {
            let is_it = name.get_ref() == key;
            if is_it { Some(value.span()) } else { find_key(value, key) }
        }),
        DeValue::Array(values) => values.iter().find_map(|it| find_key(it, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LessonRun;

    const HEAD: &str = "title = \"Mine\"\nsummary = \"A try.\"\n";
    const TAIL: &str = "\n[question]\nask = \"?\"\nanswer = \"!\"\n";

    fn refused(middle: &str) -> (usize, usize, String) {
        let text = format!("{HEAD}{middle}{TAIL}");
        let path = Path::new("folder/mine.toml");
        let error = Lesson::parse_file(path, &text).err().unwrap_or_else(|| {
            let lesson = Lesson::parse(&text).unwrap();
            let error = LessonRun::simulate(&lesson).expect_err("it is wrong");
            LessonFileError::of(path, &text, &error)
        });
        let told = error.to_string();
        assert!(told.starts_with("folder/mine.toml:"), "{told}");
        (error.line, error.column, told)
    }

    #[test]
    fn an_error_names_its_line_and_column_and_what_to_do() {
        for (middle, line, column, words) in [
            ("[[section]]\nuntil = { event = \"a miracle\" }", 4, 9, "change `until`"),
            ("[[section]]\ndo = [{ start-ring = {} }]", 4, 6, "the lesson has no ring"),
            ("[world]\nhosts = [\"alone\"]\n[[section]]", 4, 9, "roce lab --new"),
            ("[connection]\npath-mtu = 1500\n[[section]]", 4, 12, "roce lab --new"),
            ("[world]\ndelay = \"soon\"\n[[section]]", 4, 9, "write for example 500ns"),
            ("[[section]]\nsays = \"x\"", 4, 1, "expected one of `say`"),
            (
                "[[section]]\nsay = \"carol\"\n[[section]]\nsay = \"é\"\ndo = [{ unplug = { host = \
                 \"carol\" } }]",
                7,
                27,
                "unknown host \"carol\"",
            ),
        ] {
            let (found_line, found_column, told) = refused(middle);
            assert_eq!((found_line, found_column), (line, column), "{told}");
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn the_wrong_words_are_marked() {
        let (_, _, told) = refused("[world]\ndelay = \"soon\"\n[[section]]");
        assert!(told.ends_with("  |\n4 | delay = \"soon\"\n  |         ^^^^^^"), "{told}");
    }

    #[test]
    fn a_lesson_without_a_name_has_that_of_its_file() {
        let text = format!("{HEAD}[[section]]\n{TAIL}");
        let lesson = Lesson::parse_file(Path::new("folder/mine.toml"), &text).unwrap();
        assert_eq!((lesson.number, &*lesson.name), (0, "mine"));
    }
}
