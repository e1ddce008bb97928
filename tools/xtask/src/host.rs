//! What this machine offers, and getting what it lacks.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use roce_guest::{Architecture, Tool};

use crate::{Result, workspace};

/// What a command needs from the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A program in `PATH`.
    Program(&'static str),
    /// A file.
    File(&'static str),
    /// A module of Debian's Python, whose folder has the number of its version.
    PythonModule(&'static str),
    /// A compiler for MPI that finds `mpi.h`. The program `mpicc` alone shows nothing: Debian has
    /// it in another package than the header.
    MpiCompiler,
}

use Need::{File, MpiCompiler, Program, PythonModule};

/// A need, and the Debian package that meets it.
pub(crate) type Requirement = (Need, &'static str);

/// For counting instructions.
pub(crate) const PROFILING_TOOLS: &[Requirement] = &[(Program("valgrind"), "valgrind")];

/// The interpreter of Debian's packages. Another may come first in `PATH`.
pub(crate) const DEBIANS_PYTHON: &str = "/usr/bin/python3";

/// Debian's installer of Python packages.
pub(crate) const PYTHON_INSTALLER: &[Requirement] =
    &[(File("/usr/lib/python3/dist-packages/pip/__init__.py"), "python3-pip")];

/// For fuzzing, besides cargo-fuzz.
pub(crate) const FUZZING_TOOLS: &[Requirement] = &[(Program("c++"), "g++")];

/// Makes sure that what building and booting a guest of an architecture needs is installed.
///
/// As root it installs what is missing.
///
/// # Errors
/// Otherwise the text has the one line to run, or says that this system has no apt.
pub(crate) fn install_guest_tools(architecture: Architecture) -> Result<()> {
    let _one = one_at_a_time();
    let missing = roce_guest::missing_tools(architecture);
    if missing.contains(&Tool::AptGet) || missing.contains(&Tool::AptCache) {
        return Err("this system has no apt, and the guest is made of Debian packages".into());
    }
    install(missing.iter().map(|tool| tool.package()).collect())?;
    match roce_guest::missing_tools(architecture).first() {
        None => Ok(()),
        Some(tool) => Err(format!("{} is still missing", tool.program()).into()),
    }
}

/// Makes sure that this user may make the tap that a guest's network card is on.
///
/// # Errors
/// The text has the line to run as root.
pub(crate) fn check_tap_access() -> Result<()> {
    const TUN: &str = "/dev/net/tun";
    match fs::OpenOptions::new().read(true).write(true).open(TUN) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(format!("{TUN} may not be opened by this user; as root run: chmod 0666 {TUN}")
                .into())
        }
        Err(error) => Err(format!("{TUN}: {error}; as root run: modprobe tun").into()),
    }
}

/// Debian packages of the programs that start, or look at, what the tests of tier 1 make, and of what
/// they compile with.
pub(crate) const NETWORK_TOOLS: &[Requirement] = &[
    (Program("mpirun"), "openmpi-bin"),
    (Program("tshark"), "tshark"),
    (Program("tcpdump"), "tcpdump"),
    (Program("musl-gcc"), "musl-tools"),
    (Program("chromium"), "chromium"),
    (Program("nft"), "nftables"),
    (Program("ethtool"), "ethtool"),
    (Program("ip"), "iproute2"),
    (Program("setpriv"), "util-linux"),
    (Program("setcap"), "libcap2-bin"),
    (Program("cc"), "gcc"),
    (Program("nm"), "binutils"),
    (Program("valgrind"), "valgrind"),
    (Program("gdb"), "gdb"),
    (File("/usr/include/infiniband/verbs.h"), "libibverbs-dev"),
    (File("/usr/include/infiniband/ib.h"), "librdmacm-dev"),
    (Program("ibv_devinfo"), "ibverbs-utils"),
    (Program("ib_write_bw"), "perftest"),
    (Program("rping"), "rdmacm-utils"),
    (Program("ucx_info"), "ucx-utils"),
    (Program("ibstat"), "infiniband-diags"),
    (Program("lstopo-no-graphics"), "hwloc-nox"),
    (File("/usr/lib/python3/dist-packages/numpy/__init__.py"), "python3-numpy"),
];

/// Debian packages of what the bench measures beside ours, and of what it makes networks with.
pub(crate) const BENCH_PROGRAMS: &[Requirement] = &[
    (Program("iperf3"), "iperf3"),
    (Program("sockperf"), "sockperf"),
    (Program("ucx_perftest"), "ucx-utils"),
    (Program("ib_write_bw"), "perftest"),
    (Program("rstream"), "rdmacm-utils"),
    (Program("mpirun"), "openmpi-bin"),
    (MpiCompiler, "libopenmpi-dev"),
    (Program("c++"), "g++"),
    (Program("nft"), "nftables"),
    (Program("ethtool"), "ethtool"),
];

/// Debian packages of the libraries with which the bench runs and compiles programs.
pub(crate) const BENCH_LIBRARIES: &[Requirement] = &[
    (File("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"), "librdmacm1"),
    (File("/usr/include/gloo/config.h"), "libgloo-dev"),
    (File("/usr/include/infiniband/verbs.h"), "libibverbs-dev"),
];

/// Debian packages of the unmodified programs that run on our library.
pub(crate) const DROPIN_PROGRAMS: &[Requirement] = &[
    (Program("ibv_devinfo"), "ibverbs-utils"),
    (Program("ib_write_bw"), "perftest"),
    (Program("rping"), "rdmacm-utils"),
    (File("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"), "librdmacm1"),
    (Program("iperf3"), "iperf3"),
    (Program("curl"), "curl"),
    (Program("merecat"), "merecat"),
    (Program("qperf"), "qperf"),
    (Program("dtest"), "dapl2-utils"),
    (File("/usr/share/doc/rdma-core/tests/run_tests.py"), "python3-pyverbs"),
    (Program("ucx_perftest"), "ucx-utils"),
    (Program("fi_pingpong"), "libfabric-bin"),
    (Program("mpirun"), "openmpi-bin"),
    (MpiCompiler, "libopenmpi-dev"),
    (Program("qemu-system-x86_64"), "qemu-system-x86"),
    (Program("fio"), "fio"),
    (Program("tgtadm"), "tgt"),
    (Program("iscsi-test-cu"), "libiscsi-bin"),
    (Program("ruby"), "ruby"),
    (Program("ceph-mon"), "ceph-mon"),
    (Program("ceph-osd"), "ceph-osd"),
    (Program("ceph"), "ceph-common"),
    (File("/usr/lib/x86_64-linux-gnu/libprofiler.so.0"), "libgoogle-perftools4"),
];

/// Debian packages of what lays out and packs an installation.
pub(crate) const PACKAGING_TOOLS: &[Requirement] = &[
    (Program("strip"), "binutils"),
    (Program("objdump"), "binutils"),
    (Program("dpkg-deb"), "dpkg"),
    (Program("gzip"), "gzip"),
    (Program("tar"), "tar"),
    (Program("rpmbuild"), "rpm"),
];

/// Debian packages of what lays out an installation for arm64.
pub(crate) const ARM64_PACKAGING_TOOLS: &[Requirement] = &[
    (Program("aarch64-linux-gnu-strip"), "binutils-aarch64-linux-gnu"),
    (Program("aarch64-linux-gnu-objdump"), "binutils-aarch64-linux-gnu"),
];

/// Debian packages of what links and runs tests for arm64.
pub(crate) const ARM64_TOOLS: &[Requirement] = &[
    (Program("aarch64-linux-gnu-gcc"), "gcc-aarch64-linux-gnu"),
    (File("/usr/aarch64-linux-gnu/lib/libc.so.6"), "libc6-dev-arm64-cross"),
    (Program("qemu-aarch64-static"), "qemu-user-static"),
];

/// For both sides of a pingpong with a guest.
pub(crate) const PINGPONG_PROGRAMS: &[Requirement] =
    &[(Program("ibv_rc_pingpong"), "ibverbs-utils")];

/// Debian packages of what makes a virtual environment for the tools of wheels.
pub(crate) const WHEEL_TOOLS: &[Requirement] = &[(PythonModule("ensurepip"), "python3-venv")];

/// Debian packages of what makes a Debian root and enters it.
pub(crate) const ROOT_TOOLS: &[Requirement] = &[
    (Program("debootstrap"), "debootstrap"),
    (Program("unshare"), "util-linux"),
    (Program("mount"), "mount"),
    (Program("cc"), "gcc"),
];

/// Debian packages of what compiles a program for the roots of several releases.
pub(crate) const RELEASE_TOOLS: &[Requirement] =
    &[(Program("cc"), "gcc"), (File("/usr/include/rdma/rdma_cma.h"), "librdmacm-dev")];

/// Debian packages of what runs programs for arm64 in a root.
const ARM64_EMULATOR: &[Requirement] = &[
    (Program("qemu-aarch64-static"), "qemu-user-static"),
    (File("/usr/sbin/update-binfmts"), "binfmt-support"),
];

/// Makes sure that the kernel starts programs for arm64 by QEMU's emulator, also in roots that have none.
///
/// # Errors
/// If the emulator cannot be installed, or the kernel does not take it.
pub(crate) fn enable_arm64_programs() -> Result<()> {
    install_missing(ARM64_EMULATOR)?;
    let output =
        Command::new("/usr/sbin/update-binfmts").args(["--enable", "qemu-aarch64"]).output()?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("the kernel starts no programs for arm64: {errors}").into())
}

