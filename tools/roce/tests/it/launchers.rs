//! Collectives as people start them: `--local`, by hand, under launchers (tier 1).

use roce_test_macros::tier1;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Running, Signal, children_of, is_running};
use roce_netns::{Host, Link, Switch, VirtualNetwork};

use crate::commands::{LIMIT, line_of, roce, succeeded, within};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tier1]
fn a_ring_in_a_private_network_is_right_for_any_number_of_ranks() -> Outcome {
    for (ranks, sizes) in [("1", 18), ("2", 18), ("3", 18), ("5", 18)] {
        let sizes_of = ["-b", "8", "-e", "1M", "-f", "2", "-c", "1", "-n", "2"];
        let text = succeeded(&roce(&["allreduce", "--local", ranks], &sizes_of)?)?;
        let rows: Vec<Vec<&str>> = rows(&text);
        assert_eq!(rows.len(), sizes, "{text}");
        assert!(
            rows.iter().all(|row| row.len() == 13 && row[8] == "0" && row[12] == "0"),
            "{text}"
        );
        assert_eq!((rows[0][0], rows[17][0], rows[17][1]), ("8", "1048576", "262144"));
        assert!(
            text.contains("\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "),
            "{text}"
        );
    }
    Ok(())
}

#[tier1]
fn a_ring_over_udp_sockets_is_right_and_says_what_it_uses() -> Outcome {
    let sizes = ["-b", "4K", "-e", "1M", "-f", "16", "-n", "2"];
    let by_option = roce(&["allreduce", "--local", "3", "--backend", "udp"], &sizes)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(["allreduce", "--local", "3"]).args(sizes).env("ROCE_BACKEND", "udp");
    for output in [by_option, command.output()?] {
        let text = succeeded(&output)?;
        assert_eq!(text.matches(" by udp").count(), 3, "{text}");
        assert!(text.contains("\n# Out of bounds values : 0 OK\n"), "{text}");
    }
    Ok(())
}

#[tier1]
fn every_collective_type_operator_and_root_is_right() -> Outcome {
    let cases: [(&str, &[&str], usize); 6] = [
        ("allreduce", &["-d", "all", "-o", "all"], 50),
        ("allgather", &["-d", "all"], 10),
        ("reduce-scatter", &["-d", "all", "-o", "avg"], 10),
        ("broadcast", &["-d", "all", "-r", "-1"], 30),
        ("reduce", &["-d", "half", "-o", "all", "-r", "-1"], 15),
        ("allreduce", &["-z", "3", "--placement", "in"], 1),
    ];
    for (collective, more, lines) in cases {
        let common = ["--local", "3", "-b", "9999", "-e", "9999", "-n", "1", "--csv"];
        let text = succeeded(&roce(&[&[collective], &common[..]].concat(), more)?)?;
        let halves = if more.contains(&"in") { 1 } else { 2 };
        assert_eq!(text.lines().count(), 1 + lines * halves, "{collective}: {text}");
        assert!(text.lines().skip(1).all(|line| line.ends_with(",0")), "{collective}: {text}");
    }
    Ok(())
}

