//! Faults, captures and counters of whole runs: whatever way packets take, and however processes end.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use roce_test_macros::tier1;

use super::{Copy, Outcome, compile, roce, roce_run, succeeded, temporary, text};

/// Returns the program of `traffic.c` under one of its names.
pub(super) fn traffic(name: &str) -> &'static str {
    static PROGRAMS: OnceLock<BTreeMap<&str, String>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/traffic.c");
        // Where an ordinary user may run it.
        let folder = std::env::temp_dir().join(format!("roce-traffic-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let compiled = folder.join("compiled");
        compile(&source, &compiled, &["-Wl,--no-as-needed", "-libverbs"])
            .expect("a C program compiles");
        let named = |name| {
            let program = folder.join(name);
            fs::hard_link(&compiled, &program).expect("a name for the program");
            (name, program.to_str().expect("text").to_owned())
        };
        ["traffic", "traffic-pair", "traffic-fork", "traffic-cleared"].map(named).into()
    });
    &programs[name]
}

/// What a run left.
struct Run {
    output: Output,
    errors: String,
    /// Counters of all ranks together.
    counters: BTreeMap<String, u64>,
    /// Packets and interfaces of the capture.
    captured: u64,
    interfaces: u64,
}

impl Run {
    fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Checks that the capture has what was sent, once, that about half was lost, and that what was not
    /// has arrived.
    fn check_half_is_lost(&self) {
        let (sent, lost) = (self.count("sent_pkts"), self.count("fault_sent_dropped"));
        assert!(sent >= 40, "{sent} packets:\n{}", self.errors);
        assert_eq!(self.captured, sent, "{}", self.errors);
        assert!((sent * 3 / 10..=sent * 7 / 10).contains(&lost), "{lost} of {sent}");
        assert!(self.count("resent_pkts") > 0, "{}", self.errors);
        // A packet that is under way when its device is closed arrives nowhere.
        let arrived = sent - lost - self.interfaces..=sent - lost;
        assert!(arrived.contains(&self.count("rcvd_pkts")), "{arrived:?}: {}", self.errors);
    }
}

/// Runs a command with a capture and counters.
fn run(name: &str, mut command: Command, capture: PathBuf) -> Outcome<Run> {
    let output = command.output()?;
    let errors = String::from_utf8(output.stderr.clone())?;
    let mut counters = BTreeMap::new();
    // Of our own commands those of the client.
    for line in errors.lines().filter(|line| !line.starts_with("server:")) {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [.., name, count] = words[..]
            && let Ok(count) = count.parse::<u64>()
        {
            *counters.entry(name.to_owned()).or_default() += count;
        }
    }
    let bytes = fs::read(&capture).map_err(|error| format!("{name}: {error}: {errors}"))?;
    let shown = Command::new(roce()).arg("dissect").arg(&capture).output()?;
    fs::remove_file(&capture)?;
    let shown = succeeded(&shown)?.lines().count() as u64;
    let blocks = blocks(&bytes);
    let of = |kind: u32| blocks.iter().filter(|found| **found == kind).count() as u64;
    assert_eq!((of(0x0a0d_0d0a), of(6)), (1, shown), "{name}: one section, read whole");
    Ok(Run { output, errors, counters, captured: shown, interfaces: of(1) })
}

/// Runs `roce run --counters --pcap` with arguments.
fn run_with(name: &str, arguments: &[&str]) -> Outcome<Run> {
    let capture = temporary(&format!("{name}.pcapng"));
    let path = capture.to_str().ok_or("a path that is text")?.to_owned();
    let mut command = roce_run(&["--counters", "--pcap", &path]);
    command.args(arguments);
    run(name, command, capture)
}

/// Returns the types of the blocks of a pcapng file, which all have to be whole.
pub(super) fn blocks(mut bytes: &[u8]) -> Vec<u32> {
    let word = |at: &[u8]| u32::from_le_bytes(*at.first_chunk().expect("a word"));
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        let len = word(&bytes[4..]) as usize;
        assert_eq!(word(&bytes[len - 4..]) as usize, len, "a whole block");
        kinds.push(word(bytes));
        bytes = &bytes[len..];
    }
    kinds
}

#[tier1]
fn half_is_lost_between_two_queue_pairs_of_a_process_however_it_ends() -> Outcome {
    for (end, code) in [("return", 0), ("exit", 0), ("kill", 128 + 9), ("exec", 0)] {
        let line = ["--local", "1", "--loss", "50%", "--", traffic("traffic"), "30", end];
        let run = run_with(&format!("self-{end}"), &line)?;
        assert_eq!(run.output.status.code(), Some(code), "{end}: {}", run.errors);
        run.check_half_is_lost();
        assert_eq!(run.interfaces, if end == "exec" { 2 } else { 1 }, "{end}");
    }
    Ok(())
}

