//! Open MPI over UCX: a rank in each private host, whose results are checked.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::folder::Folder;
use super::local::PrivateHosts;
use crate::fault::{Fault, expect};
use crate::matrix::Case;
use crate::process;
use crate::world::program;

/// The time of a run; mpirun ends itself before.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the cases.
pub fn cases() -> Vec<Case<PrivateHosts>> {
    let case = |ranks: usize, transports: &'static str| {
        Case::new(
            "Open MPI",
            format!("allreduce and send/receive, {ranks} ranks, UCX_TLS={transports}"),
            "ours ↔ ours",
            1024,
            move |_| run(ranks, transports),
        )
    };
    vec![
        case(2, "rc_verbs,ud_verbs,self"),
        case(3, "rc_verbs,ud_verbs,self"),
        case(2, "ud_verbs,self"),
    ]
}

fn run(ranks: usize, transports: &str) -> Result<(), Fault> {
    let folder = Folder::new(&format!("mpi-{ranks}"))?;
    let source = folder.path().join("check.c");
    let check = folder.path().join("check");
    let script = folder.path().join("rank.sh");
    fs::write(&source, include_str!("mpi/check.c")).map_err(Fault::ours("write the program"))?;
    fs::write(&script, include_str!("mpi/rank.sh")).map_err(Fault::ours("write the script"))?;
    let mut compiler = Command::new("mpicc");
    compiler.args(["-O1", "-o"]).arg(&check).arg(&source);
    let compiled = compiler.status().map_err(Fault::ours("start mpicc"))?;
    expect(compiled.success(), || format!("mpicc: {compiled}"))?;

    let mut command = Command::new(program("roce")?);
    command.args(["run", "--local", &ranks.to_string(), "--", "sh"]).arg(&script);
    command.arg(folder.path()).args(["{rank}", "{size}", "{address}"]);
    command.args(["--mca", "pml", "ucx", "--mca", "osc", "ucx"]).arg(&check);
    command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "roce0:1");
    let ended = process::run(command, LIMIT)?;
    let text = &ended.text();
    expect(ended.status.success(), || format!("{}: {text}", ended.status))?;
    let sent = number_after(text, &format!("checked {ranks} ranks, sent "));
    let carried = number_after(text, "carried ");
    expect(sent.is_some(), || format!("it checked nothing: {text}"))?;
    // Data that took another way, TCP for example, is missing from the queue pairs' bytes.
    expect(carried >= sent, || format!("{carried:?} bytes on our queue pairs of {sent:?}: {text}"))
}

fn number_after(text: &str, before: &str) -> Option<u64> {
    text.split_once(before)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_behind_its_words_alone() {
        assert_eq!(number_after("[0] checked 2 ranks, sent 71 bytes", "ranks, sent "), Some(71));
        assert_eq!(number_after("carried -8 bytes", "carried "), None);
        assert_eq!(number_after("", "carried "), None);
    }
}