#[tier1]
fn three_ranks_of_one_float_end_with_six_in_two_steps() -> Outcome {
    let ring = ["allreduce", "--local", "3", "-b", "4", "-e", "4", "--values", "rank"];
    let text = succeeded(&roce(&ring, &["--steps", "--placement", "out", "-n", "10"])?)?;
    assert!(text.contains("# 4 bytes: every rank ends with 6.0\n"), "{text}");
    let steps = text.lines().skip_while(|line| !line.starts_with("# Steps of 4 bytes")).skip(3);
    // The ranks at the ends of the line send in the first step and receive in the second, the one
    // in the middle the other way round; a row is of a step in which something is received.
    let steps: Vec<Vec<&str>> =
        steps.take(3).map(|line| line.split_whitespace().skip(1).collect()).collect();
    assert_eq!(steps.len(), 3, "{text}");
    for (line, expected) in steps.iter().zip([("0", "1"), ("1", "0"), ("2", "1")]) {
        assert_eq!((line[0], line[1]), expected);
        let times: Vec<f64> =
            line[2..6].iter().map(|time| time.parse()).collect::<Result<_, _>>()?;
        assert!(times.is_sorted() && times[0] > 0.0, "{text}");
    }
    let more = ["--trace", "--json", "-n", "1", "-w", "0", "-c", "0"];
    let report: serde_json::Value = serde_json::from_str(&succeeded(&roce(&ring, &more)?)?)?;
    let events = report["trace"].as_array().ok_or("no trace")?;
    for rank in 0..3 {
        let has = |wanted: &str, key: &str, value: &str| {
            let found = |event: &serde_json::Value| {
                event["rank"] == rank
                    && event["event"] == wanted
                    && event[key].to_string().trim_matches('"') == value
            };
            assert!(events.iter().any(found), "rank {rank}: no {wanted} {key}={value}");
        };
        ["RESET", "INIT", "RTR"].iter().for_each(|from| has("modify_qp", "from", from));
        let (sends_in, receives_in) = if rank == 1 { ("1", "0") } else { ("0", "1") };
        has("post_send", "step", sends_in);
        has("received", "step", receives_in);
        has("poll_cq", "status", "success");
    }
    Ok(())
}

