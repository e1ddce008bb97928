//! Programs of which one end is ours and the other on rxe in the guest.

use std::process::Command;
use std::time::{Duration, Instant};

use super::judge;
use super::process::{Outcome, Process};
use super::program::{Places, Program};
use crate::Fault;
use crate::fault::expect;
use crate::listening::listens;
use crate::matrix::Case;
use crate::world::{GUEST_ADDRESS, INTERFACE, OUR_ADDRESS, World, program};

/// The time that a program has.
const LIMIT: Duration = Duration::from_secs(120);

/// Which end listens.
#[derive(Clone, Copy, Debug)]
enum Server {
    Ours,
    Rxe,
}

/// Returns the cases.
pub fn cases(programs: &[Program]) -> Vec<Case<World>> {
    let mut cases = Vec::new();
    for line in programs.iter().filter(|line| line.places == Places::OursAndRxe) {
        for (server, column) in [(Server::Rxe, "ours → rxe"), (Server::Ours, "rxe → ours")] {
            let line = *line;
            cases.push(Case {
                group: line.group,
                row: line.line.to_owned(),
                column: column.to_owned(),
                path_mtu: 4096,
                netem: "",
                run: Box::new(move |world| match server {
                    Server::Ours => serve(world, &line),
                    Server::Rxe => connect(world, &line),
                }),
            });
        }
    }
    cases
}

/// Ours listens.
fn serve(world: &World, line: &Program) -> Result<(), Fault> {
    let (ours, pid) = start(world, line.line)?;
    let deadline = Instant::now() + LIMIT;
    while !listens(pid, PORT) {
        expect(Instant::now() < deadline, || "it does not listen".to_owned())?;
        if let Some(Outcome { status, text }) = ours.ended()? {
            return Err(Fault::Wrong(format!("it ended before it listened: {status}: {text}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let theirs = world.guest.run(&format!("{} {OUR_ADDRESS}", line.line))?;
    judge(line.expects, theirs.status.is_success(), &(theirs.stdout + &theirs.stderr))?;
    let ours = ours.wait(LIMIT)?;
    judge(line.expects, ours.status.success(), &ours.text)
}

/// rxe listens.
fn connect(world: &World, line: &Program) -> Result<(), Fault> {
    let mut theirs = world.guest.spawn(line.line)?;
    let listening = format!("until netstat -ltn | grep -q ':{PORT} '; do usleep 10000; done");
    world.guest.run_ok(&listening)?;
    let (ours, _) = start(world, &format!("{} {GUEST_ADDRESS}", line.line))?;
    let ours = ours.wait(LIMIT)?;
    judge(line.expects, ours.status.success(), &ours.text)?;
    let theirs = theirs.wait(LIMIT)?;
    judge(line.expects, theirs.status.is_success(), &(theirs.stdout + &theirs.stderr))
}

/// Starts a line on our library; returns its process id, too.
fn start(world: &World, line: &str) -> Result<(Process, u32), Fault> {
    let mut command = Command::new(program("roce")?);
    command.args(["run", "--dev", &format!("roce0={INTERFACE}"), "--"]);
    command.args(line.split_whitespace());
    let mut pid = 0;
    let process = Process::start(command, |command| {
        world.host.spawn(command).inspect(|child| pid = child.id())
    })?;
    Ok((process, pid))
}

/// Where all these programs listen.
const PORT: u16 = 18515;
