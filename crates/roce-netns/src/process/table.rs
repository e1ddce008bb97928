//! The processes of this machine, as `/proc` lists them.

use std::fs;

/// Returns true if a process runs. One that only waits to be reaped does not.
pub fn is_running(process: u32) -> bool {
    parent_of(process).is_some()
}

/// Returns the parent of a process that runs.
pub fn parent_of(process: u32) -> Option<u32> {
    parent_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns the children of a process that run.
pub fn children_of(parent: u32) -> Vec<u32> {
    running().filter(|(_, its)| *its == parent).map(|(child, _)| child).collect()
}

/// Returns the descendants of a process that run, each behind its parent.
pub fn descendants_of(process: u32) -> Vec<u32> {
    descendants_in(&running().collect::<Vec<_>>(), process)
}

fn descendants_in(running: &[(u32, u32)], process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = running.iter().filter(|(_, its)| *its == parent).map(|(child, _)| *child);
        // The table is not of one moment, so it may have a circle.
        let new: Vec<u32> = children.filter(|child| !found.contains(child)).collect();
        found.extend(new);
        next += 1;
    }
    found.split_off(1)
}

/// Returns the processes that run, each with its parent.
fn running() -> impl Iterator<Item = (u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(|process: u32| Some((process, parent_of(process)?)))
}

/// Returns the parent in the kernel's line of a process that runs; nothing of one that only waits to be reaped.
/// The process's name, in brackets, may hold anything.
fn parent_in(line: &str) -> Option<u32> {
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(15)?.parse().ok()?;
    // The state is that of the first thread, which may end before the others.
    let has_ended = matches!(state, "Z" | "X") && threads <= 1;
    (!has_ended).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name_is() {
        let line = |start: &str, threads: u32| {
            format!("{start} 4 17 17 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 {threads} 0 8")
        };
        for (start, threads, parent) in [
            ("17 (sh) S", 1, Some(4)),
            ("17 (a) R 9 (b) S", 1, Some(4)),
            ("17 (sh) Z", 1, None),
            ("17 (sh) X", 0, None),
            ("17 (its first thread has ended) Z", 2, Some(4)),
        ] {
            assert_eq!(parent_in(&line(start, threads)), parent, "{start}");
        }
        assert_eq!(parent_in("17 (sh"), None);
        let parent = std::os::unix::process::parent_id();
        assert!(children_of(parent).contains(&std::process::id()));
        assert!(descendants_of(parent).contains(&std::process::id()));
    }

    #[test]
    fn descendants_are_found_through_generations_and_no_others_are() {
        let running = [(2, 1), (5, 2), (3, 5), (4, 1), (6, 4)];
        assert_eq!(descendants_in(&running, 2), [5, 3]);
        assert_eq!(descendants_in(&running, 6), [0; 0]);
    }
}
