//! Programs in private hosts of this machine, our library at every end.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::program::Program;
use super::{judge, repeated};
use crate::matrix::Case;
use crate::process;
use crate::world::program;
use crate::{Fault, Testbed};

/// The time that a program has.
const LIMIT: Duration = Duration::from_secs(300);

/// The place: `roce run` makes the hosts anew for each program.
#[derive(Clone, Copy, Debug)]
pub struct PrivateHosts;

impl Testbed for PrivateHosts {
    fn set_path_mtu(&self, _path_mtu: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn set_netem(&self, _what: &str) -> Result<(), Fault> {
        Ok(())
    }
}

/// Returns the cases.
pub fn cases(programs: &[Program]) -> Vec<Case<PrivateHosts>> {
    let case = |line: &Program| {
        let line = *line;
        Case::new(line.group, line.title(), "ours ↔ ours", 1024, move |_| run(&line))
    };
    programs.iter().map(case).collect()
}

fn run(line: &Program) -> Result<(), Fault> {
    let roce = program("roce")?;
    let (is_success, text) = repeated(|| {
        let ended = process::run(command(&roce, line), LIMIT)?;
        Ok((ended.status.success(), ended.text()))
    })?;
    judge(line.expects, is_success, &text)
}

fn command(roce: &Path, line: &Program) -> Command {
    let mut command = Command::new(roce);
    command.args(["run", "--local", &line.hosts.to_string()]).args(line.options).arg("--");
    let commands = line.commands();
    if commands.contains(';') {
        command.args(["sh", "-c", &commands]);
    } else {
        command.args(commands.split_whitespace());
    }
    command
}
