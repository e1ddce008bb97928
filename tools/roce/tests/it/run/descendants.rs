//! Processes that outlive the program of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_test_macros::tier1;

use super::leftovers::processes;
use super::{Outcome, compile, roce_run, temporary, text};
use crate::commands::within;

/// A folder with a program that becomes a daemon, removed when dropped.
struct Trial {
    folder: PathBuf,
}

impl Trial {
    fn new(name: &str) -> Outcome<Self> {
        let folder = temporary(&format!("left-behind-{name}"));
        let _old = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("tmp"))?;
        let source = folder.join("left_behind.c");
        fs::write(&source, include_str!("left_behind.c"))?;
        compile(
            &source,
            &folder.join("daemon"),
            &["-D_GNU_SOURCE", "-Wl,--no-as-needed", "-libverbs"],
        )?;
        Ok(Self { folder })
    }

    /// Runs the daemon's program, whose devices are those of a namespace with one interface.
    fn run(&self, view: &str) -> Outcome<Output> {
        let mut command = Command::new("unshare");
        let script = "ip link set lo up && ip link add eth9 type bridge && ip link set eth9 up && \
                      mount -t sysfs sysfs /sys && exec \"$@\"";
        command.args(["--net", "--mount", "sh", "-c", script, "sh"]);
        let run = roce_run(&[
            "--view",
            view,
            "--",
            text(&self.folder.join("daemon")),
            text(&self.folder),
        ]);
        command.arg(run.get_program()).args(run.get_args());
        command.env("TMPDIR", self.folder.join("tmp")).stdin(Stdio::null());
        Ok(command.output()?)
    }

    fn tell(&self, name: &str) -> Outcome {
        Ok(fs::write(self.folder.join(name), "")?)
    }

    /// Returns true if the daemon has been told to go, or has waited too long for it, and has opened a device.
    fn has_seen(&self) -> bool {
        self.folder.join("seen").exists()
    }

    fn seen(&self) -> Outcome<String> {
        within("the daemon's words", || self.has_seen())?;
        Ok(fs::read_to_string(self.folder.join("seen"))?)
    }

    /// Returns the folders of runs.
    fn folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.join("tmp")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = self.tell("end");
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[tier1("ibverbs-utils")]
fn a_daemon_has_its_devices_after_the_end_of_the_run_whose_folder_goes_with_it() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    for view in ["mount", "preload"] {
        let trial = Trial::new(view)?;
        let output = trial.run(view)?;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!trial.has_seen(), "the run ends with its program, before the daemon");
        let words = String::from_utf8(output.stderr)?;
        assert!(words.contains("1 process that it has started goes on"), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
        assert_eq!(trial.folders().len(), 1);
        trial.tell("go")?;
        let seen = trial.seen()?;
        assert!(seen.contains("daemon roce0 opens\nchild roce0\n1 HCA found"), "{view}: {seen}");
        trial.tell("end")?;
        within("the removal of the folder", || trial.folders().is_empty())?;
    }
    Ok(())
}

/// As a service that empties folders for temporary files does.
#[tier1("ibverbs-utils")]
fn a_daemon_opens_its_devices_also_when_the_folder_of_the_run_was_removed() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let trial = Trial::new("removed")?;
    assert_eq!(trial.run("preload")?.status.code(), Some(0));
    for folder in trial.folders() {
        fs::remove_dir_all(folder)?;
    }
    trial.tell("go")?;
    let seen = trial.seen()?;
    assert!(seen.contains("daemon roce0 opens") && seen.contains("1 HCA found"), "{seen}");
    assert!(!seen.contains("ERROR: ld.so"), "{seen}");
    Ok(())
}

