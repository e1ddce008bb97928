//! The programs of newer Debian releases and their Python suite on our libibverbs: the tables of the program
//! `dropin`, in roots of those releases.

use std::ffi::OsString;

use roce_netns::VirtualNetwork;

use super::releases::copy_programs;
use super::valkey;
use crate::debian_root::{DebianRoot, Release, SID, TRIXIE};
use crate::{Result, workspace};

/// What the roots have besides the essential packages.
const PACKAGES: &str = "ibverbs-providers,ibverbs-utils,iproute2,libfabric-bin,perftest,python3-pyverbs,\
                        qperf,rdmacm-utils,ucx-utils";

/// The tables whose programs are in [`PACKAGES`].
const TABLES: &[&str] = &[
    "ibverbs-utils",
    "perftest, all sizes",
    "perftest, options",
    "perftest",
    "perftest, rdma_cm",
    "rdmacm-utils",
    "rdmacm-utils, rsockets",
    "qperf",
    "libfabric",
    "Python",
];

/// Tables of UCX. That of sid (1.23.0~rc1-1) is built without the transports of InfiniBand (`libuct_ib`).
const UCX: &[&str] = &["UCX", "UCX, rdma_cm"];

/// A release, and the tables that it has besides [`TABLES`].
const ROWS: &[(Release, &[&str])] = &[(TRIXIE, UCX), (SID, &[])];

/// Makes the roots that are missing, prints the tables of each, and runs valkey. The arguments are passed on
/// to the tables.
///
/// # Errors
/// If a root cannot be made, or a line is red.
pub(super) fn run(arguments: &[OsString]) -> Result<()> {
    if !workspace::build_for_tests().status()?.success() {
        return Err("the programs do not compile".into());
    }
    let files = copy_programs("dropin-suite", &["dropin"])?;
    let network = VirtualNetwork::new()?;
    let host = network.host("release")?;
    let mut red = Vec::new();
    for &(release, further) in ROWS {
        let root = DebianRoot::new(&format!("suite-{}", release.codename), release, PACKAGES)?;
        println!("{}", release.name);
        let mut line = "/check/dropin --no-guest".to_owned();
        for table in TABLES.iter().chain(further) {
            line += &format!(" --table '{table}'");
        }
        for argument in arguments {
            line += &format!(" '{}'", argument.to_string_lossy().replace('\'', "'\\''"));
        }
        let output = root.run(&host, &files, &line)?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            red.push(release.name);
        }
    }
    if let Err(error) = valkey::run(&host, &files) {
        eprintln!("{error}");
        red.push("valkey");
    }
    if red.is_empty() { Ok(()) } else { Err(format!("red lines: {}", red.join(", ")).into()) }
}
