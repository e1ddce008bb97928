//! Captures that go to a pipe.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_test_macros::tier1;

use super::{Outcome, roce, roce_run, temporary, text};

/// A pipe of this name, removed when dropped.
struct Pipe(PathBuf);

impl Pipe {
    fn new(name: &str) -> Outcome<Self> {
        let path = temporary(name);
        let _old = fs::remove_file(&path);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU)?;
        Ok(Self(path))
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
    let lines: [&[&str]; 2] = [
        &["run", "--local", "2", "--pcap", text(&pipe.0), "--", "ib_write_bw", "-n", "50"],
        &["pingpong", "--local", "-n", "50", "--pcap", text(&pipe.0)],
    ];
    for line in lines {
        let mut reader = Command::new("tcpdump");
        reader.args(["-n", "-r", text(&pipe.0)]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let reader = reader.spawn()?;
        let output = roce_command(line).output()?;
        assert!(output.status.success(), "{line:?}: {output:?}");
        let read = reader.wait_with_output()?;
        let words = String::from_utf8(read.stderr)?;
        assert!(read.status.success(), "{words}");
        let packets = String::from_utf8(read.stdout)?;
        assert!(packets.lines().count() > 100, "{line:?}: {packets}\n{words}");
        assert!(packets.contains("10.0.0.1") && packets.contains("4791"), "{packets}");
    }
    Ok(())
}

/// Fails unless a signal ends a process soon.
fn is_ended_by(mut child: Child, signal: Signal) -> Outcome {
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait()?.is_none(), "it waits for the reader");
    kill(Pid::from_raw(child.id().cast_signed()), signal)?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > Duration::from_secs(10) {
            child.kill()?;
            return Err(format!("it goes on after {signal}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
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
            let mut command = roce_command(line);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            is_ended_by(command.spawn()?, signal).map_err(|error| format!("{line:?}: {error}"))?;
        }
    }
    Ok(())
}

#[tier1("perftest")]
fn a_reader_that_goes_away_ends_the_capture_and_not_the_program() -> Outcome {
    let pipe = Pipe::new("left-by-reader")?;
    let mut reader =
        Command::new("head").args(["-c", "200", text(&pipe.0)]).stdout(Stdio::null()).spawn()?;
    let line = ["--local", "2", "--pcap", text(&pipe.0), "--", "ib_write_bw", "-n", "500"];
    let output = roce_run(&line).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{words}");
    assert!(words.contains("its reader has gone"), "{words}");
    reader.wait()?;
    Ok(())
}
