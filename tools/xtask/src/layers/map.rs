//! The map of the tree in `ARCHITECTURE.md`: each path that its tables name is there.
//!
//! A path is named from the root of the repository, or, behind another one of its row, from one of that one's folders:
//!
//! ```text
//! | UC and UD | `crates/roce-transport/src/unreliable`, `rc/responder.rs` |
//! ```

use std::path::{Path, PathBuf};

/// Names each path of the tables of a page that is missing below a root.
pub(super) fn missing(page: &str, root: &Path) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| missing_in(row, root)).collect()
}

fn missing_in(row: &str, root: &Path) -> Vec<String> {
    let mut base = PathBuf::new();
    let mut missing = Vec::new();
    // Every second piece is between backticks.
    for word in row.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
        let path = Path::new(word.trim_end_matches('/'));
        // The root is the last of the folders.
        let found = base.ancestors().map(|folder| folder.join(path));
        let mut found = found.filter(|path| root.join(path).exists());
        match found.next() {
            Some(path) => base = path,
            None => {
                let why = "which is not there";
                missing.push(format!("ARCHITECTURE.md names `{word}`, {why}, in: {row}"));
            }
        }
    }
    missing
}

/// Returns true for a file of a kind that the tables name, and for a folder in another one.
fn is_path(word: &str) -> bool {
    let is_file = [".rs", ".md", ".txt", ".toml"].iter().any(|kind| word.ends_with(kind));
    let is_plain = !word.contains(|char: char| char.is_whitespace() || "{}<>|*:".contains(char));
    is_plain && !word.starts_with('/') && (is_file || word.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_path_that_is_not_there_is_named_with_its_row() {
        let root = workspace::root();
        let missing = |row: &str| missing(row, root).len();
        assert_eq!(
            missing("| a | `tools/xtask/src/layers.rs`, `layers/map.rs`; `src/stages.rs` |"),
            0
        );
        assert_eq!(missing("| a | `tools/xtask/src/layer.rs`, `map.rs` |"), 2);
        assert_eq!(missing("| a | `tools/xtask/src`, `layers/mop.rs` |"), 1);
        // Neither is a path of the tree.
        assert_eq!(missing("| `/dev/infiniband` | `cargo xtask test`, `layers::check` |"), 0);
        assert_eq!(missing("prose with `tools/none.rs`"), 0);
    }
}
