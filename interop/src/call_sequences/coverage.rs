//! Which functions of the headers were called.

use std::collections::BTreeSet;
use std::path::Path;

use roce_guest::Image;

use super::allowed::Allowed;
use super::places;
use crate::Fault;

/// The functions of `verbs.h` and `rdma_cma.h`.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Those that the sources call.
    pub called: Vec<String>,
    /// Those that they do not call, with the reason of the table.
    pub absent: Vec<(String, String)>,
    /// Those that they do not call, without a reason in the table.
    pub unexplained: Vec<String>,
}

/// Compares what the program's sources call with the headers of the guest's rdma-core.
///
/// # Errors
/// When a source or a header cannot be read.
pub fn coverage(image: &Image, allowed: &Allowed) -> Result<Coverage, Fault> {
    let called = calls(&places::sources())?;
    let mut coverage = Coverage::default();
    for function in functions(&image.directory().join("root/usr/include"))? {
        if called.contains(&function) {
            coverage.called.push(function);
        } else if let Some(row) = allowed.absent.iter().find(|it| it.has(&function)) {
            coverage.absent.push((function, row.reason.clone()));
        } else {
            coverage.unexplained.push(function);
        }
    }
    Ok(coverage)
}

/// Returns the names before an opening bracket in the sources of a folder.
fn calls(folder: &Path) -> Result<BTreeSet<String>, Fault> {
    let mut found = BTreeSet::new();
    let unread = |error| Fault::Wrong(format!("{}: {error}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.extension().is_some_and(|it| it == "c") {
            let text = std::fs::read_to_string(&path).map_err(unread)?;
            let names = text.match_indices('(').map(|(at, _)| {
                let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                text[..at].rsplit(|c| !of_name(c)).next().unwrap_or_default().to_owned()
            });
            found.extend(names);
        }
    }
    Ok(found)
}

/// Returns the functions that the headers declare.
fn functions(headers: &Path) -> Result<BTreeSet<String>, Fault> {
    let mut found = BTreeSet::new();
    for (header, prefix) in [("infiniband/verbs.h", "ibv_"), ("rdma/rdma_cma.h", "rdma_")] {
        let path = headers.join(header);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Fault::Wrong(format!("{}: {error}", path.display())))?;
        // A declaration begins in the first column; comments, members and calls do not.
        let outer =
            text.lines().filter(|line| line.starts_with(|first: char| first.is_alphabetic()));
        for word in outer.flat_map(|line| line.split([' ', '*', '\t'])) {
            if let Some((name, _)) = word.split_once('(')
                && name.starts_with(prefix)
            {
                found.insert(name.to_owned());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_front_of_brackets_are_calls_and_others_are_not() {
        let called = calls(&places::sources()).unwrap();
        assert!(called.contains("ibv_reg_mr") && called.contains("rdma_get_cm_event"));
        assert!(!called.contains("ibv_mr") && !called.contains("ibv_alloc_dm"));
    }
}