#[tier1]
fn a_device_opened_twenty_times_has_one_capture_and_one_sum() -> Outcome {
    let line = ["--local", "1", "--loss", "50%", "--", traffic("traffic"), "3", "return", "20"];
    let run = run_with("reopened", &line)?;
    run.check_half_is_lost();
    assert_eq!(run.interfaces, 20);
    let line = ["--local", "1", "--", traffic("traffic"), "3", "return", "20"];
    let run = run_with("reopened-without", &line)?;
    assert_eq!((run.count("rdma_sends"), run.count("resent_pkts")), (60, 0));
    assert_eq!(run.captured, run.count("sent_pkts"));
    Ok(())
}

#[tier1]
fn a_program_that_clears_its_environment_is_in_capture_and_counters() -> Outcome {
    let line = ["--local", "1", "--", traffic("traffic-cleared"), "5", "return"];
    let run = run_with("cleared", &line)?;
    assert_eq!((run.count("rdma_sends"), run.interfaces), (5, 1), "{}", run.errors);
    assert_eq!(run.captured, run.count("sent_pkts"), "{}", run.errors);
    Ok(())
}

#[tier1]
fn processes_that_talk_over_lo_and_forked_children_are_in_one_capture() -> Outcome {
    for name in ["traffic-pair", "traffic-fork"] {
        for end in ["return", "exit", "kill"] {
            let line = ["--local", "1", "--loss", "50%", "--", traffic(name), "40", end];
            let run = run_with(&format!("{name}-{end}"), &line)?;
            assert_eq!(run.interfaces, 2, "{name} {end}");
            if name == "traffic-fork" {
                run.check_half_is_lost();
            } else {
                // A process that has ended receives nothing.
                let sent = run.count("sent_pkts");
                let lost = run.count("fault_sent_dropped");
                assert_eq!(run.captured, sent, "{end}: {}", run.errors);
                assert!((sent / 4..=sent * 3 / 4).contains(&lost), "{lost} of {sent}");
                assert!(run.count("resent_pkts") > 0);
                let crossed = run.count("device_sent_frames");
                assert_eq!(crossed, sent - lost, "{end}: {}", run.errors);
            }
        }
    }
    Ok(())
}

#[tier1]
fn processes_in_turn_and_at_once_add_up() -> Outcome {
    let program = traffic("traffic");
    let in_turn = format!("for i in 1 2 3; do {program} 5 exit; done");
    let at_once = format!("for i in 1 2 3; do {program} 5 exit & done; wait");
    for (name, script) in [("turn", in_turn), ("once", at_once)] {
        let run = run_with(name, &["--local", "1", "--", "sh", "-c", &script])?;
        assert_eq!(run.count("rdma_sends"), 15, "{name}: {}", run.errors);
        assert_eq!(run.captured, run.count("sent_pkts"), "{name}: {}", run.errors);
        assert_eq!(run.interfaces, 3, "{name}");
    }
    Ok(())
}

#[tier1]
fn all_ranks_are_in_one_capture_with_each_packet_once() -> Outcome {
    for ranks in ["2", "3"] {
        // The ranks beyond two have traffic of their own.
        let line = ["--local", ranks, "--loss", "50%", "--", traffic("traffic"), "20", "exit", "1"];
        let line: Vec<&str> = if ranks == "2" {
            // The word without braces keeps the address of the server away.
            line.iter().copied().chain(["{rank}"]).collect()
        } else {
            line.to_vec()
        };
        let run = run_with(&format!("ranks-{ranks}"), &line)?;
        run.check_half_is_lost();
        assert_eq!(run.interfaces.to_string(), ranks, "{}", run.errors);
    }
    let line = ["--local", "2", "--", "ibv_rc_pingpong", "-g", "1", "-n", "50"];
    let run = run_with("pingpong-ranks", &line)?;
    assert_eq!(run.captured, run.count("sent_pkts"), "{}", run.errors);
    assert_eq!((run.count("rdma_sends"), run.interfaces), (100, 2), "{}", run.errors);
    Ok(())
}