/// Makes sure that rustc has the standard library of a target; rustup fetches it where it is missing.
pub(crate) fn install_standard_library(target: &str) -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print=target-libdir", "--target", target])
        .current_dir(workspace::root())
        .output()?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && Path::new(&folder).is_dir() {
        return Ok(());
    }
    let status = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(workspace::root())
        .status()
        .map_err(|error| format!("rustc has no {target}, and rustup: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("rustup did not add {target}").into()) }
}

/// Makes sure that all requirements of a list are met.
///
/// # Errors
/// As [`install_guest_tools`].
pub(crate) fn install_missing(requirements: &[Requirement]) -> Result<()> {
    let _one = one_at_a_time();
    install(missing_packages(requirements, &env::var_os("PATH").unwrap_or_default()))
}

/// Returns the packages of what is not met with the programs of `path`, a value of `PATH`.
fn missing_packages(requirements: &[Requirement], path: &OsStr) -> Vec<&'static str> {
    let missing = requirements.iter().filter(|(need, _)| !need.is_met(path));
    missing.map(|(_, package)| *package).collect()
}

impl Need {
    fn is_met(self, path: &OsStr) -> bool {
        match self {
            Program(name) => find(name, path).is_some(),
            File(path) => Path::new(path).exists(),
            PythonModule(name) => {
                let mut python = Command::new(DEBIANS_PYTHON);
                python.arg("-c").arg(format!("import {name}"));
                python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                python.status().is_ok_and(|status| status.success())
            }
            MpiCompiler => find("mpicc", path).is_some_and(|mpicc| {
                let mut compiler = Command::new(mpicc);
                compiler.args(["-fsyntax-only", "-include", "mpi.h", "-x", "c", "/dev/null"]);
                compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                compiler.status().is_ok_and(|status| status.success())
            }),
        }
    }
}