#[tier1]
fn loss_rails_and_queue_pairs_change_the_time_and_not_the_result() -> Outcome {
    let ring = ["allreduce", "--local", "3", "-b", "100", "-e", "300000", "-f", "30", "-n", "3"];
    for (more, counted) in [
        (&["--loss", "5%", "--duplicate", "1%", "--reorder", "1%"][..], "fault_sent_dropped"),
        (&["--rails", "2"], "sent_pkts"),
        (&["--link-mtu", "1500", "--slots", "2", "--slot-bytes", "4K"], "sent_pkts"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command.args(ring).args(more).arg("--counters").env("NCCL_IB_QPS_PER_CONNECTION", "2");
        let output = command.env("NCCL_IB_SPLIT_DATA_ON_QPS", "1").output()?;
        let text = succeeded(&output)?;
        assert!(text.contains("# Out of bounds values : 0 OK"), "{more:?}: {text}");
        let counters = String::from_utf8_lossy(&output.stderr).into_owned();
        let times = counters.lines().filter(|line| line.starts_with(counted)).count();
        assert_eq!(times, if more[0] == "--rails" { 2 } else { 1 }, "{more:?}: {counters}");
    }
    Ok(())
}

#[tier1]
fn an_ordinary_user_can_run_a_ring() -> Outcome {
    let folder = std::env::temp_dir().join(format!("roce-ring-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    let program = folder.join("roce");
    fs::copy(env!("CARGO_BIN_EXE_roce"), &program)?;
    let mut command = Command::new(&program);
    command.args(["allreduce", "--local", "3", "-b", "8", "-e", "8"]).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let outcome = command.output();
    fs::remove_dir_all(&folder)?;
    succeeded(&outcome?)?;
    Ok(())
}

#[tier1]
fn a_rank_that_is_killed_is_named_and_nothing_is_left_of_the_others() -> Outcome {
    let parent = long_run("3", "3000")?;
    let ranks = ranks_of(parent.id())?;
    assert_eq!(ranks.len(), 3);
    let namespaces: Vec<_> = ranks.iter().map(|(_, pid)| namespace(*pid)).collect();
    let (_, victim) = ranks.iter().find(|(rank, _)| *rank == 1).ok_or("no rank 1")?;
    let killed = Instant::now();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(*victim)?),
        nix::sys::signal::Signal::SIGKILL,
    )?;
    let outcome = parent.wait(LIMIT)?;
    // Stated are two seconds; this machine may be busy with other tests.
    assert!(killed.elapsed() < Duration::from_secs(8), "{:?}", killed.elapsed());
    assert_eq!(outcome.status.code(), Some(1));
    let told = outcome.stderr;
    let last = told.lines().last().unwrap_or_default();
    assert_eq!(last, "roce: rank 1 was killed by SIGKILL; all others stopped", "{told}");
    assert!(ranks.iter().all(|(_, pid)| !is_running(*pid)));
    let left = processes().into_iter().filter(|pid| namespaces.contains(&namespace(*pid)));
    assert_eq!(left.count(), 0, "a process still holds a namespace");
    Ok(())
}

#[tier1]
fn a_ring_whose_parent_is_killed_ends() -> Outcome {
    // Three also end because their network goes; one has nothing but its parent.
    for (number, iterations) in [("3", "3000"), ("1", "100000")] {
        let parent = long_run(number, iterations)?;
        let ranks = ranks_of(parent.id())?;
        assert_eq!(ranks.len().to_string(), number);
        parent.signal(Signal::SIGKILL);
        within("the end of its ranks", || !ranks.iter().any(|(_, pid)| is_running(*pid)))?;
    }
    Ok(())
}

#[tier1]
fn mpirun_starts_ranks_that_share_an_interface() -> Outcome {
    let (hosts, _switch) = network(2)?;
    let mut command = mpirun(3);
    command.arg(env!("CARGO_BIN_EXE_roce")).args(SMALL);
    let text = succeeded(&output_in(&hosts[0], command)?)?;
    assert_eq!(rows(&text).len(), 5, "one table: {text}");
    assert!(text.contains("# Out of bounds values : 0 OK"), "{text}");
    assert_eq!(text.matches("GID 1 ::ffff:10.0.0.1 MTU 4096").count(), 3, "{text}");
    Ok(())
}

#[tier1]
fn mpirun_starts_ranks_in_several_namespaces() -> Outcome {
    let (hosts, _switch) = network(3)?;
    // A process in each, whose namespace others can enter.
    let mut residents = Vec::new();
    for host in &hosts {
        residents.push(Launch::new("cat").with_stdin().start_in(host)?);
    }
    let pids: Vec<String> = residents.iter().map(|resident| resident.id().to_string()).collect();
    let enter = "set -- $RESIDENTS \"$@\"; shift $OMPI_COMM_WORLD_RANK; \
                 exec nsenter --net=/proc/$1/ns/net -- $PROGRAM";
    let program = [env!("CARGO_BIN_EXE_roce")].iter().chain(SMALL).copied();
    let program: Vec<&str> = program.chain(["--root-address", "10.0.0.1:29500"]).collect();
    let mut command = mpirun(3);
    command.args(["sh", "-c", enter]);
    command.env("RESIDENTS", pids.join(" ")).env("PROGRAM", program.join(" "));
    let output = output_in(&hosts[0], command);
    drop(residents);
    let text = succeeded(&output?)?;
    assert_eq!(rows(&text).len(), 5, "one table: {text}");
    for rank in 1..=3 {
        assert!(text.contains(&format!("::ffff:10.0.0.{rank} ")), "{text}");
    }
    Ok(())
}

#[tier1]
fn the_variables_of_torchrun_are_understood() -> Outcome {
    let (hosts, _switch) = network(2)?;
    let children = hosts.iter().enumerate().map(|(rank, host)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command.args(SMALL).env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("LOCAL_RANK", "0").env("MASTER_ADDR", "10.0.0.1").env("MASTER_PORT", "29511");
        spawn_in(host, command)
    });
    let children: Vec<Child> = children.collect::<Outcome<_>>()?;
    let outputs: Vec<Output> =
        children.into_iter().map(Child::wait_with_output).collect::<Result<_, _>>()?;
    assert_eq!(rows(&succeeded(&outputs[0])?).len(), 5);
    assert_eq!(succeeded(&outputs[1])?, "", "rank 0 alone prints");
    Ok(())
}