#[tier1]
fn a_run_that_waits_ends_with_the_last_process_and_the_code_of_the_program() -> Outcome {
    for place in [&["--wait", "--"][..], &["--wait", "--local", "1", "--prefix", "none", "--"]] {
        let script = "setsid sh -c 'sleep 0.4; echo late' & exit 3";
        let output = roce_run(&[place, &["sh", "-c", script]].concat()).output()?;
        assert_eq!(output.status.code(), Some(3), "{place:?}: {output:?}");
        assert_eq!(String::from_utf8(output.stdout)?, "late\n", "{place:?}");
    }
    Ok(())
}

#[tier1]
fn a_run_that_waits_too_long_ends_the_processes_that_it_waits_for() -> Outcome {
    for (number, end) in ["exit 0", "sleep 300"].iter().enumerate() {
        let name = format!("waited-for-{number}-{}", std::process::id());
        let script = format!("setsid bash -c 'exec -a {name} sleep 300' & {end}");
        let line = ["--wait", "--timeout", "0.5", "--", "bash", "-c", &script];
        let output = roce_run(&line).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        assert_eq!(output.code(), Some(124), "{end}");
        let ended = within("the end of the process", || processes(&name).is_empty());
        for process in processes(&name) {
            kill(Pid::from_raw(process), Signal::SIGKILL)?;
        }
        ended.map_err(|error| format!("{end}: {error}"))?;
    }
    Ok(())
}

/// The terminal sends it to all processes of its group.
#[tier1("python3")]
fn a_process_that_is_waited_for_has_a_signal_of_the_terminal_once() -> Outcome {
    let folder = temporary("interrupted");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let path = |name: &str| text(&folder.join(name)).to_owned();
    // It takes signals also where a shell has let its processes in the background ignore them.
    let counting = "import signal, sys, time\nseen = []\n\
                    signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n\
                    open(sys.argv[1] + '.ready', 'w')\n\
                    end = time.monotonic() + 20\n\
                    while not seen and time.monotonic() < end: time.sleep(0.01)\n\
                    time.sleep(0.5)\nopen(sys.argv[1], 'w').write(str(len(seen)))\n";
    let terminal = "import os, pty, sys, time\nchild, end = pty.fork()\n\
                    if child == 0: os.execvp(sys.argv[2], sys.argv[2:])\n\
                    while not all(os.path.exists(f) for f in sys.argv[1].split()): time.sleep(0.01)\n\
                    time.sleep(0.3)\nos.write(end, b'\\x03')\nos.waitpid(child, 0)\n";
    fs::write(folder.join("counting.py"), counting)?;
    // One process of the terminal's group, and one of a session of its own, to which the run sends the signal.
    let (counter, near, far) = (path("counting.py"), path("near"), path("far"));
    let script = format!("python3 {counter} {near} & setsid python3 {counter} {far} & exit 0");
    let mut command = Command::new("python3");
    command.args(["-c", terminal, &format!("{near}.ready {far}.ready")]);
    let run = roce_run(&["--wait", "--timeout", "60", "--", "sh", "-c", &script]);
    let output = command.arg(run.get_program()).args(run.get_args()).output()?;
    assert!(output.status.success(), "{output:?}");
    assert_eq!((fs::read_to_string(near)?, fs::read_to_string(far)?), ("1".into(), "1".into()));
    Ok(())
}

/// A parent that is the first of its PID namespace, as in a container, gets the orphans of all others.
#[tier1]
fn a_run_that_is_the_first_process_reaps_orphans() -> Outcome {
    let count = temporary("zombies");
    // The orphans of the program, and one that another process leaves to the first one.
    let script = format!(
        "for i in 1 2 3; do (setsid sh -c 'sleep 0.05' &); done; sleep 0.5; \
         grep -l '^State:.Z' /proc/[0-9]*/status > {}; exit 0",
        text(&count)
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
    command.args(["sh", "-c", "sleep 0.1 & exec \"$@\"", "sh"]);
    let run = roce_run(&["--", "sh", "-c", &script]);
    let output = command.arg(run.get_program()).args(run.get_args()).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_to_string(Path::new(&count))?, "");
    Ok(())
}
