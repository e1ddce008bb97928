//! Children of a process that uses devices.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use roce_netns::process::Launch;
use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success, roce_run};

const BACKENDS: &[&str] = &["af-packet", "udp"];
/// The longest that a step may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Cases of the table of `tests/programs/forks`.
const CASES: u32 = 69;

/// Runs `tests/programs/forks` with arguments in a private host, with each of these back ends.
fn run_forks(backends: &[&str], arguments: &[&str]) {
    let program = VerbsProgram::linked_with("forks", "forks", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    for backend in backends {
        let mut command = roce_run();
        command.args(["--backend", backend, "--"]).arg(program.file()).args(arguments);
        command.env("OWN_ADDRESS", "10.1.0.1");
        expect_success(&format!("{backend} {}", arguments.join(" ")), &cable.left, command);
    }
}

/// The table of `tests/programs/forks`: when, how and what for a child is made. `ROCE_FORK_ROUNDS` runs so many
/// rounds of the whole table, `ROCE_SEED` begins with the same case.
#[tier1("librdmacm-dev")]
fn a_child_holds_and_closes_nothing_of_its_parent() {
    let setting = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u32>().unwrap());
    let count = setting("ROCE_FORK_ROUNDS").map_or(18, |rounds| rounds * CASES);
    let seed = setting("ROCE_SEED").unwrap_or_else(|| std::process::id() % CASES);
    println!("ROCE_SEED={seed}");
    let [cases, count, seed] = [CASES, count, seed].map(|number| number.to_string());
    run_forks(BACKENDS, &["table", &cases, &count, &seed]);
}

#[tier1("librdmacm-dev")]
fn a_program_that_closes_all_descriptors_keeps_those_that_it_opens_then() {
    run_forks(BACKENDS, &["closed-descriptors"]);
    run_forks(BACKENDS, &["closed-while-open"]);
}

#[tier1("librdmacm-dev")]
fn the_end_of_a_program_that_has_closed_all_descriptors_writes_nothing_to_those_of_its_own() {
    run_forks(BACKENDS, &["exit-when-closed"]);
}

#[tier1("librdmacm-dev")]
fn what_a_peer_sends_leaves_the_descriptors_alone_that_a_program_has_at_a_devices_numbers() {
    // UDP sockets get nothing once their descriptors are closed, so that no thread wakes up.
    run_forks(&["af-packet"], &["replaced-descriptors"]);
}

#[tier1("librdmacm-dev")]
fn events_go_to_no_file_that_another_thread_has_at_a_channels_number() {
    run_forks(&["af-packet"], &["unshared-descriptors"]);
}

#[tier1("librdmacm-dev")]
fn handlers_of_fork_may_close_and_open_devices() {
    run_forks(BACKENDS, &["handlers-of-fork"]);
}

#[tier1("librdmacm-dev")]
fn a_program_that_closes_all_descriptors_of_a_device_gets_an_error_for_a_path() {
    run_forks(BACKENDS, &["path-when-closed"]);
}

#[tier1("librdmacm-dev")]
fn a_child_has_no_descriptor_of_what_another_thread_makes_meanwhile() {
    run_forks(&["af-packet"], &["made-meanwhile"]);
}

#[tier1("librdmacm-dev")]
fn a_process_of_one_thread_has_no_other_when_its_devices_are_closed() {
    run_forks(BACKENDS, &["one-thread"]);
}

#[tier1("librdmacm-dev")]
fn requests_to_closed_ports_are_answered_when_only_a_child_of_what_answered_them_lives() {
    run_forks(BACKENDS, &["stray"]);
}

#[tier1]
fn a_child_that_is_made_while_another_thread_opens_a_device_can_open_its_own() {
    let cable = Cable::with_mtu(1500);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce-test-fork-beside-open"));
    command.args(["eth0", "20"]);
    expect_success("a child beside an open", &cable.left, command);
}

#[tier1("librdmacm-dev")]
fn a_process_that_gives_up_its_user_reaches_those_of_its_run_that_do_not() {
    run_forks(&["af-packet"], &["other-user"]);
}

#[tier1("librdmacm-dev")]
fn a_process_that_may_lock_little_memory_and_locks_all_opens_a_device() {
    run_forks(&["af-packet"], &["locked-memory"]);
}

#[tier1]
fn a_run_gives_packet_sockets_to_its_own_processes_alone() {
    let cable = Cable::with_mtu(1500);
    let mut command = roce_run();
    command.args(["--backend", "af-packet", "--", "sh", "-c", "echo $ROCE_SOCKETS; read end"]);
    let run = Launch::from(command).with_stdin().start_in(&cable.left).unwrap();
    let path = run.read_line(LIMIT).unwrap().expect("a path");
    let mut connection = UnixStream::connect(path).unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    // It may be refused before it asks.
    let _asked = connection.write_all(b"T");
    // A byte would come with the socket.
    match connection.read(&mut [0]) {
        Ok(count) => assert_eq!(count, 0),
        // The time allowed is over.
        Err(error) => assert!(!matches!(error.kind(), WouldBlock | TimedOut), "{error}"),
    }
    assert!(!run.wait(LIMIT).unwrap().status.success(), "read has found the end");
}
