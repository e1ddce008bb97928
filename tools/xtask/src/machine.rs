//! What this machine offers, and getting what it lacks.

use std::env;
use std::fs;
use std::process::Command;

use roce_guest::Tool;

use crate::Result;

/// Debian packages of the programs that count instructions.
const PROFILING_TOOLS: &[(&str, &str)] = &[("valgrind", "valgrind")];

/// Debian packages of programs, by the program to look for.
const FUZZING_TOOLS: &[(&str, &str)] = &[("c++", "g++")];

/// Makes sure that what building and booting a guest needs is installed.
///
/// As root it installs what is missing.
///
/// # Errors
/// Otherwise the text has the one line to run, or says that this system has no apt.
pub(crate) fn get_guest_tools() -> Result<()> {
    let missing = roce_guest::missing_tools();
    if missing.contains(&Tool::AptGet) || missing.contains(&Tool::AptCache) {
        return Err("this system has no apt, and the guest is made of Debian packages".into());
    }
    install(missing.iter().map(|tool| tool.package()).collect())?;
    match roce_guest::missing_tools().first() {
        None => Ok(()),
        Some(tool) => Err(format!("{} is still missing", tool.program()).into()),
    }
}

/// Makes sure that this user may make the tap that a guest's network card is on.
///
/// # Errors
/// The text has the line to run as root.
pub(crate) fn may_make_taps() -> Result<()> {
    const TUN: &str = "/dev/net/tun";
    match fs::OpenOptions::new().read(true).write(true).open(TUN) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(format!("{TUN} is not for everybody here; as root run: chmod 0666 {TUN}").into())
        }
        Err(error) => Err(format!("{TUN}: {error}; as root run: modprobe tun").into()),
    }
}

/// Debian packages of the programs that start, or look at, what the tests of tier 1 make.
const NETWORK_TOOLS: &[(&str, &str)] = &[
    ("mpirun", "openmpi-bin"),
    ("tshark", "tshark"),
    ("chromium", "chromium"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
];

/// Makes sure that what the tests of tier 1 need besides namespaces is installed.
///
/// # Errors
/// As [`get_guest_tools`].
pub(crate) fn get_network_tools() -> Result<()> {
    install_missing(NETWORK_TOOLS)
}

/// Debian packages of what the bench measures beside ours, and of what it makes networks with.
const BENCH_PEERS: &[(&str, &str)] = &[
    ("iperf3", "iperf3"),
    ("sockperf", "sockperf"),
    ("ucx_perftest", "ucx-utils"),
    ("mpirun", "openmpi-bin"),
    ("mpicc", "libopenmpi-dev"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
];

/// Makes sure that the bench's peers are installed.
///
/// # Errors
/// As [`get_guest_tools`].
pub(crate) fn get_bench_peers() -> Result<()> {
    install_missing(BENCH_PEERS)
}

/// Debian packages of what records stacks and finds their functions.
const PROFILER: &[(&str, &str)] =
    &[("perf", "linux-perf"), ("addr2line", "binutils"), ("iperf3", "iperf3")];

/// Makes sure that what profiling needs is installed.
///
/// # Errors
/// As [`get_guest_tools`].
pub(crate) fn get_profiler() -> Result<()> {
    install_missing(PROFILER)
}

/// Makes sure that what fuzzing needs besides cargo-fuzz is installed.
///
/// # Errors
/// As [`get_guest_tools`].
pub(crate) fn get_fuzzing_tools() -> Result<()> {
    install_missing(FUZZING_TOOLS)
}

/// Makes sure that what counting instructions needs is installed.
///
/// # Errors
/// As [`get_guest_tools`].
pub(crate) fn get_profiling_tools() -> Result<()> {
    install_missing(PROFILING_TOOLS)
}

fn install_missing(tools: &[(&'static str, &'static str)]) -> Result<()> {
    let missing = tools.iter().filter(|(program, _)| !is_installed(program));
    install(missing.map(|(_, package)| *package).collect())
}

fn install(mut packages: Vec<&str>) -> Result<()> {
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let line = format!(
        "apt-get update && apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if !is_installed("apt-get") {
        return Err(format!("needs what Debian has in {}", packages.join(", ")).into());
    }
    if !is_root() {
        return Err(format!("as root run: {line}").into());
    }
    println!("   installing: {}", packages.join(" "));
    let output = Command::new("sh")
        .args(["-c", &line])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Whether a program is found in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether this process may install packages.
pub(crate) fn is_root() -> bool {
    // Uid: real, effective, saved, file system
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}