#[tier1]
fn an_ordinary_user_gets_the_same() -> Outcome {
    let copy = Copy::new("faults")?;
    let folder = copy.0.join("out");
    fs::create_dir(&folder)?;
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534))?;
    let capture = folder.join("user.pcapng");
    let path = capture.to_str().ok_or("a path that is text")?.to_owned();
    let line = ["--counters", "--pcap", &path, "--local", "1", "--loss", "50%", "--"];
    let mut command = copy.run(&line);
    command.args([traffic("traffic"), "30", "exit"]).uid(65534).gid(65534);
    let run = run("user", command, capture)?;
    run.check_half_is_lost();
    Ok(())
}

#[tier1]
fn a_scripted_fault_happens_to_the_packet_that_it_names_and_is_reported() -> Outcome {
    let rule = "drop request 3 of queue pair 1";
    let line = ["--local", "1", "--fault", rule, "--", traffic("traffic"), "5", "exit"];
    let run = run_with("scripted", &line)?;
    assert_eq!(run.output.status.code(), Some(0), "{}", run.errors);
    assert_eq!((run.count("fault_sent_dropped"), run.count("rdma_sends")), (1, 5));
    let told = format!("roce: fault 1, {rule}: happened once\n");
    assert!(run.errors.contains(&told), "{}", run.errors);
    // The third request is the one with PSN 2, unless a busy machine has delayed an acknowledgement and one
    // before was repeated.
    let names = |psn| format!("RC SEND Only with PSN {psn}, sent by queue pair 1");
    assert!((0..=2).any(|psn| run.errors.contains(&names(psn))), "{}", run.errors);
    Ok(())
}

#[tier1]
fn a_scripted_fault_that_never_happens_fails_the_run_unless_the_program_fails() -> Outcome {
    let rules = temporary("rules.toml");
    fs::write(&rules, "faults = ['drop send 1 of rank 1', 'drop atomic 1']\n")?;
    let rules = rules.to_str().ok_or("a path that is text")?;
    for (program, code) in [("exec ibv_rc_pingpong -g 1 -n 5 $1", 125), ("exit 7", 7)] {
        let line = ["--local", "2", "--faults", rules, "--", "sh", "-c", program, "sh"];
        let output = roce_run(&line).output()?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains("fault 2, drop atomic 1: never happened"), "{errors}");
        assert_eq!(errors.contains("rank 1, process "), code == 125, "{errors}");
    }
    let output = roce_run(&["--local", "1", "--fault", "drop reqest 1", "--", "true"]).output()?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("\"reqest\" where packet, request,"), "{errors}");
    Ok(())
}

#[tier1]
fn the_report_of_scripted_faults_comes_however_a_run_ends() -> Outcome {
    let program = traffic("traffic");
    let endless = format!("{program} 5 exit; exec sleep 60");
    let killed = format!("{program} 5 exit; kill -KILL $$");
    for (place, script, code) in [
        (&["--timeout", "3"][..], &endless, 124),
        (&["--local", "1", "--timeout", "3"], &endless, 124),
        (&["--local", "3", "--timeout", "3"], &endless, 124),
        (&["--local", "1"], &killed, 128 + 9),
        (&["--local", "3"], &killed, 128 + 9),
    ] {
        let words = [place, &["--fault", "drop request 1", "--", "sh", "-c", script]].concat();
        // Without a private host there is no device for the traffic.
        let output = if place[0] == "--local" {
            roce_run(&words).output()?
        } else {
            let outer = ["run", "--local", "1", "--", text(roce()), "run"];
            Command::new(roce()).args(outer).args(words).output()?
        };
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code), "{place:?}: {errors}");
        assert!(errors.contains("fault 1, drop request 1: happened"), "{place:?}: {errors}");
        assert!(code != 124 || errors.contains("stopped after 3s (--timeout)"), "{errors}");
    }
    Ok(())
}

#[tier1]
fn ranks_that_take_all_peers_as_foreign_fault_what_they_receive_too() -> Outcome {
    let program = traffic("traffic-pair");
    let line = ["--local", "1", "--loss", "50%", "--", "env", "ROCE_PEERS=none", program];
    let run = run_with("foreign", &[&line[..], &["20", "exit"]].concat())?;
    assert!(run.count("fault_sent_dropped") > 0, "{}", run.errors);
    assert!(run.count("fault_rcvd_dropped") > 0, "{}", run.errors);
    Ok(())
}

/// Returns the comments of the packets of a capture.
fn comments(capture: &Path) -> Outcome<Vec<String>> {
    let mut shown = Command::new("tshark");
    shown.args(["-T", "fields", "-e", "frame.comment", "-r"]).arg(capture);
    let output = shown.output()?;
    Ok(succeeded(&output)?.lines().filter(|it| !it.is_empty()).map(str::to_owned).collect())
}

