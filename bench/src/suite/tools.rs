//! Which programs there are, and where.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::report::ExternalProgram;

/// Debian's place of the library that makes rsockets of a program's sockets.
pub(crate) const LIBRSPRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// Programs of others that are measured or needed: name, Debian package, how to ask for the
/// version.
pub const EXTERNAL_PROGRAMS: &[(&str, &str, &str)] = &[
    ("iperf3", "iperf3", "--version"),
    ("sockperf", "sockperf", "--version"),
    ("ucx_perftest", "ucx-utils", "-h"),
    ("ib_write_bw", "perftest", "--version"),
    ("ib_write_lat", "perftest", "--version"),
    ("rstream", "rdmacm-utils", "-h"),
    (LIBRSPRELOAD, "librdmacm1", ""),
    ("mpirun", "openmpi-bin", "--version"),
    ("mpicc", "libopenmpi-dev", "--version"),
    ("nft", "nftables", "--version"),
    ("ethtool", "ethtool", "--version"),
];

/// Where programs are, and what ours understands.
#[derive(Clone, Debug)]
pub struct Tools {
    folder: PathBuf,
    missing: BTreeSet<&'static str>,
    /// Options of `roce perf`, as its help lists them.
    perf_help: String,
    external_programs: Vec<ExternalProgram>,
}

impl Tools {
    /// Looks for ours in a folder, and for others in `PATH`.
    pub fn find(folder: &Path) -> Self {
        let mut missing = BTreeSet::new();
        for program in OURS {
            if !folder.join(program).is_file() {
                missing.insert(*program);
            }
        }
        let mut external_programs = Vec::new();
        for (program, package, ask) in EXTERNAL_PROGRAMS {
            let found = is_installed(program);
            if !found {
                missing.insert(*program);
            }
            external_programs.push(ExternalProgram {
                program: (*program).to_owned(),
                version: found.then(|| version(program, ask)),
                package: (*package).to_owned(),
            });
        }
        let help = Command::new(folder.join("roce")).args(["perf", "--help"]).output();
        let help = help.map(|output| output.stdout).unwrap_or_default();
        let perf_help = String::from_utf8_lossy(&help).into_owned();
        Self { folder: folder.to_owned(), missing, perf_help, external_programs }
    }

    /// Where ours are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// One of our own programs.
    pub fn ours(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// A command line without the path of this checkout.
    pub(crate) fn shorten(&self, line: &str) -> String {
        let folder = format!("{}/", self.folder.display());
        let here = env!("CARGO_MANIFEST_DIR");
        line.replace(&folder, "target/release/").replace(here, "bench")
    }

    /// Why a candidate that needs these programs cannot run.
    pub fn lacks(&self, needs: &[&'static str]) -> Option<String> {
        let program = needs.iter().find(|program| self.missing.contains(**program))?;
        Some(match EXTERNAL_PROGRAMS.iter().find(|(name, ..)| name == program) {
            Some((_, package, _)) => format!("{program} is not installed (package {package})"),
            None => format!("{program} is not built"),
        })
    }

    /// Whether `roce perf` has an option.
    pub fn perf_has(&self, option: &str) -> bool {
        self.perf_help.split_whitespace().any(|word| word == option)
    }

    /// What there is of other programs.
    pub fn external_programs(&self) -> &[ExternalProgram] {
        &self.external_programs
    }
}

/// Ours, all built with this crate or beside it.
const OURS: &[&str] = &[
    "roce",
    "raw_trains",
    "raw_pingpong",
    "raw_allreduce",
    "raw_exchange",
    "sockets_pingpong",
    "sockets_rate",
    "idle_qps",
    "wake_up",
    "allreduce_mpi",
    "allreduce_gloo",
];

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// The first line of what it says that has a digit.
fn version(program: &str, ask: &str) -> String {
    let output = Command::new(program).arg(ask).stdin(Stdio::null()).output();
    let Ok(output) = output else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.contains(|letter: char| letter.is_ascii_digit()));
    // Some print colours even into a pipe.
    line.unwrap_or_default().chars().filter(|letter| !letter.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Tools;

    #[test]
    fn what_is_not_there_is_named_with_what_brings_it() {
        let tools = Tools::find(Path::new("/nowhere"));
        assert_eq!(tools.lacks(&["roce"]).as_deref(), Some("roce is not built"));
        assert_eq!(tools.lacks(&[]), None);
        let known = tools.external_programs().iter().find(|peer| peer.program == "iperf3").unwrap();
        let told = tools.lacks(&["iperf3"]);
        assert_eq!(told.is_some(), known.version.is_none());
        assert!(told.is_none_or(|told| told.contains("package iperf3")));
        assert!(!tools.perf_has("--cpu"));
    }

    #[test]
    fn a_command_line_says_nothing_of_where_the_checkout_lies() {
        let tools = Tools::find(Path::new("/some/where/target/release"));
        let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/mpi/enter.sh");
        let line = format!("mpirun {agent} {}", tools.ours("allreduce_mpi").display());
        assert_eq!(tools.shorten(&line), "mpirun bench/mpi/enter.sh target/release/allreduce_mpi");
    }
}
