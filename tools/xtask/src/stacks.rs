//! What the processes of a test that does not end wait for.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

/// The most processes whose stacks are printed: a test that leaks processes must not fill the log.
const MAX_PROCESSES: usize = 24;

/// Returns the stacks of a process and all its descendants, which it kills.
///
/// Each process has a line with its command, and those of its threads that gdb can see.
pub(crate) fn take_and_kill(root: u32) -> String {
    let processes = with_descendants(root, &parents());
    let stacks_of = |process: &u32| {
        format!("{HEADING}{process} ({})\n{}\n", command(*process), stacks(*process))
    };
    let all: String = processes.iter().take(MAX_PROCESSES).map(stacks_of).collect();
    // Listed anew, since stacks may take minutes, in which numbers become other processes'. From the youngest
    // on: a parent that goes first would make others of its own.
    for process in with_descendants(root, &parents()).iter().rev() {
        let _killed = Command::new("kill")
            .args(["-KILL", &process.to_string()])
            .stderr(Stdio::null())
            .status();
    }
    all
}

/// What begins the stacks of a process.
pub(crate) const HEADING: &str = "=== stacks of ";

/// Returns each process with its parent.
fn parents() -> BTreeMap<u32, u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |process: u32| {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        parent_in(&text)
    };
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|process| Some((process, parent(process)?))).collect()
}

/// Returns the parent in `/proc/PID/stat`, whose second field may contain anything.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns a process and its descendants, each behind its parent.
fn with_descendants(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        let children = parents.iter().filter(|(_, parent)| **parent == process);
        let new: Vec<u32> =
            children.map(|(child, _)| *child).filter(|child| !found.contains(child)).collect();
        found.extend(new);
        next += 1;
    }
    found
}

fn command(process: u32) -> String {
    let text = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ")
}

/// Returns what gdb says of the threads of a process, or why it says nothing.
fn stacks(process: u32) -> String {
    // A debugger that hangs must not hang the tests as well.
    let mut gdb = Command::new("timeout");
    gdb.args([
        "--signal=KILL",
        "60",
        "gdb",
        "--batch",
        "--nx",
        "-iex",
        "set debuginfod enabled off",
    ]);
    gdb.args(["-p", &process.to_string(), "-ex", "thread apply all backtrace 24"]);
    match gdb.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let threads: Vec<&str> =
                text.lines().skip_while(|line| !line.starts_with("Thread ")).collect();
            match threads.is_empty() {
                true => format!(
                    "gdb shows no thread: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                ),
                false => threads.join("\n"),
            }
        }
        Err(error) => format!("timeout cannot be started: {error}"),
    }
}

/// Returns the heading and the first lines of each thread: the whole is in the log.
pub(crate) fn short(text: &str) -> String {
    let keep = |line: &&str| {
        let frame =
            line.strip_prefix('#').and_then(|line| line.split_whitespace().next()?.parse().ok());
        frame.is_none_or(|number: u32| number < 6)
    };
    text.lines().filter(|line| !line.is_empty()).filter(keep).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn descendants_are_found_through_generations_and_no_others_are() {
        let parents = BTreeMap::from([(2, 1), (5, 2), (3, 5), (4, 1), (6, 4)]);
        assert_eq!(with_descendants(2, &parents), [2, 5, 3]);
        assert_eq!(with_descendants(6, &parents), [6]);
    }

    #[test]
    fn a_parent_is_read_behind_any_name() {
        assert_eq!(parent_in("17 (a) 9 (b) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in("17"), None);
    }

    #[test]
    fn the_first_frames_of_each_thread_are_the_short_form() {
        let text = "Thread 1:\n#0  a ()\n#5  b ()\n#6  c ()\n\n    at x.c:3";
        assert_eq!(short(text), "Thread 1:\n#0  a ()\n#5  b ()\n    at x.c:3");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children_after_its_stacks_were_printed() {
        let script = "sleep 1000 & sleep 1000 & wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        // The shell starts its children in its own time.
        let deadline = Instant::now() + Duration::from_secs(60);
        let family = loop {
            assert!(Instant::now() < deadline, "the shell starts nothing");
            let family = with_descendants(child.id(), &parents());
            if family.len() == 3
                && family.iter().all(|process| command(*process).contains("sleep 1000"))
            {
                break family;
            }
            std::thread::yield_now();
        };
        let text = take_and_kill(child.id());
        child.wait().unwrap();
        for process in family {
            assert!(text.contains(&format!("=== stacks of {process} (")), "{text}");
            // A killed process ends when it is next on a processor, and is then there until it is waited for.
            loop {
                let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                if state.is_empty() || state.contains(") Z ") {
                    break;
                }
                assert!(Instant::now() < deadline, "{state}");
                std::thread::yield_now();
            }
        }
    }
}
