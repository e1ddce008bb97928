//! The device of librdmacm as C programs use it, by its commands, and how soon what they ask for comes.

use std::time::Duration;

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::echo::Process;
use roce_tests::fixtures::Cable;
use roce_tests::ip::batch;
use roce_tests::verbs_program::{VerbsProgram, roce_run};

/// Longest time of a refusal beside other load. The next datagram of a connection, which would take an answer
/// along that has not left, goes after 6 s, and that of a datagram service after 4 s.
const MAX_LOADED: Duration = Duration::from_millis(2000);
/// Median and longest time of a refusal on a machine without other load.
const LIMITS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

#[tier1("librdmacm-dev")]
fn channels_of_rdma_cm_behave_as_the_device_of_the_kernel() {
    VerbsProgram::linked("channel").run_scenarios("");
}

/// Starts the program so that it listens on a port of an address until its input ends.
fn hold(program: &VerbsProgram, host: &Host, address: &str) -> Process {
    let mut command = roce_run();
    command.arg("--").arg(program.file()).args(["hold", address]);
    Process::start(host, command)
}

/// Requests in each place and mode, and whether `ROCE_REFUSALS` says how many: with it the limits of a machine
/// without other load hold.
fn refusals() -> (String, bool) {
    let asked = std::env::var("ROCE_REFUSALS").ok();
    let is_asked = asked.is_some();
    (asked.unwrap_or_else(|| "20".to_owned()), is_asked)
}

/// Runs the program in a host, and returns the numbers that it prints.
fn numbers(program: &VerbsProgram, host: &Host, arguments: &[&str]) -> Vec<u64> {
    let mut command = roce_run();
    command.arg("--").arg(program.file()).args(arguments);
    let output = host.run(|| command.output()).unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text.split_whitespace().map(|word| word.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

#[tier1("librdmacm-dev")]
fn a_request_to_a_port_without_listener_is_refused_at_once_from_every_place() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    let (count, is_asked) = refusals();
    let own = "10.1.0.1";
    // What else listens, where, and which address is asked.
    let places = [
        ("connect", None, own),
        ("beside", None, own),
        ("gone", None, own),
        ("connect", Some((&cable.left, own)), own),
        ("connect", Some((&cable.right, "10.1.0.2")), "10.1.0.2"),
    ];
    for (role, holder, address) in places {
        let held = holder.map(|(host, address)| hold(&program, host, address));
        for mode in ["poll", "epoll", "block"] {
            let times = numbers(&program, &cable.left, &[role, address, mode, &count]);
            let [median, late, longest] = times[..] else { panic!("{times:?}") };
            let place = held.as_ref().map_or("alone", |_| "another process listens");
            println!(
                "{role} {address} {mode}, {place}: median {median} us, 99 % {late} us, longest {longest} us"
            );
            let [median, longest] = [median, longest].map(Duration::from_micros);
            if is_asked {
                assert!(median <= LIMITS[0] && longest <= LIMITS[1], "{median:?}, {longest:?}");
            }
            assert!(longest <= MAX_LOADED, "{role} {address} {mode}, {place}: {longest:?}");
        }
        if let Some(held) = held {
            held.end();
        }
    }
}

#[tier1("librdmacm-dev")]
fn calls_of_rdma_cm_that_are_refused_have_the_error_numbers_of_the_kernel() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    assert!(numbers(&program, &cable.left, &["numbers", "10.1.0.1"]).is_empty());
}

/// A program that waits for the channel in poll(2) would block in the call that fetches the event.
#[tier1("librdmacm-dev")]
fn a_request_that_the_peer_takes_back_leaves_no_event_that_the_program_cannot_fetch() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    assert!(numbers(&program, &cable.left, &["taken-back", "10.1.0.1"]).is_empty());
}

#[tier1("librdmacm-dev")]
fn events_of_a_connection_come_where_the_listener_was_when_its_request_was_fetched() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    assert!(numbers(&program, &cable.left, &["moved", "10.1.0.1"]).is_empty());
}

#[tier1("librdmacm-dev")]
fn requests_of_a_listener_that_moves_to_a_channel_where_a_thread_sleeps_are_all_accepted() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    // With the requests lost, four of five runs failed.
    for _ in 0..3 {
        assert!(numbers(&program, &cable.left, &["moved-beside", "10.1.0.1"]).is_empty());
    }
}

#[tier1("librdmacm-dev")]
fn connections_are_made_where_no_file_may_have_any_length() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    assert!(numbers(&program, &cable.left, &["without-files", "10.1.0.1"]).is_empty());
}

/// The identifier of a connection becomes known to the program's library while it accepts, and the peer may have
/// answered by then.
#[tier1("librdmacm-dev")]
fn a_thread_that_waits_for_events_beside_one_that_accepts_has_them_all() {
    let program = VerbsProgram::linked_with("accepts", "accepts", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    assert!(numbers(&program, &cable.left, &["10.1.0.1", "30"]).is_empty());
}

#[tier1("librdmacm-dev")]
fn requests_that_end_before_they_are_accepted_and_their_answers_are_told_as_by_the_kernel() {
    VerbsProgram::linked_with("requests", "requests", &["-lrdmacm"]).run_scenarios("");
}

/// Interfaces of a host with many.
const INTERFACES: usize = 122;

/// Opening a device with receive rings takes 20 MB, and some 100 ms beside other load.
#[tier1("librdmacm-dev")]
fn a_listener_on_any_address_costs_little_on_a_host_with_many_interfaces() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    let commands: String = (1..INTERFACES)
        .map(|n| {
            format!(
                "link add d{n} type veth peer name e{n}\n\
                 address add 10.2.0.{n}/32 dev d{n}\n\
                 link set e{n} addrgenmode none up\nlink set d{n} addrgenmode none up\n"
            )
        })
        .collect();
    batch(&cable.left, &commands);
    let cost = numbers(&program, &cable.left, &["listen"]);
    let [millis, used, kib] = cost[..] else { panic!("{cost:?}") };
    println!(
        "a listener on {INTERFACES} interfaces: {millis} ms, of which {used} on processors, {kib} KiB"
    );
    assert!(kib <= 100 << 10, "{kib} KiB");
    assert!(used <= 4000, "{used} ms of processors");
    let (count, _) = refusals();
    let times = numbers(&program, &cable.left, &["beside", "10.1.0.1", "poll", &count]);
    println!(
        "a refusal beside it: median {} us, 99 % {} us, longest {} us",
        times[0], times[1], times[2]
    );
    assert!(Duration::from_micros(times[2]) <= MAX_LOADED, "{times:?}");
}