#[tier1("tshark")]
fn a_capture_says_what_faults_did_to_a_packet_at_either_side() -> Outcome {
    let faults = [
        "drop received ack 1",
        "drop sent request 2",
        "delay received ack 3 by 1ms",
        "duplicate sent request 4",
        "damage sent request 6",
        "hold sent request 20 until cnp 1",
    ];
    let capture = temporary("commented.pcapng");
    let mut command = Command::new(roce());
    command.args(["pingpong", "--local", "-n", "100", "--pcap"]).arg(&capture);
    command.args(faults.iter().flat_map(|fault| ["--fault", fault]));
    succeeded(&command.output()?)?;
    let found = comments(&capture)?;
    let bytes = fs::read(&capture)?;
    fs::remove_file(&capture)?;
    assert!(bytes.windows(6).any(|it| it == b"(roce)"), "the name of the program");
    let effects = ["lost", "lost", "delayed", "duplicated", "damaged", "held"];
    for (effect, number) in effects.iter().zip(1..) {
        let wanted = format!("{effect}: scripted fault {number}");
        let count = found.iter().filter(|it| it.starts_with(&wanted)).count();
        assert_eq!(count, if *effect == "duplicated" { 2 } else { 1 }, "{wanted}: {found:?}");
    }
    let held = "held: scripted fault 6; not sent: the device was closed before";
    assert_eq!(found.last().map(String::as_str), Some(held), "{found:?}");
    Ok(())
}

#[tier1("tshark")]
fn a_packet_that_is_held_until_the_program_exits_is_in_the_capture() -> Outcome {
    let capture = temporary("held.pcapng");
    for end in ["return", "leak"] {
        let fault = "hold request 1 until cnp 1";
        let line = ["--local", "1", "--fault", fault, "--pcap", text(&capture), "--"];
        succeeded(&roce_run(&[&line[..], &[traffic("traffic"), "5", end]].concat()).output()?)?;
        let held = "held: scripted fault 1; not sent: the device was closed before";
        assert_eq!(comments(&capture)?, [held], "{end}");
        fs::remove_file(&capture)?;
    }
    Ok(())
}

#[tier1]
fn both_ends_tell_their_counters_when_a_local_command_fails() -> Outcome {
    let mut command = Command::new(roce());
    command.args(["pingpong", "--local", "--counters", "--fault", "drop sent requests 9 to 9999"]);
    let output = command.output()?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let told = |start: &str| {
        let is_count = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        errors.lines().filter_map(|line| is_count(line.strip_prefix(start)?)).count()
    };
    assert!(told("server: ") > 0 && told("") > told("server: "), "{errors}");
    Ok(())
}

#[tier1]
fn counters_have_their_rank_in_front_whoever_writes_them() -> Outcome {
    let program = traffic("traffic");
    for prefix in ["rank", "none"] {
        let line = ["--local", "2", "--prefix", prefix, "--counters", "--", program, "3", "return"];
        let output = roce_run(&[&line[..], &["1", "{rank}"]].concat()).output()?;
        let errors = String::from_utf8(output.stderr)?;
        for rank in 0..2 {
            let start = format!("[{rank}] roce0 sent_pkts ");
            assert!(errors.lines().any(|line| line.starts_with(&start)), "{prefix}: {errors}");
        }
    }
    Ok(())
}

#[tier1]
fn our_own_commands_have_the_same_faults_and_captures() -> Outcome {
    for (name, line) in [
        ("pingpong", &["pingpong", "--local", "-n", "100"][..]),
        ("perf", &["perf", "write", "bw", "--local", "-n", "100", "-s", "64"]),
    ] {
        let capture = temporary(&format!("own-{name}.pcapng"));
        let mut command = Command::new(roce());
        command.args(line).args([
            "--counters",
            "--loss",
            "10%",
            "--fault",
            "delay request 7 by 1ms",
        ]);
        command.arg("--pcap").arg(&capture);
        let run = run(name, command, capture)?;
        assert!(run.output.status.success(), "{}", run.errors);
        let lost = run.count("fault_sent_dropped") + run.count("fault_rcvd_dropped");
        assert!(lost > 0 && run.count("resent_pkts") > 0, "{}", run.errors);
        // The client records what it sends and what reaches it.
        let received = run.count("rcvd_pkts") + run.count("fault_rcvd_dropped");
        assert_eq!(run.captured, run.count("sent_pkts") + received, "{}", run.errors);
        assert!(run.errors.contains("delay request 7 by 1ms: happened"), "{}", run.errors);
    }
    Ok(())
}