/// Stages that run beside each other install one after the other: apt refuses a second, and what the first
/// installs the second need not.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    INSTALLING.lock().unwrap_or_else(PoisonError::into_inner)
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
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Whether a program is found in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    find(program, &env::var_os("PATH").unwrap_or_default()).is_some()
}

fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether this process may install packages.
pub(crate) fn is_root() -> bool {
    // Uid: real, effective, saved, file system
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write_script(folder: &Path, name: &str, body: &str) {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_bench_gets_the_mpi_headers_where_mpicc_is_there_and_does_not_find_them() {
        let folder = env::temp_dir().join(format!("roce-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (need, _) in BENCH_PROGRAMS {
            if let Program(name) = need {
                write_script(&folder, name, "exit 0");
            }
        }
        let missing = || missing_packages(BENCH_PROGRAMS, folder.as_os_str());
        assert_eq!(missing(), ["libopenmpi-dev"], "no mpicc");
        // As of `openmpi-bin`: fatal error: mpi.h: No such file or directory.
        write_script(&folder, "mpicc", r#"case "$*" in *mpi.h*) exit 1; esac"#);
        assert_eq!(missing(), ["libopenmpi-dev"], "mpicc without headers");
        write_script(&folder, "mpicc", "exit 0");
        assert_eq!(missing(), [""; 0], "mpicc with headers");
        fs::remove_dir_all(&folder).unwrap();
    }
}
