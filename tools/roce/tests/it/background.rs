//! Commands that a test starts, looks at while they run, and ends.

use std::error::Error;
use std::time::{Duration, Instant};

use roce_netns::process::Running;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Longer than any step takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub(crate) fn within(what: &str, is_done: impl Fn() -> bool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        if Instant::now() > deadline {
            return Err(format!("waited too long for {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits for a line of a command's output, and returns it.
pub(crate) fn line_of(running: &Running, is_it: impl Fn(&str) -> bool) -> Outcome<String> {
    while let Some(line) = running.read_line(LIMIT)? {
        if is_it(&line) {
            return Ok(line);
        }
    }
    Err("the command ended without its line".into())
}

/// Waits for the end of a command, and returns its exit code.
pub(crate) fn code_of(running: &Running) -> Option<i32> {
    running.wait_for_exit(LIMIT)?.code()
}
