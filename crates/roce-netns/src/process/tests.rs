//! Properties of programs that run.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Launch, Output, ProcessError, Readiness, Running, Signal};

/// Longer than any step takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn sh(script: &str) -> Launch {
    Launch::new("sh").args(["-c", script])
}

fn begun(running: &Running) -> String {
    running.read_line(LIMIT).unwrap().unwrap()
}

#[test]
fn a_program_ends_with_its_parent() {
    let launch = sh("echo begun; exec sleep 1000").end_with_parent();
    let starting = thread::spawn(move || {
        let running = launch.start().unwrap();
        assert_eq!(begun(&running), "begun");
        running
    });
    let outcome = starting.join().unwrap().wait(LIMIT).unwrap();
    assert_eq!((outcome.status.signal(), outcome.exceeded), (Some(9), None));
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_its_grace() {
    let launch = sh("trap '' TERM; echo begun; while :; do sleep 0.1; done");
    let running = launch.grace(Duration::from_millis(50)).start().unwrap();
    begun(&running);
    let outcome = running.wait(Duration::from_millis(50)).unwrap();
    assert_eq!(outcome.exceeded, Some(Duration::from_millis(50)));
    assert_eq!(outcome.status.signal(), Some(9));
}

#[test]
fn output_that_exceeds_a_pipe_does_not_block() {
    let script = "head -c 1000000 /dev/zero; head -c 2000000 /dev/zero >&2";
    let outcome = sh(script).start().unwrap().wait(LIMIT).unwrap().check().unwrap();
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (1_000_000, 2_000_000));
}

#[test]
fn a_program_that_closes_its_output_is_waited_for_with_the_limit() {
    let running = sh("exec >&- 2>&-; exec sleep 1000").start().unwrap();
    assert_eq!(running.read_line(LIMIT).unwrap(), None);
    assert!(!running.has_ended());
    let outcome = running.wait(Duration::from_millis(50)).unwrap();
    assert!(outcome.exceeded.is_some());
    assert_eq!(outcome.status.signal(), Some(15));
}

#[test]
fn sigterm_comes_before_sigkill() {
    let script = "trap 'echo cleaned up; exit 7' TERM; echo begun; while :; do sleep 0.01; done";
    let running = sh(script).grace(LIMIT).start().unwrap();
    assert_eq!(begun(&running), "begun");
    let outcome = running.end().unwrap();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(7), "cleaned up\n"));
    assert_eq!(outcome.exceeded, None);

    let running = sh(script).grace(Duration::ZERO).start().unwrap();
    assert_eq!(begun(&running), "begun");
    let outcome = running.end().unwrap();
    assert_eq!((outcome.status.signal(), &*outcome.stdout), (Some(9), ""));
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_the_grace() {
    let script = "trap '' TERM; echo begun; while :; do sleep 0.01; done";
    let running = sh(script).grace(Duration::from_millis(50)).start().unwrap();
    assert_eq!(begun(&running), "begun");
    let process = running.id().to_string();
    drop(running);
    assert!(!Path::new("/proc").join(process).exists());
}

#[test]
fn an_error_names_the_program_and_what_it_printed_last() {
    let running = sh("echo out; echo first >&2; echo last >&2; exec sleep 1000").start().unwrap();
    assert_eq!(begun(&running), "out");
    let error = running.wait(Duration::from_millis(600)).unwrap().check().unwrap_err();
    assert_eq!(error.to_string(), "sh did not end within 1 s; it printed: first / last");

    let running = sh("echo one; exec sleep 1000").start().unwrap();
    assert_eq!(begun(&running), "one");
    let error = running.read_line(Duration::from_millis(10)).unwrap_err();
    assert_eq!(error.to_string(), "sh printed no line within 0 s; it printed: one");

    let error = sh("echo on stdout; exit 1").start().unwrap().wait(LIMIT).unwrap().check();
    assert_eq!(error.unwrap_err().to_string(), "sh: on stdout (exit status: 1)");

    let error = Launch::new("/nowhere/program").start().unwrap_err();
    assert!(error.to_string().starts_with("cannot start program: No such file"), "{error}");
}

#[test]
fn each_line_is_seen_once_and_in_order() {
    let (sender, seen) = mpsc::channel();
    let output = Output::each_line(move |line| sender.send(line.to_owned()).unwrap());
    let launch = sh("for n in 1 2 3; do echo $n; done; printf 4").stdout(output);
    let outcome = launch.start().unwrap().wait(LIMIT).unwrap().check().unwrap();
    drop(launch);
    assert_eq!(outcome.stdout, "");
    assert_eq!(seen.iter().collect::<Vec<String>>(), ["1", "2", "3", "4"]);
}

#[test]
fn joined_streams_are_in_the_order_of_writing() {
    let launch = sh("for n in 1 2 3; do echo out $n; echo error $n >&2; done").join_stderr();
    let outcome = launch.start().unwrap().wait(LIMIT).unwrap().check().unwrap();
    assert_eq!(outcome.stdout, "out 1\nerror 1\nout 2\nerror 2\nout 3\nerror 3\n");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn the_end_of_the_input_reaches_the_program() {
    let mut running = Launch::new("cat").with_stdin().start().unwrap();
    running.write_line("hello").unwrap();
    running.close_stdin();
    assert!(running.write_line("again").is_err());
    assert_eq!(running.wait(LIMIT).unwrap().check().unwrap().stdout, "hello\n");
}

#[test]
fn a_signal_reaches_the_program_and_its_status_tells() {
    let running = Launch::new("sleep").arg("1000").start().unwrap();
    assert_eq!(running.exit_status(), None);
    running.signal(Signal::SIGUSR1);
    assert!(running.wait_for_exit(LIMIT).is_some());
    assert_eq!(running.exit_status().unwrap().signal(), Some(Signal::SIGUSR1 as i32));
    assert_eq!(running.wait(LIMIT).unwrap().status.signal(), Some(Signal::SIGUSR1 as i32));
}

#[test]
fn a_server_that_ends_before_it_listens_is_an_error_at_once() {
    let running = sh("echo no such device >&2; exit 3").start().unwrap();
    let place = Readiness::AbstractSocket("roce-netns/nothing");
    let error = running.wait_until_listening(&[place], LIMIT).unwrap_err();
    assert!(matches!(error, ProcessError::NotListening { .. }));
    assert!(error.to_string().starts_with("sh does not listen at @roce-netns/nothing"), "{error}");
}
