//! What the processes of a test that does not end wait for.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use roce_netns::process::{Launch, descendants_of};

/// The most processes whose stacks are printed: a test that leaks processes must not fill the log.
const MAX_PROCESSES: usize = 24;

/// Returns the stacks of a process and all its descendants, which it kills.
///
/// Each process has a line with its command, and those of its threads that gdb can see.
pub(crate) fn take_and_kill(root: u32) -> String {
    let processes = with_descendants(root);
    let stacks_of = |process: &u32| {
        format!("{HEADING}{process} ({})\n{}\n", command(*process), stacks(*process))
    };
    let all: String = processes.iter().take(MAX_PROCESSES).map(stacks_of).collect();
    // Listed anew, since stacks may take minutes, in which numbers become other processes'. From the youngest
    // on: a parent that goes first would make others of its own.
    for process in with_descendants(root).iter().rev() {
        let _killed = Command::new("kill")
            .args(["-KILL", &process.to_string()])
            .stderr(Stdio::null())
            .status();
    }
    all
}

/// What begins the stacks of a process.
pub(crate) const HEADING: &str = "=== stacks of ";

/// Returns a process and its descendants, each behind its parent.
fn with_descendants(root: u32) -> Vec<u32> {
    [vec![root], descendants_of(root)].concat()
}

fn command(process: u32) -> String {
    let text = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ")
}

/// Returns what gdb says of the threads of a process, or why it says nothing.
fn stacks(process: u32) -> String {
    let gdb = Launch::new("gdb").args(["--batch", "--nx", "-iex", "set debuginfod enabled off"]);
    let gdb = gdb.args(["-p", &process.to_string(), "-ex", "thread apply all backtrace 24"]);
    // A debugger that hangs must not hang the tests as well.
    let waited = gdb.grace(Duration::ZERO).start().and_then(|gdb| gdb.wait(GDB_LIMIT));
    let output = match waited {
        Ok(output) => output,
        Err(error) => return error.to_string(),
    };
    let threads = output.stdout.lines().skip_while(|line| !line.starts_with("Thread "));
    let threads: Vec<&str> = threads.collect();
    match threads.is_empty() {
        true => format!("gdb shows no thread: {}", output.stderr.trim()),
        false => threads.join("\n"),
    }
}

/// Time that gdb may take for a process.
const GDB_LIMIT: Duration = Duration::from_secs(60);

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
    use std::time::Instant;

    use roce_netns::process::is_running;

    use super::*;

    #[test]
    fn the_first_frames_of_each_thread_are_the_short_form() {
        let text = "Thread 1:\n#0  a ()\n#5  b ()\n#6  c ()\n\n    at x.c:3";
        assert_eq!(short(text), "Thread 1:\n#0  a ()\n#5  b ()\n    at x.c:3");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children_after_its_stacks_were_printed() {
        let script = "sleep 1000 & sleep 1000 & wait";
        let child = Launch::new("sh").args(["-c", script]).start().unwrap();
        // The shell starts its children in its own time.
        let deadline = Instant::now() + Duration::from_secs(60);
        let family = loop {
            assert!(Instant::now() < deadline, "the shell starts nothing");
            let family = with_descendants(child.id());
            if family.len() == 3
                && family.iter().all(|process| command(*process).contains("sleep 1000"))
            {
                break family;
            }
            std::thread::yield_now();
        };
        let text = take_and_kill(child.id());
        for process in family {
            assert!(text.contains(&format!("=== stacks of {process} (")), "{text}");
            // A killed process ends when it is next on a processor.
            while is_running(process) {
                assert!(Instant::now() < deadline, "{process} still runs");
                std::thread::yield_now();
            }
        }
    }
}
