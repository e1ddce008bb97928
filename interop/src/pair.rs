//! A server and its client, one of them ours and the other on rxe in the guest.

use std::process::Command;
use std::time::Duration;

use roce_netns::process::{Readiness, Running};
use roce_verbs::cm::LISTENERS;

use crate::Fault;
use crate::process;
use crate::world::{GUEST_ADDRESS, OUR_ADDRESS, World};

/// Which end listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Ours.
    Ours,
    /// The program in the guest.
    Theirs,
}

/// How an end has ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) is_success: bool,
    /// Standard output, then standard error.
    pub(crate) text: String,
}

/// Returns the line of an end: with the server's address, if it is the client, in the place of
/// `{peer?}` or else behind it.
pub(crate) fn line_of(line: &str, address: Option<&str>) -> String {
    const PEER: &str = "{peer?}";
    match address {
        _ if line.contains(PEER) => line.replace(PEER, address.unwrap_or_default()),
        Some(address) => format!("{line} {address}"),
        None => line.to_owned(),
    }
}

/// Runs both ends; the first result is of ours. `ours` makes our command, from the server's address if
/// it is the client; `theirs` is the line in the guest: see [`line_of`].
///
/// # Errors
/// When an end cannot be started, the server does not listen, or one takes longer than `limit`.
pub(crate) fn run(
    world: &World,
    server: Server,
    ours: impl Fn(Option<&str>) -> Command,
    theirs: &str,
    limit: Duration,
) -> Result<[End; 2], Fault> {
    let start = |address| process::start(Some(&world.host), ours(address));
    let (ours, theirs) = match server {
        Server::Ours => {
            let ours = wait_until_listening(start(None)?, limit)?;
            let theirs = world.guest.run(&line_of(theirs, Some(OUR_ADDRESS)))?;
            (ours, theirs)
        }
        Server::Theirs => {
            let mut theirs = world.guest.spawn(&line_of(theirs, None))?;
            let listening = format!(
                "until netstat -ltn | grep -q ':{PORT} ' || rdma resource show cm_id | grep -q LISTEN; \
                 do usleep 10000; done"
            );
            world.guest.run_ok(&listening)?;
            let ours = start(Some(GUEST_ADDRESS))?;
            let theirs = theirs.wait(limit)?;
            (ours, theirs)
        }
    };
    let ours = process::wait(ours, limit)?;
    Ok([
        End { is_success: ours.status.success(), text: ours.text() },
        End { is_success: theirs.status.is_success(), text: theirs.stdout + &theirs.stderr },
    ])
}

fn wait_until_listening(server: Running, limit: Duration) -> Result<Running, Fault> {
    let places = [Readiness::Tcp(PORT), Readiness::AbstractSocket(LISTENERS)];
    match server.wait_until_listening(&places, limit) {
        Ok(()) => Ok(server),
        Err(_) if server.has_ended() => {
            let ended = process::wait(server, limit)?;
            let (status, text) = (ended.status, ended.text());
            Err(Fault::Wrong(format!("it ended before it listened: {status}: {text}")))
        }
        Err(_) => Err(Fault::Wrong("our server does not listen".to_owned())),
    }
}

/// Where these programs listen with TCP.
const PORT: u16 = 18515;

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn the_servers_address_stands_where_the_line_says_or_behind_it() {
        assert_eq!(line_of("p -n 1", None), "p -n 1");
        assert_eq!(line_of("p -n 1", Some("10.0.0.1")), "p -n 1 10.0.0.1");
        assert_eq!(line_of("a={peer?}; p $a", None), "a=; p $a");
        assert_eq!(line_of("a={peer?}; p $a", Some("10.0.0.1")), "a=10.0.0.1; p $a");
    }
}
