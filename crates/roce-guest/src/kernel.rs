//! Which kernel a guest boots, and where apt finds it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::GuestError;
use crate::architecture::Architecture;
use crate::mirror::debian_mirror;
use crate::tool::{Tool, make_directory, run_tool};

/// The kernel of a guest, and with it the Debian release of its programs: the one that the kernel's suite
/// belongs to.
///
/// ```
/// use roce_guest::{Architecture, Kernel};
/// let newer = Kernel::of_suite("bookworm-backports").unwrap();
/// assert_eq!(newer.directory(Architecture::X86_64), "guest-bookworm-backports");
/// assert_eq!(Kernel::Stock.directory(Architecture::X86_64), "guest");
/// assert_eq!(Kernel::of_suite("../sid"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// That of this machine's Debian release.
    #[default]
    Stock,
    /// The newest of another suite of the Debian archive, such as `bookworm-backports`; with
    /// `trixie-backports` the programs, rdma-core among them, are those of `trixie`.
    Suite(String),
}

/// Keys of the Debian archive, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Kernel {
    /// Environment variable that [`from_environment`](Self::from_environment) reads.
    pub const VARIABLE: &'static str = "ROCE_GUEST_KERNEL";

    /// Returns the kernel of a suite; `None` for a name that no suite has.
    pub fn of_suite(name: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (!name.is_empty() && name.chars().all(is_plain)).then(|| Self::Suite(name.to_owned()))
    }

    /// Returns the kernel that [`VARIABLE`](Self::VARIABLE) names, or the stock one.
    pub fn from_environment() -> Self {
        let name = env::var(Self::VARIABLE).unwrap_or_default();
        Self::of_suite(&name).unwrap_or_default()
    }

    /// Returns the kernel of a suite that an option may name; without it as
    /// [`from_environment`](Self::from_environment).
    ///
    /// # Errors
    /// [`GuestError::NoSuite`] for a name that no suite has.
    pub fn chosen(suite: Option<&str>) -> Result<Self, GuestError> {
        let Some(name) = suite else { return Ok(Self::from_environment()) };
        Self::of_suite(name).ok_or_else(|| GuestError::NoSuite(name.to_owned()))
    }

    /// Returns the name of the folder for its image, below that of builds.
    pub fn directory(&self, architecture: Architecture) -> String {
        let suffix = architecture.properties().directory_suffix;
        match self {
            Self::Stock => format!("guest{suffix}"),
            Self::Suite(name) => format!("guest{suffix}-{name}"),
        }
    }

    /// Returns the release whose programs the guest has, if it is not that of this machine: the one that the
    /// suite belongs to.
    pub(crate) fn other_release(&self) -> Option<&str> {
        let Self::Suite(name) = self else { return None };
        let release = name.split('-').next().unwrap_or(name);
        (this_release().as_deref() != Some(release)).then_some(release)
    }

    /// Fetches the lists of the packages with the programs, unless this machine's own have them, and returns
    /// the options with which apt reads them.
    ///
    /// # Errors
    /// As [`lists_of`]; [`GuestError::NoMirror`] if this system is of no release of Debian.
    pub(crate) fn lists_of_programs(
        &self,
        architecture: Architecture,
        directory: &Path,
    ) -> Result<Vec<String>, GuestError> {
        let release = match self.other_release() {
            Some(release) => release.to_owned(),
            None if architecture.is_of_this_machine() => return Ok(Vec::new()),
            None => this_release().ok_or(GuestError::NoMirror)?,
        };
        lists_of(&release, architecture, &directory.join("apt-programs"))
    }

    /// Finds the package of the kernel; `programs` are the options from
    /// [`lists_of_programs`](Self::lists_of_programs).
    ///
    /// # Errors
    /// If apt does not know one.
    pub(crate) fn find(
        &self,
        architecture: Architecture,
        directory: &Path,
        programs: &[String],
    ) -> Result<KernelPackage, GuestError> {
        let options = match self {
            Self::Suite(suite) => lists_of(suite, architecture, &directory.join("apt"))?,
            Self::Stock => programs.to_vec(),
        };
        // The package that depends on the newest kernel; the cloud flavour has no `rdma_rxe`.
        let newest = format!("linux-image-{}", architecture.properties().debian);
        let depends =
            run_tool(Tool::AptCache, |apt| apt.args(&options).args(["depends", &newest]))?;
        let name = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with("linux-image-"))
            .ok_or_else(|| GuestError::NotInPackages {
                what: "a kernel image".into(),
                needed_by: format!("the package {newest}"),
            })?;
        let mut names = vec![name.to_owned()];
        let depends = run_tool(Tool::AptCache, |apt| apt.args(&options).args(["depends", name]))?;
        names.extend(parts_of(&depends));
        Ok(KernelPackage { names, options })
    }
}

