//! How the matrix looks: tables for people, JSON for programs; and how a program of this crate ends.

use std::error::Error;
use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::matrix::Verdict;

/// Returns the status of a program that has found everything right, or not; prints an error.
pub fn exit(name: &str, is_right: Result<bool, Box<dyn Error>>) -> ExitCode {
    match is_right {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A line that says how many cases there are, and how many are red.
pub fn summary(verdicts: &[Verdict]) -> String {
    let red = verdicts.iter().filter(|verdict| verdict.fault.is_some()).count();
    let seconds: f32 = verdicts.iter().map(|verdict| verdict.took.as_secs_f32()).sum();
    let skipped = verdicts.iter().filter(|verdict| verdict.lacking.is_some()).count();
    let (all, green) = (verdicts.len(), verdicts.len() - red - skipped);
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    format!("{all} cases, {green} green, {red} red{skipped}, {seconds:.0} s")
}

/// Tells the user on standard error of a case that just ended.
pub fn tell(verdict: &Verdict) {
    let word = word(verdict);
    eprintln!("{word:>4} {} ({:.1} s)", verdict.name(), verdict.took.as_secs_f32());
    if let Some(why) = verdict.fault.as_ref().or(verdict.lacking.as_ref()) {
        eprintln!("     {why}");
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match (&verdict.fault, &verdict.lacking) {
        (Some(_), _) => "RED",
        (None, Some(_)) => "skip",
        (None, None) => "ok",
    }
}

/// Prints all cases, as JSON or as tables.
pub fn print(verdicts: &[Verdict], as_json: bool) {
    if as_json {
        println!("{}", json(verdicts));
    } else {
        print!("{}", tables(verdicts));
    }
}

/// A table for each group, then what is wrong with red cases, then the summary.
pub fn tables(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    let mut groups: Vec<&str> = Vec::new();
    for verdict in verdicts {
        push_new(&mut groups, verdict.group);
    }
    for group in groups {
        let cases: Vec<&Verdict> =
            verdicts.iter().filter(|verdict| verdict.group == group).collect();
        table(&mut text, group, &cases);
    }
    for verdict in verdicts {
        if let Some(fault) = &verdict.fault {
            let _ = writeln!(text, "RED {}: {fault}", verdict.name());
        }
    }
    let mut reasons: Vec<&str> = Vec::new();
    for reason in verdicts.iter().filter_map(|verdict| verdict.lacking.as_deref()) {
        push_new(&mut reasons, reason);
    }
    for reason in reasons {
        let _ = writeln!(text, "skip: {reason}");
    }
    text + &summary(verdicts) + "\n"
}

/// All cases, one object each.
pub fn json(verdicts: &[Verdict]) -> Value {
    let cases = verdicts.iter().map(|verdict| {
        json!({
            "group": verdict.group,
            "row": verdict.row,
            "column": verdict.column,
            "green": verdict.fault.is_none(),
            "seconds": verdict.took.as_secs_f32(),
            "fault": verdict.fault,
            "lacking": verdict.lacking,
        })
    });
    Value::Array(cases.collect())
}

fn table(text: &mut String, group: &str, cases: &[&Verdict]) {
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for case in cases {
        push_new(&mut rows, case.row.as_str());
        push_new(&mut columns, case.column.as_str());
    }
    let first = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0).max(group.len());
    let width = columns.iter().map(|column| column.chars().count()).max().unwrap_or(0).max(6);
    let _ = write!(text, "{group:first$}");
    for column in &columns {
        let _ = write!(text, "  {column:>width$}");
    }
    for row in rows {
        let _ = write!(text, "\n{row:first$}");
        for column in &columns {
            let case = cases.iter().find(|case| case.row == row && case.column == **column);
            let word = match case {
                None => "",
                Some(case) => self::word(case),
            };
            let _ = write!(text, "  {word:>width$}");
        }
    }
    text.push_str("\n\n");
}

fn push_new<'a>(list: &mut Vec<&'a str>, item: &'a str) {
    if !list.contains(&item) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn verdict(row: &str, column: &str, fault: Option<&str>) -> Verdict {
        let (row, column) = (row.to_owned(), column.to_owned());
        let fault = fault.map(str::to_owned);
        let took = Duration::from_secs(1);
        Verdict { group: "group", row, column, took, fault, lacking: None }
    }

    #[test]
    fn a_skipped_cell_is_no_red_one_and_has_its_reason_below() {
        let skipped =
            Verdict { lacking: Some("no such kernel".to_owned()), ..verdict("a", "b", None) };
        let text = tables(&[skipped]);
        assert!(text.contains("a        skip\n"), "{text}");
        assert!(
            text.ends_with("skip: no such kernel\n1 cases, 0 green, 0 red, 1 skipped, 1 s\n"),
            "{text}"
        );
    }

    #[test]
    fn a_red_cell_is_seen_in_table_list_and_summary() {
        let verdicts = [verdict("a", "one", None), verdict("a", "two", Some("lost a byte"))];
        let text = tables(&verdicts);
        assert!(text.contains("a          ok     RED\n"), "{text}");
        assert!(text.contains("RED group / a / two: lost a byte\n"), "{text}");
        assert!(text.ends_with("2 cases, 1 green, 1 red, 2 s\n"), "{text}");
        assert_eq!(json(&verdicts)[1]["green"], false);
    }
}
