//! Commands that tests run, or start, look at while they run, and end.

use std::error::Error;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use roce_netns::process::Running;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Longer than any step takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs `roce` with arguments, and more of them.
pub(crate) fn roce(arguments: &[&str], more: &[&str]) -> Outcome<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_roce")).args(arguments).args(more).output()?)
}

/// Returns what a command has printed, if it has succeeded.
pub(crate) fn succeeded(output: &Output) -> Outcome<String> {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    match output.status.success() {
        true => Ok(out.into_owned()),
        false => Err(format!("{}:\n{out}\n{err}", output.status).into()),
    }
}

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
