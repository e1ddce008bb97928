//! Installs the package in a new Debian 12 root, and runs programs there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::released::Released;
use crate::debian_root::{BOOKWORM, DebianRoot, TRIXIE};
use crate::private_host::PrivateHost;
use crate::{Result, workspace};

/// Installs and runs; prints a line for each place.
///
/// # Errors
/// If a root cannot be made, or a program does not print what it should.
pub(super) fn run(released: &Released) -> Result<()> {
    let private = PrivateHost::new()?;
    let files = prepare_files(released)?;
    let bookworm = DebianRoot::new("debian-12", BOOKWORM, PACKAGES)?;
    run_places("deb, Debian 12", &bookworm, &private, &files, (INSTALL_DEB, PLACES))?;
    run_places("tar, Debian 12", &bookworm, &private, &files, (UNPACK, BASIC_PLACES))?;
    run_places("rpm, Debian 12", &bookworm, &private, &files, (INSTALL_RPM, BASIC_PLACES))?;
    let trixie = DebianRoot::new("debian-13", TRIXIE, PACKAGES)?;
    run_places("deb, Debian 13", &trixie, &private, &files, (INSTALL_DEB, BASIC_PLACES))?;
    run_places("tar, Debian 13", &trixie, &private, &files, (UNPACK, BASIC_PLACES))
}

/// Installs by a line of the shell, and runs, in each of some places.
fn run_places(
    name: &str,
    root: &DebianRoot,
    private: &PrivateHost,
    files: &Path,
    (install, places): (&str, &[Place]),
) -> Result<()> {
    for place in places {
        let started = Instant::now();
        let output = root.run(&private.host, files, &line_of(install, place))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_shown = place.shows.iter().all(|word| text.contains(word));
        if !output.status.success() || !is_shown {
            let errors = String::from_utf8_lossy(&output.stderr);
            let (command, status) = (place.command, output.status);
            return Err(
                format!("{name}, {}: {command}: {status}\n{text}\n{errors}", place.name).into()
            );
        }
        let took = started.elapsed().as_secs_f32();
        println!("   ok {name}, {} ({took:.1} s): {}", place.name, place.command);
    }
    Ok(())
}

const INSTALL_DEB: &str = "dpkg --install /check/package.deb >&2; rm /check/package.deb";

/// As a user without a package manager does.
const UNPACK: &str = "tar -xzf /check/archive.tar.gz -C /opt; set -- /opt/roce-*; PATH=$1/bin:$PATH; test -s $1/LICENSE-MIT";

/// Debian's rpm knows none of the packages of dpkg.
const INSTALL_RPM: &str =
    "rpm --install --nodeps /check/package.rpm >&2; rpm --verify --nodeps roce";

/// What each archive and package must do.
const BASIC_PLACES: &[Place] = &[
    Place {
        name: "version",
        command: "roce --version",
        shows: &[concat!("roce ", env!("CARGO_PKG_VERSION"))],
    },
    Place {
        name: "private hosts",
        command: "roce run --local 2 -- ib_write_bw -n 1000",
        shows: &["[0]", "[1]", "65536      1000"],
    },
];

/// A line that is run in a root with the package, and what it prints.
struct Place {
    name: &'static str,
    /// A line of the shell.
    command: &'static str,
    shows: &'static [&'static str],
}

const DEVICE: &[&str] = &["hca_id:\troce0", "PORT_ACTIVE", "Ethernet"];

/// Fails unless each of its readings finds the device.
const READINGS: &str = "roce run -- sh /check/readings.sh /check/loader eth0";

const PLACES: &[Place] = &[
    Place { name: "root", command: "roce run -- ibv_devinfo", shows: DEVICE },
    Place {
        name: "root, files by mount",
        command: "roce run --view mount -- ls /sys/class/infiniband /dev/infiniband",
        shows: &["roce0", "uverbs0"],
    },
    Place {
        name: "root, private hosts",
        command: "roce run --local 2 -- ib_write_bw -n 1000",
        shows: &["[0]", "[1]", "65536      1000"],
    },
    Place {
        name: "ordinary user, private hosts",
        command: "setpriv --reuid 65534 --regid 65534 --clear-groups \
                  roce run --local 2 -- ib_write_bw -n 1000",
        shows: &["[0]", "[1]", "65536      1000"],
    },
    Place {
        name: "container's rights",
        command: "$container roce run -- ibv_devinfo",
        shows: DEVICE,
    },
    Place {
        name: "container's rights, files by preload",
        command: "$container roce run -- ls /sys/class/infiniband /dev/infiniband",
        shows: &["roce0", "uverbs0"],
    },
    Place { name: "root, all readings", command: READINGS, shows: &["counters: yes"] },
    Place {
        name: "ordinary user, all readings",
        command: "setpriv --reuid 65534 --regid 65534 --clear-groups \
                  roce run --local 1 -- sh /check/readings.sh /check/loader eth0",
        shows: &["counters: yes"],
    },
    Place {
        name: "container's rights, all readings",
        command: "$container roce run -- sh /check/readings.sh /check/loader eth0",
        shows: &["counters: yes"],
    },
    Place {
        name: "removed",
        command: r#"dpkg --purge roce; left=$(find / -xdev -iname '*roce*' ! -iname '*rocess*'); echo "left: <$left>""#,
        shows: &["left: <>"],
    },
];

/// Returns the line of a place behind those that install, and define `$container`: a seccomp
/// filter like that of container engines, and the capabilities that they leave by default.
fn line_of(install: &str, place: &Place) -> String {
    const CAPABILITIES: &str = "+chown,+dac_override,+fowner,+fsetid,+kill,+mknod,+net_bind_service,\
        +net_raw,+setfcap,+setgid,+setpcap,+setuid,+sys_chroot,+audit_write";
    let container =
        format!("/check/container setpriv --bounding-set -all,{CAPABILITIES} --inh-caps -all");
    format!("{install}; export container='{container}'; {}", place.command)
}

/// Returns a folder that is copied into the roots: what is released, a program that takes the rights of a container and
/// then becomes another program, one that loads the library as NCCL does, and a script that reads the
/// devices.
fn prepare_files(released: &Released) -> Result<PathBuf> {
    let folder = workspace::target().join("dist-check");
    fs::create_dir_all(&folder)?;
    fs::copy(&released.deb, folder.join("package.deb"))?;
    fs::copy(&released.rpm, folder.join("package.rpm"))?;
    fs::copy(&released.tarball, folder.join("archive.tar.gz"))?;
    let tests = workspace::root().join("tools/roce/tests/run");
    fs::copy(tests.join("readings.sh"), folder.join("readings.sh"))?;
    compile(&folder.join("container"), &[tests.join("container.c")], &[])?;
    let programs = workspace::root().join("tests/programs");
    let sources = [programs.join("loader/loader.c"), programs.join("common/check.c")];
    let include = format!("-I{}", programs.join("common").display());
    compile(&folder.join("loader"), &sources, &["-D_GNU_SOURCE", &include])?;
    Ok(folder)
}

fn compile(program: &Path, sources: &[PathBuf], flags: &[&str]) -> Result<()> {
    let compiled = Command::new("cc").args(flags).arg("-o").arg(program).args(sources).status()?;
    if compiled.success() { Ok(()) } else { Err(format!("{sources:?} do not compile").into()) }
}

/// What the root has besides the essential packages.
const PACKAGES: &str = "ibverbs-utils,perftest,ucx-utils,hwloc-nox,infiniband-diags,rpm";
