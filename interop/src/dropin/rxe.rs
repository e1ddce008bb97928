//! Programs of which one end is ours and the other on rxe in the guest.

use std::process::Command;
use std::time::Duration;

use super::program::{Places, Program};
use super::{judge, repeated};
use crate::Fault;
use crate::matrix::Case;
use crate::pair::{self, Server};
use crate::world::{INTERFACE, World, program};

/// The time that a program has.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the cases.
pub fn cases(programs: &[Program]) -> Vec<Case<World>> {
    let mut cases = Vec::new();
    let columns = [(Server::Theirs, "ours → rxe"), (Server::Ours, "rxe → ours")];
    for line in programs {
        let columns = match line.places {
            Places::Ours => &columns[..0],
            Places::OursAndRxe => &columns[..],
            Places::OursAndRxeClient => &columns[1..],
        };
        for (server, column) in columns.iter().copied() {
            let line = *line;
            cases.push(Case::new(line.group, line.line, column, 4096, move |world| {
                run(world, server, &line)
            }));
        }
    }
    cases
}

fn run(world: &World, server: Server, line: &Program) -> Result<(), Fault> {
    let roce = program("roce")?;
    let ours = |address: Option<&str>| {
        let mut command = Command::new(&roce);
        command.args(["run", "--dev", &format!("roce0={INTERFACE}"), "--"]);
        let line = pair::line_of(&line.commands(), address);
        if line.contains(';') {
            command.args(["sh", "-c", &line]);
        } else {
            command.args(line.split_whitespace());
        }
        command
    };
    let (ends, text) = repeated(|| {
        let ends = pair::run(world, server, ours, &line.commands(), LIMIT)?;
        // Some servers, such as those of READ, print no result.
        let text = ends.each_ref().map(|end| end.text.as_str()).concat();
        Ok((ends, text))
    })?;
    ends.iter().try_for_each(|end| judge(line.expects, end.is_success, &text))
}
