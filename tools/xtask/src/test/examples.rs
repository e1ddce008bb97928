//! The examples in the documentation as a stage.

use crate::stages::{Log, StageResult};
use crate::{Result, binaries, workspace};

/// Runs them.
///
/// # Errors
/// When one fails.
pub(crate) fn stage(log: &Log) -> Result<StageResult> {
    let ran = log.run(workspace::cargo().args(["test", "--workspace", "--doc", "--no-fail-fast"]));
    let text = std::fs::read_to_string(log.path())?;
    let score = binaries::score(&text).unwrap_or_default();
    for example in &score.failures {
        log.add_repeat(repeat_of_example(example));
    }
    ran?;
    Ok(StageResult::Passed(format!("{} examples", score.passed)))
}

/// Returns the command that runs the example again of which libtest prints this name:
/// `crates/roce-io/src/lib.rs - wire::Frame (line 7)`.
fn repeat_of_example(name: &str) -> String {
    let (file, item) = name.split_once(" - ").unwrap_or((name, ""));
    let folder = file.split("/src/").next().unwrap_or_default();
    let package = folder.rsplit('/').next().unwrap_or_default();
    let item = item.split(" (").next().unwrap_or_default();
    format!("cargo test --doc --package {package} '{item}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documentation_example_is_repeated_in_its_package() {
        assert_eq!(
            repeat_of_example("crates/roce-io/src/lib.rs - wire::Frame (line 7)"),
            "cargo test --doc --package roce-io 'wire::Frame'"
        );
    }
}
