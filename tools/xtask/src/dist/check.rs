//! Installs the package in a new Debian 12 root, and runs programs there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use roce_netns::{Host, Link, VirtualNetwork};

use crate::{Result, host, workspace};

/// Installs and runs; prints a line for each place.
///
/// # Errors
/// If the root cannot be made, or a program does not print what it should.
pub(super) fn run(package: &Path) -> Result<()> {
    host::install_missing(host::ROOT_TOOLS)?;
    let base = base()?;
    let files = prepare_files()?;
    let private = PrivateHost::new()?;
    for place in PLACES {
        let started = Instant::now();
        let output = in_root(&private.host, &base, package, &files, place.command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_shown = place.shows.iter().all(|word| text.contains(word));
        if !output.status.success() || !is_shown {
            let errors = String::from_utf8_lossy(&output.stderr);
            let (command, status) = (place.command, output.status);
            return Err(format!("{}: {command}: {status}\n{text}\n{errors}", place.name).into());
        }
        println!(
            "   ok {} ({:.1} s): {}",
            place.name,
            started.elapsed().as_secs_f32(),
            place.command
        );
    }
    Ok(())
}

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

/// A host with one interface that has a carrier and an address.
struct PrivateHost {
    host: Host,
    /// Has the other end of the link.
    _peer: Host,
}

impl PrivateHost {
    fn new() -> Result<Self> {
        let network = VirtualNetwork::new()?;
        let (host, peer) = (network.host("installed")?, network.host("peer")?);
        network.veth((&host, "eth0"), (&peer, "eth0"), Link { mtu: 1500 })?;
        host.address("eth0", "10.9.0.1/24".parse()?)?;
        Ok(Self { host, _peer: peer })
    }
}

/// Runs a line in a copy of the root that has the package, and has been used by nothing else.
fn in_root(host: &Host, base: &Path, package: &Path, files: &Path, line: &str) -> Result<Output> {
    let mount_point = workspace::target().join("dist-root");
    fs::create_dir_all(&mount_point)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"]);
    command.arg(include_str!("in_root.sh")).arg("in_root.sh");
    command.args([base, &mount_point, package, files]).arg(line);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The root has no other variables and locales than these.
    command.env_clear().env("LC_ALL", "C.UTF-8").env("PATH", PATH);
    Ok(host.spawn(command)?.wait_with_output()?)
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns a folder that is copied into the root: a program that takes the rights of a container and
/// then becomes another program, one that loads the library as NCCL does, and a script that reads the
/// devices.
fn prepare_files() -> Result<PathBuf> {
    let folder = workspace::target().join("dist-check");
    fs::create_dir_all(&folder)?;
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

/// Returns a folder with a minimal Debian 12 and the programs that are run; makes it if there is none.
fn base() -> Result<PathBuf> {
    let base = workspace::target().join("debian-12");
    let made_of = base.with_extension("packages");
    if base.exists() && fs::read_to_string(&made_of).is_ok_and(|packages| packages == PACKAGES) {
        return Ok(base);
    }
    if !host::is_root() {
        return Err("a Debian 12 root is made by root only".into());
    }
    let started = Instant::now();
    let unfinished = base.with_extension("part");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include", PACKAGES, RELEASE]);
    debootstrap.arg(&unfinished).arg(mirror()?).stdin(Stdio::null());
    if let Some(proxy) = proxy()? {
        debootstrap.env("http_proxy", proxy);
    }
    let output = debootstrap.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let end = crate::stages::last_lines(&text);
        return Err(format!("debootstrap: {}\n{end}", output.status).into());
    }
    if base.exists() {
        fs::remove_dir_all(&base)?;
    }
    fs::rename(&unfinished, &base)?;
    fs::write(made_of, PACKAGES)?;
    println!("   ok Debian 12 root ({:.1} s): {}", started.elapsed().as_secs_f32(), base.display());
    Ok(base)
}

/// What the root has besides the essential packages.
const PACKAGES: &str = "ibverbs-utils,perftest,ucx-utils,hwloc-nox,infiniband-diags";

/// Debian 12.
const RELEASE: &str = "bookworm";

/// Returns the mirror from which apt installs packages of the release.
fn mirror() -> Result<String> {
    let arguments = ["indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)"];
    let text = output_of(Command::new("apt-get").args(arguments).arg("Created-By: Packages"))?;
    let sites =
        text.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [site, RELEASE, "main"] => Some(site.to_owned()),
            _ => None,
        });
    sites.into_iter().next().ok_or_else(|| "apt has no source of Debian 12; add one".into())
}

/// Returns the proxy that apt uses, if it is told one.
fn proxy() -> Result<Option<String>> {
    let text =
        output_of(Command::new("apt-config").args(["shell", "PROXY", "Acquire::http::Proxy"]))?;
    let quoted = text.trim().strip_prefix("PROXY=");
    Ok(quoted.map(|value| value.trim_matches('\'').to_owned()))
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into())
}
