//! The two processes above the ranks.
//!
//! `roce run --local` starts itself again as the supervisor, which creates the hosts and starts the
//! ranks. The supervisor is the first process of a PID namespace, so that the kernel ends all other
//! processes of the run with it. Where that is not permitted it is a subreaper, and ends them itself.
//! The command that the user has started passes signals on. If it is killed, the supervisor sees the
//! end of their socket, ends the run and removes its folder.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{self, Child};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;

use super::stage::Stage;
use crate::error::{CliError, Result};
use crate::faults::Rails;
use crate::ranks::pid_of;
use crate::run::folder::run_folder::RunFolder;
use crate::run::line::options::Options;
use crate::run::line::placeholder;
use crate::run::line::requirement;
use crate::run::outcome::exit_code::FAILED;
use crate::run::processes::child::{self, Limits};
use crate::run::processes::signals::Signals;

/// Starts the supervisor and waits for its end.
pub(crate) fn start(options: &Options, size: u32) -> Result {
    placeholder::check(&options.command, options.rails)?;
    // Before any thread exists.
    roce_netns::enter_user_namespace_if_needed()?;
    let signals = Signals::block()?;
    options.faults.check_ranks(Some(size))?;
    options.faults.check_rails(Rails::OfRun(options.rails))?;
    requirement::check(&options.require, size, options.rails)?;
    let folder = RunFolder::with(options)?;
    let supervisor = match spawn(Isolation::Namespace, &folder)? {
        Some(supervisor) => supervisor,
        None => spawn(Isolation::Subreaper, &folder)?.ok_or(CliError::Reported(FAILED))?,
    };
    let (process, _socket) = supervisor;
    let end = child::follow(pid_of(&process), &signals, Limits::None, None)?;
    let code = child::code_of(end.status);
    if let Some(signal) = end.signal() {
        eprintln!(
            "roce: the process above the ranks was ended by {}",
            crate::run::outcome::failure::Shown(signal)
        );
    }
    if code == 0 { Ok(()) } else { Err(CliError::Reported(code)) }
}

/// What ends the processes of a run with its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isolation {
    /// The kernel: the supervisor is the first process of a PID namespace.
    Namespace,
    /// The supervisor: processes without a parent become its children.
    Subreaper,
}

/// Starts a supervisor. Returns it with the socket by which it sees the end of this process; nothing
/// if it can have no namespace.
fn spawn(isolation: Isolation, folder: &RunFolder) -> Result<Option<(Child, UnixStream)>> {
    let (mut socket, its) = UnixStream::pair()?;
    let mut command = Stage::Supervisor { starter: process::id() }.command(folder.path());
    command.stdin(OwnedFd::from(its));
    // The namespace is that of the children of the thread that asks for it.
    let spawned = thread::scope(|scope| {
        let inside = scope.spawn(|| {
            if isolation == Isolation::Namespace {
                unshare(CloneFlags::CLONE_NEWPID)?;
            }
            command.spawn()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let mut supervisor = match spawned {
        Ok(supervisor) => supervisor,
        Err(error) if isolation == Isolation::Namespace => {
            tracing::info!(%error, "no PID namespace for the ranks");
            return Ok(None);
        }
        Err(error) => return Err(CliError::context("starting roce again", error)),
    };
    // Or else it would stay open here after the supervisor's end.
    drop(command);
    if socket.read_exact(&mut [0]).is_ok() {
        return Ok(Some((supervisor, socket)));
    }
    supervisor.wait()?;
    Ok(None)
}

/// Makes this process the supervisor that `starter` has started. No thread may exist yet.
///
/// # Errors
/// If the process is the first of a PID namespace and cannot show it in /proc.
pub(crate) fn become_one(starter: u32) -> Result {
    if process::id() == 1 {
        show_processes().map_err(|error| {
            tracing::info!(%error, "/proc cannot show the PID namespace of the ranks");
            CliError::Reported(FAILED)
        })?;
        spread_numbers(starter);
    } else {
        prctl::set_child_subreaper(true)?;
    }
    Ok(())
}

/// Tells the process that has started this supervisor that there is one, which has the folder of the run.
///
/// # Errors
/// That process was killed.
pub(crate) fn tell_starter() -> Result {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(&[0])?)
}

/// Waits for the end of the process that has started this supervisor.
pub(crate) fn wait_for_end_of_starter() {
    // It writes nothing.
    let _ = io::stdin().read(&mut [0]);
}

/// Mounts the /proc of this PID namespace, for this process and those that it starts.
fn show_processes() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let nothing = None::<&str>;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing)
}

/// Lets the numbers of processes begin where those of other runs probably do not: programs put them
/// into the names of files in /tmp, which all runs share.
fn spread_numbers(starter: u32) {
    let limit = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let Some(last) = limit.trim().parse().ok().and_then(|limit| last_number(starter, limit)) else {
        return;
    };
    // Kernels without checkpoints have no such file.
    let _ = fs::write(Path::new("/proc/sys/kernel/ns_last_pid"), last.to_string());
}

/// Returns the number behind which those of a run begin.
fn last_number(starter: u32, limit: u64) -> Option<u64> {
    // The kernel keeps those below for its own.
    const FIRST: u64 = 300;
    // Runs that are started one after the other are this far apart.
    const DISTANCE: u64 = 101;
    (u64::from(starter) * DISTANCE).checked_rem(limit.checked_sub(FIRST)?).map(|at| FIRST + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_numbers_of_runs_are_apart_and_below_the_limit() {
        assert_eq!(last_number(1000, 32768), Some(300 + 101_000 % 32468));
        assert_eq!(last_number(1001, 4_194_304), Some(300 + 101_101));
        assert_eq!(last_number(7, 300), None);
        assert_eq!(last_number(7, 301), Some(300));
    }
}
