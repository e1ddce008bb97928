//! The example programs of the published crates as a stage.

use std::process::Command;

use crate::package::Published;
use crate::stages::{Log, StageResult};
use crate::{Result, workspace};

/// Programs that measure, write files of the repository, or need a peer.
const BY_HAND: &[&str] =
    &["book", "fixed_point", "kernels", "make_testdata", "memory_window", "raw_trains", "scale"];

/// Runs all programs that cargo has built beside the tests: each checks what it shows.
///
/// # Errors
/// When one fails.
pub(crate) fn stage(log: &Log) -> Result<StageResult> {
    let metadata = workspace::metadata()?;
    let folder = workspace::target().join("debug/examples");
    let (mut passed, mut failed) = (0, Vec::new());
    for (package, example) in Published::examples(&metadata) {
        if BY_HAND.contains(&example) {
            continue;
        }
        log.write(&format!("{package}: {example}\n"))?;
        let mut ourselves = Command::new(workspace::OURSELVES);
        ourselves.args(["in-namespace", "--"]).arg(folder.join(example));
        if log.run(ourselves.current_dir(workspace::root())).is_ok() {
            passed += 1;
        } else {
            log.add_repeat(format!("cargo run --package {package} --example {example}"));
            failed.push(example);
        }
    }
    match &failed[..] {
        [] => Ok(StageResult::Passed(format!("{passed} programs"))),
        _ => Err(format!("failed: {}", failed.join(", ")).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn example_programs_have_names_of_their_own_and_those_run_by_hand_exist() {
        let metadata = workspace::metadata().unwrap();
        let all: Vec<_> = Published::examples(&metadata).map(|(_, example)| example).collect();
        let names: BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), names.len(), "cargo builds all of them into one folder: {all:?}");
        assert!(BY_HAND.iter().all(|name| names.contains(name)), "{names:?}");
    }
}
