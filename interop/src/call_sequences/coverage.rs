//! Which functions of the headers were called.

use std::collections::BTreeSet;
use std::path::Path;

use roce_guest::Image;

use super::allowed::{Allowed, matches};
use crate::Fault;

/// The functions of `verbs.h` and `rdma_cma.h`.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Those that a sequence may call.
    pub called: Vec<String>,
    /// Those that none calls, with the reason of the table.
    pub absent: Vec<(String, String)>,
    /// Those that none calls without a reason in the table.
    pub unexplained: Vec<String>,
}

/// Compares the names that `calls` has, a line each, with the headers of the guest's rdma-core.
///
/// # Errors
/// When a header cannot be read.
pub fn coverage(image: &Image, allowed: &Allowed, calls: &str) -> Result<Coverage, Fault> {
    let called: BTreeSet<&str> = calls.split([' ', '\n', ',']).collect();
    let mut coverage = Coverage::default();
    for function in functions(&image.directory().join("root/usr/include"))? {
        if called.contains(function.as_str()) {
            coverage.called.push(function);
        } else if let Some(row) = allowed.absent.iter().find(|row| matches(&row.call, &function)) {
            coverage.absent.push((function, row.reason.clone()));
        } else {
            coverage.unexplained.push(function);
        }
    }
    Ok(coverage)
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
