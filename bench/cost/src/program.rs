//! The programs that run under a profiler: see `cargo xtask cost`.

use std::process::ExitCode;

use crate::{Drive, Run, Workload};

/// Runs what the command line asks for, `--list` or `WORKLOAD MESSAGES`, and prints the number of
/// packets.
///
/// Rounds of requester and responder are functions that are not inlined, so callgrind can count one of
/// them alone.
pub fn run<S: Drive>() -> ExitCode {
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
        eprintln!("usage: --list, or WORKLOAD MESSAGES");
        return ExitCode::from(2);
    };
    let mut run = Run::<S>::new(workload, messages);
    while !run.is_done() {
        turn_of_requester(&mut run);
        turn_of_responder(&mut run);
    }
    let tally = run.finish();
    println!("data_packets {} other_packets {}", tally.data_packets, tally.other_packets);
    ExitCode::SUCCESS
}

#[inline(never)]
fn turn_of_requester<S: Drive>(run: &mut Run<S>) {
    run.drive_requester();
}

#[inline(never)]
fn turn_of_responder<S: Drive>(run: &mut Run<S>) {
    run.drive_responder();
}
