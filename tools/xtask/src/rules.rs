//! `cargo xtask rules`: which rules of the specifications the code follows, where, and what tests them.
//!
//! A rule is cited in comments. Where it is implemented:
//!
//! ```text
//! //= rule rc-duplicate-write: InfiniBand C9-105; rxe_resp.c: duplicate_request
//! //# A repeated SEND or WRITE is acknowledged again and not executed.
//! ```
//!
//! its name, its sources, and what it says in our own words. A further place that implements it says
//! `//= also NAME`, a test that fails without it `//= test NAME`. A rule that no test can hold says
//! `//= untested: REASON` in a line of its own. `docs/rules.md` has all of them.

mod citation;
mod source;
mod table;

use std::fs;

use clap::Args;

use self::citation::Citation;
use self::table::Table;
use crate::{Result, workspace};

/// What `cargo xtask rules` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print nothing but what is wrong with the citations or with docs/rules.md.
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write docs/rules.md.
    #[arg(long)]
    write: bool,
}

/// Prints the table, checks it or writes it.
///
/// # Errors
/// Lists what is wrong with the citations, or with the page under `--check`.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.check {
        return check().map(|summary| println!("{summary}"));
    }
    let table = read()?;
    if options.write {
        fs::write(workspace::root().join(PAGE), table.page())?;
        println!("{}", table.summary());
    } else {
        print!("{}", table.page());
    }
    Ok(())
}

/// Checks the citations and the page; returns a line that says what was checked.
///
/// # Errors
/// Lists what is wrong.
pub(crate) fn check() -> Result<String> {
    let table = read()?;
    let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap_or_default();
    match page == table.page() {
        true => Ok(table.summary()),
        false => Err(format!("{PAGE} is not current; run: cargo xtask rules --write").into()),
    }
}

/// Reads the citations of the tree.
fn read() -> Result<Table> {
    let mut citations = Vec::new();
    let mut faults = Vec::new();
    for folder in FOLDERS {
        for file in workspace::rust_files(&workspace::root().join(folder))? {
            let text = fs::read_to_string(&file)?;
            let name = file.strip_prefix(workspace::root())?.display().to_string();
            citation::read(&name, &text, &mut citations, &mut faults);
        }
    }
    table_of(citations, faults)
}

fn table_of(citations: Vec<Citation>, mut faults: Vec<String>) -> Result<Table> {
    let table = Table::new(citations, &mut faults);
    if faults.is_empty() { Ok(table) } else { Err(faults.join("\n").into()) }
}

/// The page that shows the table.
const PAGE: &str = "docs/rules.md";

/// Where citations are.
const FOLDERS: &[&str] = &["bench", "crates", "interop", "lab", "tests", "tools/roce"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Table> {
        let (mut citations, mut faults) = (Vec::new(), Vec::new());
        citation::read("crates/a/src/lib.rs", text, &mut citations, &mut faults);
        table_of(citations, faults)
    }

    const RULE: &str = "\
//= rule late: RFC 9000 section 2.1; rxe_resp.c: check_psn
//# A late packet is
//# dropped.
fn drop_late() {}
";
    const TEST: &str = "\
//= test late
#[test]
fn a_late_packet_is_dropped() {}
";

    #[test]
    fn a_rule_with_a_test_has_a_row_with_the_places_of_both() {
        let table = read_text(&format!("{RULE}\n{TEST}")).unwrap();
        assert_eq!(table.summary(), "1 rule, 1 with a test, 0 without a known source");
        let row = "| `late` | A late packet is dropped. \
                   | RFC 9000 section 2.1; `rxe_resp.c: check_psn` \
                   | crates/a/src/lib.rs: `drop_late` \
                   | crates/a/src/lib.rs: `a_late_packet_is_dropped` |";
        assert!(table.page().contains(row), "{}", table.page());
    }

    #[test]
    fn a_rule_is_found_at_a_statement_a_variant_and_a_method() {
        let text = "\
impl Queue {
    fn push(&mut self) {
        const MAX: u32 = 4;
        if self.len > MAX {
            //= rule full: not known
            //# A full queue takes nothing.
            return;
        }
    }
}

enum Code {
    //= also full
    Full,
}

mod tests {
    #[tier1(\"tshark\")]
    fn a_full_queue_takes_nothing() {
        //= test full
        let queue = Queue::full();
    }
}
";
        let page = read_text(text).unwrap().page();
        let places = "| crates/a/src/lib.rs: `push`; crates/a/src/lib.rs: `Code` \
                      | crates/a/src/lib.rs: `a_full_queue_takes_nothing` |";
        assert!(page.contains(places), "{page}");
    }

    #[test]
    fn a_rule_without_a_test_needs_a_reason_and_loses_it_with_the_test() {
        let fault = read_text(RULE).unwrap_err().to_string();
        assert!(fault.contains("late has no test"), "{fault}");
        let reason = "//= untested: takes years\n";
        let with_reason = RULE.replace("fn drop", &format!("{reason}fn drop"));
        let page = read_text(&with_reason).unwrap().page();
        assert!(page.contains("| none: takes years |"), "{page}");
        let fault = read_text(&format!("{with_reason}{TEST}")).unwrap_err().to_string();
        assert!(fault.contains("late has a test and a reason for having none"), "{fault}");
    }

    #[test]
    fn unknown_names_and_duplicate_rules_are_refused() {
        for citation in ["test", "also"] {
            let text = format!("{RULE}{TEST}//= {citation} early\n#[test]\nfn other() {{}}\n");
            let fault = read_text(&text).unwrap_err().to_string();
            assert!(fault.contains("lib.rs:8: there is no rule early"), "{fault}");
        }
        let fault = read_text(&format!("{RULE}{TEST}{RULE}")).unwrap_err().to_string();
        assert!(fault.contains("lib.rs:8: late is at crates/a/src/lib.rs:1 too"), "{fault}");
    }

    #[test]
    fn a_test_citation_outside_a_test_is_refused() {
        let fault = read_text(&format!("{RULE}//= test late\nfn helper() {{}}\n"));
        let fault = fault.unwrap_err().to_string();
        assert!(fault.contains("helper is not a test"), "{fault}");
    }

    #[test]
    fn a_line_of_another_form_is_refused() {
        for (line, wrong) in [
            ("//= rules late", "is none of"),
            ("//= rule Late: not known", "name"),
            ("//= rule late", "no source"),
            ("//= rule late: the blue book", "the blue book"),
            ("//= rule late: rxe_resp.c", "rxe_resp.c"),
            ("//= untested: no reason", "belongs to no rule"),
            ("//# words", "belongs to no rule"),
        ] {
            let fault = read_text(&format!("{line}\nfn f() {{}}\n")).unwrap_err().to_string();
            assert!(fault.contains(wrong), "{line}: {fault}");
        }
        let fault = read_text("//= rule late: not known\nfn f() {}\n").unwrap_err().to_string();
        assert!(fault.contains("late says nothing"), "{fault}");
    }
}
