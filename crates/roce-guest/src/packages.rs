//! Debian packages, fetched with apt and unpacked below a directory.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::GuestError;

/// The package that depends on the newest stock kernel; the cloud flavour has no `rdma_rxe`.
const KERNEL: &str = "linux-image-amd64";

/// Packages with the guest's programs and their libraries.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "dash",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libbpf1",
    "libbsd0",
    "libc6",
    "libcap2",
    "libelf1",
    "libgcc-s1",
    "libibumad3",
    "libibverbs-dev",
    "libibverbs1",
    "libmd0",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpci3",
    "librdmacm-dev",
    "librdmacm1",
    "libudev1",
    "libxtables12",
    "perftest",
    "rdmacm-utils",
    "zlib1g",
];

/// A program of this machine that is needed to build or boot a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Finds packages; available on Debian and its derivatives only.
    AptCache,
    /// Fetches packages.
    AptGet,
    /// Unpacks packages.
    DpkgDeb,
    /// Compiles this project's programs for the guest.
    Cc,
    /// Lists the libraries that a program needs.
    Readelf,
    /// Emulates the guest's hardware.
    Qemu,
}

impl Tool {
    /// All tools.
    pub const ALL: [Self; 6] =
        [Self::AptCache, Self::AptGet, Self::DpkgDeb, Self::Cc, Self::Readelf, Self::Qemu];

    /// Returns the name of the program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::AptCache => "apt-cache",
            Self::AptGet => "apt-get",
            Self::DpkgDeb => "dpkg-deb",
            Self::Cc => "cc",
            Self::Readelf => "readelf",
            Self::Qemu => "qemu-system-x86_64",
        }
    }

    /// Returns the Debian package with the program.
    pub const fn package(self) -> &'static str {
        match self {
            Self::AptCache | Self::AptGet => "apt",
            Self::DpkgDeb => "dpkg",
            Self::Cc => "gcc",
            Self::Readelf => "binutils",
            Self::Qemu => "qemu-system-x86",
        }
    }

    /// Returns true if the program is in `PATH`.
    pub fn is_installed(self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|directory| directory.join(self.program()).is_file())
    }
}

/// Returns the tools that this machine lacks; a guest needs all tools.
pub fn missing_tools() -> Vec<Tool> {
    Tool::ALL.into_iter().filter(|tool| !tool.is_installed()).collect()
}

/// Runs a tool and returns its standard output.
pub(crate) fn run_tool(
    tool: Tool,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<String, GuestError> {
    let program = tool.program();
    if !tool.is_installed() {
        return Err(GuestError::MissingTool { program, package: tool.package() });
    }
    let mut command = Command::new(program);
    arguments(&mut command).stdin(Stdio::null()).env("LC_ALL", "C");
    let output = command.output().map_err(GuestError::io(format!("start {program}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = stderr.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(GuestError::ToolFailed {
            command: words(&command),
            status: output.status.to_string(),
            stderr: tail.join("\n"),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    all.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// The guest's packages in their current versions.
#[derive(Debug)]
pub(crate) struct Selection {
    packages: Vec<String>,
    /// Names of the package files, which contain the versions.
    pub(crate) files: BTreeSet<String>,
}

impl Selection {
    /// Asks apt for the current versions.
    ///
    /// # Errors
    /// If apt does not know a package. Without package lists, this fetches them as root; for another
    /// user the error says so.
    pub(crate) fn current() -> Result<Self, GuestError> {
        let first = Self::known_to_apt();
        if first.is_ok() || run_tool(Tool::AptGet, |apt| apt.args(["-q", "update"])).is_err() {
            return first;
        }
        Self::known_to_apt()
    }

    fn known_to_apt() -> Result<Self, GuestError> {
        let depends = run_tool(Tool::AptCache, |apt| apt.args(["depends", KERNEL]))?;
        let kernel = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with("linux-image-"))
            .ok_or_else(|| GuestError::NotInPackages {
                what: "a kernel image".into(),
                needed_by: format!("the package {KERNEL}"),
            })?;
        let packages: Vec<String> =
            PACKAGES.iter().copied().chain([kernel]).map(str::to_owned).collect();
        // One line per package: 'address' file size checksum
        let files = run_tool(Tool::AptGet, |apt| {
            apt.args(["-q", "--print-uris", "download"]).args(&packages)
        })?;
        let files =
            files.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect();
        Ok(Self { packages, files })
    }

    /// Fetches the packages that `directory/packages` lacks, and unpacks all into `directory/root`.
    pub(crate) fn unpack(&self, directory: &Path) -> Result<PathBuf, GuestError> {
        let packages = directory.join("packages");
        let root = directory.join("root");
        make_directory(&packages)?;
        for old in list(&packages)?.into_iter().filter(|name| !self.files.contains(name)) {
            let path = packages.join(old);
            fs::remove_file(&path).map_err(GuestError::io(format!("remove {}", path.display())))?;
        }
        // apt skips packages that are there in the right version.
        run_tool(Tool::AptGet, |apt| {
            apt.args(["-q", "download"]).args(&self.packages).current_dir(&packages)
        })?;
        if root.exists() {
            fs::remove_dir_all(&root)
                .map_err(GuestError::io(format!("remove {}", root.display())))?;
        }
        make_directory(&root)?;
        for package in list(&packages)?.into_iter().filter(|name| name.ends_with(".deb")) {
            run_tool(Tool::DpkgDeb, |dpkg| dpkg.arg("-x").arg(packages.join(package)).arg(&root))?;
        }
        Ok(root)
    }
}

/// Returns the sorted names in a directory.
pub(crate) fn list(directory: &Path) -> Result<Vec<String>, GuestError> {
    let doing = || GuestError::io(format!("list {}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(doing())? {
        names.push(entry.map_err(doing())?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Creates a directory and its parents.
pub(crate) fn make_directory(path: &Path) -> Result<(), GuestError> {
    fs::create_dir_all(path).map_err(GuestError::io(format!("make {}", path.display())))
}
