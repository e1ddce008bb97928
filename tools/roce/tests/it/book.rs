//! The pages of the book show what the commands in them print.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set to write what the commands print now into the pages.
const UPDATE: &str = "ROCE_UPDATE_BOOK";

#[test]
fn each_command_of_the_book_prints_what_its_page_shows() {
    let pages = root().join("book/src");
    let mut compared = 0;
    for entry in fs::read_dir(pages).expect("the book is there") {
        let path = entry.expect("the book can be listed").path();
        if path.extension().is_none_or(|it| it != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).expect("a page can be read");
        let (current, outputs) = with_outputs(&page);
        compared += outputs;
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&path, &current).expect("a page can be written");
            continue;
        }
        let hint = format!("{UPDATE}=1 cargo test -p roce --test book, and look at the difference");
        assert!(current == page, "{} shows what is printed no more: {hint}", path.display());
    }
    let lessons = roce_lab::Lesson::all().len();
    assert!(
        compared > lessons,
        "the book shows {compared} outputs, and there are {lessons} lessons"
    );
}

/// Returns a page with each block of text behind a block of commands replaced by what these print now, and
/// how many such blocks it has.
fn with_outputs(page: &str) -> (String, usize) {
    let mut current = String::new();
    let (mut commands, mut outputs) = (Vec::new(), 0);
    let mut lines = page.split_inclusive('\n');
    while let Some(line) = lines.next() {
        current += line;
        let Some(language) = line.trim_end().strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim_end() != "```").collect();
        if language == "text" && !commands.is_empty() {
            commands.drain(..).for_each(|command: String| current += &printed(&command));
            outputs += 1;
        } else {
            current.extend(body.iter().copied());
            commands.clear();
            if language == "sh" && body.iter().all(|line| prints_text(line)) {
                commands.extend(body.iter().map(|line| line.trim_end().to_owned()));
            }
        }
        current += "```\n";
    }
    (current, outputs)
}

/// Returns true for a command line whose output the book may show.
fn prints_text(line: &str) -> bool {
    ["roce lab ", "roce dissect "].iter().any(|command| line.starts_with(command))
}

/// Returns what a command line prints in the root of the project.
fn printed(line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(line.split_whitespace().skip(1)).current_dir(root()).stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn text_that_is_no_output_stays_as_it_is() {
    for page in [
        "# a\n\n```text\nb\n```\nc\n",
        "```sh\nmkdir a\n```\n\n```text\nb\n```\n",
        "```sh\nroce lab --list\n```\n```sh\nmkdir\n```\n```text\nb\n```\n",
        "no end of a line",
    ] {
        assert_eq!(with_outputs(page), (page.to_owned(), 0));
    }
}

#[test]
fn an_output_that_is_not_current_is_found() {
    let page = "```sh\nroce lab one-packet\n```\n\n```text\nanother\n```\nend\n";
    let (current, outputs) = with_outputs(page);
    assert_eq!(outputs, 1);
    assert!(!current.contains("another") && current.ends_with("```\nend\n"), "{current}");
    assert_eq!(with_outputs(&current), (current.clone(), 1));
}
