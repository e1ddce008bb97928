//! Builds the book, whose outputs the lessons print and tests hold current.

use std::path::PathBuf;
use std::process::Command;

use crate::stages::{Log, StageResult, Stages};
use crate::{Result, workspace};

/// Builds the book, and prints where it begins.
///
/// # Errors
/// As [`stage`].
pub(crate) fn run() -> Result<()> {
    let mut stages = Stages::new(true, |_| "cargo xtask book".to_owned());
    stages.run("book", stage);
    stages.finish()?;
    println!("{}", workspace::target().join("book/index.html").display());
    Ok(())
}

/// Builds `book/` into `target/book`.
///
/// # Errors
/// When mdBook cannot be had, or finds something wrong; or when a chapter did not come out.
pub(crate) fn stage(log: &Log) -> Result<StageResult> {
    let mdbook = get_mdbook(log)?;
    let into = workspace::target().join("book");
    let mut build = Command::new(mdbook);
    log.run(build.arg("build").arg("--dest-dir").arg(&into).arg(workspace::root().join("book")))?;
    let summary = std::fs::read_to_string(workspace::root().join("book/src/SUMMARY.md"))?;
    let chapters: Vec<&str> = summary
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(".md)"))
        .map(|c| c.0)
        .collect();
    for chapter in &chapters {
        let page = into.join(format!("{}.html", chapter.trim_start_matches("./")));
        if !page.is_file() {
            return Err(format!("{chapter}.md is in the summary and made no page").into());
        }
    }
    match chapters.len() {
        0 => Err("the book has no chapters".into()),
        pages => Ok(StageResult::Passed(format!("{pages} chapters"))),
    }
}

/// The program; installed where it is missing, without its server and its search.
fn get_mdbook(log: &Log) -> Result<PathBuf> {
    let works = |program: &PathBuf| {
        Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
    };
    let installed = PathBuf::from("mdbook");
    if works(&installed) {
        return Ok(installed);
    }
    let folder = workspace::target().join("tools");
    let ours = folder.join("bin/mdbook");
    if !works(&ours) {
        println!("   installing: mdbook");
        // Optimised it takes 96 s of a processor to build, so 43 s; the book takes 0.2 s.
        let arguments =
            ["install", "mdbook", "--no-default-features", "--locked", "--debug", "--root"];
        log.run(workspace::cargo().args(arguments).arg(&folder))
            .map_err(|_| "run: cargo install mdbook --no-default-features --locked")?;
    }
    Ok(ours)
}
