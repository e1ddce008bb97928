//! Captures that go to a pipe.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::process::Launch;
use roce_test_macros::tier1;

use super::faults::{blocks, traffic};
use super::leftovers::processes;
use super::{Outcome, roce, roce_run, temporary, text};
use crate::commands::{LIMIT, within};

/// A pipe of this name, removed when dropped.
struct Pipe(PathBuf);

impl Pipe {
    fn new(name: &str) -> Outcome<Self> {
        let path = temporary(name);
        let _old = fs::remove_file(&path);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU)?;
        Ok(Self(path))
    }

    /// Starts a program that copies what it reads to a file.
    fn copy_to(&self, file: &Path) -> Outcome<Child> {
        Ok(Command::new("cat").arg(&self.0).stdout(fs::File::create(file)?).spawn()?)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn roce_command(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(roce()).args(arguments);
    command
}

/// Ranks, a process of its own for each program, and packets of the run itself are all in one capture.
#[tier1("tcpdump, perftest")]
fn tcpdump_reads_all_packets_of_a_run_from_a_pipe_with_one_header() -> Outcome {
    let pipe = Pipe::new("read-by-tcpdump")?;
    // A message of 64 KiB is 16 packets of 4096 bytes.
    let lines: [(&[&str], usize, usize); 2] = [
        (
            &["run", "--local", "2", "--pcap", text(&pipe.0), "--", "ib_write_bw", "-n", "50"],
            4096,
            50 * 16,
        ),
        (&["pingpong", "--local", "-n", "50", "--pcap", text(&pipe.0)], 0, 100),
    ];
    for (line, least_len, least) in lines {
        let reader = Launch::new("tcpdump").args(["-n", "-r", text(&pipe.0)]).start()?;
        let output = roce_command(line).output()?;
        assert!(output.status.success(), "{line:?}: {output:?}");
        let roce_netns::process::Outcome { stdout: packets, stderr: words, .. } =
            reader.wait(LIMIT)?.check()?;
        let len = |line: &str| line.rsplit(' ').next()?.parse::<usize>().ok();
        let data = packets.lines().filter(|line| len(line).is_some_and(|len| len >= least_len));
        assert!(data.count() >= least, "{line:?}: {packets}\n{words}");
        assert!(packets.contains("10.0.0.1") && packets.contains("4791"), "{packets}");
    }
    Ok(())
}

/// Fails unless a signal ends a command soon, which waits for the reader before.
fn is_ended_by(command: Command, signal: Signal) -> Outcome {
    let running = Launch::from(command).start()?;
    assert_eq!(running.wait_for_exit(Duration::from_millis(300)), None, "it waits");
    running.signal(signal);
    let status = running.wait_for_exit(Duration::from_secs(10));
    status.map(drop).ok_or_else(|| format!("it goes on after {signal}").into())
}

#[tier1]
fn a_pipe_that_nothing_reads_is_waited_for_until_a_signal() -> Outcome {
    let pipe = Pipe::new("read-by-nothing")?;
    let path = text(&pipe.0);
    for line in [
        &["run", "--pcap", path, "--", "true"][..],
        &["run", "--local", "2", "--pcap", path, "--", "true"],
        &["pingpong", "--local", "--pcap", path],
        &["allreduce", "--local", "2", "--pcap", path],
    ] {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            is_ended_by(roce_command(line), signal)
                .map_err(|error| format!("{line:?}: {error}"))?;
        }
    }
    Ok(())
}

/// A device is an interface of the capture with its first packet, and the number of an interface is that of the
/// ones before it.
#[tier1]
fn a_device_whose_first_packet_comes_after_others_were_copied_is_in_the_capture() -> Outcome {
    let pipe = Pipe::new("read-in-turn")?;
    let copy = temporary("read-in-turn.pcapng");
    let mut reader = pipe.copy_to(&copy)?;
    let program = traffic("traffic");
    let script = format!("{program} 60 return && sleep 0.3 && {program} 60 return");
    let line = ["--local", "1", "--pcap", text(&pipe.0), "--", "sh", "-c", &script];
    let output = roce_run(&line).output()?;
    assert!(output.status.success(), "{output:?}");
    reader.wait()?;
    let kinds = blocks(&fs::read(&copy)?);
    let count = |kind| kinds.iter().filter(|found| **found == kind).count();
    assert_eq!(count(1), 2, "an interface for each of the devices");
    assert!(count(6) >= 4 * 60, "{} packets", count(6));
    Ok(())
}

