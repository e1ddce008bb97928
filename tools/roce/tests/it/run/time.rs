//! How long a run takes, and what waiting costs.

use std::process::Command;
use std::time::{Duration, Instant};

use roce_test_macros::tier1;

use super::{Outcome, roce, roce_run};

#[tier1]
fn waiting_for_a_server_is_told_ends_in_time_and_leaves_the_processor_alone() -> Outcome {
    let mut command = Command::new("bash");
    command.args(["-c", "TIMEFORMAT='processor %U %S'; time \"$0\" \"$@\""]).arg(roce());
    command.args(["run", "--local", "2", "--timeout", "4", "--", "sleep", "60"]);
    let begin = Instant::now();
    let output = command.output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(124), "{words}");
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let lines: Vec<&str> = words.lines().collect();
    let [waiting, stopped, times] = lines[..] else { return Err(words.into()) };
    assert!(waiting.contains("rank 1 waits for rank 0 to listen on a TCP port"), "{waiting}");
    assert!(stopped.contains("stopped after 4s (--timeout)"), "{stopped}");
    let used = times.split(' ').skip(1).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    assert!(used < 1.0, "{used} s of processor time for 4 s");
    Ok(())
}

#[tier1]
fn a_run_whose_time_is_over_is_stopped_with_the_code_of_timeout() -> Outcome {
    let deaf = "trap '' TERM; while :; do sleep 0.05; done";
    for (place, script, limit) in [
        (&["--timeout", "0.5s"][..], "exec sleep 60", 3),
        (&["--timeout", "0.5s"], deaf, 8),
        (&["--local", "1", "--timeout", "0.5s"], "exec sleep 60", 3),
        (&["--local", "3", "--timeout", "0.5s"], deaf, 8),
    ] {
        let mut command = roce_run(&[place, &["--", "sh", "-c", script]].concat());
        let begin = Instant::now();
        let output = command.output()?;
        let words = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(124), "{place:?}: {words}");
        assert!(words.contains("stopped after 0.5s (--timeout)"), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
        assert!(begin.elapsed() < Duration::from_secs(limit), "{place:?}: {:?}", begin.elapsed());
    }
    let in_time = ["--local", "1", "--timeout", "1m", "--", "sh", "-c", "exit 3"];
    assert_eq!(roce_run(&in_time).output()?.status.code(), Some(3));
    Ok(())
}
