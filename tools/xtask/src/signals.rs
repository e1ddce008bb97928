//! Signals that the parent process ignores.
//!
//! A shell starts a job in the background, and some CI systems start everything, with SIGINT and SIGQUIT ignored.
//! Children inherit that, and a test that interrupts a program would wait for ever. SIGHUP stays as it is:
//! `nohup` asks for that.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::Result;

/// Names and numbers of the signals that tests send and expect to have an effect.
const SENT: &[(&str, u32)] = &[("INT", 2), ("QUIT", 3), ("TERM", 15)];

/// Starts this program again, with the same arguments, unless the signals that tests send have their default
/// actions. Returns if they have.
///
/// # Errors
/// When the program cannot be started again, or `env` cannot change signals.
pub(crate) fn restore_defaults() -> Result<()> {
    let names = ignored(&fs::read_to_string("/proc/self/status")?);
    if names.is_empty() {
        return Ok(());
    }
    let option = format!("--default-signal={}", names.join(","));
    let tried = Command::new("env").args([&option, "true"]).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        let names = names.join(" and SIG");
        return Err(format!(
            "SIG{names} is ignored here, and `env {option}` does not work; start the tests in the foreground"
        )
        .into());
    }
    // By its path: `/proc/self/exe` would be `env` there.
    let ourselves = env::current_exe()?;
    let error = Command::new("env").arg(option).arg(ourselves).args(env::args_os().skip(1)).exec();
    Err(format!("start env: {error}").into())
}

/// Returns the names of the signals of [`SENT`] that a process ignores, of its `/proc/PID/status`.
fn ignored(status: &str) -> Vec<&'static str> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let is_ignored = |number: u32| mask >> (number - 1) & 1 == 1;
    SENT.iter().filter(|(_, number)| is_ignored(*number)).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_found_in_the_mask_of_those_that_a_process_ignores() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001006\nSigCgt:\tff\n"), ["INT", "QUIT"]);
        assert_eq!(ignored("SigIgn:\t0000000000004001\n"), ["TERM"]);
        assert!(ignored("SigIgn:\t0000000000001000\n").is_empty(), "Rust ignores SIGPIPE");
        assert!(ignored("Name:\tx\n").is_empty());
    }
}