#[tier1]
fn what_goes_on_after_the_program_fills_no_disk_with_a_capture_that_has_ended() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let pipe = Pipe::new("outlived")?;
    let folder = temporary("run-outlived");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("tmp"))?;
    let mut reader = pipe.copy_to(&folder.join("copy"))?;
    let mut command = Command::new("unshare");
    let network = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up && \
                   ip link add eth9 type veth peer name eth8 && ip link set eth9 up && \
                   ip link set eth8 up && ip address add 10.0.9.1/24 dev eth9 && exec \"$@\"";
    command.args(["--net", "--mount", "sh", "-c", network, "sh"]);
    // It sends until the folder is renamed.
    let go_on =
        format!("while test -d {}; do {} 60 return 20; done", text(&folder), traffic("traffic"));
    let script = format!("setsid sh -c '{go_on}' & exit 0");
    let line = ["--dev", "roce0=eth9", "--pcap", text(&pipe.0), "--", "sh", "-c", &script];
    let run = roce_run(&line);
    command.arg(run.get_program()).args(run.get_args());
    // A pipe for the errors would have no end before that of the process.
    command.env("TMPDIR", folder.join("tmp")).stdin(Stdio::null()).stderr(Stdio::null());
    let code = command.status()?.code();
    let ended = reader.wait();
    let captures = || {
        let runs = fs::read_dir(folder.join("tmp")).into_iter().flatten().flatten();
        let metadata = runs.map(|run| fs::metadata(run.path().join("capture.pcapng")));
        metadata.flatten().collect::<Vec<_>>()
    };
    let bounded = within(
        "a long file that takes little of the disk",
        || matches!(&captures()[..], [file] if file.len() > 1 << 20 && file.blocks() * 512 < 256 << 10),
    );
    let away = folder.with_extension("away");
    let _older = fs::remove_dir_all(&away);
    fs::rename(&folder, &away)?;
    within("the end of the processes", || processes(text(&folder)).is_empty())?;
    fs::remove_dir_all(&away)?;
    assert_eq!(code, Some(0));
    assert!(ended?.success(), "the pipe ends with the program");
    bounded
}

#[tier1]
fn a_run_that_waits_for_the_reader_of_a_pipe_ends_in_time_and_with_its_command() -> Outcome {
    let pipe = Pipe::new("read-never")?;
    let folder = temporary("run-that-waits");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for (place, kept) in [(&[][..], "keeper"), (&["--local", "2"], "supervisor")] {
        let line = [place, &["--pcap", text(&pipe.0), "--", "true"]].concat();
        let mut child = roce_run(&line).env("TMPDIR", &folder).spawn()?;
        let pattern = format!("{kept}\0{}\0", child.id());
        let has_folder = || fs::read_dir(&folder).is_ok_and(|found| found.count() > 0);
        within("the start", || has_folder() && !processes(&pattern).is_empty())?;
        child.kill()?;
        child.wait()?;
        let ended = within("the end of the process behind it", || processes(&pattern).is_empty());
        for process in processes(&pattern) {
            kill(Pid::from_raw(process), Signal::SIGKILL)?;
        }
        ended.map_err(|error| format!("{line:?}: {error}"))?;
        within("the removal of the folder", || !has_folder())?;

        let mut timeout = Command::new("timeout");
        timeout.args(["60", "env"]).args(roce_run(&["--timeout", "0.5"]).get_args()).args(&line);
        let output = timeout.output()?;
        assert_eq!(output.status.code(), Some(124), "{output:?}");
        let words = String::from_utf8(output.stderr)?;
        assert!(words.contains("stopped after 0.5s (--timeout)"), "{line:?}: {words}");
    }
    Ok(())
}

#[tier1("perftest")]
fn a_reader_that_goes_away_ends_the_capture_and_not_the_program() -> Outcome {
    let pipe = Pipe::new("left-by-reader")?;
    let reader = Launch::new("head").args(["-c", "200", text(&pipe.0)]).start()?;
    let line = ["--local", "2", "--pcap", text(&pipe.0), "--", "ib_write_bw", "-n", "500"];
    let output = roce_run(&line).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{words}");
    assert!(words.contains("its reader has gone"), "{words}");
    reader.wait(LIMIT)?.check()?;
    Ok(())
}
