//! Signals and exit codes.

use std::fs;
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Running, Signal, is_running};
use roce_test_macros::tier1;

use super::{Outcome, roce, roce_run, temporary};
use crate::commands::{LIMIT, code_of, line_of, within};

/// Starts a run and waits for a line of its output.
fn start(arguments: &[&str], awaited: &str) -> Outcome<(Running, String)> {
    let running = Launch::from(roce_run(arguments)).start()?;
    let line = line_of(&running, |line| line.contains(awaited))?;
    Ok((running, line))
}

#[tier1]
fn a_signal_reaches_the_program_and_its_exit_code_comes_back() -> Outcome {
    let script = "trap 'exit 42' TERM USR1; echo ready; while :; do sleep 0.01; done";
    for signal in [Signal::SIGTERM, Signal::SIGUSR1] {
        for place in [&["--"][..], &["--local", "1", "--"]] {
            let (run, _) = start(&[place, &["sh", "-c", script]].concat(), "ready")?;
            run.signal(signal);
            assert_eq!(code_of(&run), Some(42), "{signal} {place:?}");
        }
    }
    Ok(())
}

#[tier1]
fn a_program_that_a_signal_ends_gives_128_and_its_number() -> Outcome {
    let (run, _) = start(&["--", "sh", "-c", "echo ready; exec sleep 60"], "ready")?;
    run.signal(Signal::SIGUSR2);
    assert_eq!(code_of(&run), Some(128 + 12));
    Ok(())
}

/// The user knows what ended the program.
#[tier1]
fn a_signal_of_the_user_is_no_failure_to_tell_of() -> Outcome {
    for place in [&["--"][..], &["--local", "1", "--"], &["--local", "3", "--"]] {
        let line = [place, &["sh", "-c", "echo ready; exec sleep 60"]].concat();
        let (run, _) = start(&line, "ready")?;
        // A process in the background of a script ignores SIGINT, and so would the program.
        run.signal(Signal::SIGTERM);
        let end = run.wait(LIMIT)?;
        assert_eq!(end.status.code(), Some(128 + 15), "{place:?}");
        assert_eq!(end.stderr, "", "{place:?}");
    }
    Ok(())
}

#[tier1]
fn no_program_outlives_its_run() -> Outcome {
    let (run, line) = start(&["--", "sh", "-c", "echo id $$; exec sleep 60"], "id ")?;
    let program: u32 = line.rsplit(' ').next().ok_or("no id")?.parse()?;
    run.signal(Signal::SIGKILL);
    within("the end of the program of a run that was killed", || !is_running(program))
}

#[tier1]
fn a_program_that_ignores_the_end_is_killed_in_a_bounded_time() -> Outcome {
    let script = "trap '' TERM HUP; echo ready; while :; do sleep 0.05; done";
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let (run, _) = start(&["--", "sh", "-c", script], "ready")?;
        let begin = Instant::now();
        run.signal(signal);
        assert_eq!(code_of(&run), Some(128 + 9), "{signal}");
        let time = begin.elapsed();
        assert!(time > Duration::from_secs(2) && time < Duration::from_secs(8), "{time:?}");
    }
    Ok(())
}

#[tier1]
fn a_run_that_was_started_to_ignore_a_hangup_goes_on_after_it() -> Outcome {
    for place in [&["--"][..], &["--local", "1", "--"]] {
        let script = "echo ready; sleep 0.3; exit 9";
        let launch = Launch::new("nohup").arg(roce()).arg("run").args(place);
        let run = launch.args(["sh", "-c", script]).start()?;
        line_of(&run, |line| line.contains("ready"))?;
        run.signal(Signal::SIGHUP);
        assert_eq!(code_of(&run), Some(9), "{place:?}");
    }
    Ok(())
}

#[tier1]
fn a_file_among_the_counters_that_blocks_its_reader_holds_no_run_up() -> Outcome {
    let script = "test $(stat -c %a \"$ROCE_RUN/counters\") = 700 && mkfifo \"$ROCE_RUN/counters/roce0.1\" \
                  && sleep 0.6 && echo made";
    for place in [&["--"][..], &["--local", "1", "--"]] {
        let mut command = roce_run(&[place, &["sh", "-c", script]].concat());
        let begin = Instant::now();
        let output = command.output()?;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8(output.stdout)?.contains("made"));
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
    Ok(())
}

#[tier1]
fn a_rank_that_had_to_be_killed_leaves_no_folder() -> Outcome {
    let folder = temporary("killed-rank");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let script = "test {rank} = 1 && exit 7; trap '' INT TERM; while :; do sleep 0.1; done";
    let line = ["--local", "2", "--", "sh", "-c", script];
    let output = roce_run(&line).env("TMPDIR", &folder).output()?;
    assert_eq!(output.status.code(), Some(7));
    let left: Vec<_> = fs::read_dir(&folder)?.map_while(Result::ok).collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}
