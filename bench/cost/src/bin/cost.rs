//! Carries messages between two engines under a profiler: see `cargo xtask cost`.
//!
//! `cost WORKLOAD MESSAGES` prints the number of packets. Rounds of requester and responder are
//! functions that are not inlined, so callgrind can count one of them alone.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_cost::{Run, Workload};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--list"] {
        Workload::ALL.iter().for_each(|workload| println!("{}", workload.name));
        return ExitCode::SUCCESS;
    }
    let asked = match &arguments[..] {
        [name, messages] => Workload::by_name(name).zip(messages.parse().ok()),
        _ => None,
    };
    let Some((workload, messages)) = asked.filter(|(_, messages)| *messages > 0) else {
        eprintln!("usage: cost --list, or cost WORKLOAD MESSAGES");
        return ExitCode::from(2);
    };
    let mut run = Run::new(workload, messages);
    while !run.is_done() {
        turn_of_requester(&mut run);
        turn_of_responder(&mut run);
    }
    let tally = run.finish();
    println!("data_packets {} other_packets {}", tally.data_packets, tally.other_packets);
    ExitCode::SUCCESS
}

#[inline(never)]
fn turn_of_requester(run: &mut Run) {
    run.drive_requester();
}

#[inline(never)]
fn turn_of_responder(run: &mut Run) {
    run.drive_responder();
}
