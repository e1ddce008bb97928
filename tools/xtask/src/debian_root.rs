//! Minimal Debian roots of several releases, made by debootstrap.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use roce_netns::Host;

use crate::{Result, host, workspace};

/// A release of Debian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// Its name for a reader.
    pub(crate) name: &'static str,
    /// Its name in archives.
    pub(crate) codename: &'static str,
    /// Debian's name of the architecture, unless it is that of this machine.
    pub(crate) emulated: Option<&'static str>,
}

/// Debian 12.
pub(crate) const BOOKWORM: Release =
    Release { name: "Debian 12", codename: "bookworm", emulated: None };
/// Debian 13.
pub(crate) const TRIXIE: Release =
    Release { name: "Debian 13", codename: "trixie", emulated: None };
/// Debian 13 for arm64, whose programs QEMU runs.
pub(crate) const TRIXIE_ARM64: Release =
    Release { name: "Debian 13 for arm64", codename: "trixie", emulated: Some("arm64") };
/// The release that new packages come to.
pub(crate) const SID: Release = Release { name: "Debian sid", codename: "sid", emulated: None };

/// A folder with a minimal Debian and some packages.
///
/// It is below that of the build, and stays as it is until it is removed, or other packages are wanted.
#[derive(Debug)]
pub(crate) struct DebianRoot {
    folder: PathBuf,
    release: Release,
}

impl DebianRoot {
    /// Returns the root of a name with these packages, separated by commas; makes it if there is none.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn new(name: &str, release: Release, packages: &str) -> Result<Self> {
        Self::built(name, release, packages, "")
    }

    /// As [`new`](Self::new), and behind the packages runs a line of the shell in the root, with this
    /// machine's network: what it leaves there stays.
    ///
    /// # Errors
    /// If the root cannot be made, or the line fails.
    pub(crate) fn built(name: &str, release: Release, packages: &str, line: &str) -> Result<Self> {
        host::install_missing(host::ROOT_TOOLS)?;
        if release.emulated.is_some() {
            host::enable_arm64_programs()?;
        }
        let folder = workspace::target().join(name);
        let made_of = folder.with_extension("packages");
        let parts = [packages, line].join("\n").trim_end().to_owned();
        if folder.exists() && fs::read_to_string(&made_of).is_ok_and(|made| made == parts) {
            return Ok(Self { folder, release });
        }
        if !host::is_root() {
            return Err(format!("a root of {} is made by root only", release.name).into());
        }
        let started = Instant::now();
        let unfinished = folder.with_extension("part");
        workspace::remove_folder(&unfinished)?;
        bootstrap(release, packages, &unfinished)?;
        if !line.is_empty() {
            build(&unfinished, line)?;
        }
        workspace::remove_folder(&folder)?;
        fs::rename(&unfinished, &folder)?;
        fs::write(made_of, parts)?;
        let took = started.elapsed().as_secs_f32();
        println!("   ok {} root ({took:.1} s): {}", release.name, folder.display());
        Ok(Self { folder, release })
    }

    /// Returns its release.
    pub(crate) fn release(&self) -> Release {
        self.release
    }

    /// Runs a line of the shell in a copy of the root that has been used by nothing else, on a host of its
    /// own. `files` is a folder; the copy has it as `/check`.
    ///
    /// # Errors
    /// If the shell cannot be started.
    pub(crate) fn run(&self, host: &Host, files: &Path, line: &str) -> Result<Output> {
        let mount_point = workspace::target().join("debian-root");
        fs::create_dir_all(&mount_point)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"]);
        command.arg(include_str!("debian_root/enter.sh")).arg("enter.sh");
        command.args([&self.folder, &mount_point, files]).arg(line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The root has no other variables and locales than these.
        command.env_clear().env("LC_ALL", "C.UTF-8").env("PATH", PATH).env("HOME", "/root");
        Ok(host.spawn(command)?.wait_with_output()?)
    }
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn bootstrap(release: Release, packages: &str, folder: &Path) -> Result<()> {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(release.emulated.map(|architecture| format!("--arch={architecture}")));
    debootstrap.args(["--variant=minbase", "--include", packages, release.codename]);
    debootstrap.arg(folder).arg(roce_guest::debian_mirror()?).stdin(Stdio::null());
    if let Some(proxy) = proxy()? {
        debootstrap.env("http_proxy", proxy);
    }
    let output = debootstrap.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let end = crate::stages::last_lines(&text);
    Err(format!("debootstrap: {}\n{end}", output.status).into())
}

/// Runs a line of the shell in a root with this machine's network.
fn build(root: &Path, line: &str) -> Result<()> {
    // The resolver's file of the root is none of this network.
    fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf"))?;
    let mut command = Command::new("chroot");
    command.arg(root).args(["sh", "-euc", line]).stdin(Stdio::null());
    command.env_clear().env("LC_ALL", "C.UTF-8").env("PATH", PATH).env("HOME", "/root");
    if let Some(proxy) = proxy()? {
        command.env("http_proxy", proxy);
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Err(format!("{line}: {}\n{}", output.status, crate::stages::last_lines(&text)).into())
}

/// Returns the proxy that apt uses, if it is told one.
fn proxy() -> Result<Option<String>> {
    let output =
        Command::new("apt-config").args(["shell", "PROXY", "Acquire::http::Proxy"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let quoted = text.trim().strip_prefix("PROXY=");
    Ok(quoted.map(|value| value.trim_matches('\'').to_owned()))
}
