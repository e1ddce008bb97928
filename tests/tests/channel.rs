//! The device of librdmacm as C programs use it, by its commands, and how soon what they ask for comes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use roce_netns::Host;
use roce_test_macros::tier1;
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

/// A program that listens on a port of an address, until this is dropped.
struct Holder(Child);

impl Holder {
    fn start(program: &VerbsProgram, host: &Host, address: &str) -> Self {
        let mut command = roce_run();
        command.arg("--").arg(program.file()).args(["hold", address]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = host.spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
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

/// `ROCE_REFUSALS` is the number of requests in each place and mode: with it the limits of a machine without
/// other load hold.
#[tier1("librdmacm-dev")]
fn a_request_to_a_port_without_listener_is_refused_at_once_from_every_place() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    let asked = std::env::var("ROCE_REFUSALS").ok();
    let count = asked.as_deref().unwrap_or("20");
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
        let held = holder.map(|(host, address)| Holder::start(&program, host, address));
        for mode in ["poll", "epoll", "block"] {
            let times = numbers(&program, &cable.left, &[role, address, mode, count]);
            let [median, late, longest] = times[..] else { panic!("{times:?}") };
            let place = held.as_ref().map_or("alone", |_| "another process listens");
            println!(
                "{role} {address} {mode}, {place}: median {median} us, 99 % {late} us, longest {longest} us"
            );
            let [median, longest] = [median, longest].map(Duration::from_micros);
            if asked.is_some() {
                assert!(median <= LIMITS[0] && longest <= LIMITS[1], "{median:?}, {longest:?}");
            }
            assert!(longest <= MAX_LOADED, "{role} {address} {mode}, {place}: {longest:?}");
        }
    }
}

#[tier1("librdmacm-dev")]
fn calls_of_rdma_cm_that_are_refused_have_the_error_numbers_of_the_kernel() {
    let program = VerbsProgram::linked_with("refused", "refused", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    assert!(numbers(&program, &cable.left, &["numbers", "10.1.0.1"]).is_empty());
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
            let (third, fourth) = (n / 250, n % 250 + 1);
            format!(
                "link add d{n} type veth peer name e{n}\n\
                 address add 10.2.{third}.{fourth}/32 dev d{n}\n\
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
    let count = std::env::var("ROCE_REFUSALS").unwrap_or("20".to_owned());
    let times = numbers(&program, &cable.left, &["beside", "10.1.0.1", "poll", &count]);
    println!(
        "a refusal beside it: median {} us, 99 % {} us, longest {} us",
        times[0], times[1], times[2]
    );
    assert!(Duration::from_micros(times[2]) <= MAX_LOADED, "{times:?}");
}
