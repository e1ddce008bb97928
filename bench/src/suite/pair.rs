//! A server and its client in two hosts.

use std::time::Duration;

use roce_netns::Host;
use roce_netns::process::{Launch, Readiness, Running};
use roce_verbs::cm::LISTENERS;

/// Output of both ends of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairOutput {
    /// That of the end that listened.
    pub server: String,
    /// That of the end that began.
    pub client: String,
}

/// Starts a program that ends with this process.
///
/// # Errors
/// The system's reason, with the name of the program.
pub fn start(host: &Host, launch: &Launch) -> Result<Running, String> {
    let launch = launch.clone().end_with_parent().grace(EXIT_TIMEOUT);
    launch.start_in(host).map_err(|error| error.to_string())
}

/// Waits for the end of a program and returns its standard output.
///
/// # Errors
/// The program took longer than `timeout` and was ended, or failed. The text has its last lines.
pub fn finish(running: Running, timeout: Duration) -> Result<String, String> {
    let outcome = running.wait(timeout).and_then(|outcome| outcome.check());
    outcome.map(|outcome| outcome.stdout).map_err(|error| error.to_string())
}

/// Runs a server and, as soon as it listens, a client; both have to succeed.
///
/// # Errors
/// That of the first that failed, and of the other, too, if it is known by then.
pub fn run_pair(
    (server_host, server): (&Host, &Launch),
    readiness: impl Into<Readiness>,
    (client_host, client): (&Host, &Launch),
    timeout: Duration,
) -> Result<PairOutput, String> {
    let serving = start(server_host, server)?;
    wait_until_listening(&serving, readiness)
        .or_else(|why| if serving.has_ended() { Ok(()) } else { Err(why) })?;
    if serving.has_ended() {
        return match finish(serving, timeout) {
            Ok(_) => Err("the server ended before its client came".to_owned()),
            Err(why) => Err(why),
        };
    }
    let client = match finish(start(client_host, client)?, timeout) {
        Ok(client) => client,
        Err(why) if serving.has_ended() => {
            return match finish(serving, EXIT_TIMEOUT) {
                Err(also) => Err(format!("{why}; {also}")),
                Ok(_) => Err(why),
            };
        }
        Err(why) => return Err(why),
    };
    Ok(PairOutput { server: finish(serving, EXIT_TIMEOUT)?, client })
}

/// Waits until a program in the host listens.
///
/// # Errors
/// The server ended, or takes too long.
pub(crate) fn wait_until_listening(
    server: &Running,
    readiness: impl Into<Readiness>,
) -> Result<(), String> {
    let waited = server.wait_until_listening(&[readiness.into()], START_TIMEOUT);
    waited.map_err(|error| error.to_string())
}

/// Sign of a server that listens by rdma_cm, on our libibverbs.
pub(crate) const RDMA_CM: Readiness = Readiness::AbstractSocket(LISTENERS);

/// Time that a server has to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a server has to notice that its client is gone, and a program to end after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
