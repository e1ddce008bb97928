//! Where sequences are executed: the guest with rxe, and a private host of ours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use roce_guest::{GuestError, Image};

use super::output::{Ending, Sequence};
use crate::fault::expect;
use crate::process;
use crate::world::program;
use crate::{Fault, World};

/// Time without output after which the guest is taken to stand still: a sequence is killed after 30 s, and stuck after
/// 60 s.
const SILENCE: Duration = Duration::from_secs(100);

/// The program in the guest.
pub(super) const IN_GUEST: &str = "/bin/call_sequences";

/// Sequences that are executed together.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The seed of the first; the others follow.
    pub first: u64,
    /// How many they are.
    pub count: u64,
    /// Calls of each.
    pub calls: u32,
    /// Processes at a time.
    pub processes: u32,
}

impl Batch {
    pub(super) fn arguments(self) -> [String; 4] {
        [self.first, self.count, u64::from(self.calls), u64::from(self.processes)]
            .map(|it| it.to_string())
    }

    /// The time that it may take: each sequence may hang until it is killed, but only few do.
    fn limit(self) -> Duration {
        Duration::from_secs(60 + 4 * self.count)
    }
}

/// The sources of the program.
pub(super) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("call_sequences")
}

/// Compiles the program against the guest's headers, and returns its path on this machine.
///
/// # Errors
/// When there is no compiler.
pub fn prepare(image: &Image) -> Result<PathBuf, Fault> {
    Ok(image.compile(&[&sources()], &["rdmacm", "ibverbs"])?)
}

/// Puts the program into a guest, and executes sequences on rxe there. Returns what was printed, and the error
/// if the guest has ended or stands still.
///
/// # Errors
/// When the program cannot be put there.
pub fn on_rxe(
    world: &World,
    program: &Path,
    batch: Batch,
) -> Result<(Vec<Sequence>, Option<GuestError>), Fault> {
    install(world, program)?;
    let command = format!("exec {IN_GUEST} rxe0 {}", batch.arguments().join(" "));
    let mut process = world.guest.spawn(&command)?;
    let mut text = String::new();
    let error = loop {
        match process.read_line(SILENCE) {
            Ok(Some(line)) => text.extend([&line, "\n"]),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let sequences = Sequence::read_all(&text);
    let is_stuck = sequences.iter().any(|it| it.ending == Ending::Stuck);
    let stuck = || GuestError::TimedOut {
        what: "a process that was killed".into(),
        limit: SILENCE,
        console: std::fs::read_to_string(world.guest.console()).unwrap_or_default(),
    };
    Ok((sequences, error.or_else(|| is_stuck.then(stuck))))
}

/// Returns what programs read of rxe below `/sys`.
///
/// # Errors
/// As [`on_rxe`].
pub fn rxe_files(world: &World, program: &Path) -> Result<String, Fault> {
    install(world, program)?;
    Ok(world.guest.run_ok(&format!("{IN_GUEST} rxe0 files"))?)
}

pub(super) fn install(world: &World, program: &Path) -> Result<(), Fault> {
    let bytes = std::fs::read(program)
        .map_err(|error| Fault::Wrong(format!("{}: {error}", program.display())))?;
    Ok(world.guest.push(IN_GUEST, &bytes, 0o755)?)
}

/// Executes sequences on our libraries, in a private host.
///
/// # Errors
/// When our command cannot be started, or takes too long.
pub fn on_ours(program: &Path, batch: Batch) -> Result<Vec<Sequence>, Fault> {
    let text = with_ours(program, &batch.arguments(), batch.limit())?;
    Ok(Sequence::read_all(&text))
}

/// Returns what programs read of our device below `/sys`.
///
/// # Errors
/// As [`on_ours`].
pub fn our_files(program: &Path) -> Result<String, Fault> {
    with_ours(program, &["files".to_owned()], Duration::from_secs(60))
}

/// Returns what the program prints.
fn with_ours(path: &Path, arguments: &[String], limit: Duration) -> Result<String, Fault> {
    let mut command = Command::new(program("roce")?);
    command.args(["run", "--local", "1", "--"]).arg(path).arg("roce0").args(arguments);
    command.env("ROCE_QUEUES", "rxe");
    let outcome = process::run(command, limit)?;
    let text = outcome.text();
    expect(outcome.status.success(), || {
        let last = text.lines().last().unwrap_or_default();
        format!("the program on our libraries ended with {}; its last line: {last}", outcome.status)
    })?;
    // `--local` puts the number of the host before each line.
    let lines = text.lines().map(|line| line.strip_prefix("[0] ").unwrap_or(line));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}