#[tier1]
fn ranks_that_do_not_fit_together_or_do_not_come_are_named() -> Outcome {
    let (hosts, _switch) = network(2)?;
    let rank = |rank: usize, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command.args(SMALL).args(["--size", "2", "--root-address", "10.0.0.1:29512"]);
        command.args(["--rank", &rank.to_string()]).args(more);
        spawn_in(&hosts[rank], command)
    };
    let (first, second) = (rank(0, &[])?, rank(1, &["-d", "double"])?);
    for output in [first.wait_with_output()?, second.wait_with_output()?] {
        let told = told(&output);
        assert!(told.contains("-d (type) differs: rank 1 has double"), "{told}");
        assert!(told.contains("float") && told.lines().count() == 1, "{told}");
    }
    let alone = rank(0, &["--timeout", "1"])?.wait_with_output()?;
    let told = told(&alone);
    assert!(told.contains("rank 1") || told.contains(": 1"), "{told}");
    Ok(())
}

#[test]
fn invalid_options_are_refused_in_one_line() -> Outcome {
    let cases: [(&[&str], &str); 7] = [
        (&["allreduce", "--local", "3", "-b", "9", "-e", "8"], "smallest"),
        (&["allreduce", "--local", "3", "-r", "1"], "no root"),
        (&["broadcast", "--local", "3", "-r", "3"], "3 ranks"),
        (&["all-gather", "--local", "3", "-o", "sum"], "does not reduce"),
        (&["allreduce", "--rank", "3", "--size", "3", "--root-address", "h:1"], "ranks are 0 to 2"),
        (&["allreduce", "--rank", "0", "--size", "3"], "--root-address"),
        (&["allreduce", "--local", "3", "--values", "rank", "-d", "all"], "one type"),
    ];
    for (arguments, reason) in cases {
        let told = told(&roce(arguments, &[])?);
        assert!(told.starts_with("roce: ") && told.contains(reason), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(["allreduce", "--local", "3"]).env("NCCL_IB_TC", "256");
    assert!(told(&command.output()?).starts_with("roce: NCCL_IB_TC=256 is invalid"));
    Ok(())
}

/// Five sizes, quickly.
const SMALL: &[&str] = &["allreduce", "-b", "8", "-e", "2K", "-f", "4", "-n", "5"];

/// A ring at work on a size that takes for ever.
fn long_run(ranks: &str, iterations: &str) -> Outcome<Running> {
    let command = ["allreduce", "--local", ranks, "-b", "8", "-e", "8M", "-f", "1048576"];
    let more = ["-n", iterations, "-c", "0", "--placement", "out"];
    let parent = Launch::new(env!("CARGO_BIN_EXE_roce")).args(command).args(more).start()?;
    line_of(&parent, |line| !line.starts_with('#'))?;
    Ok(parent)
}

fn mpirun(ranks: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]);
    command
}

/// Hosts on a switch, 10.0.0.1 and so on.
fn network(hosts: usize) -> Outcome<(Vec<Host>, Switch)> {
    let network = VirtualNetwork::new()?;
    let made: Vec<Host> = (0..hosts)
        .map(|number| network.host(&format!("host {number}")))
        .collect::<Result<_, _>>()?;
    let ends: Vec<_> = made.iter().map(|host| (host, "eth0")).collect();
    let switch = network.bridge(&ends, Link { mtu: 4200 })?;
    for (host, number) in made.iter().zip(1..) {
        host.address("eth0", format!("10.0.0.{number}/24").parse()?)?;
    }
    Ok((made, switch))
}

fn spawn_in(host: &Host, mut command: Command) -> Outcome<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(host.spawn(command)?)
}

fn output_in(host: &Host, command: Command) -> Outcome<Output> {
    Ok(spawn_in(host, command)?.wait_with_output()?)
}

/// The lines of the table, in columns.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split_whitespace().collect()).collect()
}

/// What it complained of; it did not exit well.
fn told(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn processes() -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The children of a process that are ranks, with their numbers.
fn ranks_of(parent: u32) -> Outcome<Vec<(u32, u32)>> {
    let mut ranks = Vec::new();
    for pid in children_of(parent) {
        let line = fs::read(format!("/proc/{pid}/cmdline"))?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0').skip_while(|word| *word != "--local-rank").skip(1);
        let rank = words.next().ok_or("a child that is no rank")?;
        ranks.push((rank.parse()?, pid));
    }
    Ok(ranks)
}

/// What names the network namespace of a process.
fn namespace(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

const NOBODY: u32 = 65534;
