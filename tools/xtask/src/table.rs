//! The table of installations in `docs/install.md`: what was installed where, and what it printed.

use std::fmt;

/// An installation that was done.
#[derive(Debug)]
pub(crate) struct Row {
    /// The system.
    pub(crate) place: String,
    /// The line that a user types.
    pub(crate) line: String,
    /// Size of what is installed from.
    pub(crate) bytes: u64,
    /// Time of that line.
    pub(crate) milliseconds: u64,
    /// The last line that it printed.
    pub(crate) printed: String,
    /// What the installed programs printed then, a line of each.
    pub(crate) told: Vec<String>,
}

/// Prints a table in Markdown; nothing without rows.
pub(crate) fn print(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    println!("\n| in | a user types | MB | s | it prints | then |\n|---|---|---|---|---|---|");
    for row in rows {
        println!("{row}");
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<_> = self.told.iter().map(|line| code(line)).collect();
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} |",
            self.place,
            code(&self.line),
            tenths(self.bytes, 1_000_000),
            tenths(self.milliseconds, 1000),
            code(&self.printed),
            told.join(", ")
        )
    }
}

/// Returns a quotient with one digit behind the point.
fn tenths(number: u64, unit: u64) -> String {
    let tenths = (number * 10 + unit / 2) / unit;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns a line as code in a cell of a table.
fn code(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    match words.is_empty() {
        true => "nothing".to_owned(),
        false => format!("`{}`", words.join(" ").replace('|', r"\|")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_one_cell_for_each_column() {
        let row = Row {
            place: "Debian 12".to_owned(),
            line: "a | b".to_owned(),
            bytes: 6_949_999,
            milliseconds: 96,
            printed: "  ".to_owned(),
            told: vec!["roce 0.1.0".to_owned(), "65536\t 1000".to_owned()],
        };
        assert_eq!(
            row.to_string(),
            r"| Debian 12 | `a \| b` | 6.9 | 0.1 | nothing | `roce 0.1.0`, `65536 1000` |"
        );
    }
}
