//! Makes the same WRITE three times: right, with a length that its packet does not have, and with a wrong ICRC; and says
//! what a receiver finds wrong.

use std::error::Error;

use roce_dissect::{Dissector, Options, Severity};
use roce_generator::{Change, Draft, find_opcode};
use roce_wire::{Frame, OuterHeaders};

fn main() -> Result<(), Box<dyn Error>> {
    let outer = OuterHeaders::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let write = |length: &str| -> Result<Draft, Box<dyn Error>> {
        let mut draft = Draft::of_opcode(find_opcode("rc_write_only")?, b"ping", &outer)?;
        let fields = ["qp=0x12", "psn=7", "reth.address=0x1000", "reth.key=0x101", length];
        let changes: Result<Vec<Change>, _> = fields.iter().map(|field| field.parse()).collect();
        draft.change(&changes?)?;
        Ok(draft)
    };

    let (right, wrong, mut spoiled) =
        (write("reth.length=4")?, write("reth.length=5000")?, write("reth.length=4")?);
    spoiled.spoil_icrc();
    let mut found = Vec::new();
    for (name, mut draft) in [("right", right), ("wrong length", wrong), ("wrong ICRC", spoiled)] {
        draft.finish();
        let mut problems = Vec::new();
        Dissector::new(Options::default()).handle_frame(draft.frame(), |packet| {
            let all = packet.findings.iter().filter(|it| it.severity() == Severity::Problem);
            problems = all.map(ToString::to_string).collect();
        });
        println!("{name}: {problems:?}");
        let is_intact = Frame::parse(draft.bytes())?.packet()?.verify_icrc().is_ok();
        found.push((problems.len(), is_intact));
    }
    // The ICRC fits what the length says, however wrong that is.
    assert_eq!(found, [(0, true), (1, true), (1, false)]);
    Ok(())
}
