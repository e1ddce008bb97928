//! Programs of this side, with the limits and faults of cases.

use std::process::Command;
use std::time::Duration;

use roce_netns::Host;
use roce_netns::process::{Launch, Outcome, Running};

use crate::Fault;

/// Starts a command in a host, or on this machine itself.
pub(crate) fn start(host: Option<&Host>, command: Command) -> Result<Running, Fault> {
    let launch = Launch::from(command);
    let started = match host {
        Some(host) => launch.start_in(host),
        None => launch.start(),
    };
    started.map_err(Fault::ours("start the program"))
}

/// Waits for the end of a program; after `limit` ends it.
pub(crate) fn wait(running: Running, limit: Duration) -> Result<Outcome, Fault> {
    let outcome = running.wait(limit).map_err(Fault::ours("wait for the program"))?;
    match outcome.exceeded {
        None => Ok(outcome),
        Some(_) => {
            let text = outcome.text();
            Err(Fault::Wrong(format!("no end within {limit:?}; it printed: {text}")))
        }
    }
}

/// Runs a command on this machine itself.
pub(crate) fn run(command: Command, limit: Duration) -> Result<Outcome, Fault> {
    wait(start(None, command)?, limit)
}
