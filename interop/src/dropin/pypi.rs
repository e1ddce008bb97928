//! Libraries of the Python package index that move data between hosts: each writes and reads memory of
//! the other host, and the data are compared.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::device_counter::device_counter;
use super::folder::Folder;
use super::local::PrivateHosts;
use crate::fault::{Fault, expect};
use crate::matrix::Case;
use crate::process;
use crate::world::program;

/// The time of a run: the libraries are large, and are read from the disk first.
const LIMIT: Duration = Duration::from_secs(120);
/// The folder below that of the build in which `cargo xtask dropin` installs the packages.
const PACKAGES: &str = "dropin-python";
/// Bytes that each script writes, as many as it reads; `LENGTH` of `pypi/peer.py`.
const LENGTH: u64 = 8 << 20;

/// Returns the cases; `target` is the folder of the build.
pub fn cases(target: &Path) -> Vec<Case<PrivateHosts>> {
    let packages = target.join(PACKAGES);
    let case = |row: &str, script: &'static str, transports: &'static str| {
        let packages = packages.clone();
        Case::new("Python packages", row, "ours ↔ ours", 1024, move |_| {
            run(&packages, script, transports)
        })
    };
    let nixl = include_str!("pypi/nixl_transfer.py");
    let mooncake = include_str!("pypi/mooncake_transfer.py");
    let dlslime = include_str!("pypi/dlslime_transfer.py");
    let infinistore = include_str!("pypi/infinistore_transfer.py");
    vec![
        case(
            "nixl, write and read, UCX_TLS=rc_verbs,ud_verbs,self",
            nixl,
            "rc_verbs,ud_verbs,self",
        ),
        case("nixl, write and read, UCX_TLS=ud_verbs,self", nixl, "ud_verbs,self"),
        case("Mooncake's transfer engine, write and read", mooncake, ""),
        case("DLSlime, write, write with immediate and read", dlslime, ""),
        case("InfiniStore, a store that a client writes to and reads from", infinistore, ""),
    ]
}

fn run(packages: &Path, script: &str, transports: &str) -> Result<(), Fault> {
    expect(packages.is_dir(), || {
        format!("{} does not exist; `cargo xtask dropin` makes it", packages.display())
    })?;
    let folder = Folder::new("pypi")?;
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).map_err(Fault::ours("write a script"))
    };
    write("peer.py", include_str!("pypi/peer.py"))?;
    write("transfer.py", script)?;
    let mut command = Command::new(program("roce")?);
    command.args(["run", "--local", "2", "--counters", "--", super::python_suite::PYTHON]);
    command.arg(folder.path().join("transfer.py")).args(["{rank}", "{address}", "{peer}"]);
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    if !transports.is_empty() {
        command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "roce0:1");
    }
    let ended = process::run(command, LIMIT)?;
    let text = &ended.text();
    expect(ended.status.success(), || format!("{}: {text}", ended.status))?;
    for line in ["[0] WRITE: the data are right", "[1] READ: the data are right"] {
        expect(text.contains(line), || format!("it did not print {line:?}: {text}"))?;
    }
    // Data that took another way, TCP for example, are missing from the device's bytes.
    for rank in ["[0]", "[1]"] {
        let sent = device_counter(text, rank, "device_sent_bytes");
        expect(sent >= Some(LENGTH), || {
            format!("{rank} sent {sent:?} bytes on our device: {text}")
        })?;
    }
    Ok(())
}
