//! Links of private hosts that fail as sentences say, under a program that stripes messages over rails.

use roce_test_macros::tier1;
use roce_tests::verbs_program::{VerbsProgram, roce_run};

/// Runs `tests/programs/striped` for some milliseconds on two ranks with two rails. Returns what it printed, and what
/// `roce` said.
fn striped(faults: &[&str], options: &[&str], milliseconds: u32) -> (String, String) {
    let program = VerbsProgram::linked("striped");
    let mut command = roce_run();
    command.args(["--local", "2", "--rails", "2", "--counters"]).args(options);
    faults.iter().for_each(|fault| {
        command.args(["--fault", fault]);
    });
    command.arg("--").arg(program.file()).args([&milliseconds.to_string(), "{peer?}"]);
    let output = command.output().expect("the command starts");
    let [told, said] =
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).expect("text"));
    assert!(output.status.success(), "{}\n{told}{said}", output.status);
    (told, said)
}

#[tier1]
fn a_program_goes_on_over_another_rail_and_returns_when_the_link_is_back() {
    // At a packet: how soon the program begins depends on what else the machine does.
    let rule = "rail 1 down at request 50 of queue pair 2 of rank 1 for 500ms";
    let required = ["--require", "completions resume within 1s after each fault"];
    for options in [&[][..], &["--switch", "rate=1G"], &["--backend", "udp"]] {
        let (told, said) = striped(&[rule], &[options, &required].concat(), 1500);
        let shown = format!("{options:?}\n{told}{said}");
        assert!(told.contains("rails failed 1 times and came back 1 times"), "{shown}");
        assert!(said.contains(": happened once, its ends lost"), "{shown}");
        let events = [
            "rail 1 is down\n",
            "rail 1 is up\n",
            "[1] roce1 fault_sent_dropped",
            "required: completions resume within 1s after each fault: shown\n",
        ];
        events.iter().for_each(|event| assert!(said.contains(event), "{event:?} in {shown}"));
        for rank in [0, 1] {
            for state in ["lost", "back"] {
                let seen = |line: &str| {
                    line.contains(&format!(" rank {rank}, "))
                        && line.ends_with(&format!("sees the carrier of rail 1 {state}"))
                };
                assert!(said.lines().any(seen), "rank {rank}, {state} in {shown}");
            }
        }
    }
}

#[tier1]
fn a_link_of_one_rank_goes_down_at_a_packet_and_the_other_rank_keeps_its_carrier() {
    let rule = "rail 1 of rank 0 down at request 50 of queue pair 1 of rank 1 for 300ms";
    let (told, said) = striped(&[rule], &[], 1500);
    assert!(told.contains("rails failed 1 times and came back 1 times"), "{told}{said}");
    // What rank 1 sends passes its own link, and is lost at that of rank 0.
    assert!(said.contains("meets RC SEND Only with PSN 340, sent by queue pair 1"), "{said}");
    let sees =
        |rank: &str| said.lines().any(|line| line.contains(rank) && line.contains("sees the"));
    assert!(sees(" rank 0, ") && !sees(" rank 1, "), "{said}");
}

#[tier1]
fn the_same_sentence_loses_the_same_packet_first() {
    let rule = "rail 1 down at request 50 of queue pair 2 of rank 1 for 100ms";
    for _ in 0..2 {
        let (_, said) = striped(&[rule], &[], 800);
        let first = said.lines().find(|line| line.contains("process")).expect("a lost packet");
        assert!(first.ends_with("RC SEND Only with PSN 340, sent by queue pair 2"), "{said}");
    }
}

#[tier1]
fn packets_of_one_rail_are_lost_by_chance() {
    let rule = "drop 20% of requests on rail 1 from 100ms";
    let (_, said) = striped(&[rule], &[], 1000);
    let lost: Vec<_> =
        said.lines().filter(|line| line.contains("roce1 fault_sent_dropped")).collect();
    assert!(matches!(lost[..], [rank] if rank.starts_with("[1]")), "{said}");
    assert!(!said.contains("roce0 fault_sent_dropped"), "{said}");
}
