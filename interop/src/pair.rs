//! A server and its client, one of them ours and the other on rxe in the guest.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Fault;
use crate::fault::expect;
use crate::process::Process;
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

/// Runs both ends; the first result is of ours. `ours` makes our command, from the server's address if
/// it is the client; `theirs` is the server's line in the guest, to which the address is appended.
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
    let start = |address| Process::start(ours(address), |command| world.host.spawn(command));
    let (ours, theirs) = match server {
        Server::Ours => {
            let mut ours = start(None)?;
            wait_until_listening(&mut ours, limit)?;
            let theirs = world.guest.run(&format!("{theirs} {OUR_ADDRESS}"))?;
            (ours, theirs)
        }
        Server::Theirs => {
            let mut theirs = world.guest.spawn(theirs)?;
            let listening =
                format!("until netstat -ltn | grep -q ':{PORT} '; do usleep 10000; done");
            world.guest.run_ok(&listening)?;
            let ours = start(Some(GUEST_ADDRESS))?;
            let theirs = theirs.wait(limit)?;
            (ours, theirs)
        }
    };
    let ours = ours.wait(limit)?;
    Ok([
        End { is_success: ours.status.success(), text: ours.text },
        End { is_success: theirs.status.is_success(), text: theirs.stdout + &theirs.stderr },
    ])
}

fn wait_until_listening(server: &mut Process, limit: Duration) -> Result<(), Fault> {
    let deadline = Instant::now() + limit;
    while !roce_netns::is_listening(server.id(), Some(PORT)) {
        expect(Instant::now() < deadline, || "our server does not listen".to_owned())?;
        if let Some(ended) = server.ended()? {
            let (status, text) = (ended.status, ended.text);
            return Err(Fault::Wrong(format!("it ended before it listened: {status}: {text}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Where all these programs listen.
const PORT: u16 = 18515;
