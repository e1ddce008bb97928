//! Installs what is released in new Debian roots, and runs programs there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::installation::{FOLDERS, Installation};
use super::released::Released;
use super::trial::{self, FreshRoot, Line, PRIVATE_HOST, System, Trial, VERSION, WRITE_BANDWIDTH};
use crate::debian_root::{BOOKWORM, DebianRoot, TRIXIE};
use crate::private_host::PrivateHost;
use crate::table::Row;
use crate::{Result, workspace};

/// What there is for an architecture: an installation and what is released of it, in `folder`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artifacts<'a> {
    pub(super) installation: &'a Installation,
    pub(super) released: &'a Released,
    pub(super) folder: &'a Path,
}

/// Installs and runs; prints a line for each place, and returns rows of the table.
///
/// # Errors
/// If a root cannot be made, or a program does not print what it should.
pub(super) fn run(own: Artifacts<'_>, arm64: Option<Artifacts<'_>>) -> Result<Vec<Row>> {
    let private = PrivateHost::new()?;
    let files = prepare_files(own.released)?;
    let bookworm = DebianRoot::new("debian-12", BOOKWORM, PACKAGES)?;
    let trixie = DebianRoot::new("debian-13", TRIXIE, PACKAGES)?;
    let mut rows = Vec::new();
    for root in [&bookworm, &trixie] {
        let place = FreshRoot { root, private: &private, files: own.folder };
        rows.extend(install(own, &place, &[VERSION, WRITE_BANDWIDTH])?);
    }
    run_places(&bookworm, &private, &files)?;
    if let Some(arm64) = arm64 {
        let root = &trial::arm64_root()?;
        // The emulator of programs has no packet sockets that this library could use.
        let place = FreshRoot { root, private: &private, files: arm64.folder };
        rows.extend(install(arm64, &place, &[VERSION, PRIVATE_HOST])?);
    }
    Ok(rows)
}

/// Installs each artifact as a user does, and runs lines then.
fn install(artifacts: Artifacts<'_>, system: &impl System, then: &[Line]) -> Result<Vec<Row>> {
    let Artifacts { installation, released, folder } = artifacts;
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (archive, deb, rpm) = (&released.tarball, &released.deb, &released.rpm);
    let unpacked = name(archive).replace(".tar.gz", "");
    let unpack = format!("tar -xzf {}; PATH=$PWD/{unpacked}/bin:$PATH", name(archive));
    let complete = Line::new(
        "sha256sum --check --quiet SHA256SUMS && test -s roce-*/LICENSE-MIT && echo complete",
        &["complete"],
    );
    let verified = Line::new("rpm --verify --nodeps roce && echo verified", &["verified"]);
    let size = |file: &Path| fs::metadata(file).map(|file| file.len());
    let mut trials = vec![
        (unpack, size(archive)?, Some(complete)),
        (format!("apt install ./{}", name(deb)), size(deb)?, None),
        // Debian's rpm knows none of the packages of dpkg.
        (format!("rpm --install --nodeps {}", name(rpm)), size(rpm)?, Some(verified)),
    ];
    // The folders of the other architecture are in another folder.
    if installation.folder() == folder {
        let bytes = size_of_folders(installation)?;
        trials.push((format!("cp -r {} /usr/local", FOLDERS.join(" ")), bytes, None));
    }
    let mut rows = Vec::new();
    for (line, bytes, more) in trials {
        let then = then.iter().copied().chain(more).collect();
        let trial = Trial { line, setting: String::new(), bytes, then };
        rows.push(trial.run(system)?);
    }
    Ok(rows)
}

/// Returns the bytes of the files in the folders of an installation.
fn size_of_folders(installation: &Installation) -> Result<u64> {
    let mut sum = 0;
    let mut folders: Vec<_> = FOLDERS.map(|name| installation.folder().join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => sum += entry.metadata()?.len(),
            }
        }
    }
    Ok(sum)
}

/// Installs the Debian package, and runs, in each of some places.
fn run_places(root: &DebianRoot, private: &PrivateHost, files: &Path) -> Result<()> {
    for place in PLACES {
        let started = Instant::now();
        let output = root.run(&private.host, files, &line_of(place))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_shown = place.shows.iter().all(|word| text.contains(word));
        let release = root.release().name;
        if !output.status.success() || !is_shown {
            let errors = String::from_utf8_lossy(&output.stderr);
            let (name, command, status) = (place.name, place.command, output.status);
            return Err(format!("{release}, {name}: {command}: {status}\n{text}\n{errors}").into());
        }
        let took = started.elapsed().as_secs_f32();
        println!("   ok {release}, {} ({took:.1} s): {}", place.name, place.command);
    }
    Ok(())
}

const INSTALL_DEB: &str = "dpkg --install /check/package.deb >&2; rm /check/package.deb";

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
        name: "ordinary user",
        command: "setpriv --reuid 65534 --regid 65534 --clear-groups \
                  roce run -- ibv_devinfo 2>&1",
        shows: &["hca_id:\troce0", "UDP sockets"],
    },
    Place {
        name: "ordinary user, capability of the file",
        command: "setcap cap_net_raw+ep /usr/bin/roce; \
                  said=$(setpriv --reuid 65534 --regid 65534 --clear-groups roce run -- ibv_devinfo 2>&1); \
                  echo \"$said\"; echo \"sockets: <$(echo \"$said\" | grep UDP || true)>\"",
        shows: &["hca_id:\troce0", "sockets: <>"],
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

/// Returns the line of a place behind those that install the package, and define `$container`: a seccomp
/// filter like that of container engines, and the capabilities that they leave by default.
fn line_of(place: &Place) -> String {
    const CAPABILITIES: &str = "+chown,+dac_override,+fowner,+fsetid,+kill,+mknod,+net_bind_service,\
        +net_raw,+setfcap,+setgid,+setpcap,+setuid,+sys_chroot,+audit_write";
    let container =
        format!("/check/container setpriv --bounding-set -all,{CAPABILITIES} --inh-caps -all");
    format!("{INSTALL_DEB}; export container='{container}'; {}", place.command)
}

/// Returns a folder that is copied into the roots: the package, a program that takes the rights of a container and
/// then becomes another program, one that loads the library as NCCL does, and a script that reads the
/// devices.
fn prepare_files(released: &Released) -> Result<PathBuf> {
    let folder = workspace::target().join("dist-check");
    fs::create_dir_all(&folder)?;
    fs::copy(&released.deb, folder.join("package.deb"))?;
    let tests = workspace::root().join("tools/roce/tests/it/run");
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
const PACKAGES: &str =
    "hwloc-nox,ibverbs-utils,infiniband-diags,libcap2-bin,perftest,rpm,ucx-utils";