/// Fetches the lists of a suite for an architecture into a folder of their own, so that this machine's stay as
/// they are, and returns the options with which apt reads them.
///
/// # Errors
/// If they cannot be fetched, or apt has no mirror of Debian.
fn lists_of(
    suite: &str,
    architecture: Architecture,
    apt: &Path,
) -> Result<Vec<String>, GuestError> {
    let sources = apt.join("sources.list");
    for folder in ["lists/partial", "cache/archives/partial"] {
        make_directory(&apt.join(folder))?;
    }
    let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", debian_mirror()?);
    fs::write(&sources, line).map_err(GuestError::io(format!("write {}", sources.display())))?;
    let option = |name: &str, path: PathBuf| format!("-oDir::{name}={}", path.display());
    let options = vec![
        option("Etc::SourceList", sources),
        option("Etc::SourceParts", "/dev/null".into()),
        option("State::Lists", apt.join("lists")),
        option("Cache", apt.join("cache")),
        "-oAPT::Sandbox::User=root".to_owned(),
        format!("-oAPT::Architecture={}", architecture.properties().debian),
        format!("-oAPT::Architectures={}", architecture.properties().debian),
    ];
    run_tool(Tool::AptGet, |apt| apt.args(&options).args(["-q", "update"]))?;
    Ok(options)
}

/// Returns the codename of this machine's release.
fn this_release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    codename_of(&text).map(str::to_owned)
}

/// Returns the codename in the text of `/etc/os-release`.
fn codename_of(text: &str) -> Option<&str> {
    let value = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    value.map(|value| value.trim_matches('"'))
}

/// Returns the packages with the parts of a kernel, from what `apt-cache depends` says of its image: newer
/// ones have the program, modules and their lists in packages of their own.
fn parts_of(depends: &str) -> Vec<String> {
    let packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let starts = ["linux-base-", "linux-binary-", "linux-modules-"];
    packages
        .filter(|it| starts.iter().any(|start| it.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

/// The packages of a kernel.
#[derive(Debug)]
pub(crate) struct KernelPackage {
    pub(crate) names: Vec<String>,
    /// Options with which apt finds them.
    pub(crate) options: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_several_packages_has_its_program_and_modules_in_them() {
        let split = "linux-image-7.3-amd64\n  Depends: linux-base\n |Depends: dracut\n  \
                     Depends: linux-binary-7.3-amd64\n  Depends: linux-modules-7.3-amd64\n";
        assert_eq!(parts_of(split), ["linux-binary-7.3-amd64", "linux-modules-7.3-amd64"]);
        assert_eq!(parts_of("linux-image-6.1\n  Depends: kmod\n"), [""; 0]);
    }

    #[test]
    fn programs_are_of_the_release_that_the_suite_belongs_to() {
        assert_eq!(codename_of("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename_of("VERSION_CODENAME=\"noble\"\n"), Some("noble"));
        assert_eq!(codename_of("ID=arch\n"), None);
        assert_eq!(Kernel::Stock.other_release(), None);
        let other = Kernel::of_suite("other-backports").unwrap();
        assert_eq!(other.other_release(), Some("other"));
    }
}
