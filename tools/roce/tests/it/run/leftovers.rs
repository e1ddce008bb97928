//! Nothing is left of a run.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_test_macros::tier1;

use super::{Copy, NOBODY, Outcome, roce, roce_run, temporary, text};
use crate::commands::within;

/// A run whose program leaves a process behind, and a folder of its own for temporary files.
struct Leaving {
    name: String,
    folder: PathBuf,
}

impl Leaving {
    fn new(name: &str) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("roce-left-{name}-{}", std::process::id()));
        let _old = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let owner = Some(NOBODY).filter(|_| nix::unistd::geteuid().is_root());
        std::os::unix::fs::chown(&folder, owner, owner)?;
        Ok(Self { name: format!("left-by-{name}-{}", std::process::id()), folder })
    }

    /// Makes a command run two ranks that leave a sleeping process in a session of its own, and then
    /// do `end`. None of them heeds a signal that can be ignored.
    fn line(&self, mut command: Command, end: &str) -> Command {
        let (name, folder) = (&self.name, self.folder.display());
        let script = format!(
            "trap '' HUP INT TERM; setsid bash -c 'exec -a {name} sleep 300' & \
             until pgrep -f '^{name}' > {folder}/found-{{rank}}; do sleep 0.01; done; \
             touch {folder}/started-{{rank}}; {end}"
        );
        command.env("TMPDIR", &self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.args(["--local", "2", "--", "bash", "-c", &script]);
        command
    }

    fn wait_for_start(&self) -> Outcome {
        let started = |rank: usize| self.folder.join(format!("started-{rank}")).exists();
        within("the start", || (0..2).all(started))
    }

    /// Fails unless all processes of the run end soon, and its folder is removed.
    fn check(&self) -> Outcome {
        within("the end of the processes", || processes(&self.name).is_empty())?;
        let left = || {
            let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
            let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.any(|name| name.starts_with("roce-"))
        };
        within("the removal of the folder", || !left())
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        for process in processes(&self.name) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The end of a program that has none.
const FOR_EVER: &str = "while :; do sleep 0.05; done";

/// Returns the processes with a text in their command lines, but for this one.
pub(super) fn processes(of: &str) -> Vec<i32> {
    let is_it = |process: &i32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        *process != std::process::id().cast_signed() && String::from_utf8_lossy(&line).contains(of)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_it).collect()
}

fn signal(child: &Child, signal: Signal) -> Outcome {
    Ok(kill(Pid::from_raw(child.id().cast_signed()), signal)?)
}

#[tier1]
fn processes_that_a_program_leaves_behind_end_with_the_run() -> Outcome {
    let leaving = Leaving::new("end")?;
    let status = leaving.line(roce_run(&[]), "exit 0").status()?;
    assert_eq!(status.code(), Some(0));
    leaving.check()
}

#[tier1]
fn processes_that_a_program_leaves_behind_end_after_a_signal() -> Outcome {
    for name in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let leaving = Leaving::new(name.as_str())?;
        let mut child = leaving.line(roce_run(&[]), FOR_EVER).spawn()?;
        leaving.wait_for_start()?;
        let begin = Instant::now();
        signal(&child, name)?;
        let code = child.wait()?.code();
        let time = begin.elapsed();
        assert_eq!(code, Some(128 + 9), "the program ignores {name}");
        assert!(time > Duration::from_secs(2) && time < Duration::from_secs(8), "{name}: {time:?}");
        leaving.check()?;
    }
    Ok(())
}

#[tier1]
fn nothing_is_left_when_the_command_is_killed() -> Outcome {
    let is_root = nix::unistd::geteuid().is_root();
    let copy = Copy::new("left")?;
    for (name, is_user) in [("killed", false), ("killed-of-user", true)] {
        let leaving = Leaving::new(name)?;
        let mut command = if is_user { copy.run(&[]) } else { roce_run(&[]) };
        if is_user && is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut child = leaving.line(command, FOR_EVER).spawn()?;
        leaving.wait_for_start()?;
        assert!(!processes(&leaving.name).is_empty());
        child.kill()?;
        child.wait()?;
        leaving.check()?;
    }
    Ok(())
}

/// A user namespace may allow none, and /proc of a container cannot be mounted again.
#[tier1]
fn nothing_is_left_where_pid_namespaces_are_not_allowed() -> Outcome {
    for (name, end, kills) in [("without", "exit 0", false), ("without-killed", FOR_EVER, true)] {
        let leaving = Leaving::new(name)?;
        let mut command = Command::new("unshare");
        let script = "echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$0\" run \"$@\"";
        command.args(["--user", "--map-root-user", "sh", "-c", script, text(roce())]);
        std::os::unix::fs::chown(&leaving.folder, Some(nix::unistd::geteuid().as_raw()), None)?;
        let mut child = leaving.line(command, end).spawn()?;
        if kills {
            leaving.wait_for_start()?;
            child.kill()?;
        }
        let code = child.wait()?.code();
        assert_eq!(code, Some(0).filter(|_| !kills));
        leaving.check()?;
    }
    Ok(())
}

/// The process in front and the one that keeps the folder are killed at once.
#[tier1]
fn the_folder_of_a_killed_run_on_this_host_is_removed_by_the_next_run_once_its_processes_have_ended()
-> Outcome {
    let folder = temporary("killed-run");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let names = || -> Outcome<Vec<_>> {
        Ok(fs::read_dir(&folder)?.flatten().map(|entry| entry.file_name()).collect())
    };
    let name = format!("left-by-killed-run-{}", std::process::id());
    let line = |script: &str| {
        let mut command = roce_run(&[]);
        command.args(["--", "bash", "-c", script]).env("TMPDIR", &folder);
        command
    };
    let script = format!(
        "setsid bash -c 'exec -a {name} sleep 300' & touch {}/started; sleep 60",
        folder.display()
    );
    let mut child = line(&script).spawn()?;
    within("the start", || folder.join("started").exists() && !processes(&name).is_empty())?;
    let keepers = processes(&format!("keeper\0{}", child.id()));
    assert_eq!(keepers.len(), 1, "{keepers:?}");
    for process in keepers {
        kill(Pid::from_raw(process), Signal::SIGKILL)?;
    }
    assert_eq!(child.wait()?.code(), Some(128 + 9));
    assert!(line("exit 0").status()?.success());
    assert_eq!(names()?.len(), 2, "the folder, which a process uses, and the file");
    for process in processes(&name) {
        kill(Pid::from_raw(process), Signal::SIGKILL)?;
    }
    within("the end of the process", || processes(&name).is_empty())?;
    assert!(line("exit 0").status()?.success());
    assert_eq!(names()?, ["started"]);
    Ok(())
}

#[tier1]
fn the_folder_of_a_run_whose_front_is_killed_goes_with_its_last_process() -> Outcome {
    let folder = temporary("killed-front");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let script = format!("touch {}/started; exec sleep 60", folder.display());
    let mut command = roce_run(&["--", "sh", "-c", &script]);
    let mut child = command.env("TMPDIR", &folder).spawn()?;
    within("the start", || folder.join("started").exists())?;
    child.kill()?;
    child.wait()?;
    let left = || fs::read_dir(&folder).map_or(0, Iterator::count);
    within("the removal of the folder", || left() == 1)
}
