//! librdmacm of several Debian releases on our device: unmodified programs in roots of those releases, with
//! their C library and their librdmacm, and our libibverbs and preloaded library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use roce_netns::{Host, VirtualNetwork};

use crate::debian_root::{BOOKWORM, DebianRoot, Release, SID, TRIXIE};
use crate::{Result, host, workspace};

/// What is run in a root, and what it prints.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Private hosts that run it.
    pub(super) hosts: u8,
    /// A line of the shell without single quotes, with the placeholders of `roce run`.
    pub(super) line: &'static str,
    pub(super) shows: &'static [&'static str],
}

/// A release with what is run there.
struct Row {
    release: Release,
    programs: &'static [Program],
}

const CMTIME: Program = Program {
    name: "cmtime",
    hosts: 2,
    line: "a={peer?}; exec cmtime -c 100 ${a:+-s} $a",
    shows: &["[1] connect ", "[1] disconnect "],
};

/// Prints another table than [`CMTIME`].
const CMTIME_56: Program =
    Program { shows: &["[0] qp_conn               100", "[1] full connect "], ..CMTIME };

/// Has a server that is told to be one, and synchronizes both ends by TCP.
const CMTIME_65: Program = Program {
    line: "a={peer?}; o={address}; if [ $a ]; then l=; else l=-L; fi; \
           exec cmtime -c 100 -b $o -C ${a:-$o} $l",
    ..CMTIME_56
};

const RPING: Program = Program {
    name: "rping",
    hosts: 2,
    line: "a={peer?}; if [ $a ]; then o=\"-c -a $a\"; else o=-s; fi; exec rping $o -v -V -C 100",
    shows: &["ping data: rdma-ping-0: ", "ping data: rdma-ping-99: "],
};

const UDADDY: Program = Program {
    name: "udaddy",
    hosts: 2,
    line: "a={peer?}; exec udaddy ${a:+-s} $a",
    shows: &["test complete", "return status 0"],
};

const RSTREAM: Program = Program {
    name: "rstream",
    hosts: 2,
    line: "a={peer?}; exec rstream -T v -S 70000 -C 100 ${a:+-s} $a",
    shows: &["[0] custom", "[1] custom"],
};

/// Neither end is a server: the sender waits for three seconds until the other has joined.
const MCKEY: Program = Program {
    name: "mckey",
    hosts: 2,
    line: "if [ {rank} = 0 ]; then s=-s; else s=; fi; \
           exec mckey -m 239.1.2.3 -b {address} -c 4 -C 5 $s",
    shows: &["mckey: joined dgid: ::ffff:239.1.2.3 ", "data transfers complete"],
};

/// Calls functions that 60 and later have, whose commands older ones do not write.
const ADDRINFO: Program = Program {
    name: "addrinfo",
    hosts: 1,
    line: "exec /check/addrinfo {address}",
    shows: &["resolved, 16 bytes", "raised 4711"],
};

const ROWS: &[Row] = &[
    Row { release: BOOKWORM, programs: &[CMTIME, RPING, UDADDY, RSTREAM, MCKEY] },
    Row { release: TRIXIE, programs: &[CMTIME_56, RPING, UDADDY, RSTREAM, MCKEY] },
    Row { release: SID, programs: &[CMTIME_65, RPING, UDADDY, RSTREAM, MCKEY, ADDRINFO] },
];

/// What the roots have besides the essential packages.
const PACKAGES: &str = "rdmacm-utils,ibverbs-providers";

/// Makes the roots that are missing, runs the programs in each, and prints a table.
///
/// # Errors
/// If a root cannot be made, or a program does not print what it should.
pub(super) fn run() -> Result<()> {
    host::install_missing(host::RELEASE_TOOLS)?;
    if !workspace::build_for_tests().status()?.success() {
        return Err("the programs do not compile".into());
    }
    let files = prepare_files()?;
    let network = VirtualNetwork::new()?;
    let host = network.host("release")?;
    let mut failures = Vec::new();
    println!("{:<12}{:<11}{:<18}{:<10}", "release", "librdmacm", "C library", "program");
    for row in ROWS {
        let name = format!("rdmacm-{}", row.release.codename);
        let root = DebianRoot::new(&name, row.release, PACKAGES)?;
        let [librdmacm, libc] = versions(&root, &host, &files)?;
        for program in row.programs {
            let started = Instant::now();
            let ended = judge(program, &root, &host, &files);
            let verdict = if ended.is_ok() { "ok" } else { "FAILED" };
            println!(
                "{:<12}{librdmacm:<11}{libc:<18}{:<10}{verdict} ({:.1} s)",
                row.release.name,
                program.name,
                started.elapsed().as_secs_f32(),
            );
            failures.extend(ended.err().map(|error| format!("{}: {error}", row.release.name)));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// Returns the versions of librdmacm and of the C library.
fn versions(root: &DebianRoot, host: &Host, files: &Path) -> Result<[String; 2]> {
    let line = "dpkg-query --show --showformat \"\\${Version}\\n\" \"librdmacm1*\" libc6";
    let output = root.run(host, files, line)?;
    let text = String::from_utf8(output.stdout)?;
    let mut lines = text.lines().filter(|line| !line.is_empty());
    match [lines.next(), lines.next()] {
        // Sorted by the package's name.
        [Some(libc), Some(librdmacm)] => Ok([librdmacm.to_owned(), libc.to_owned()]),
        _ => Err(format!("no versions: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Runs a program in a root. `files` is a folder of [`copy_programs`].
///
/// # Errors
/// If it fails, or does not print what it should.
pub(super) fn judge(program: &Program, root: &DebianRoot, host: &Host, files: &Path) -> Result<()> {
    let line = format!(
        "/check/roce run --local {} --timeout 60 -- sh -c '{}'",
        program.hosts, program.line
    );
    let output = root.run(host, files, &line)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && program.shows.iter().all(|words| text.contains(words)) {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{line}: {}\n{text}\n{errors}", output.status).into())
}

/// Copies the command, its libraries and these programs into a folder of the build, and returns it.
pub(super) fn copy_programs(name: &str, programs: &[&str]) -> Result<PathBuf> {
    let folder = workspace::target().join(name);
    fs::create_dir_all(&folder)?;
    for file in ["roce", "libibverbs.so", "libroce_preload.so"].iter().chain(programs) {
        fs::copy(workspace::target().join("debug").join(file), folder.join(file))?;
    }
    Ok(folder)
}

/// Returns a folder with the command, its libraries, and the program of [`ADDRINFO`].
fn prepare_files() -> Result<PathBuf> {
    let folder = copy_programs("dropin-releases", &[])?;
    let source = folder.join("addrinfo.c");
    fs::write(&source, include_str!("addrinfo.c"))?;
    let compiled =
        Command::new("cc").arg("-o").arg(folder.join("addrinfo")).arg(&source).status()?;
    if compiled.success() { Ok(folder) } else { Err("addrinfo.c does not compile".into()) }
}
